//! Writes small saved guests as seeds for the fuzzer: `cargo run --example snapshot_seed CORPUS`. The target has a folder
//! of its name there.

use guardrail_snapshot::paging::Space;
use guardrail_snapshot::{Dump, map};
use std::error::Error;
use std::path::Path;

#[path = "../src/tests/core.rs"]
mod core;

fn main() -> Result<(), Box<dyn Error>> {
    let corpus = std::env::args_os().nth(1).ok_or("name a folder")?;
    let folder = Path::new(&corpus).join("core");
    std::fs::create_dir_all(&folder)?;
    let memory = core::small();
    let file = core::core(&memory, memory.len() as u64);
    std::fs::write(folder.join("saved"), &file)?;
    // With the kernel's addresses in its headers.
    let mapped = folder.join("mapped");
    std::fs::write(&mapped, &file)?;
    let dump = Dump::open(&mapped)?;
    for cpu in dump.cpus() {
        map(&dump, &Space::of(&dump, cpu))?;
    }
    Ok(())
}
