//! What the most general client of an ordinary driver does.

use crate::code::Function;
use crate::code::effects::{Effects, Writes};
use guardrail_protocol::model::Outcome;
use rustc_hash::{FxHashMap, FxHashSet};
use std::rc::Rc;

/// For which results a call acquires something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Success {
    /// For all.
    Always,
    /// For 0; others are negative.
    Zero,
    /// For all but 0.
    NonZero,
    /// For more than 0; others are negative.
    Positive,
    /// For all but error pointers.
    Valid,
}

/// A message that a call stands for.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its number.
    pub number: u64,
    /// For which results.
    pub success: Success,
    /// An argument, and a message that may come only while nothing is held: the argument is zero only then.
    pub argument: Option<(usize, u64)>,
}

/// A callback that the client begins.
#[derive(Clone, Debug)]
pub struct Callback {
    /// The number of the message that begins it.
    pub number: u64,
    /// The functions, of which one is called; none where the driver has none, and the kernel does without.
    pub functions: Vec<Function>,
    /// The messages that its end stands for, and for which results.
    pub ends: Vec<(u64, Outcome)>,
    /// Whether it begins only while the device is awake.
    pub awake: bool,
}

/// The client of a driver, for some protocols.
#[derive(Debug)]
pub struct ClientPlan<'w> {
    /// A function without a body that stands for the kernel.
    pub kernel: crate::ir::instruction::Function,
    /// Calls by the function's name.
    pub by_name: FxHashMap<String, Vec<Event>>,
    /// Calls by their place: the address of the instruction.
    pub by_site: FxHashMap<usize, Vec<Event>>,
    /// Functions whose bodies are put in.
    pub relevant: FxHashSet<Function>,
    /// The callbacks.
    pub callbacks: Vec<Callback>,
    /// Of a kernel function, the callback that it calls, and the message that says that there is nothing to call.
    pub during: FxHashMap<String, (Callback, u64)>,
    /// Of a kernel function that returns a truth: the messages that may come while it is true, and while it is not.
    pub asks: FxHashMap<String, (u64, u64)>,
    /// What kernel functions return.
    pub results: FxHashMap<String, Success>,
    /// The message that says that the device is awake.
    pub awake: u64,
    /// Messages after which the device has no driver.
    pub over: Vec<u64>,
    /// What functions write that the client does not call but the kernel may.
    pub idle: Rc<Effects>,
    /// What functions write that are not followed.
    pub writes: &'w Writes,
}
