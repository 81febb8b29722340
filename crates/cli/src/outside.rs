//! The gate outside the driver VM (`--gate vfio-user`), a process of its own (`guardrail internal-gate`): its policy, and what the
//! supervisor asks of it.
//!
//! The tracer holds accesses inside the driver VM, as with `--gate vmm`. What arrives here has been admitted, so this gate does not
//! hold it again: it passes while the log's gate is open, and it drops everything once that is closed, whoever made the
//! access. It counts what arrives, so that an access which got around the tracer is noticed.

use crate::args::{CheckArgs, Gate as Choice};
use crate::errors::CliError;
use guardrail_gate::process::{self, Process, State};
use guardrail_gate::{Access, Gate, Space, Verdict, device, vfio_user};
use guardrail_report::{GateOutside, GateOutsideSpace};
use guardrail_trace::log::{Closed, GateStats, Log};
use guardrail_vm::prepare::Prepared;
use guardrail_vm::run::{self, Options};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often the gate is asked how it stands.
const LOOK: Duration = Duration::from_millis(250);

/// What the gate's process needs for its policy.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    /// The log, whose gate decides.
    log: PathBuf,
    /// The tracer holds accesses, so none may arrive that it did not hold.
    held: bool,
    /// One that does closes the gate.
    strict: bool,
}

/// Accesses that arrived at an open gate since the driver was bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Arrived {
    /// Registers in memory, and ports.
    registers: u64,
    /// Configuration space.
    config: u64,
}

impl Arrived {
    /// How many of them the tracer knows nothing of.
    fn unknown(self, known: &GateStats) -> Arrived {
        let [memory, port, config] = known.spaces().map(|space| space.held + space.ungated);
        Arrived {
            registers: self.registers.saturating_sub(memory + port),
            config: self.config.saturating_sub(config),
        }
    }
}

/// The life of the gate's process.
pub fn serve() -> ExitCode {
    process::serve(|given| {
        let job: Job = serde_json::from_value(given).map_err(|error| error.to_string())?;
        let log = Log::open(&job.log).map_err(|error| error.to_string())?;
        Ok(Arc::new(LogGate { log, job, registers: AtomicU64::new(0), config: AtomicU64::new(0) }))
    })
}

/// Decides as the log says.
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
        // Before the driver is bound, accesses are the kernel's own.
        if self.log.gated_since().is_none() {
            return Verdict::Pass;
        }
        let count = match access.space {
            Space::Bar(_) => &self.registers,
            Space::Config => &self.config,
        };
        count.fetch_add(1, Relaxed);
        // The tracer counts an access before it lets it go, so whoever arrives is counted there already.
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

    fn tell(&self) -> Value {
        let arrived = if self.job.held { self.arrived() } else { Arrived::default() };
        serde_json::to_value(arrived).unwrap_or_default()
    }
}

/// What can be refused without looking at anything.
pub fn refuse_early(args: &CheckArgs) -> Result<(), CliError> {
    if args.gate == Choice::VfioUser && args.iommu {
        let why = "--gate vfio-user cannot be had with --iommu: the device's QEMU does not know the guest's IOMMU tables; \
                   use --gate vmm";
        return Err(CliError::Usage(why.into()));
    }
    Ok(())
}

/// What can be refused before the run begins: drivers whose device cannot stand elsewhere.
pub fn refuse(args: &CheckArgs, prepared: &Prepared) -> Result<(), CliError> {
    if args.gate != Choice::VfioUser {
        return Ok(());
    }
    let bad = |why: String| Err(CliError::Usage(why));
    let Some(device) = &prepared.choice.device else {
        return bad(format!(
            "--gate vfio-user stands between a driver and its PCI device, and none is known for {}; name one with \
             --device, or use --gate vmm",
            prepared.plan.driver.name
        ));
    };
    let options = device::Options {
        model: device.name.clone(),
        devices: device.options.clone(),
        ..device::Options::default()
    };
    if let Err(error) = options.check() {
        return bad(format!("{error}; use --gate vmm"));
    }
    if !prepared.qemu.pci_devices()?.contains(&device.name) {
        return bad(format!(
            "--gate vfio-user stands between a driver and its PCI device, and {} is none; use --gate vmm",
            device.name
        ));
    }
    Ok(())
}

/// A running gate. Dropping it closes it and ends the device.
pub struct Outside {
    process: RefCell<Process>,
    looked: Cell<Instant>,
    /// The process has died, or does not answer.
    lost: Cell<bool>,
}

impl Outside {
    /// Starts the gate, and takes the device out of the driver VM. Call it on the thread that runs the guest: the gate dies with it.
    pub fn start(
        args: &CheckArgs,
        prepared: &Prepared,
        options: &mut Options,
        log: &Path,
        strict: Option<bool>,
    ) -> Result<Outside, CliError> {
        options.device_elsewhere = true;
        let side = run::device_side(prepared, options);
        let device = device::Options {
            model: prepared.choice.device.as_ref().map(|device| device.name.clone()).unwrap_or_default(),
            devices: side.devices,
            arguments: side.arguments,
            ..device::Options::default()
        };
        let gate = vfio_user::Options {
            folder: options.folder.clone(),
            memory_mib: options.memory_mib,
            hold_limit: Duration::from_secs(args.gate_timeout),
            post_writes: false,
            id: run::device_id(prepared).to_owned(),
            device: device.program(&prepared.qemu.command()),
        };
        let program = std::env::current_exe().map_err(CliError::io("find", "the guardrail program"))?;
        let mut command = Command::new(program);
        command.arg("internal-gate");
        let job = Job { log: log.to_path_buf(), held: strict.is_some(), strict: strict == Some(true) };
        let job = serde_json::to_value(job).map_err(|error| CliError::Run(error.to_string()))?;
        let process = Process::start(command, &gate, job).map_err(failed)?;
        options.qemu_arguments.extend(process.qemu_arguments());
        Ok(Outside {
            process: RefCell::new(process),
            looked: Cell::new(Instant::now()),
            lost: Cell::new(false),
        })
    }

    /// Why the gate cannot go on, if so. It is closed then.
    pub fn failure(&self) -> Option<String> {
        let mut process = self.process.borrow_mut();
        if process.is_running() && self.looked.get().elapsed() < LOOK {
            return None;
        }
        self.looked.set(Instant::now());
        match process.state() {
            Ok(state) => state.failure,
            Err(error) => {
                self.lost.set(true);
                Some(error.to_string())
            }
        }
    }

    /// Cuts the device off, and returns when that is so. Where the gate has gone the device has gone with it.
    pub fn contain(&self, why: &str) {
        // `failure` tells of an error soon, and until then no access is answered.
        let _ = self.process.borrow_mut().contain(why);
    }

    /// Ends the gate, and gives what went through it; where it was lost, which the outcome of the run tells, what was last heard.
    pub fn stop(self) -> Result<State, CliError> {
        let process = self.process.into_inner();
        match self.lost.get() {
            true => Ok(process.last().clone()),
            false => process.stop().map_err(failed),
        }
    }
}

fn failed(error: guardrail_gate::Error) -> CliError {
    CliError::Run(error.to_string())
}

/// What went through the gate, for the report.
pub fn told(state: &State, known: &GateStats) -> GateOutside {
    let arrived: Arrived = serde_json::from_value(state.policy.clone()).unwrap_or_default();
    let unknown = arrived.unknown(known);
    let space = |counts: &guardrail_gate::SpaceCounts| GateOutsideSpace {
        passed: counts.reads_passed + counts.writes_passed,
        dropped: counts.reads_dropped + counts.writes_dropped,
    };
    let counts = &state.counts;
    let bars = counts.bars.iter().enumerate().map(|(i, bar)| (format!("bar{i}"), space(bar)));
    let spaces = bars.chain([("config".to_owned(), space(&counts.config))]);
    GateOutside {
        passed: counts.passed(),
        dropped: counts.dropped(),
        interrupts: counts.interrupts,
        interrupts_dropped: counts.interrupts_dropped,
        arrived_registers: arrived.registers,
        arrived_config: arrived.config,
        unknown: unknown.registers + unknown.config,
        spaces: spaces.filter(|(_, space)| space.passed + space.dropped > 0).collect(),
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
        // The kernel looks at the device before there is a driver.
        assert_eq!(gate.admit_now(&access(Space::Config)), Some(Verdict::Pass));
        gate.log.add_gated(PciAddress { bus: 0, devfn: 0x20 });
        gate.log.count_held(Held::Memory, 1, 0);
        gate.log.count_held(Held::Port, 1, 0);
        gate.log.count_held(Held::Config, 1, 0);
        for space in [Space::Bar(0), Space::Bar(1), Space::Config] {
            assert_eq!(gate.admit_now(&access(space)), Some(Verdict::Pass));
        }
        assert_eq!(gate.tell(), serde_json::json!({ "registers": 2, "config": 1 }));
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
            let state = State { policy: gate.tell(), ..State::default() };
            assert_eq!(told(&state, &gate.log.gate_stats()).unknown, 1);
        }
    }
}
