//! The shape of a report: the schema `guardrail/1` as Rust types. Reading is lenient about what may be
//! absent, writing always gives every field that scripts rely on.

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

/// How grave a finding is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A fault.
    #[default]
    Error,
    /// Likely a fault.
    Warning,
    /// Worth knowing.
    Note,
}

impl Severity {
    /// The word that every format uses.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Fingerprint: the same for the same fault in another run.
    pub id: String,
    /// The checker, such as `dmcheck`.
    pub checker: String,
    /// What kind of fault, such as `use-after-free`.
    pub kind: String,
    /// How grave.
    #[serde(default)]
    pub severity: Severity,
    /// `harmful`, or why the fault is likely harmless; `null` where nothing was judged.
    #[serde(default)]
    pub triage: Option<String>,
    /// What the gate did about it: `contained` where the device was cut off, `passed` where the run went on, with the reason; `null`
    /// where accesses were not held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// One sentence.
    pub message: String,
    /// The module at fault.
    #[serde(default)]
    pub module: String,
    /// The function at fault.
    #[serde(default)]
    pub function: String,
    /// Offset in it.
    #[serde(default)]
    pub offset: u64,
    /// Source line.
    #[serde(default)]
    pub location: Option<Location>,
    /// Call stack, innermost first; its first frame is the place itself.
    #[serde(default)]
    pub stack: Vec<Frame>,
    /// Who ran.
    #[serde(default)]
    pub context: Context,
    /// What was touched.
    #[serde(default)]
    pub access: Option<Access>,
    /// The other side of a race.
    #[serde(default)]
    pub other: Option<Other>,
    /// What came of trying to make a race happen; absent where that was not tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<Confirmation>,
    /// Further places that explain the fault.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<Related>,
    /// Sentences that explain it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The object concerned.
    #[serde(default)]
    pub object: Option<Object>,
    /// Where an undefined value came from.
    #[serde(default)]
    pub origin: Option<Origin>,
    /// The state of the bytes around, as lines of text.
    #[serde(default)]
    pub shadow: Vec<String>,
    /// Index of the event in the run.
    #[serde(default)]
    pub event: u64,
    /// How often it happened.
    #[serde(default = "one")]
    pub count: u64,
}

fn one() -> u64 {
    1
}

/// What came of trying to make a race happen: one access held until the other came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Confirmation {
    /// `confirmed`, `not-reproduced`, `impossible` (one cannot run while the other stands), or `untried`.
    pub outcome: String,
    /// The same in a sentence.
    pub detail: String,
    /// How often an access was held.
    pub tries: u64,
    /// Runs of the guest.
    pub runs: u64,
    /// How often both stood at the same bytes.
    pub meetings: u64,
    /// The bytes that both touch: before, after the access that came, after the one that was held; in hexadecimal, `null`
    /// where it is not known.
    pub values: Vec<Option<String>>,
}

/// A source line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// The file as the compiler was told.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
}

/// A place in a call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The function.
    pub function: String,
    /// The module it belongs to; `null` for the kernel itself.
    #[serde(default)]
    pub module: Option<String>,
    /// Offset in the function.
    #[serde(default)]
    pub offset: u64,
    /// Source line.
    #[serde(default)]
    pub location: Option<Location>,
    /// The module is none of those that are checked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other: bool,
}

impl Frame {
    /// Whether it is in a module that is checked.
    pub fn in_driver(&self) -> bool {
        self.module.is_some() && !self.other
    }
}

/// A call stack that stands alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The frames, innermost first.
    #[serde(default)]
    pub stack: Vec<Frame>,
    /// Who ran, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
    /// Index of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
}

/// Who ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Name and number of the thread, such as `modprobe/123`.
    #[serde(default)]
    pub thread: String,
    /// The vCPU.
    #[serde(default)]
    pub cpu: u32,
    /// `process`, `softirq`, `hardirq` or `nmi`.
    #[serde(default)]
    pub level: String,
    /// The locks that were held, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<HeldLock>,
    /// The states of the kernel objects concerned, such as `netdev registered.running`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<String>,
}

/// A lock that was held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLock {
    /// Its name: `rtnl`, a variable, or the object and member that it is.
    pub name: String,
    /// `spinlock`, `mutex`, …
    #[serde(default)]
    pub kind: String,
    /// Readers held it together.
    #[serde(default)]
    pub shared: bool,
    /// Where it was taken.
    #[serde(default)]
    pub stack: Vec<Frame>,
}

/// A further place that explains a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Related {
    /// What happened there, such as `mapped`.
    pub what: String,
    /// Where.
    #[serde(default)]
    pub stack: Vec<Frame>,
    /// Who.
    #[serde(default)]
    pub context: Option<Context>,
}

/// What was touched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// `read`, `write`, `free`, …
    #[serde(rename = "type")]
    pub what: String,
    /// Where, in hexadecimal.
    pub address: String,
    /// How many bytes.
    #[serde(default)]
    pub size: u64,
}

/// The other side of a race.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Other {
    /// Its stack.
    #[serde(default)]
    pub stack: Vec<Frame>,
    /// Who ran.
    #[serde(default)]
    pub context: Context,
    /// What it touched.
    #[serde(default)]
    pub access: Option<Access>,
}

/// The object concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Its start, in hexadecimal.
    pub address: String,
    /// Its size.
    pub size: u64,
    /// What sort of memory it is: `slab`, `page`, `vmalloc`, …
    #[serde(default)]
    pub class: String,
    /// Its name, where it has one: a symbol, a cache.
    #[serde(default)]
    pub name: Option<String>,
    /// Where the access lies, from the object's start; negative before it.
    #[serde(default)]
    pub offset: Option<i64>,
    /// The member that was touched, where the object's type is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Where it was allocated.
    #[serde(default)]
    pub allocated: Option<Stack>,
    /// Where it was freed.
    #[serde(default)]
    pub freed: Option<Stack>,
}

/// Where an undefined value came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// In words, such as `a 64-byte slab object`.
    pub description: String,
    /// Where that was allocated or set up.
    #[serde(default)]
    pub stack: Vec<Frame>,
}

impl std::fmt::Display for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{:#x}", self.function, self.offset)?;
        if let Some(module) = &self.module {
            write!(f, " [{module}]")?;
        }
        if let Some(location) = &self.location {
            write!(f, " {location}")?;
        }
        Ok(())
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl Report {
    /// The findings' total, merged ones counted once each.
    pub fn found(&self) -> usize {
        self.findings.len()
    }
}
