//! What a chart describes: the protocol between a class of kernel objects and the drivers that use them.
//!
//! A chart is a statechart, and its states form a hierarchy.
//! Calls of the driver into the kernel and callbacks of the kernel into the driver move an object from state
//! to state.
//! Each callback is allowed in some states. A chart decides order and protocol:
//!
//! - *Order*, where a state no longer allows a callback: when an object moves there, all runs of that
//!   callback have ended. They happen before what follows.
//! - *Order*, where a state newly allows a callback: what precedes a move of an object to it happens before
//!   the callback's runs.
//! - *Protocol*. A call in a state that has no rule for it is a fault of the driver.
//!
//! The idea and the form follow "Automatic Verification of Active Device Drivers" (2012), section 3.

pub mod parse;
#[cfg(test)]
mod tests;

use crate::effect::{Key, When};

/// Stands in place of an argument register: the current task.
pub const CURRENT: u8 = 6;

/// A set of states or callbacks of one chart, by index: bit `i` is item `i`.
pub type Set = u64;

/// How the memory of an object changes hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    /// The driver is about to lend the object's memory to its device: its next store to the device does so.
    Lends,
    /// The memory is the kernel's, which passes it to the next user.
    Gives,
    /// The callback has such memory from the kernel, and returns it where the callback fails.
    Takes,
    /// The callback has several such objects from the kernel, and leaves those there that it does not lend.
    TakesSome,
    /// The callback has such memory back from the device, as interrupt handlers have.
    Completes,
}

/// A class of kernel objects and its protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chart {
    /// The chart's name, such as `timer`.
    pub name: String,
    /// Whether it describes deferred work; its edges count as deferral and not as device state.
    pub deferred: bool,
    /// Whether its objects keep their driver's module loaded: what their callbacks do happens before the
    /// module's exit function.
    pub pins: bool,
    /// Whether the maker of an object calls a function that moves it to the initial state from any other.
    pub made: bool,
    /// Whether its callbacks run as interrupts of a clock, and never as the answer of a device.
    pub ticks: bool,
    /// What distinguishes instances: names of up to two key parts.
    pub keys: Vec<String>,
    /// All states; each state stands behind the one that it is part of.
    pub states: Vec<State>,
    /// Index of the state in which instances begin (a leaf).
    pub initial: usize,
    /// The driver's functions that the kernel calls.
    pub callbacks: Vec<Callback>,
    /// Rules for the kernel's functions that the driver calls.
    pub calls: Vec<Call>,
}

/// A state of a chart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The name, without those of the states that it is part of.
    pub name: String,
    /// Index of the state that it is part of; `None` at the top.
    pub parent: Option<usize>,
    /// Why an object in this state must not be freed, and the driver must not be unloaded: as `the timer is
    /// pending`. `None` if both may happen.
    pub busy: Option<String>,
    /// Whether an object in this state waits for the driver's answer (a timed state). At unload it is a
    /// request that was never completed.
    pub owed: bool,
}

/// A callback of the kernel into the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callback {
    /// The name, such as `poll`.
    pub name: String,
    /// Names of the kernel functions that it is called from, matched without suffixes such as `.isra.0`. If
    /// empty, any caller matches when the arguments name a known instance.
    pub from: Vec<String>,
    /// For each key part, the argument register (0..=5) that holds it, where one does; [`CURRENT`] is the
    /// current task.
    pub keys: Vec<Option<u8>>,
    /// The leaf states that allow it.
    pub states: Set,
    /// Whether it never runs concurrently with itself for one instance.
    pub serial: bool,
    /// The leaf state to which its beginning moves the object; `None` if the object stays.
    pub enters: Option<usize>,
    /// The leaf state to which its return moves the object, and for which results; `None` if the object
    /// stays.
    pub leaves: Option<(usize, When)>,
    /// Callbacks that it triggers: what it did happens before their next run.
    pub wakes: Set,
    /// The object by which callbacks take turns: all callbacks that name it are ordered by something in the
    /// kernel that is not seen.
    pub turns: Option<Key>,
    /// What it does with the object's memory: *gives* when it returns, all else when it begins.
    pub hand: Option<Hand>,
    /// Whether user processes are frozen while it runs.
    pub frozen: bool,
    /// Whether the layer above waits for its runs before the system sleeps, and lets none begin until the device is
    /// resumed.
    pub drained: bool,
    /// Whether it brings up a device or its driver. What it does before it writes to the device comes before interrupts
    /// that follow. What it does before it calls a module that is not watched comes before what that module calls back.
    pub starts: bool,
    /// Whether it takes something away, such as the device or a file.
    pub stops: bool,
}

/// A rule for a call of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The name of the kernel function.
    pub function: String,
    /// For each key part, where the call has it; `None` where it does not.
    pub keys: Vec<Option<Key>>,
    /// For which results the rule holds.
    pub when: When,
    /// The leaf states in which the call is allowed; all bits set: in any.
    pub from: Set,
    /// The leaf state to which it moves the object; `None` if the object stays.
    pub to: Option<usize>,
    /// Whether it does not wait for callbacks that are running.
    pub nowait: bool,
    /// Callbacks that the call triggers: what precedes the call happens before their next run.
    pub wakes: Set,
    /// Callbacks whose runs have ended when the call returns, in every state.
    pub waits: Set,
    /// What it does with the object's memory. Without a key, it is the memory that its strand has back from
    /// the device.
    pub hand: Option<Hand>,
}

impl Chart {
    /// A state's name after those of the states that it is part of, as `registered.running`.
    pub fn path(&self, state: usize) -> String {
        // A state stands behind the one that it is part of, so this ends.
        let outer =
            |&at: &usize| self.states.get(at).and_then(|state| state.parent).filter(|&parent| parent < at);
        let mut names: Vec<&str> = std::iter::successors(Some(state), outer)
            .filter_map(|at| Some(self.states.get(at)?.name.as_str()))
            .collect();
        names.reverse();
        names.join(".")
    }
}
