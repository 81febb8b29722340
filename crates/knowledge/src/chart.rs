//! What a chart says: the protocol between a class of kernel objects and the drivers that use them.
//!
//! A chart is a statechart: states form a hierarchy; calls of the driver into the kernel and callbacks of the kernel into
//! the driver move an object from state to state; each callback is allowed in some states. Two things follow from it.
//! *Order*: when a call or callback moves an object to a state that no longer allows a callback, all runs of that callback
//! have ended, so they come before what follows; and what came before a move to a state that newly allows a callback comes before
//! its runs. *Protocol*: a call in a state that has no rule for it is a fault of the driver.
//!
//! The idea and the form follow "Automatic Verification of Active Device Drivers" (2012), section 3.

pub mod parse;
#[cfg(test)]
mod tests;

use crate::effect::{Key, When};

/// In the place of an argument register: the current task.
pub const CURRENT: u8 = 6;

/// A set of states or callbacks of one chart, by index: bit `i` is item `i`.
pub type Set = u64;

/// How the memory of an object changes hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    /// The driver is about to lend the object's memory to its device: it does with its next store to the device.
    Lends,
    /// The memory is the kernel's, which hands it on to whoever touches it next.
    Gives,
    /// A callback that has such memory from the kernel, and gives it back where it fails.
    Takes,
    /// A callback that has several such objects from the kernel, and leaves those there that it does not lend.
    TakesSome,
    /// A callback that has such memory back from the device, as interrupt handlers have.
    Completes,
}

/// A class of kernel objects and its protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chart {
    /// Its name, such as `timer`.
    pub name: String,
    /// It describes deferred work; its edges count as deferral and not as device state.
    pub deferred: bool,
    /// Its objects keep their driver's module: what their callbacks do comes before the module's exit function.
    pub pins: bool,
    /// Who makes an object calls a function that moves it to the initial state from any other.
    pub made: bool,
    /// What instances are told apart by: names of up to two key parts.
    pub keys: Vec<String>,
    /// All states; a state comes after the one that it is part of.
    pub states: Vec<State>,
    /// Index of the state in which instances begin (a leaf).
    pub initial: usize,
    /// What the kernel calls.
    pub callbacks: Vec<Callback>,
    /// What the driver calls.
    pub calls: Vec<Call>,
}

/// A state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Its name.
    pub name: String,
    /// The state that it is part of.
    pub parent: Option<usize>,
    /// An object in this state must not be freed, and the driver must not be unloaded; why, as `the timer is pending`.
    pub busy: Option<String>,
    /// An object in this state waits for the driver's answer (a timed state): at unload it is a request never completed.
    pub owed: bool,
}

/// A callback of the kernel into the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callback {
    /// Its name, such as `poll`.
    pub name: String,
    /// Names of the kernel functions that it is called from; matched after dropping suffixes such as `.isra.0`.
    /// Empty: any, when the arguments name an instance that is known.
    pub from: Vec<String>,
    /// For each key part, the argument register (0..=5) that holds it, where one does; [`CURRENT`] is the current task.
    pub keys: Vec<Option<u8>>,
    /// The leaf states that allow it.
    pub states: Set,
    /// It never runs concurrently with itself for one instance.
    pub serial: bool,
    /// Where its beginning moves the object.
    pub enters: Option<usize>,
    /// Where its return moves the object, and for which results.
    pub leaves: Option<(usize, When)>,
    /// Callbacks that it sets off: what it did comes before their next run.
    pub wakes: Set,
    /// All callbacks that name this object take turns: something of the kernel orders them that is not seen.
    pub turns: Option<Key>,
    /// What it does with the object's memory: *gives* when it returns, all else when it begins.
    pub hand: Option<Hand>,
    /// User processes are frozen while it runs.
    pub frozen: bool,
}

/// A rule for a call of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The kernel function.
    pub function: String,
    /// For each key part, where the call has it, if it has.
    pub keys: Vec<Option<Key>>,
    /// For which results the rule holds.
    pub when: When,
    /// The leaf states in which the call is allowed; all bits set: in any.
    pub from: Set,
    /// Where it moves the object; `None`: it stays.
    pub to: Option<usize>,
    /// It does not wait for callbacks that are running.
    pub nowait: bool,
    /// Callbacks that the call sets off: what came before it comes before their next run.
    pub wakes: Set,
    /// Callbacks whose runs have ended when the call returns, whatever the state.
    pub waits: Set,
    /// What it does with the object's memory; without a key, with what its strand has back from the device.
    pub hand: Option<Hand>,
}

impl Chart {
    /// A state's name after those of the states that it is part of, as `registered.running`.
    pub fn path(&self, state: usize) -> String {
        // A state comes after the one that it is part of, so this ends.
        let outer =
            |&at: &usize| self.states.get(at).and_then(|state| state.parent).filter(|&parent| parent < at);
        let mut names: Vec<&str> = std::iter::successors(Some(state), outer)
            .filter_map(|at| Some(self.states.get(at)?.name.as_str()))
            .collect();
        names.reverse();
        names.join(".")
    }
}
