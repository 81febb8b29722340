//! The format of a finding, as in schema `guardrail/1`.

use crate::source::{Inlined, LinkAddress, Location};
use serde::{Deserialize, Serialize};

/// The checker of findings that the guest's kernel itself reported. It looks in every run.
pub const KERNEL_CHECKER: &str = "kernel";

/// How severe a finding is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A fault for certain. The worst is the least.
    #[default]
    Error,
    /// Likely a fault.
    Warning,
    /// A fact that the user should know.
    Note,
}

impl Severity {
    /// The word for the severity in all formats.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// One fault that a checker found, however often it was seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The fingerprint: the same fault has the same one in every run.
    pub id: String,
    /// Name of the checker, such as `dmcheck`.
    pub checker: String,
    /// Kind of the fault, such as `use-after-free`.
    pub kind: String,
    /// How severe the fault is.
    #[serde(default)]
    pub severity: Severity,
    /// The verdict of triage: `harmful`, `undecided` or `likely benign`, with the reason. `null` where nothing
    /// was judged.
    #[serde(default)]
    pub triage: Option<String>,
    /// The gate's reaction: `contained` where it closed, `passed` where the run continued, with the
    /// reason. Absent where accesses were not held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// One sentence for people.
    pub message: String,
    /// The module at fault: `vmlinux` for the kernel itself, empty where it is not known.
    #[serde(default)]
    pub module: String,
    /// The function at fault; `?` where it is not known.
    #[serde(default)]
    pub function: String,
    /// Offset in the function, in bytes.
    #[serde(default)]
    pub offset: u64,
    /// Source line of the fault, the innermost in the driver's own files; `null` without debug information.
    #[serde(default)]
    pub location: Option<Location>,
    /// Call stack, innermost function first. Its first frame is the faulty instruction itself.
    #[serde(default)]
    pub stack: Vec<Frame>,
    /// Thread, CPU and level in which the fault happened.
    #[serde(default)]
    pub context: ContextInfo,
    /// The faulty access; `null` where the fault is no access.
    #[serde(default)]
    pub access: Option<AccessInfo>,
    /// The other side of a race; `null` for other faults.
    #[serde(default)]
    pub other: Option<OtherAccess>,
    /// The result of an attempt to make a race happen; absent where none was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<Confirmation>,
    /// Further events that explain the fault.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<Related>,
    /// Sentences that explain the fault.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The object of the finding; `null` where it has none.
    #[serde(default)]
    pub object: Option<ObjectInfo>,
    /// The module's variable that was accessed, with an offset in it; absent where it was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// The origin of an undefined value; `null` for other faults.
    #[serde(default)]
    pub origin: Option<OriginInfo>,
    /// The shadow state of the bytes around the access, as lines of text.
    #[serde(default)]
    pub shadow: Vec<String>,
    /// Whether an earlier run had it; absent where none was compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<BaselineState>,
    /// The suppression that accepts it; absent where none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppressed: Option<Suppressed>,
    /// Index of the event in the run's log.
    #[serde(default)]
    pub event: u64,
    /// How often the fault was seen.
    #[serde(default = "one")]
    pub count: u64,
}

fn one() -> u64 {
    1
}

impl Finding {
    /// The frames of all its stacks.
    pub fn frames_mut(&mut self) -> impl Iterator<Item = &mut Frame> {
        let mut stacks = vec![&mut self.stack];
        let mut contexts = vec![&mut self.context];
        if let Some(other) = &mut self.other {
            stacks.push(&mut other.stack);
            contexts.push(&mut other.context);
        }
        for related in &mut self.related {
            stacks.push(&mut related.stack);
            contexts.extend(&mut related.context);
        }
        if let Some(object) = &mut self.object {
            for call in [&mut object.allocated, &mut object.freed].into_iter().flatten() {
                stacks.push(&mut call.stack);
                contexts.extend(&mut call.context);
            }
        }
        stacks.extend(self.origin.iter_mut().map(|origin| &mut origin.stack));
        stacks
            .extend(contexts.into_iter().flat_map(|context| &mut context.locks).map(|lock| &mut lock.stack));
        stacks.into_iter().flatten()
    }
}

/// Whether an earlier run had a finding. The words are those of SARIF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BaselineState {
    /// The earlier run does not have it.
    New,
    /// Both have it.
    Unchanged,
}

impl BaselineState {
    /// The word for the state in all formats.
    pub fn word(self) -> &'static str {
        match self {
            BaselineState::New => "new",
            BaselineState::Unchanged => "unchanged",
        }
    }
}

/// Why a finding is accepted: a row of a suppression file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suppressed {
    /// The file of the suppression, as the user named it.
    pub file: String,
    /// The line at which it begins, from 1.
    pub line: u32,
    /// The reason in the words of its author.
    pub reason: String,
}

/// The result of an attempt to make a race happen: one access is held until the other arrives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Confirmation {
    /// The outcome: `confirmed`, `not-reproduced`, `impossible` (neither can run while the other waits),
    /// or `untried`.
    pub outcome: String,
    /// The outcome as a sentence.
    pub detail: String,
    /// Number of holds of an access.
    pub tries: u64,
    /// Number of guest runs.
    pub runs: u64,
    /// How often both accesses were at the same bytes together.
    pub meetings: u64,
    /// The bytes that both sides access, in hexadecimal: before, after the arriving access, and after
    /// the held one. `null` where they are not known.
    pub values: Vec<Option<String>>,
    /// The order of the meeting; absent where the accesses did not meet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<ForcedOrder>,
    /// What followed where the order was forced; absent where nobody looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consequence: Option<Box<Consequence>>,
    /// How often the order was forced again; absent where nobody tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated: Option<Repeated>,
}

/// How reliably the order of a race can be forced: runs of the guest that held nothing but its two accesses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Repeated {
    /// Number of runs of the guest, each until the accesses met or the workload ended.
    pub runs: u64,
    /// The runs in which the accesses met.
    pub forced: u64,
    /// Seconds from the start of the guest to the meeting, the median of the runs with one; 0 without any.
    pub seconds: f64,
    /// Runs without a meeting that did not complete.
    pub failed: u64,
    /// How the first such run ended; `null` where all completed.
    pub failure: Option<String>,
}

/// What followed where the order of a race was forced while all checkers ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Consequence {
    /// The outcome: `fault`, `workload-failed`, `guest-panic`, `guest-hang` (no sign of life, or the time was
    /// over), `value-used` (a write was lost or torn, and the driver read what was left), `nothing`, or
    /// `not-forced`.
    pub outcome: String,
    /// The outcome as a sentence.
    pub detail: String,
    /// Seconds for which the run went on after the order was first forced.
    pub seconds: f64,
    /// The fault, or the read; `null` where nothing followed.
    pub finding: Option<Finding>,
}

/// Which access of a race was held, and where both were made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForcedOrder {
    /// The side that was held, so that its access was made last.
    pub held: RaceSide,
    /// Indices of the vCPUs: of the finding's own access, and of the other.
    pub cpus: [u32; 2],
}

/// A side of a race, as a finding has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RaceSide {
    /// The access of the finding itself.
    #[default]
    Access,
    /// The other access.
    Other,
}

/// One function of a call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Name of the function, `?` where it is not known.
    pub function: String,
    /// The module of the function; `null` for the kernel itself.
    #[serde(default)]
    pub module: Option<String>,
    /// Offset in the function, in bytes.
    #[serde(default)]
    pub offset: u64,
    /// Source line of the offset; `null` without debug information. For inlined code, it is where the
    /// function calls that.
    #[serde(default)]
    pub location: Option<Location>,
    /// The functions inlined there, innermost first. They are no part of the fingerprint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inlined: Vec<Inlined>,
    /// True where the module is not checked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other: bool,
    /// True where only a walk of the kernel's stack has found it. Such frames are no part of the fingerprint.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outer: bool,
    /// True where the frames before it are on another stack, which is that of an interrupt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub switched: bool,
    /// The instruction in the kernel's image; for a return address, a byte of the call before it. It is there until
    /// the lines are looked up, and no part of a report.
    #[serde(skip)]
    pub instruction: Option<LinkAddress>,
}

impl Frame {
    /// Whether the function is in a module that is checked. Code that an interrupt has hit does not count.
    pub fn in_driver(&self) -> bool {
        self.module.is_some() && !self.other && !self.outer
    }

    /// The innermost line in the module's own files; that of the function where inlined code is the kernel's.
    pub fn source(&self) -> Option<&Location> {
        let own = self.inlined.iter().filter_map(|one| one.location.as_ref());
        own.filter(|line| !line.is_kernel_header()).chain(&self.location).next()
    }

    /// The lines of a report for the frame: those of inlined functions, innermost first, and its own.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let module = self.module.as_ref().map_or(String::new(), |module| format!(" [{module}]"));
        let line = move |Inlined { function, location }: &Inlined| match location {
            Some(location) => format!("{function}{module} {location} (inlined)"),
            None => format!("{function}{module} (inlined)"),
        };
        self.inlined.iter().map(line).chain([self.to_string()])
    }
}

/// The lines of a call trace. Where a part of it is on an interrupt's stack, marks show the parts, as the
/// kernel prints them.
pub fn trace_lines(frames: &[Frame]) -> Vec<String> {
    const STACKS: [&str; 3] = ["TASK", "IRQ", "NMI"];
    let switches = frames.iter().filter(|frame| frame.switched).count();
    let name = |left: usize| STACKS[left.min(STACKS.len() - 1)];
    let (mut left, mut lines) = (switches, Vec::new());
    if switches > 0 {
        lines.push(format!("<{}>", name(left)));
    }
    for frame in frames {
        if frame.switched {
            lines.push(format!("</{}>", name(left)));
            left -= 1;
            lines.push(format!("<{}>", name(left)));
        }
        lines.extend(frame.lines());
    }
    if switches > 0 {
        lines.push(format!("</{}>", name(left)));
    }
    lines
}

/// A call stack with its own context, such as that of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallStack {
    /// Frames, innermost function first.
    #[serde(default)]
    pub stack: Vec<Frame>,
    /// The context that ran; `null` where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextInfo>,
    /// Index of the event in the run's log; `null` where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
}

/// The context of an event: thread, CPU and level, with the locks that it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextInfo {
    /// Name and pid of the thread, such as `modprobe/123`.
    #[serde(default)]
    pub thread: String,
    /// Index of the vCPU.
    #[serde(default)]
    pub cpu: u32,
    /// The level: `process`, `softirq`, `hardirq` or `nmi`.
    #[serde(default)]
    pub level: String,
    /// Locks that the context holds, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<HeldLock>,
    /// States of the kernel objects concerned, such as `netdev registered.running`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<String>,
}

/// A lock that a context holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLock {
    /// Name of the lock: `rtnl`, a variable, or an object and its member.
    pub name: String,
    /// Kind of the lock: `spinlock`, `mutex`, …
    #[serde(default)]
    pub kind: String,
    /// True where it is held as a reader, so that others may hold it too.
    #[serde(default)]
    pub shared: bool,
    /// Call stack of its acquisition.
    #[serde(default)]
    pub stack: Vec<Frame>,
}

/// A further event that explains a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Related {
    /// What happened, such as `mapped`.
    pub what: String,
    /// Call stack of the event, innermost function first.
    #[serde(default)]
    pub stack: Vec<Frame>,
    /// The context of the event; `null` where it is not known.
    #[serde(default)]
    pub context: Option<ContextInfo>,
}

/// A memory access of the driver or kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessInfo {
    /// What the access does: `read`, `write`, `free`, …
    #[serde(rename = "type")]
    pub what: String,
    /// Address of its first byte, in hexadecimal.
    pub address: String,
    /// Length in bytes; 0 where it is not known.
    #[serde(default)]
    pub size: u64,
}

/// The other side of a race.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherAccess {
    /// Its call stack, innermost function first.
    #[serde(default)]
    pub stack: Vec<Frame>,
    /// Its thread, CPU and level.
    #[serde(default)]
    pub context: ContextInfo,
    /// The access itself; `null` where it is not known.
    #[serde(default)]
    pub access: Option<AccessInfo>,
}

/// The object that a finding is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectInfo {
    /// Address of its first byte, in hexadecimal.
    pub address: String,
    /// Size in bytes, as the allocation asked for it.
    pub size: u64,
    /// The sort of memory: `slab`, `page`, `vmalloc`, …
    #[serde(default)]
    pub class: String,
    /// Name of the object's symbol or cache; `null` where it has none.
    #[serde(default)]
    pub name: Option<String>,
    /// Offset of the access from the object's start; negative before it.
    #[serde(default)]
    pub offset: Option<i64>,
    /// The member that was accessed; `null` where the object's type is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Call stack of its allocation; `null` where it is not known.
    #[serde(default)]
    pub allocated: Option<CallStack>,
    /// Call stack of its free; `null` where it is not freed, or that is not known.
    #[serde(default)]
    pub freed: Option<CallStack>,
}

/// The origin of an undefined value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginInfo {
    /// Description of the memory, such as `a 64-byte slab object`.
    pub description: String,
    /// Call stack of its allocation or setup.
    #[serde(default)]
    pub stack: Vec<Frame>,
}

impl std::fmt::Display for Repeated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let runs = if self.runs == 1 { "run" } else { "runs" };
        write!(f, "the order was forced again in {} of {} {runs}", self.forced, self.runs)?;
        if self.forced > 0 {
            write!(f, ", after {:.1} s (median)", self.seconds)?;
        }
        match (&self.failure, self.failed) {
            (Some(why), 1) => write!(f, "; one did not complete: {why}"),
            (Some(why), failed) => write!(f, "; {failed} did not complete, the first: {why}"),
            (None, _) => Ok(()),
        }
    }
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

/// How much of a module ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleCoverage {
    /// The name of the module.
    pub module: String,
    /// Number of its functions that ran.
    pub functions_run: u64,
    /// Number of its functions.
    pub functions: u64,
    /// Number of its blocks that ran; a block that ran from several entries counts as several.
    pub blocks: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_marks_the_stack_of_an_interrupt() {
        let frame =
            |function: &str, switched| Frame { function: function.into(), switched, ..Frame::default() };
        let frames = [frame("irq", false), frame("entry", true), frame("idle", false)];
        let lines = ["<IRQ>", "irq+0x0", "</IRQ>", "<TASK>", "entry+0x0", "idle+0x0", "</TASK>"];
        assert_eq!(trace_lines(&frames), lines);
        assert_eq!(trace_lines(&frames[2..]), ["idle+0x0"]);
    }

    #[test]
    fn what_only_the_stack_shows_is_no_part_of_the_fingerprint() {
        let frame = |function: &str, outer| Frame {
            function: function.into(),
            module: Some("drv".into()),
            outer,
            ..Frame::default()
        };
        let of = |stack| Finding { function: "f".into(), stack, ..Finding::default() };
        let near = of(vec![frame("f", false), frame("g", false)]);
        let whole = of(vec![frame("f", false), frame("h", true), frame("g", false), frame("i", true)]);
        assert_eq!((whole.fingerprint(), whole.place()), (near.fingerprint(), near.place()));
    }

    #[test]
    fn no_stack_of_a_finding_is_left_out() {
        let stack = |name: u32| vec![Frame { function: name.to_string(), ..Frame::default() }];
        let context = |name| ContextInfo {
            locks: vec![HeldLock { stack: stack(name), ..HeldLock::default() }],
            ..ContextInfo::default()
        };
        let call = |name| {
            Some(CallStack { stack: stack(name), context: Some(context(name + 1)), ..CallStack::default() })
        };
        let mut finding = Finding {
            stack: stack(0),
            context: context(1),
            other: Some(OtherAccess { stack: stack(2), context: context(3), ..OtherAccess::default() }),
            related: vec![Related { stack: stack(4), context: Some(context(5)), ..Related::default() }],
            object: Some(ObjectInfo { allocated: call(6), freed: call(8), ..ObjectInfo::default() }),
            origin: Some(OriginInfo { stack: stack(10), ..OriginInfo::default() }),
            ..Finding::default()
        };
        let mut names: Vec<u32> = finding.frames_mut().map(|frame| frame.function.parse().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, (0..11).collect::<Vec<_>>());
    }
}
