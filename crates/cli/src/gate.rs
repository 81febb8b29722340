//! The gate of a run, as the supervisor sees it: its orders to the tracer, what went through it, and hooks at findings.

use crate::args::{CheckArgs, Gate, Mode, ScheduleName};
use crate::errors::{CliError, tell};
use crate::outside;
use crate::policy::Policy;
use crate::wire::Found;
use guardrail_finding::Finding;
use guardrail_gate::process::State;
use guardrail_report::{Gate as Told, GateSpace};
use guardrail_trace::log::{Closed, GateStats, Log, Schedule, SpaceCounts};
use guardrail_trace::pci::PciAddress;
use std::collections::HashSet;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a hook may take.
const HOOK_LIMIT: Duration = Duration::from_secs(60);
/// Hooks that run at a time; findings that come meanwhile have none.
const MAX_HOOKS: usize = 16;

/// The policy of a run, where device accesses wait for it.
pub fn policy(args: &CheckArgs) -> Result<Option<Policy>, CliError> {
    let policy = Policy::open(args.mode, args.policy.as_deref())?;
    match (args.gate, args.mode) {
        (Gate::Off, Mode::Permissive) => Ok(None),
        (Gate::Off, _) => Err(CliError::Usage(
            "--mode stringent and --mode triage need a gate that they can close; add --gate vmm or --gate vfio-user".into(),
        )),
        (Gate::Vmm | Gate::VfioUser, _) => Ok(Some(policy)),
    }
}

/// What the analysis does while there is nothing to read.
pub fn schedule(args: &CheckArgs) -> Schedule {
    match (args.gate, args.schedule) {
        // Nobody waits for it.
        (Gate::Off, ScheduleName::Interrupt) => Schedule::Napping,
        (_, ScheduleName::Interrupt) => Schedule::Interrupt,
        (_, ScheduleName::Polling) => Schedule::Polling,
        (_, ScheduleName::Yielding) => Schedule::Yielding,
    }
}

/// The devices to cut off, and why, once the gate is closed.
pub fn closed(log: &Log) -> Option<(Vec<PciAddress>, String)> {
    let why = log.gate_closed()?;
    Some((log.gated(), why.to_string()))
}

/// What went through the gate, for the report.
///
/// `outside` is the gate outside the driver VM, as it stood at the end.
pub fn told(args: &CheckArgs, log: &Log, outside: Option<&State>) -> Option<Told> {
    if args.gate == Gate::Off {
        return None;
    }
    let stats = log.gate_stats();
    let GateStats { memory, port, config } = stats;
    let space = |counts: SpaceCounts| GateSpace {
        held: counts.held,
        dropped: counts.dropped,
        ungated: counts.ungated,
    };
    let nanos = stats.spaces().map(|space| space.wait_nanos).iter().sum::<u64>();
    let told = outside.map(|state| outside::told(state, &stats));
    // What arrived there and was not held here.
    let unknown = told.as_ref().map_or(0, |told| told.unknown);
    let longest = stats.spaces().map(|space| space.longest_nanos).into_iter().max().unwrap_or(0);
    Some(Told {
        kind: args.gate.word().to_owned(),
        held: stats.held(),
        dropped: stats.dropped(),
        ungated: stats.ungated() + unknown,
        held_seconds: nanos as f64 / 1e9,
        longest_microseconds: longest as f64 / 1e3,
        since: log.gated_since().map(|micros| micros as f64 / 1e6),
        // That the run is over closes it, too.
        closed: log
            .gate_closed()
            .filter(|why| *why != Closed::Unchecked || log.failed().is_some())
            .map(|why| why.to_string())
            .or_else(|| outside.and_then(|state| state.counts.contained.clone())),
        spaces: [("memory", memory), ("port", port), ("config", config)]
            .map(|(name, counts)| (name.to_owned(), space(counts)))
            .into(),
        outside: told,
    })
}

/// The user's commands that run at findings.
pub struct Hooks {
    command: Option<String>,
    told: HashSet<String>,
    running: Vec<(Child, Instant)>,
}

impl Hooks {
    /// None has run yet.
    pub fn new(command: Option<&str>) -> Hooks {
        Hooks { command: command.map(str::to_owned), told: HashSet::new(), running: Vec::new() }
    }

    /// Starts the command for a finding.
    pub fn run(&mut self, found: &Found) {
        let Some(text) = self.command.clone().filter(|_| self.told.insert(found.id.clone())) else { return };
        self.reap();
        if self.running.len() >= MAX_HOOKS {
            return tell("guardrail", &format!("too many hooks are running; none for finding {}", found.id));
        }
        let child = Command::new("/bin/sh")
            .arg("-c")
            .arg(text)
            .env("GUARDRAIL_FINDING", &found.id)
            .env("GUARDRAIL_CHECKER", &found.checker)
            .env("GUARDRAIL_KIND", &found.kind)
            .env("GUARDRAIL_MESSAGE", &found.message)
            .env("GUARDRAIL_ACTION", &found.action)
            .stdin(Stdio::null())
            // Standard output is the report's.
            .stdout(std::io::stderr())
            .spawn();
        match child {
            Ok(child) => self.running.push((child, Instant::now())),
            Err(error) => tell("guardrail", &format!("cannot run the hook at finding {}: {error}", found.id)),
        }
    }

    /// Runs the command for findings that came with the end of the run, waits for all that still run, and ends those that take
    /// too long.
    pub fn finish(&mut self, findings: &[Finding]) {
        for finding in findings {
            self.run(&Found {
                id: finding.id.clone(),
                checker: finding.checker.clone(),
                kind: finding.kind.clone(),
                message: finding.message.clone(),
                action: finding.action.clone().unwrap_or_default(),
                waits: false,
            });
        }
        while !self.running.is_empty() {
            self.reap();
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn reap(&mut self) {
        self.running.retain_mut(|(child, since)| match child.try_wait() {
            Ok(Some(status)) if !status.success() => {
                tell("guardrail", &format!("the hook at a finding failed: {status}"));
                false
            }
            Ok(Some(_)) | Err(_) => false,
            Ok(None) if since.elapsed() > HOOK_LIMIT => {
                tell(
                    "guardrail",
                    &format!("the hook at a finding took more than {} s and was ended", HOOK_LIMIT.as_secs()),
                );
                let _ = child.kill();
                let _ = child.wait();
                false
            }
            Ok(None) => true,
        });
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        for (child, _) in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
