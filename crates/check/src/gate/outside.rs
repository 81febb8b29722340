//! The gate outside the driver VM (`--gate vfio-user`), as the supervisor sees it. The module decides which
//! devices it can serve, and starts, asks and stops it.

use crate::gate::process::{Arrived, Job};
use crate::plan::{GateKind, RunPlan};
use guardrail_gate::process::{Process, State};
use guardrail_gate::{device, vfio_user};
use guardrail_host::HostError;
use guardrail_host::folders::program;
use guardrail_jail::Jail;
use guardrail_report::{GateOutside, GateOutsideSpace};
use guardrail_trace::log::GateStats;
use guardrail_vm::prepare::Prepared;
use guardrail_vm::run::{self, Options};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The time between two questions for the gate's state.
const LOOK: Duration = Duration::from_millis(250);

/// Refuses, before the run begins, drivers whose device cannot run in another QEMU.
pub fn refuse(plan: &RunPlan, prepared: &Prepared) -> Result<(), HostError> {
    if plan.gate != GateKind::VfioUser {
        return Ok(());
    }
    let bad = |why: String| Err(HostError::Usage(why));
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
            "--gate vfio-user stands between a driver and its PCI device, and {} is no PCI device; use --gate vmm",
            device.name
        ));
    }
    Ok(())
}

/// A running gate. Dropping it closes it and ends the device.
pub struct Outside {
    process: RefCell<Process>,
    looked: Cell<Instant>,
    /// Set once the process has died, or does not answer.
    lost: Cell<bool>,
}

impl Outside {
    /// Starts the gate, and takes the device out of the driver VM. Call it on the thread that runs the guest:
    /// the gate ends with that thread.
    pub fn start(
        plan: &RunPlan,
        prepared: &Prepared,
        options: &mut Options,
        log: &Path,
        strict: Option<bool>,
    ) -> Result<Outside, HostError> {
        let side = run::device_side(prepared, options)?;
        let device = device::Options {
            model: prepared.choice.device.as_ref().map(|device| device.name.clone()).unwrap_or_default(),
            devices: side.devices,
            arguments: side.arguments,
            reach: side.reach,
            ..device::Options::default()
        };
        let gate = vfio_user::Options {
            folder: options.folder.clone(),
            memory_mib: options.memory_mib,
            hold_limit: plan.hold_limit,
            post_writes: plan.posts(),
            id: run::device_id(prepared).to_owned(),
            reach: Jail::new().writes(log),
            device: device.program(&prepared.qemu.command()),
        };
        let mut command = Command::new(program()?);
        command.arg("internal-gate");
        let job = Job { log: log.to_path_buf(), held: strict.is_some(), strict: strict == Some(true) };
        let job = serde_json::to_value(job).map_err(|error| HostError::Run(error.to_string()))?;
        let process = Process::start(command, &gate, job).map_err(failed)?;
        options.qemu_arguments.extend(process.qemu_arguments());
        options.inherited.push(process.memory().descriptor());
        // The gate's socket.
        options.reach = std::mem::take(&mut options.reach).unix_sockets();
        Ok(Outside {
            process: RefCell::new(process),
            looked: Cell::new(Instant::now()),
            lost: Cell::new(false),
        })
    }

    /// The number of the gate's process.
    pub fn process(&self) -> u32 {
        self.process.borrow().id()
    }

    /// Why the gate cannot continue; `None` while it can. It is closed then.
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

    /// Cuts the device off, and returns when that is done. Where the gate has ended, the device has ended
    /// with it.
    pub fn contain(&self, why: &str) {
        // `failure` reports an error soon, and until then no access is answered.
        let _ = self.process.borrow_mut().contain(why);
    }

    /// Ends the gate, and returns what passed it. A lost gate, which the outcome of the run reports, returns
    /// its last known state.
    pub fn stop(self) -> Result<State, HostError> {
        let process = self.process.into_inner();
        match self.lost.get() {
            true => Ok(process.last().clone()),
            false => process.stop().map_err(failed),
        }
    }
}

fn failed(error: guardrail_gate::Error) -> HostError {
    HostError::Run(error.to_string())
}

/// What passed the gate, for the report.
pub fn report(state: &State, known: &GateStats) -> GateOutside {
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
