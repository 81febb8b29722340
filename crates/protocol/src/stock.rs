//! The protocols of this repository, built into the program.

use crate::{ChartError, Machine, parse};
use guardrail_knowledge::chart;

/// The order of the protocols whose messages are numbered. Others follow by the order of their files.
pub const ORDER: [&str; 6] = ["pci", "irq", "timer", "ethernet", "sata", "audio"];

/// All stock protocols as machines, in [`ORDER`]. An error is a mistake in this repository; a test reads all.
pub fn machines() -> Result<Vec<Machine>, ChartError> {
    let mut all = Vec::new();
    for (path, text) in chart::parse::files() {
        for protocol in parse::file(path, text)? {
            all.push(Machine::new(protocol)?);
        }
    }
    parse::distinct(&all)?;
    let place = |machine: &Machine| ORDER.iter().position(|name| *name == machine.name());
    all.sort_by_key(|machine| place(machine).unwrap_or(ORDER.len()));
    Ok(all)
}
