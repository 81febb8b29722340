//! The format of a report: the schema `guardrail/1` as Rust types. Reading accepts reports without
//! optional fields. Writing always gives every field that scripts rely on.

use crate::marks::{Comparison, Source, Suppressions};
use guardrail_finding::{BaselineState, Finding, ModuleCoverage};
use serde::{Deserialize, Serialize};

/// Name and version of the schema.
pub const SCHEMA: &str = "guardrail/1";

/// A whole report: one run of one driver, with its findings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name and version of the schema: [`SCHEMA`].
    pub schema: String,
    /// The driver, as `struct module` spells it.
    pub driver: String,
    /// Release of the guest's kernel.
    pub kernel: String,
    /// The tools that ran: checkers with their options.
    pub tools: Vec<String>,
    /// The policy: `permissive`, `triage` or `stringent`.
    pub mode: String,
    /// Outcome and statistics of the run.
    pub run: Run,
    /// Findings, in the order of their first occurrence.
    pub findings: Vec<Finding>,
    /// What changed since a baseline or an earlier report; absent where nothing was compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// What suppression files did; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppressions: Option<Suppressions>,
}

/// What the outcome of a run says where no finding counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The run completed.
    Complete,
    /// The run did not see enough of the driver.
    TooLittle,
    /// The run failed, and nothing explains its end.
    Failed,
}

/// Outcome and statistics of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// The outcome in one word: `completed`, `guest-panic`, …
    pub outcome: String,
    /// Details of the outcome, such as the text of a panic, or why loading failed.
    pub detail: Option<String>,
    /// The device that the driver served.
    pub device: Option<String>,
    /// Name or path of the workload.
    pub workload: Option<String>,
    /// The words after `guardrail` that repeat the run; empty where they are not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// What identifies the builds of the drivers; empty where nobody watched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<ModuleIdentity>,
    /// Seconds from the guest's start to its end.
    pub guest_seconds: f64,
    /// Seconds of the whole run, including the analysis.
    pub wall_seconds: f64,
    /// Seconds for which the analysis continued after the guest's end.
    pub lag_seconds: f64,
    /// Seconds from the guest's start until its kernel ran Guardrail's first program.
    pub boot_seconds: Option<f64>,
    /// The steps of the workload, in order.
    pub steps: Vec<Step>,
    /// Number of events in the log.
    pub events: u64,
    /// Number of lost events. With any value but 0 the run has failed.
    pub lost_events: u64,
    /// Number of executed driver blocks.
    pub blocks: u64,
    /// What ran of each driver; empty where nobody watched.
    pub coverage: Vec<ModuleCoverage>,
    /// The least part of each driver's functions that must run, in percent.
    pub min_coverage: u32,
    /// Number of memory accesses by the driver.
    pub accesses: u64,
    /// Number of accesses to devices among them, and of port accesses.
    pub device_accesses: u64,
    /// Accesses in the log that belong to no instruction. Any value but 0 is a fault of Guardrail.
    pub unclaimed_accesses: u64,
    /// Segments of the log that could not be read to their end. Any value but 0 is a fault of Guardrail.
    pub damaged_segments: u64,
    /// How device accesses were held; `null` where they were not.
    pub gate: Option<Gate>,
    /// Instruction forms without an exact rule in the analysis, and how often they ran.
    pub unknown_instructions: std::collections::BTreeMap<String, u64>,
    /// The file with the log of the guest's kernel; `null` where it was not kept.
    pub kernel_log: Option<String>,
    /// Further facts about the run, one sentence each.
    pub notes: Vec<String>,
}

impl Run {
    /// What the outcome says where no finding counts.
    pub fn end(&self) -> RunEnd {
        match self.outcome.as_str() {
            "completed" => RunEnd::Complete,
            "truncated" | "interrupted" | "not-exercised" | "no-device-bound" => RunEnd::TooLittle,
            _ => RunEnd::Failed,
        }
    }
}

/// What identifies the build of a driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModuleIdentity {
    /// The module's name, as `struct module` spells it.
    pub name: String,
    /// The version that its author gave; `null` where the author gave none.
    pub version: Option<String>,
    /// The kernel's checksum of its source; `null` where the kernel was built without them.
    pub srcversion: Option<String>,
    /// The linker's identifier in hexadecimal; `null` where it has none.
    pub build_id: Option<String>,
}

/// How device accesses were held in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gate {
    /// The kind of gate: `vmm` or `vfio-user`.
    pub kind: String,
    /// Accesses that were held until they were checked, and then ran.
    pub held: u64,
    /// Writes among them for which their vCPU did not wait.
    pub posted: u64,
    /// Accesses that a closed gate kept from the device.
    pub dropped: u64,
    /// Accesses that reached the device without being held. With any value but 0 the run has failed.
    pub ungated: u64,
    /// Total time for which vCPUs waited with accesses, in seconds.
    pub held_seconds: f64,
    /// The longest hold of one access, in microseconds.
    pub longest_microseconds: f64,
    /// Start of holding, in seconds since the epoch: just before the kernel bound the driver to its
    /// first device.
    pub since: Option<f64>,
    /// Why the gate was closed; `null` where it was not.
    pub closed: Option<String>,
    /// How long it took to cut the device off once the gate was closed, in milliseconds; `null` where it was not.
    pub cut_milliseconds: Option<f64>,
    /// The same counts by address space: `memory`, `port`, `config`.
    pub spaces: std::collections::BTreeMap<String, GateSpace>,
    /// Counts of the gate outside the driver VM; `null` where there was none.
    pub outside: Option<GateOutside>,
}

/// Counts of the gate outside the driver VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GateOutside {
    /// Accesses that reached the device, from the start of the driver VM. Those before the driver was
    /// bound are the kernel's own.
    pub passed: u64,
    /// Accesses that the gate kept from the device.
    pub dropped: u64,
    /// Interrupts that the gate passed to the guest.
    pub interrupts: u64,
    /// Interrupts that the closed gate did not pass to the guest.
    pub interrupts_dropped: u64,
    /// Accesses to mapped registers and ports that arrived while the driver was bound and the gate was
    /// open.
    pub arrived_registers: u64,
    /// Accesses to configuration space that arrived in the same time.
    pub arrived_config: u64,
    /// By how many these accesses exceed those held in the driver VM. They count as ungated; with any
    /// value but 0 the run has failed.
    pub unknown: u64,
    /// Passed and dropped accesses by address space: `bar0` to `bar5`, `config`.
    pub spaces: std::collections::BTreeMap<String, GateOutsideSpace>,
}

/// Counts of one address space at the gate outside the driver VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GateOutsideSpace {
    /// Accesses that reached the device.
    pub passed: u64,
    /// Accesses that the gate kept from the device.
    pub dropped: u64,
}

/// Counts of device accesses in one address space.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GateSpace {
    /// Accesses that were held and then ran.
    pub held: u64,
    /// Accesses that a closed gate kept from the device.
    pub dropped: u64,
    /// Accesses that reached the device without being held.
    pub ungated: u64,
}

/// A step of the workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Name of the step.
    pub name: String,
    /// Duration of the step, in seconds.
    pub seconds: f64,
}

impl Report {
    /// Number of findings; merged ones count once each.
    pub fn found(&self) -> usize {
        self.findings.len()
    }

    /// Whether a baseline hides the finding. An earlier report hides nothing.
    pub fn hides(&self, finding: &Finding) -> bool {
        let baseline = self.comparison.as_ref().is_some_and(|one| one.source == Source::Baseline);
        baseline && finding.baseline == Some(BaselineState::Unchanged) && finding.suppressed.is_none()
    }

    /// The findings that are neither known nor suppressed.
    pub fn shown(&self) -> Vec<&Finding> {
        let shown = |finding: &&Finding| finding.suppressed.is_none() && !self.hides(finding);
        self.findings.iter().filter(shown).collect()
    }
}
