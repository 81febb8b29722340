//! Checkers: each is fed with what the driver did and what the machine knows, and reports findings.

pub mod dmcheck;

use crate::context::{Context, Out};
use crate::flow::{InsnCtx, Origin, Regs, RepRange, Value};
use crate::machine::Cx;
use crate::objects::{Object, ObjectId};
use guardrail_trace::event::Access;

/// The tools that there are.
pub const TOOLS: &[&str] = &["dmcheck"];

/// The checker for a tool's name.
pub fn by_name(tool: &str) -> Option<Box<dyn Checker>> {
    match tool {
        "dmcheck" => Some(Box::new(dmcheck::DmCheck::default())),
        _ => None,
    }
}

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

/// An access that the processor refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The instruction.
    pub pc: u64,
    /// The address, where it was a page fault; otherwise a general protection fault.
    pub address: Option<u64>,
}

/// A checker. All methods but the name have nothing to do by default.
pub trait Checker {
    /// Its name, as a tool.
    fn name(&self) -> &'static str;
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
    /// The run is over.
    fn finish(&mut self, _cx: &mut Cx<'_>) {}
    /// Forgets what depended on this context; it will not run again.
    fn context_gone(&mut self, _context: &Context) {}
}
