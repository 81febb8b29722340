//! A guarded network driver that violates something while an application uses it: it is killed and begins anew, and the application goes on with
//! the connection that it has.

mod common;

use guardrail_kernel::isolation::{Isolation, types};
use guardrail_kernel::{KernelImage, ModuleImage};
use guardrail_rewrite::checks::Checks;
use guardrail_rewrite::interpose::border;
use guardrail_rewrite::{Object, rewrite};
use guardrail_vm::kernels::NAMES;
use guardrail_vm::modules::Modules;
use guardrail_vm::packages::Packages;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::{Options, Outcome};
use guardrail_vm::{Cache, kernels, runtime};
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::Path;

/// What drivers are known by.
const TABLE: &str = include_str!("../../kernel/isolation.txt");
/// A fault, and what the driver is given no right to, so that it violates where it should not: what it fills in for 'ethtool -a', or a field of each
/// frame that it receives.
const FAULTS: [(&str, &str, &str); 2] = [
    (
        "call",
        "kernel_ethtool_ringparam, ethtool_pauseparam (p): lend p sizeof(p)",
        "kernel_ethtool_ringparam (p): lend p sizeof(p)\nargument ethtool_pauseparam (p): nothing",
    ),
    ("receive", "cb, tstamp, protocol, mac_header", "cb, tstamp, mac_header"),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for kernel in NAMES {
        for (fault, right, wrong) in FAULTS {
            let name = format!("a network driver recovers from a fault in a {fault}, on {kernel}");
            let trial = Trial::test(name, move || recovers(kernel, fault, (right, wrong)));
            let sampled = matches!((kernel, fault), ("6.1", "receive") | ("6.12", "call"));
            trials.push(trial.with_ignored_flag(!sampled));
        }
    }
    common::run(arguments, trials)
}

/// A guarded e1000 with a right missing, and the runtime beside it.
fn guard(
    packages: &Packages,
    kernel: &str,
    (right, wrong): (&str, &str),
    folder: &Path,
) -> Result<String, Failed> {
    let kernel = kernels::find(packages, kernel)?;
    let runtime = runtime::ensure(packages, &kernel)?;
    std::fs::copy(&runtime.module, folder.join("guardrail.ko"))?;
    let plan = Modules::of(&kernel)?.plan("e1000")?;
    let driver = ModuleImage::parse("e1000", plan.driver.bytes.clone())?;
    if !TABLE.contains(right) {
        return Err(format!("the table has no '{right}'").into());
    }
    let table = TABLE.replace(right, wrong);
    let isolation = Isolation::with_table(
        ("spoiled", &table),
        types(&KernelImage::open(&kernel.vmlinuz)?, &driver, &[]),
    )?;
    let found = border(&isolation, &Object::read("e1000", &plan.driver.bytes)?);
    let symbols = std::fs::read_to_string(&runtime.symbols)?;
    let mut checks = Checks::new(1).guarded("e1000", &symbols).interposing(found.interposition);
    let path = folder.join("e1000.ko");
    std::fs::write(&path, rewrite("e1000", plan.driver.bytes, &mut [&mut checks])?.file)?;
    Ok(path.display().to_string())
}

/// The driver is killed, and the guest finds all as it was.
fn recovers(kernel: &str, fault: &str, spoiled: (&str, &str)) -> Result<(), Failed> {
    let packages = Packages::new(&Cache::open()?);
    let folder = tempfile::tempdir()?;
    let driver = guard(&packages, kernel, spoiled, folder.path())?;
    let workload = folder.path().join("workload.sh");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let parts = ["../../workloads/device.sh", "tests/guarded/recover.sh"];
    let parts = parts.map(|part| std::fs::read_to_string(root.join(part))).into_iter();
    std::fs::write(&workload, parts.collect::<Result<Vec<_>, _>>()?.concat())?;
    let request = Request { driver: &driver, more: &[], kernel, device: None, workload: workload.to_str() };
    let prepared = Prepared::new(&packages, request, &mut |_| {})?;
    let mut options = Options::new(folder.path());
    options.kernel_arguments = vec!["loglevel=7".to_owned()];
    options.variables.push(("FAULT".to_owned(), fault.to_owned()));
    let ran = common::unwatched(&prepared, options, 300)?;
    let says = |text: &&str| ran.console.contains(*text);
    let bad = ["BUG:", "WARNING:", "Oops", "Call Trace:"].into_iter().find(says);
    match ran.outcome == Outcome::Completed && bad.is_none() {
        true => Ok(()),
        false => Err(format!("{}; {bad:?}\n{}", ran.outcome, ran.console).into()),
    }
}
