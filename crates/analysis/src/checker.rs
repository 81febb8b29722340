//! What a checker is, and everything that it is called with. The author of a checker needs to read only this
//! file, and `effect.rs` of the crate `guardrail-knowledge` for the effects of calls.
//!
//! # Lifecycle
//!
//! 1. The replay asks the checker once what it needs: [`Checker::parts`] and the methods whose names begin
//!    with `needs`.
//! 2. [`Checker::module_comes`] and [`Checker::module_loaded`] announce each module of the driver. A module
//!    may be loaded again later, also at another address.
//! 3. Events follow in the order of the run, from all vCPUs. All checkers get an event before the next one.
//!    [`Cx::context`] says which task or interrupt runs, and [`Cx::state`] what the machine's state is. Where
//!    a kernel function allocates, frees, locks or moves an object, the checker is called for the function
//!    first and for these effects afterwards.
//! 4. [`Checker::module_unloaded`] and [`Checker::module_freed`] follow when the module is unloaded.
//! 5. [`Checker::finish`] is the last call.
//!
//! A checker reports with [`Cx::report`], which counts a fault that was reported before. The log is not
//! trusted: any event may follow any other, and a checker bounds what it keeps.

use crate::definedness::Definedness;
use crate::machine::{Context, Object, ObjectId, Out, State, describe};
use crate::order::{Acquired, Entry, LockId, Parts, Step};
use crate::provenance::Stray;
use crate::reports::Reports;
use crate::stacks::{CallTrace, StackId};
use crate::value_flow::{InsnCtx, Origin, Reach, Regs, RepRange, Value};
use guardrail_finding::{AccessInfo, Finding, ObjectInfo, OtherAccess, Related, Severity};
use guardrail_knowledge::effect::Summary;
use guardrail_trace::event::Access;
use guardrail_trace::meet::Meet;
use std::sync::Arc;

/// What is wrong with a free by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFree {
    /// The memory was freed before.
    Double,
    /// The pointer is not the start of an object.
    Invalid,
    /// The object is of a class that this function does not free.
    Mismatched,
}

/// A wrong free by the driver.
#[derive(Clone, Debug)]
pub struct FreeFault {
    /// The kind of fault.
    pub what: BadFree,
    /// Name of the kernel function that was called to free the memory.
    pub function: String,
    /// The guest address that was passed to the function.
    pub ptr: u64,
    /// The object that the pointer points into; `None` where no object is known there.
    pub object: Option<Object>,
    /// Further text for the message.
    pub detail: &'static str,
}

/// A call of a hooked kernel function, by the driver or by the kernel.
#[derive(Clone, Debug)]
pub struct Hooked {
    /// The value of rsp at its entry. Together with the function it identifies the call while it lasts.
    pub rsp: u64,
    /// Return address of the call.
    pub ret: u64,
    /// The arguments of the call, followed by the values that the tracer read through them.
    pub args: Arc<[u64]>,
    /// What the knowledge says about the function.
    pub summary: Arc<Summary>,
    /// The driver called the function itself, or called a function of which this call is a part.
    pub by_driver: bool,
    /// The stack at the call.
    pub stack: StackId,
    /// The module that called the function; `None` where no module did.
    pub module: Option<u32>,
}

/// A rule that an active driver has broken, as the core of active drivers announces it.
#[derive(Clone, Copy, Debug)]
pub struct Violation<'a> {
    /// The number of the rule.
    pub rule: u64,
    /// What the driver did.
    pub message: &'a str,
    /// The name of the domain, and the states of its protocols.
    pub states: &'a str,
    /// The stack: where the driver left for the core, or its main function if that has returned.
    pub stack: &'a CallTrace,
}

/// A list that was passed to a hooked function.
#[derive(Clone, Copy, Debug)]
pub struct PassedList<'a> {
    /// Index among the hook's lists.
    pub index: usize,
    /// The list is in the state after the function returned, not in the state at the call.
    pub returned: bool,
    /// The fields of its elements.
    pub words: &'a [u64],
}

/// An access of the driver that made the processor raise an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Address of the instruction.
    pub pc: u64,
    /// The address of the access at a page fault; `None` at a general protection fault.
    pub address: Option<u64>,
}

/// A checker. All methods but `name` do nothing by default; the head of this file says when they are called.
pub trait Checker {
    /// The name that its findings are reported under.
    fn name(&self) -> &'static str;
    /// Which parts of the order and of the locks count for this checker; `None` where it does not care.
    fn parts(&self) -> Option<Parts> {
        None
    }
    /// Whether the checker uses locks, strands, order or states. Keeping track of them costs time.
    fn needs_sync(&self) -> bool {
        self.parts().is_some()
    }
    /// Whether the checker uses [`Cx::definedness`] or judges undefined values. Keeping track of them costs
    /// time.
    fn needs_definedness(&self) -> bool {
        false
    }
    /// Whether the checker uses [`Checker::strayed`], which takes definedness as well. Keeping track of pointers
    /// costs time.
    fn needs_provenance(&self) -> bool {
        false
    }
    /// Whether the checker uses [`Checker::load`]. Each call costs time.
    fn needs_loads(&self) -> bool {
        true
    }
    /// Whether the checker uses [`Checker::store`].
    fn needs_stores(&self) -> bool {
        true
    }
    /// The driver read memory.
    fn load(&mut self, _cx: &mut Cx<'_>, _insn: &InsnCtx, _access: Access) {}
    /// The driver wrote memory.
    fn store(&mut self, _cx: &mut Cx<'_>, _insn: &InsnCtx, _access: Access, _value: Value) {}
    /// The driver is about to access memory outside of the object that its pointer came from. Where the bytes
    /// must not be accessed anyway, this is not called.
    fn strayed(&mut self, _cx: &mut Cx<'_>, _insn: &InsnCtx, _reach: &Reach, _stray: Stray) {}
    /// A branch depends on an undefined value.
    fn undefined_branch(&mut self, _cx: &mut Cx<'_>, _insn: &InsnCtx, _origin: Origin) {}
    /// The address of an access depends on an undefined value.
    fn undefined_address(
        &mut self,
        _cx: &mut Cx<'_>,
        _insn: &InsnCtx,
        _access: Access,
        _reg: u8,
        _origin: Origin,
    ) {
    }
    /// The driver writes an undefined value to a port.
    fn undefined_port_output(&mut self, _cx: &mut Cx<'_>, _insn: &InsnCtx, _origin: Origin) {}
    /// A string instruction copied memory.
    fn rep_move(&mut self, _cx: &mut Cx<'_>, _insn: &InsnCtx, _range: RepRange) {}
    /// A string instruction filled memory.
    fn rep_set(&mut self, _cx: &mut Cx<'_>, _insn: &InsnCtx, _range: RepRange, _value: Value) {}
    /// A string instruction read memory.
    fn rep_read(&mut self, _cx: &mut Cx<'_>, _insn: &InsnCtx, _range: RepRange) {}
    /// An instruction moved the stack pointer.
    fn stack_adjusted(&mut self, _cx: &mut Cx<'_>, _insn: &InsnCtx, _old: u64, _new: u64) {}
    /// The driver no longer uses this range of the stack; the kernel may use it.
    fn stack_left(&mut self, _cx: &mut Cx<'_>, _from: u64, _to: u64) {}
    /// The driver is about to call a kernel function.
    fn call(&mut self, _cx: &mut Cx<'_>, _out: &Out, _regs: &Regs) {}
    /// The kernel function has returned.
    fn call_returned(&mut self, _cx: &mut Cx<'_>, _out: &Out, _result: u64) {}
    /// A hooked kernel function begins. Where it runs on behalf of driver code, the context is that of this
    /// code.
    fn hook_called(&mut self, _cx: &mut Cx<'_>, _hook: &Hooked) {}
    /// A hooked function returns.
    fn hook_returned(&mut self, _cx: &mut Cx<'_>, _hook: &Hooked, _result: u64) {}
    /// An active driver has broken a rule of its protocols. The context is that of its domain, where it is
    /// known.
    fn violated(&mut self, _cx: &mut Cx<'_>, _violation: &Violation<'_>) {}
    /// The log holds a list that was passed to a hooked function.
    fn hook_list(&mut self, _cx: &mut Cx<'_>, _hook: &Hooked, _list: PassedList<'_>) {}
    /// The kernel calls the driver. The entry is already on the context's stack and in
    /// [`State::order`](crate::machine::State).
    fn entered(&mut self, _cx: &mut Cx<'_>, _activation: &Entry) {}
    /// The driver returns to the kernel.
    fn left(&mut self, _cx: &mut Cx<'_>, _activation: &Entry) {}
    /// A context took a lock.
    fn locked(&mut self, _cx: &mut Cx<'_>, _lock: &Acquired) {}
    /// A lock is released, by the kernel for itself or by the driver. `held` is `None` where the context does
    /// not hold it.
    fn unlocked(&mut self, _cx: &mut Cx<'_>, _lock: LockId, _held: Option<&Acquired>, _by_kernel: bool) {}
    /// A call or callback moved an object from one state to another, or was not allowed to.
    fn moved(&mut self, _cx: &mut Cx<'_>, _step: &Step) {}
    /// An instruction ran that compares a 64-bit value with all ones, or may do so. Failed mappings return
    /// all ones.
    fn compared_with_ones(&mut self, _cx: &mut Cx<'_>) {}
    /// An object was allocated, or turned out to have another size or owner.
    fn allocated(&mut self, _cx: &mut Cx<'_>, _id: ObjectId, _object: &Object) {}
    /// An object was freed.
    fn freed(&mut self, _cx: &mut Cx<'_>, _id: ObjectId, _object: &Object) {}
    /// Nothing is known any more about memory that was an object's.
    fn forgotten(&mut self, _cx: &mut Cx<'_>, _from: u64, _to: u64) {}
    /// The driver frees something that it must not free.
    fn bad_free(&mut self, _cx: &mut Cx<'_>, _fault: &FreeFault) {}
    /// The processor refused an access of the driver. Returns the number of the finding, if the checker
    /// reports one.
    fn fault(&mut self, _cx: &mut Cx<'_>, _fault: Fault, _regs: Option<&Regs>) -> Option<usize> {
        None
    }
    /// A module is about to be loaded, perhaps at the addresses of an earlier one. Unloaded modules can still
    /// be named during this call.
    fn module_comes(&mut self, _cx: &mut Cx<'_>) {}
    /// A module was loaded; `module` is its index in the list of modules.
    fn module_loaded(&mut self, _cx: &mut Cx<'_>, _module: u32) {}
    /// A part of a module's memory, or all of it, was freed.
    fn module_freed(&mut self, _cx: &mut Cx<'_>, _from: u64, _to: u64) {}
    /// A module was unloaded; `module` is its index in the list of modules.
    fn module_unloaded(&mut self, _cx: &mut Cx<'_>, _module: u32) {}
    /// A held access has met another one, or its wait has ended without one. `held` is the stack of the held
    /// access, innermost first, and `by` its context.
    fn met(
        &mut self,
        _cx: &mut Cx<'_>,
        _meet: &Meet,
        _held: &CallTrace,
        _by: &guardrail_finding::ContextInfo,
    ) {
    }
    /// The run has ended.
    fn finish(&mut self, _cx: &mut Cx<'_>) {}
}

/// Where a finding is in the code of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// At an instruction of the driver.
    Insn(u64),
    /// At the kernel function that the context is calling.
    Call,
    /// At the driver's function in this stack.
    Stack(StackId),
}

/// A finding that is not reported yet.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// The text of the finding.
    pub message: String,
    /// How severe the finding is.
    pub severity: Severity,
    /// The object that the finding is about; `None` where there is no such object.
    pub object: Option<Object>,
    /// Offset of the access in the object, and the member there; the member is absent where the type is not
    /// known.
    pub within: Option<(i64, Option<String>)>,
    /// The module's variable that was accessed, with an offset in it; `None` where it was none.
    pub variable: Option<String>,
    /// Where the undefined value was made; 0 where there is no such value.
    pub origin: Origin,
    /// The address around which the report shows the shadow memory; `None` where it shows none.
    pub shadow: Option<u64>,
    /// The access at fault.
    pub access: Option<AccessInfo>,
    /// The second access of a race.
    pub other: Option<OtherAccess>,
    /// Further sites that explain the finding.
    pub related: Vec<Related>,
    /// Sentences that explain the finding.
    pub notes: Vec<String>,
    /// The verdict, `harmful`, `undecided` or `likely benign`, with the reason; `None` without one.
    pub triage: Option<String>,
}

impl Draft {
    /// An error that has a message and nothing else.
    pub fn error(message: String) -> Draft {
        Draft { message, ..Draft::default() }
    }
}

/// The arguments that every call of a checker shares.
pub struct Cx<'a> {
    /// The state of the machine.
    pub state: &'a State,
    /// The context that runs; `None` where it is not known.
    pub context: Option<&'a Context>,
    /// The findings so far.
    pub reports: &'a mut Reports,
    /// The definedness of memory as it was before the event; where a call returns, as the call left it.
    pub definedness: &'a mut Definedness,
    /// Number of the vCPU.
    pub cpu: u32,
    /// Number of the event.
    pub event: u64,
}

impl Cx<'_> {
    /// The stack at a site: the instruction first, then return addresses.
    pub fn stack(&self, site: Site) -> CallTrace {
        let innermost = match site {
            Site::Insn(pc) => Some(pc),
            Site::Call => self.context.and_then(Context::out).map(|out| out.pc),
            Site::Stack(id) => return self.state.stacks.trace(id),
        };
        let near = innermost.into_iter().collect();
        match self.context {
            Some(context) => context.trace(near),
            None => CallTrace { near, ..CallTrace::default() },
        }
    }

    /// Reports a finding, or counts it where it is known. Returns its number.
    pub fn report(
        &mut self,
        checker: &'static str,
        kind: &'static str,
        site: Site,
        draft: impl FnOnce() -> Draft,
    ) -> Option<usize> {
        let stack = self.stack(site);
        self.report_stack(checker, kind, &stack, draft)
    }

    /// Like [`Self::report`], at a stack of addresses.
    pub fn report_stack(
        &mut self,
        checker: &'static str,
        kind: &'static str,
        stack: &CallTrace,
        draft: impl FnOnce() -> Draft,
    ) -> Option<usize> {
        self.report_as(checker, kind, stack, &stack.near, draft)
    }

    /// Like [`Self::report_stack`], but `key`, not the stack, distinguishes findings of this kind.
    pub fn report_as(
        &mut self,
        checker: &'static str,
        kind: &'static str,
        stack: &CallTrace,
        key: &[u64],
        draft: impl FnOnce() -> Draft,
    ) -> Option<usize> {
        let key = self.reports.key(kind, key);
        self.reports.count_again(key).or_else(|| {
            let finding = self.finding(checker, kind, stack, draft());
            self.reports.add(key, finding)
        })
    }

    /// The finding that a draft describes. It is apart from the callers' closures, so that it is compiled once.
    fn finding(&self, checker: &str, kind: &str, stack: &CallTrace, draft: Draft) -> Finding {
        let (state, context, cpu, event) = (self.state, self.context, self.cpu, self.event);
        let definedness = &*self.definedness;
        let frames = state.whole(stack);
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
            location: top.and_then(|f| f.source().cloned()),
            stack: frames,
            context: describe(state, context, cpu),
            access: draft.access,
            other: draft.other,
            related: draft.related,
            notes: draft.notes,
            object,
            variable: draft.variable,
            origin: definedness.origins.describe(state, draft.origin),
            shadow: draft.shadow.map_or_else(Vec::new, |at| definedness.dump(state, at)),
            event,
            ..Finding::default()
        }
    }
}
