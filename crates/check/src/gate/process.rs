//! The process of the gate outside the driver VM (`guardrail internal-gate`), and its policy.
//!
//! The tracer holds accesses inside the driver VM, as with `--gate vmm`. An access that arrives here was
//! admitted there, so this gate does not hold it again. It passes accesses while the log's gate is open, and
//! drops all of them once that is closed. It counts the accesses that arrive, so that an access which
//! bypassed the tracer is noticed.

use guardrail_gate::process;
use guardrail_gate::{Access, Gate, Space, Verdict};
use guardrail_trace::log::{Closed, GateStats, Log};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The input of the gate's process for its policy.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    /// The path of the log, whose gate decides.
    pub log: PathBuf,
    /// True where the tracer holds accesses, so that none may arrive that it did not hold.
    pub held: bool,
    /// True where an access that the tracer did not hold closes the gate.
    pub strict: bool,
}

/// Accesses that arrived at an open gate since the driver was bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    /// Accesses to registers in memory, and to ports.
    pub registers: u64,
    /// Accesses to configuration space.
    pub config: u64,
}

impl Arrived {
    /// The number of accesses among them that the tracer did not hold.
    pub fn unknown(self, known: &GateStats) -> Arrived {
        let [memory, port, config] = known.spaces().map(|space| space.held + space.ungated);
        Arrived {
            registers: self.registers.saturating_sub(memory + port),
            config: self.config.saturating_sub(config),
        }
    }
}

/// Runs the gate's process.
pub fn serve() -> ExitCode {
    process::serve(|given| {
        let job: Job = serde_json::from_value(given).map_err(|error| error.to_string())?;
        let log = Log::open(&job.log).map_err(|error| error.to_string())?;
        Ok(Arc::new(LogGate { log, job, registers: AtomicU64::new(0), config: AtomicU64::new(0) }))
    })
}

/// The policy: decides as the gate of the log does.
struct LogGate {
    log: Log,
    job: Job,
    registers: AtomicU64,
    config: AtomicU64,
}

impl LogGate {
    fn decide(&self, access: &Access) -> Verdict {
        if self.log.gate_closed().is_some() {
            return Verdict::Drop;
        }
        // Before the driver is bound, accesses are the kernel's.
        if self.log.gated_since().is_none() {
            return Verdict::Pass;
        }
        let count = match access.space {
            Space::Bar(_) => &self.registers,
            Space::Config => &self.config,
        };
        count.fetch_add(1, Relaxed);
        // The tracer counts an access before it releases it, so each access that arrives is counted already.
        if self.job.strict && self.arrived().unknown(&self.log.gate_stats()) != Arrived::default() {
            self.log.close_gate(Closed::Ungated);
            return Verdict::Drop;
        }
        Verdict::Pass
    }

    fn arrived(&self) -> Arrived {
        Arrived { registers: self.registers.load(Relaxed), config: self.config.load(Relaxed) }
    }
}

impl Gate for LogGate {
    fn admit(&self, access: &Access) -> Verdict {
        self.decide(access)
    }

    fn admit_now(&self, access: &Access) -> Option<Verdict> {
        Some(self.decide(access))
    }

    fn closed(&self) -> Option<String> {
        self.log.gate_closed().map(|why| why.to_string())
    }

    fn report(&self) -> Value {
        let arrived = if self.job.held { self.arrived() } else { Arrived::default() };
        serde_json::to_value(arrived).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_trace::log::{LogOptions, Space as Held};
    use guardrail_trace::pci::PciAddress;

    fn gate(folder: &tempfile::TempDir, strict: bool) -> LogGate {
        let path = folder.path().join("log");
        let options = LogOptions { words_per_ring: 1 << 12, ..LogOptions::new(1) };
        let log = Log::create_with(&path, &options).unwrap();
        let job = Job { log: path, held: true, strict };
        LogGate { log, job, registers: AtomicU64::new(0), config: AtomicU64::new(0) }
    }

    fn access(space: Space) -> Access {
        Access { space, offset: 0, size: 4, write: true, value: 0 }
    }

    #[test]
    fn the_gate_passes_what_the_tracer_held_while_the_log_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let gate = gate(&folder, true);
        // The kernel reads from the device before the driver is loaded.
        assert_eq!(gate.admit_now(&access(Space::Config)), Some(Verdict::Pass));
        gate.log.add_gated(PciAddress { bus: 0, devfn: 0x20 });
        gate.log.count_held(Held::Memory, 1, 0);
        gate.log.count_held(Held::Port, 1, 0);
        gate.log.count_held(Held::Config, 1, 0);
        for space in [Space::Bar(0), Space::Bar(1), Space::Config] {
            assert_eq!(gate.admit_now(&access(space)), Some(Verdict::Pass));
        }
        assert_eq!(gate.report(), serde_json::json!({ "registers": 2, "config": 1 }));
        gate.log.close_gate(Closed::Finding);
        assert_eq!(gate.admit_now(&access(Space::Bar(0))), Some(Verdict::Drop));
        assert_eq!(gate.closed().as_deref(), Some("a finding is contained"));
        assert_eq!(gate.arrived().registers, 2);
    }

    #[test]
    fn an_access_that_the_tracer_did_not_hold_is_noticed() {
        for strict in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let gate = gate(&folder, strict);
            gate.log.add_gated(PciAddress { bus: 0, devfn: 0x20 });
            let verdict = if strict { Verdict::Drop } else { Verdict::Pass };
            assert_eq!(gate.admit_now(&access(Space::Bar(0))), Some(verdict));
            assert_eq!(gate.closed().is_some(), strict);
            let unknown = gate.arrived().unknown(&gate.log.gate_stats());
            assert_eq!(unknown.registers + unknown.config, 1);
        }
    }
}
