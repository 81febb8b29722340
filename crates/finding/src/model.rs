//! The shape of a finding, as schema `guardrail/1` has it.

use serde::{Deserialize, Serialize};

/// How bad a finding is.
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
    /// How bad the fault is.
    #[serde(default)]
    pub severity: Severity,
    /// `harmful`, or why the fault is likely harmless; `null` where nothing was judged.
    #[serde(default)]
    pub triage: Option<String>,
    /// What the gate did about it: `contained` where the gate was closed, `passed` where the run went on, with the reason; absent
    /// where accesses were not held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// One sentence for people.
    pub message: String,
    /// The module at fault; empty where it is not known, `vmlinux` for the kernel itself.
    #[serde(default)]
    pub module: String,
    /// The function at fault; `?` where it is not known.
    #[serde(default)]
    pub function: String,
    /// Offset in it.
    #[serde(default)]
    pub offset: u64,
    /// Source line; `null` without debug information.
    #[serde(default)]
    pub location: Option<Location>,
    /// Call stack, innermost first; its first frame is the place itself.
    #[serde(default)]
    pub stack: Vec<Frame>,
    /// The context that ran.
    #[serde(default)]
    pub context: ContextInfo,
    /// The access at fault, where it is one.
    #[serde(default)]
    pub access: Option<AccessInfo>,
    /// The other side of a race.
    #[serde(default)]
    pub other: Option<OtherAccess>,
    /// The result of trying to make a race happen; absent where nobody tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<Confirmation>,
    /// Further places that explain the fault.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<Related>,
    /// Sentences that explain it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The object that the finding is about.
    #[serde(default)]
    pub object: Option<ObjectInfo>,
    /// Where an undefined value came from.
    #[serde(default)]
    pub origin: Option<OriginInfo>,
    /// The state of the bytes around, as lines of text.
    #[serde(default)]
    pub shadow: Vec<String>,
    /// Index of the event in the run.
    #[serde(default)]
    pub event: u64,
    /// How often the fault was seen.
    #[serde(default = "one")]
    pub count: u64,
}

fn one() -> u64 {
    1
}

/// The result of trying to make a race happen: one access is held until the other arrives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Confirmation {
    /// `confirmed`, `not-reproduced`, `impossible` (neither can run while the other waits), or `untried`.
    pub outcome: String,
    /// The same in a sentence.
    pub detail: String,
    /// How often an access was held.
    pub tries: u64,
    /// Runs of the guest.
    pub runs: u64,
    /// How often both accesses were at the same bytes together.
    pub meetings: u64,
    /// The bytes that both access, in hexadecimal: before, after the access that arrived, after the held one. `null` where they are
    /// not known.
    pub values: Vec<Option<String>>,
}

/// A source line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// The file, as the debug information names it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

/// One function of a call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Name of the function, `?` where it is not known.
    pub function: String,
    /// The module it belongs to; `null` for the kernel itself.
    #[serde(default)]
    pub module: Option<String>,
    /// Offset in the function.
    #[serde(default)]
    pub offset: u64,
    /// Source line; `null` without debug information.
    #[serde(default)]
    pub location: Option<Location>,
    /// The module is not checked.
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
pub struct CallStack {
    /// The frames, innermost first.
    #[serde(default)]
    pub stack: Vec<Frame>,
    /// The context that ran, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextInfo>,
    /// Index of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
}

/// The context of an event: thread, CPU and level, with the locks that it held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextInfo {
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

/// A held lock.
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
    /// Call stack of the place, innermost function first.
    #[serde(default)]
    pub stack: Vec<Frame>,
    /// The context that ran there.
    #[serde(default)]
    pub context: Option<ContextInfo>,
}

/// A memory access.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessInfo {
    /// `read`, `write`, `free`, …
    #[serde(rename = "type")]
    pub what: String,
    /// Its address, in hexadecimal.
    pub address: String,
    /// Its length in bytes; 0 where it is not known.
    #[serde(default)]
    pub size: u64,
}

/// The other side of a race.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherAccess {
    /// Its call stack, innermost function first.
    #[serde(default)]
    pub stack: Vec<Frame>,
    /// The context that ran.
    #[serde(default)]
    pub context: ContextInfo,
    /// Its access.
    #[serde(default)]
    pub access: Option<AccessInfo>,
}

/// The object that a finding is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectInfo {
    /// Address of its first byte, in hexadecimal.
    pub address: String,
    /// Its size in bytes, as the allocation asked for.
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
    /// The member that was accessed, where the object's type is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Where it was allocated.
    #[serde(default)]
    pub allocated: Option<CallStack>,
    /// Where it was freed.
    #[serde(default)]
    pub freed: Option<CallStack>,
}

/// Where an undefined value came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginInfo {
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
