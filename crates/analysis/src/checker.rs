//! What a checker is, and all that it is called with. The author of a checker needs to read no other file.
//!
//! # Lifecycle
//!
//! 1. The session makes the checker and asks [`Checker::needs_sync`] and [`Checker::parts`] once.
//! 2. [`Checker::module_comes`] and [`Checker::module_loaded`] announce each module of the driver. A module may be loaded
//!    again later, also at another address.
//! 3. Events follow in the order of the run, from all vCPUs. All checkers get an event before the next one.
//!    [`Cx::context`] says which task or interrupt ran, and [`Cx::state`] how the machine stands.
//!    Where a call of the kernel allocates, frees, locks or moves an object, the calls about that follow the call itself.
//! 4. [`Checker::module_unloaded`] and [`Checker::module_freed`] follow when the module leaves.
//! 5. [`Checker::finish`] is the last call.
//!
//! A checker reports with [`Cx::report`], which counts a fault that it has seen before. The log is not trusted: any event may
//! follow any other, and a checker bounds what it keeps.

use crate::machine::{Context, Object, ObjectId, Out, State, describe};
use crate::order::{Acquired, Entry, LockId, Parts, Step};
use crate::reports::Reports;
use crate::stacks::{MAX_FRAMES, StackId};
use crate::value_flow::{InsnCtx, Origin, Regs, RepRange, Value};
use guardrail_finding::{AccessInfo, Finding, ObjectInfo, OriginInfo, OtherAccess, Related, Severity};
use guardrail_knowledge::effect::Summary;
use guardrail_trace::event::Access;
use guardrail_trace::meet::Meet;
use std::sync::Arc;

/// What is wrong with a free by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFree {
    /// It was freed before.
    Double,
    /// It is not the start of an object.
    Invalid,
    /// It is of a sort that this function does not free.
    Mismatched,
}

/// A free that is wrong.
#[derive(Clone, Debug)]
pub struct FreeFault {
    /// What is wrong.
    pub what: BadFree,
    /// Name of the function that was to free it.
    pub function: String,
    /// The pointer.
    pub ptr: u64,
    /// The object that it points into.
    pub object: Option<Object>,
    /// Further words for the message.
    pub detail: String,
}

/// A call of a hooked kernel function, whoever made it.
#[derive(Clone, Copy, Debug)]
pub struct Hooked<'a> {
    /// rsp at its entry; with the function it names the call while it lasts.
    pub rsp: u64,
    /// Its return address.
    pub ret: u64,
    /// Its arguments, then what was read through them.
    pub args: &'a [u64],
    /// What it does.
    pub summary: &'a Arc<Summary>,
    /// The driver called it, or a function that it is part of.
    pub by_driver: bool,
    /// The stack of the call.
    pub stack: StackId,
    /// The module that called it.
    pub module: Option<u32>,
}

/// A list that a hooked function was given.
#[derive(Clone, Copy, Debug)]
pub struct ListTold<'a> {
    /// Which of the hook's lists.
    pub index: usize,
    /// As it is after the function has returned.
    pub returned: bool,
    /// The fields of its entries.
    pub words: &'a [u64],
}

/// How memory comes to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lending {
    /// It was mapped.
    Mapped,
    /// It was mapped before and is synchronized for the device.
    Synced,
    /// Some of what is mapped for the device may have been synchronized; which memory is not known.
    Unseen,
}

/// Memory that a device may use from now on.
#[derive(Clone, Debug)]
pub struct Lent {
    /// How it comes to the device.
    pub lending: Lending,
    /// The device.
    pub dev: u64,
    /// Address and length of each piece.
    pub memory: Vec<(u64, u64)>,
    /// The device may read it.
    pub reads: bool,
    /// The device may write it.
    pub writes: bool,
    /// It is the driver's doing.
    pub judged: bool,
    /// Where that is told.
    pub place: Place,
}

/// An access that the processor refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The instruction.
    pub pc: u64,
    /// The address, where it was a page fault; otherwise a general protection fault.
    pub address: Option<u64>,
}

/// A checker. All methods but the name do nothing by default; the head of this file says when they are called.
pub trait Checker {
    /// Its name, as a tool.
    fn name(&self) -> &'static str;
    /// Which parts of the order and of the locks it wants to count; `None` where it does not care.
    fn parts(&self) -> Option<Parts> {
        None
    }
    /// Whether it asks about locks, strands, order or states; they cost time.
    fn needs_sync(&self) -> bool {
        self.parts().is_some()
    }
    /// Memory was read. Gives its definedness.
    fn load(&mut self, _cx: &mut Cx<'_>, _insn: &InsnCtx, _access: Access) -> Value {
        Value::DEFINED
    }
    /// Memory was written.
    fn store(&mut self, _cx: &mut Cx<'_>, _insn: &InsnCtx, _access: Access, _value: Value) {}
    /// An undefined value decides where execution goes.
    fn undefined_branch(&mut self, _cx: &mut Cx<'_>, _insn: &InsnCtx, _origin: Origin) {}
    /// An undefined value decides which memory is touched.
    fn undefined_address(
        &mut self,
        _cx: &mut Cx<'_>,
        _insn: &InsnCtx,
        _access: Access,
        _reg: u8,
        _origin: Origin,
    ) {
    }
    /// An undefined value goes to a port.
    fn undefined_port_output(&mut self, _cx: &mut Cx<'_>, _insn: &InsnCtx, _origin: Origin) {}
    /// Memory was copied by a string instruction.
    fn rep_move(&mut self, _cx: &mut Cx<'_>, _insn: &InsnCtx, _range: RepRange) {}
    /// Memory was filled by a string instruction.
    fn rep_set(&mut self, _cx: &mut Cx<'_>, _insn: &InsnCtx, _range: RepRange, _value: Value) {}
    /// Memory was read by a string instruction.
    fn rep_read(&mut self, _cx: &mut Cx<'_>, _insn: &InsnCtx, _range: RepRange) -> Value {
        Value::DEFINED
    }
    /// The stack pointer was moved.
    fn stack_adjusted(&mut self, _cx: &mut Cx<'_>, _insn: &InsnCtx, _old: u64, _new: u64) {}
    /// The driver uses the stack in this range no more; others may.
    fn stack_left(&mut self, _cx: &mut Cx<'_>, _from: u64, _to: u64) {}
    /// The driver is about to call a kernel function.
    fn call(&mut self, _cx: &mut Cx<'_>, _out: &Out, _regs: &Regs) {}
    /// The kernel function has returned.
    fn call_returned(&mut self, _cx: &mut Cx<'_>, _out: &Out, _result: u64) {}
    /// A hooked kernel function begins. The context is that of the driver code it runs for, if it does.
    fn hook_called(&mut self, _cx: &mut Cx<'_>, _hook: &Hooked<'_>) {}
    /// A hooked function returns.
    fn hook_returned(&mut self, _cx: &mut Cx<'_>, _hook: &Hooked<'_>, _result: u64) {}
    /// A list that a hooked function was given.
    fn hook_list(&mut self, _cx: &mut Cx<'_>, _hook: &Hooked<'_>, _list: ListTold<'_>) {}
    /// The kernel calls the driver; the entry is on the context's stack and in [`State::sync`](crate::machine::State).
    fn entered(&mut self, _cx: &mut Cx<'_>, _activation: &Entry) {}
    /// The driver returns to the kernel.
    fn left(&mut self, _cx: &mut Cx<'_>, _activation: &Entry) {}
    /// A lock was taken.
    fn locked(&mut self, _cx: &mut Cx<'_>, _lock: &Acquired) {}
    /// A lock is given back, by the kernel for itself or by the driver; `held` is `None` where the context does not hold it.
    fn unlocked(&mut self, _cx: &mut Cx<'_>, _lock: LockId, _held: Option<&Acquired>, _by_kernel: bool) {}
    /// A call or callback has moved an object from state to state, or was not allowed to.
    fn moved(&mut self, _cx: &mut Cx<'_>, _step: &Step) {}
    /// Another checker has found that memory was lent to a device.
    fn lent(&mut self, _cx: &mut Cx<'_>, _lent: &Lent) {}
    /// An instruction ran that compares a 64-bit value with all ones, which is what failed mappings give, or may do so.
    fn compared_with_ones(&mut self, _cx: &mut Cx<'_>) {}
    /// An object came into being, or turned out to be of another size or owner.
    fn allocated(&mut self, _cx: &mut Cx<'_>, _id: ObjectId, _object: &Object) {}
    /// An object was freed.
    fn freed(&mut self, _cx: &mut Cx<'_>, _id: ObjectId, _object: &Object) {}
    /// Nothing is known any more of what was an object's memory.
    fn forgotten(&mut self, _cx: &mut Cx<'_>, _from: u64, _to: u64) {}
    /// The driver frees what it must not free.
    fn bad_free(&mut self, _cx: &mut Cx<'_>, _fault: &FreeFault) {}
    /// The processor refused an access of the driver. Gives the number of the finding, if it is one.
    fn fault(&mut self, _cx: &mut Cx<'_>, _fault: Fault, _regs: Option<&Regs>) -> Option<usize> {
        None
    }
    /// A module is about to be laid out, perhaps where another was; those that have gone can still be named.
    fn module_comes(&mut self, _cx: &mut Cx<'_>) {}
    /// A module was loaded (its index in the list).
    fn module_loaded(&mut self, _cx: &mut Cx<'_>, _module: u32) {}
    /// A part of a module, or all of it, was given back.
    fn module_freed(&mut self, _cx: &mut Cx<'_>, _from: u64, _to: u64) {}
    /// A module left (its index in the list).
    fn module_unloaded(&mut self, _cx: &mut Cx<'_>, _module: u32) {}
    /// An access that was held has met another, or nobody came: the stack of the held one, innermost first, and who it is.
    fn met(&mut self, _cx: &mut Cx<'_>, _meet: &Meet, _held: &[u64], _by: &guardrail_finding::ContextInfo) {}
    /// The run is over.
    fn finish(&mut self, _cx: &mut Cx<'_>) {}
}

/// Where something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At an instruction of the driver.
    Insn(u64),
    /// At the call that the context is out on.
    Call,
    /// At the driver's function in this stack.
    Stack(StackId),
}

/// A finding in the making.
#[derive(Clone, Debug)]
pub struct Draft {
    /// What is to be said.
    pub message: String,
    /// How bad it is.
    pub severity: Severity,
    /// The object it is about.
    pub object: Option<Object>,
    /// Where in the object the access lies, and the member there, where the type is known.
    pub within: Option<(i64, Option<String>)>,
    /// Where the undefined value came from.
    pub origin: Option<OriginInfo>,
    /// The state of the bytes around.
    pub shadow: Vec<String>,
    /// What was touched.
    pub access: Option<AccessInfo>,
    /// The second access of a race.
    pub other: Option<OtherAccess>,
    /// Further places that explain it.
    pub related: Vec<Related>,
    /// Sentences that explain it.
    pub notes: Vec<String>,
    /// Why it is likely harmless, or `harmful`.
    pub triage: Option<String>,
}

impl Draft {
    /// An error with a message alone.
    pub fn error(message: String) -> Draft {
        Draft {
            message,
            severity: Severity::Error,
            object: None,
            within: None,
            origin: None,
            shadow: Vec::new(),
            access: None,
            other: None,
            related: Vec::new(),
            notes: Vec::new(),
            triage: None,
        }
    }
}

/// What a checker is called with.
pub struct Cx<'a> {
    /// What the machine knows.
    pub state: &'a State,
    /// Who runs.
    pub context: Option<&'a Context>,
    /// The findings.
    pub reports: &'a mut Reports,
    /// Memory that devices got in this event; all checkers are called with it after the event.
    pub lent: &'a mut Vec<Lent>,
    /// The vCPU.
    pub cpu: u32,
    /// The number of the event.
    pub event: u64,
}

impl Cx<'_> {
    /// The stack at a place: an instruction, then return addresses.
    pub fn stack(&self, place: Place) -> Vec<u64> {
        let mut stack = Vec::with_capacity(MAX_FRAMES);
        match place {
            Place::Insn(pc) => stack.push(pc),
            Place::Call => stack.extend(self.context.and_then(Context::out).map(|out| out.pc)),
            Place::Stack(id) => return self.state.stacks.get(id).to_vec(),
        }
        if let Some(context) = self.context {
            context.callers(&mut stack, MAX_FRAMES);
        }
        stack
    }

    /// Reports a finding, or counts it where it is known. Gives its number.
    pub fn report(
        &mut self,
        checker: &'static str,
        kind: &'static str,
        place: Place,
        draft: impl FnOnce() -> Draft,
    ) -> Option<usize> {
        let stack = self.stack(place);
        self.report_stack(checker, kind, &stack, draft)
    }

    /// The same at a stack of addresses.
    pub fn report_stack(
        &mut self,
        checker: &'static str,
        kind: &'static str,
        stack: &[u64],
        draft: impl FnOnce() -> Draft,
    ) -> Option<usize> {
        self.report_as(checker, kind, stack, stack, draft)
    }

    /// The same, where `key` and not the stack tells findings of this kind apart.
    pub fn report_as(
        &mut self,
        checker: &'static str,
        kind: &'static str,
        stack: &[u64],
        key: &[u64],
        draft: impl FnOnce() -> Draft,
    ) -> Option<usize> {
        // A checker without a name works for others and is not heard.
        if checker.is_empty() {
            return None;
        }
        let (state, context, cpu, event) = (self.state, self.context, self.cpu, self.event);
        self.reports.add(kind, key, || {
            let draft = draft();
            let frames = state.frames(stack);
            let top = frames.iter().find(|f| f.in_driver()).or(frames.first());
            let (offset, field) = draft.within.map_or((None, None), |(offset, field)| (Some(offset), field));
            let object = draft.object.map(|o| ObjectInfo {
                address: format!("{:#x}", o.start),
                size: o.size,
                class: o.class.name().to_owned(),
                offset,
                field,
                allocated: state.trace(o.allocated),
                freed: o.freed.and_then(|id| state.trace(id)),
                ..ObjectInfo::default()
            });
            Finding {
                checker: checker.to_owned(),
                kind: kind.to_owned(),
                severity: draft.severity,
                triage: draft.triage,
                message: draft.message,
                module: top.and_then(|f| f.module.clone()).unwrap_or_default(),
                function: top.map_or_else(|| "?".to_owned(), |f| f.function.clone()),
                offset: top.map_or(0, |f| f.offset),
                location: top.and_then(|f| f.location.clone()),
                stack: frames,
                context: describe(state, context, cpu),
                access: draft.access,
                other: draft.other,
                related: draft.related,
                notes: draft.notes,
                object,
                origin: draft.origin,
                shadow: draft.shadow,
                event,
                ..Finding::default()
            }
        })
    }
}
