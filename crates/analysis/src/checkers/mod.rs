//! Checkers: each is fed with what the driver did and what the machine knows, and reports findings.

pub mod datacollider;
pub mod dmacheck;
pub mod dmcheck;
pub mod drcheck;
pub mod lockcheck;
pub mod names;
pub mod protocheck;

use crate::context::{Context, Out};
use crate::effect::Summary;
use crate::flow::{InsnCtx, Origin, Regs, RepRange, Value};
use crate::machine::{Cx, Place};
use crate::objects::{Object, ObjectId};
use crate::stacks::StackId;
use crate::sync::{Acquired, Activation, LockId, Parts, Step};
use guardrail_trace::event::Access;
use guardrail_trace::meet::Meet;
use std::sync::Arc;

/// The tools that there are.
pub const TOOLS: &[&str] = &[
    "dmcheck",
    "drcheck",
    "dmacheck",
    "lockcheck",
    "protocheck",
    "datacollider",
    "drcheck:defer",
    "drcheck:klockset",
];

/// The checker for a tool's name.
pub fn by_name(tool: &str) -> Option<Box<dyn Checker>> {
    match tool {
        "dmcheck" => Some(Box::new(dmcheck::DmCheck::default())),
        "dmacheck" => Some(Box::new(dmacheck::DmaCheck::default())),
        "datacollider" => Some(Box::new(datacollider::DataCollider)),
        "drcheck" => Some(Box::new(drcheck::DrCheck::full())),
        "drcheck:defer" => Some(Box::new(drcheck::DrCheck::deferral())),
        "drcheck:klockset" => Some(Box::new(drcheck::DrCheck::lockset())),
        "lockcheck" => Some(Box::new(lockcheck::LockCheck::default())),
        "protocheck" => Some(Box::new(protocheck::ProtoCheck::default())),
        _ => {
            let options = tool.strip_prefix("dmacheck:")?;
            Some(Box::new(dmacheck::DmaCheck::with_options(options)?))
        }
    }
}

/// The checkers for tools that run together; the name of one that does not exist.
pub fn by_names(tools: &[String]) -> Result<Vec<Box<dyn Checker>>, String> {
    let dma = tools.iter().any(|tool| tool.starts_with("dmacheck"));
    let checker = |tool: &String| match tool.as_str() {
        "dmcheck" if dma => Some(Box::new(dmcheck::DmCheck::beside_dmacheck()) as Box<dyn Checker>),
        tool => by_name(tool),
    };
    let mut checkers = tools
        .iter()
        .map(|tool| checker(tool).ok_or_else(|| tool.clone()))
        .collect::<Result<Vec<Box<dyn Checker>>, String>>()?;
    if dma && !tools.iter().any(|tool| tool == "dmcheck") {
        checkers.push(Box::new(dmcheck::DmCheck::for_dmacheck()));
    }
    Ok(checkers)
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

/// A checker. All methods but the name have nothing to do by default.
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
    /// The kernel calls the driver; the activation is on the context's stack and in [`State::sync`](crate::machine::State).
    fn entered(&mut self, _cx: &mut Cx<'_>, _activation: &Activation) {}
    /// The driver returns to the kernel.
    fn left(&mut self, _cx: &mut Cx<'_>, _activation: &Activation) {}
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
    fn met(&mut self, _cx: &mut Cx<'_>, _meet: &Meet, _held: &[u64], _by: &crate::finding::Context) {}
    /// The run is over.
    fn finish(&mut self, _cx: &mut Cx<'_>) {}
    /// Forgets what depended on this context; it will not run again.
    fn context_gone(&mut self, _context: &Context) {}
}
