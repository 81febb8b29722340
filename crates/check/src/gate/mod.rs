//! The gate of a run, as the supervisor sees it: whether it is closed, and what passed it.
//!
//! Knows: the gate's counters in the log, the process of the gate outside the driver VM.
//!
//! Must not know: the policy that closes the gate, how the tracer holds an access.

pub mod outside;
pub mod process;

use crate::plan::GateKind;
use guardrail_gate::process::State;
use guardrail_report::{Gate, GateSpace};
use guardrail_trace::log::{Closed, GateStats, Log, SpaceCounts};
use guardrail_trace::pci::PciAddress;
use std::time::Duration;

/// The devices to cut off, and the reason; `None` while the gate is open.
pub fn closed(log: &Log) -> Option<(Vec<PciAddress>, String)> {
    let why = log.gate_closed()?;
    Some((log.gated(), why.to_string()))
}

/// What passed the gate, for the report. `outside` is the last state of the gate outside the driver VM, `took` how long it
/// took to cut the device off.
pub fn report(kind: GateKind, log: &Log, outside: Option<&State>, took: Option<Duration>) -> Option<Gate> {
    if kind == GateKind::Off {
        return None;
    }
    let stats = log.gate_stats();
    let GateStats { memory, port, config, posted } = stats;
    let space = |counts: SpaceCounts| GateSpace {
        held: counts.held,
        dropped: counts.dropped,
        ungated: counts.ungated,
    };
    let nanos = stats.spaces().map(|space| space.wait_nanos).iter().sum::<u64>();
    let beyond = outside.map(|state| outside::report(state, &stats));
    // Accesses that arrived there without being held here.
    let unknown = beyond.as_ref().map_or(0, |beyond| beyond.unknown);
    let longest = stats.spaces().map(|space| space.longest_nanos).into_iter().max().unwrap_or(0);
    Some(Gate {
        kind: kind.word().to_owned(),
        held: stats.held(),
        posted,
        dropped: stats.dropped(),
        ungated: stats.ungated() + unknown,
        held_seconds: nanos as f64 / 1e9,
        longest_microseconds: longest as f64 / 1e3,
        since: log.gated_since().map(|micros| micros as f64 / 1e6),
        // The end of the run closes the gate, too.
        closed: log
            .gate_closed()
            .filter(|why| *why != Closed::Unchecked || log.failed().is_some())
            .map(|why| why.to_string())
            .or_else(|| outside.and_then(|state| state.counts.contained.clone())),
        cut_milliseconds: took.map(|took| took.as_secs_f64() * 1e3),
        spaces: [("memory", memory), ("port", port), ("config", config)]
            .map(|(name, counts)| (name.to_owned(), space(counts)))
            .into(),
        outside: beyond,
    })
}
