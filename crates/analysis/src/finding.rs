//! What a run says in the end: findings, in the names that scripts rely on (`guardrail/1`).

use serde::{Deserialize, Serialize};

/// A place in the driver's or the kernel's code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Name of the function; `?` where it is not known.
    pub function: String,
    /// Module it belongs to; `None` for the kernel proper.
    pub module: Option<String>,
    /// Offset of the place in the function.
    pub offset: u64,
    /// Source line, where debug information is at hand.
    pub location: Option<Location>,
    /// The module is none of those that are watched.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other: bool,
}

impl Frame {
    /// Whether it is in a watched module.
    pub fn in_driver(&self) -> bool {
        self.module.is_some() && !self.other
    }
}

/// A source line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// Path as the compiler recorded it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A fault.
    Error,
    /// Probably a fault.
    Warning,
    /// Worth knowing.
    Note,
}

/// Who did it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Name and pid of the thread, as `comm/pid`.
    pub thread: String,
    /// The vCPU.
    pub cpu: u32,
    /// `process`, `softirq`, `hardirq` or `nmi`.
    pub level: String,
    /// The locks that it held, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<HeldLock>,
    /// The states of the kernel objects that it was about, such as `netdev registered.running`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<String>,
}

/// A lock that was held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLock {
    /// Its name: `rtnl`, a variable, or the object and member that it is.
    pub name: String,
    /// `spinlock`, `mutex`, …
    pub kind: String,
    /// Readers held it together.
    pub shared: bool,
    /// Where it was taken.
    pub stack: Vec<Frame>,
}

/// What was touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessInfo {
    /// `read`, `write` or `update`.
    #[serde(rename = "type")]
    pub what: String,
    /// Where, as `0x…`.
    pub address: String,
    /// How many bytes.
    pub size: u64,
}

/// A further place that explains a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Related {
    /// What happened there, such as `mapped` or `lock a taken while lock b was held`.
    pub what: String,
    /// Where.
    pub stack: Vec<Frame>,
    /// Who.
    pub context: Option<Context>,
}

/// A stack on its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Innermost function first.
    pub stack: Vec<Frame>,
}

/// The object that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectInfo {
    /// Its address, as `0x…`.
    pub address: String,
    /// Its size in bytes, as asked for.
    pub size: u64,
    /// What sort of memory it is: `slab`, `page`, `vmalloc`, …
    pub class: String,
    /// Where the access lies, from the object's start; negative before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
    /// The member that was touched, where the type is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Where it was allocated.
    pub allocated: Option<Trace>,
    /// Where it was freed.
    pub freed: Option<Trace>,
}

/// Where an undefined value came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginInfo {
    /// One sentence fragment, such as `a 64-byte slab object` or `the stack frame of foo`.
    pub description: String,
    /// Where that was allocated or set up.
    pub stack: Vec<Frame>,
}

/// The second access of a race.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Other {
    /// Where.
    pub stack: Vec<Frame>,
    /// Who.
    pub context: Context,
    /// What it touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessInfo>,
}

/// A finding: one cause, however often it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable fingerprint; holds no addresses.
    pub id: String,
    /// The checker that found it.
    pub checker: String,
    /// What it is, such as `use-after-free`.
    pub kind: String,
    /// How bad it is.
    pub severity: Severity,
    /// Why it is likely harmless, or `harmful`; `None` where nothing was judged.
    pub triage: Option<String>,
    /// One sentence for people.
    pub message: String,
    /// The driver's module.
    pub module: String,
    /// The driver's function.
    pub function: String,
    /// Offset in it.
    pub offset: u64,
    /// Source line, where debug information is at hand.
    pub location: Option<Location>,
    /// Innermost function first.
    pub stack: Vec<Frame>,
    /// Who did it.
    pub context: Context,
    /// What it touched, where that is one access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessInfo>,
    /// The second access of a race.
    pub other: Option<Other>,
    /// Further places that explain it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<Related>,
    /// Sentences that explain it, such as why nothing orders the two accesses of a race.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The object it is about.
    pub object: Option<ObjectInfo>,
    /// Where the undefined value came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginInfo>,
    /// The state of the bytes around, as lines of text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shadow: Vec<String>,
    /// Number of the event at which it was first seen.
    pub event: u64,
    /// How often it was seen.
    pub count: u64,
}

/// An instruction form without a rule, and how often it ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownInsn {
    /// The mnemonic.
    pub mnemonic: String,
    /// How often it ran.
    pub count: u64,
}

/// What was seen of a run, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Words, accesses and records alike.
    pub events: u64,
    /// Segments.
    pub segments: u64,
    /// Blocks executed.
    pub blocks: u64,
    /// Memory accesses.
    pub accesses: u64,
    /// Accesses to devices, by memory or port.
    pub device_accesses: u64,
    /// Accesses that no instruction claimed.
    pub unclaimed: u64,
    /// Segments that could not be read to their end.
    pub damaged_segments: u64,
    /// Instruction forms without an exact rule.
    pub unknown: Vec<UnknownInsn>,
    /// Names of the modules that were watched.
    pub modules: Vec<String>,
}

/// Findings and counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The findings, in the order of their first event.
    pub findings: Vec<Finding>,
    /// The counts.
    pub statistics: Statistics,
}

/// A hash that is the same in every run and every build (FNV-1a, 64 bits).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub(crate) fn new() -> Self {
        Fingerprint(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a text and a separator.
    pub(crate) fn add(mut self, text: &str) -> Self {
        for byte in text.bytes().chain([0xff]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self
    }

    pub(crate) fn hex(self) -> String {
        format!("{:016x}", self.0)
    }
}

impl Finding {
    /// Computes [`Finding::id`] from what does not depend on addresses. A race is told by its two places in the code,
    /// whichever came first.
    pub fn fingerprint(&self) -> String {
        if let ("data-race", Some(other)) = (self.kind.as_str(), &self.other) {
            let mut sides = [&self.stack, &other.stack].map(|stack| {
                let top = stack.iter().find(|f| f.in_driver()).or(stack.first());
                top.map_or_else(String::new, |f| format!("{}+{:#x}", f.function, f.offset))
            });
            sides.sort();
            let hash = Fingerprint::new().add(&self.checker).add(&self.kind).add(&self.module);
            return sides.iter().fold(hash, |hash, side| hash.add(side)).hex();
        }
        let functions = self.stack.iter().map(|frame| frame.function.as_str());
        fingerprint(&self.checker, &self.kind, &self.module, &self.function, self.offset, functions)
    }
}

/// The fingerprint of a finding with one side, whoever found it.
pub fn fingerprint<'a>(
    checker: &str,
    kind: &str,
    module: &str,
    function: &str,
    offset: u64,
    stack: impl Iterator<Item = &'a str>,
) -> String {
    let place = Fingerprint::new().add(checker).add(kind).add(module).add(function).add(&offset.to_string());
    stack.fold(place, |hash, function| hash.add(function)).hex()
}
