//! Any saved guest. Either its memory is found, its page tables are walked, and its headers are rewritten, or
//! there is an error.

#![no_main]

use guardrail_snapshot::paging::Space;
use guardrail_snapshot::{Dump, map, thin};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let path = std::env::temp_dir().join(format!("guardrail-fuzz-core-{}", std::process::id()));
    std::fs::write(&path, data).expect("room for a core");
    let Ok(dump) = Dump::open(&path) else { return };
    for cpu in dump.cpus().iter().take(2) {
        let space = Space::of(&dump, cpu);
        std::hint::black_box(space.translate(cpu.rsp));
        std::hint::black_box(space.text(&dump, cpu.rip, 64));
        let mut bytes = [0; 64];
        std::hint::black_box(space.read(&dump, cpu.rsp, &mut bytes));
        let _ = map(&dump, &space);
    }
    let _ = thin(&path);
    let _ = Dump::open(&path).map(|dump| std::hint::black_box(dump.cpus().len()));
});
