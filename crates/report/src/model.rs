//! The shape of a report: the schema `guardrail/1` as Rust types. Reading is lenient about what may be
//! absent, writing always gives every field that scripts rely on.

use guardrail_finding::Finding;
use serde::{Deserialize, Serialize};

/// The name and version of the schema.
pub const SCHEMA: &str = "guardrail/1";

/// A whole report: one run of one driver and what was found in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// The driver, as `struct module` spells it.
    pub driver: String,
    /// Release of the kernel.
    pub kernel: String,
    /// The tools that looked.
    pub tools: Vec<String>,
    /// `permissive`, `triage` or `stringent`.
    pub mode: String,
    /// What the run was.
    pub run: Run,
    /// What was found, in the order of first occurrence.
    pub findings: Vec<Finding>,
}

/// What the run was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// One word: `completed`, `guest-panic`, …
    pub outcome: String,
    /// More about the outcome: the text of a panic, why loading failed.
    pub detail: Option<String>,
    /// The device that the driver served.
    pub device: Option<String>,
    /// The workload.
    pub workload: Option<String>,
    /// Time from the guest's start to its end.
    pub guest_seconds: f64,
    /// Time of the whole run, analysis included.
    pub wall_seconds: f64,
    /// How long the analysis went on after the guest had ended.
    pub lag_seconds: f64,
    /// From the guest's start until its kernel ran our first program.
    pub boot_seconds: Option<f64>,
    /// The steps of the workload.
    pub steps: Vec<Step>,
    /// Events in the log.
    pub events: u64,
    /// Events that were lost. Anything but 0 is a failed run.
    pub lost_events: u64,
    /// Driver blocks executed.
    pub blocks: u64,
    /// Memory accesses of the driver.
    pub accesses: u64,
    /// Those to devices among them, and port accesses.
    pub device_accesses: u64,
    /// Accesses in the log that no instruction claimed. Anything but 0 is a fault of guardrail.
    pub unclaimed_accesses: u64,
    /// Segments of the log that could not be read to their end. Anything but 0 is a fault of guardrail.
    pub damaged_segments: u64,
    /// How device accesses were held; `null` where they were not.
    pub gate: Option<Gate>,
    /// Instruction forms that the analysis has no exact rule for, and how often they ran.
    pub unknown_instructions: std::collections::BTreeMap<String, u64>,
    /// What a reader should know about the run besides.
    pub notes: Vec<String>,
}

/// How device accesses were held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gate {
    /// `vmm` or `vfio-user`.
    pub kind: String,
    /// Accesses that were held until they were checked, and passed.
    pub held: u64,
    /// Accesses that a closed gate kept from the device.
    pub dropped: u64,
    /// Accesses that reached the device without being held. Anything but 0 is a failed run.
    pub ungated: u64,
    /// Seconds for which accesses were held, together.
    pub held_seconds: f64,
    /// The longest that one was held, in microseconds.
    pub longest_microseconds: f64,
    /// Since when, in seconds since the epoch: the driver was about to be bound to its first device.
    pub since: Option<f64>,
    /// Why the gate was closed, if it was.
    pub closed: Option<String>,
    /// The same counts by address space: `memory`, `port`, `config`.
    pub spaces: std::collections::BTreeMap<String, GateSpace>,
    /// What went through the gate outside the driver VM; `null` where there was none.
    pub outside: Option<GateOutside>,
}

/// What went through the gate outside the driver VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GateOutside {
    /// Accesses that the device got, from the start of the driver VM on: before the driver was bound they are the kernel's own.
    pub passed: u64,
    /// Accesses that it did not get.
    pub dropped: u64,
    /// Interrupts that were handed to the guest.
    pub interrupts: u64,
    /// Interrupts that were not, because the gate was closed.
    pub interrupts_dropped: u64,
    /// Accesses to registers in memory and ports that arrived while the driver was bound and the gate open.
    pub arrived_registers: u64,
    /// The same for configuration space.
    pub arrived_config: u64,
    /// More of those than were held in the driver VM. They count as ungated; anything but 0 is a failed run.
    pub unknown: u64,
    /// What passed and what did not by address space: `bar0` to `bar5`, `config`.
    pub spaces: std::collections::BTreeMap<String, GateOutsideSpace>,
}

/// One address space at the gate outside the driver VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GateOutsideSpace {
    /// Accesses that the device got.
    pub passed: u64,
    /// Accesses that it did not get.
    pub dropped: u64,
}

/// Device accesses of one address space.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GateSpace {
    /// Held and passed.
    pub held: u64,
    /// Kept from the device.
    pub dropped: u64,
    /// Not held.
    pub ungated: u64,
}

/// A step of the workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// How long it took.
    pub seconds: f64,
}

impl Report {
    /// The findings' total, merged ones counted once each.
    pub fn found(&self) -> usize {
        self.findings.len()
    }
}
