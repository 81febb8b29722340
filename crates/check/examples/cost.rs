//! What the checkers cost an event over a recorded trace. Reading the trace, the kernel and the modules is not in it.
//!
//! `cargo run --release -p guardrail-check --example cost -- TRACE [TOOLS [RUNS [FINDINGS]]]`
//!
//! Without TOOLS, each tool runs alone and then all together. To compare two builds, run both programs in turns, for
//! the speed of a machine changes. The findings of the last run are written to the file FINDINGS, so that they can be
//! compared as well.

use guardrail_check::Reach;
use guardrail_check::cost::Loaded;
use guardrail_host::HostError;
use guardrail_vm::Cache;
use std::path::Path;

const SETS: [&str; 6] = ["dmcheck", "drcheck", "dmacheck", "lockcheck", "protocheck", "all"];

fn main() -> Result<(), HostError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(file) = arguments.first() else {
        eprintln!("usage: cost TRACE [TOOLS [RUNS [FINDINGS]]]");
        std::process::exit(2);
    };
    let sets: Vec<&str> = arguments.get(1).map_or(SETS.to_vec(), |tools| vec![tools.as_str()]);
    let runs: usize = arguments.get(2).and_then(|runs| runs.parse().ok()).unwrap_or(1);
    let reach = Reach::new(&Cache::open()?, &[])?;
    let loaded = Loaded::open(Path::new(file), &reach)?;
    println!(
        "{:>12} {:>12} {:>12} {:>12} {:>9}  tools",
        "events", "blocks", "accesses", "findings", "ns/event"
    );
    for tools in sets {
        for _ in 0..runs {
            let cost = loaded.run(tools)?;
            println!(
                "{:>12} {:>12} {:>12} {:>12} {:>9.1}  {tools}",
                cost.counted.events,
                cost.counted.blocks,
                cost.counted.accesses,
                cost.findings.len(),
                cost.nanoseconds()
            );
            if let Some(file) = arguments.get(3) {
                let findings = serde_json::to_vec_pretty(&(&cost.findings, &cost.counted));
                let findings = findings.map_err(|error| HostError::Run(error.to_string()))?;
                std::fs::write(file, findings).map_err(HostError::io("write", file))?;
            }
        }
    }
    Ok(())
}
