//! Random texts for the files through which root sets the runtime: the kernel survives them.

use guardrail_tests::workshop::Workshop;
use guardrail_tests::{Lab, ensure};
use guardrail_vm::Cache;
use guardrail_vm::packages::Packages;
use libtest_mimic::Failed;

const SCRIPT: &str = include_str!("writes.sh");

/// Writes `count` texts into each file, once for each seed, beside a guarded e1000.
pub fn survived(kernel: &str, seeds: std::ops::Range<u32>, count: u32) -> Result<(), Failed> {
    let workshop = Workshop::of(&Packages::new(&Cache::open()?), kernel)?;
    let folder = tempfile::tempdir()?;
    let module = workshop.transacting(&workshop.modules.plan("e1000")?)?;
    let driver = workshop.write(&module, folder.path())?;
    // Each text that is refused is a line of the kernel's log.
    let lab = Lab::with_driver("writes", kernel, &driver, &["--append", "log_buf_len=16M"])?;
    for seed in seeds {
        let said = lab.exec(&format!("SEED={seed}\nCOUNT={count}\n{SCRIPT}"))?;
        let writes = said.lines().find_map(|line| line.strip_suffix(" writes")?.parse::<u32>().ok());
        // A few texts are left out.
        ensure(writes.is_some_and(|writes| writes > count * 8), || format!("seed {seed}: {said}"))?;
    }
    Ok(())
}
