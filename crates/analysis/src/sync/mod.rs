//! Who holds which locks, what comes before what, and in which state the kernel's objects are.
//!
//! Fed by the machine with calls, entries and returns; asked by checkers. Three parts:
//!
//! - *Locks* ([`LockId`], [`LocksetId`]): what each context holds, with the stack that took it.
//! - *Strands* ([`StrandId`]): what runs in order. A task is a strand; so is all that one serial callback of one object runs (a
//!   timer's function, a NAPI instance's poll); other interrupt work is a strand for each vCPU, level and function.
//!   A context that interrupts a task is not ordered with it. Vector clocks over strands say what comes before what, in two
//!   relations: *hard* order (deferral, states, completions, atomics) and *full* order, which also counts a lock's release
//!   before its next acquisition.
//! - *States* of objects, by the charts of [`guardrail_kernel::chart`].

use crate::effect::{LockKind, LockMode};
use crate::stacks::StackId;
pub use guardrail_kernel::chart::{self, Chart};

/// Names a lock; not used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockId(pub u32);

/// Names a set of locks with the modes in which they are held; 0 is the empty set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocksetId(pub u32);

/// Names a strand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StrandId(pub u32);

/// What the processor keeps away from a context on its vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Off {
    /// Interrupts are off, or this is an interrupt.
    pub irqs: bool,
    /// Softirqs are off, or this is one, or interrupts are off.
    pub softirqs: bool,
    /// Preemption is off.
    pub preemption: bool,
}

/// Where a context stands, for a checker that keeps it with what the context does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Now {
    /// Its strand.
    pub strand: StrandId,
    /// The strand's clock: grows with each release.
    pub clock: u32,
    /// What it holds.
    pub locks: LocksetId,
    /// What is off.
    pub off: Off,
}

/// A lock that a context holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquired {
    /// Which.
    pub lock: LockId,
    /// How.
    pub mode: LockMode,
    /// The stack of the call that took it.
    pub stack: StackId,
    /// It was taken without waiting.
    pub tried: bool,
    /// It was taken by the caller of the driver, and not by the driver.
    pub by_kernel: bool,
    /// What was off before it was taken.
    pub off: Off,
}

/// A lock, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// Its sort.
    pub kind: LockKind,
    /// Its address, or 0 where there is one in the kernel.
    pub address: u64,
    /// Its name where it has one (`rtnl`).
    pub name: Option<&'static str>,
}

/// A run of a driver function that the kernel called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activation {
    /// The driver's function.
    pub function: u64,
    /// The kernel function that called it; empty where it is not known.
    pub caller: String,
    /// The callback of a chart that this is: chart, callback and instance.
    pub callback: Option<(usize, usize, u32)>,
    /// Its strand.
    pub strand: StrandId,
    /// Counts activations.
    pub serial: u64,
}

/// An object's step in its chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The chart.
    pub chart: usize,
    /// The instance.
    pub instance: u32,
    /// Its key.
    pub key: [u64; 2],
    /// The call (`Ok`) or callback (`Err`) that did it: index in the chart.
    pub cause: Result<usize, usize>,
    /// Where the object was (a leaf).
    pub from: usize,
    /// Where it is now.
    pub to: usize,
    /// The state allows this.
    pub allowed: bool,
    /// The object had been seen before, so that its state is known for certain.
    pub known: bool,
}

/// Which parts of the order and of the locks count: what the tools' options choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Deferred work: charts that say so, and `wakes` and `waits` of all charts; completions, RCU.
    pub deferral: bool,
    /// States: moves in charts of devices.
    pub states: bool,
    /// Atomics, and coherent DMA memory that is handed to and fro.
    pub atomics: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Parts { deferral: true, states: true, atomics: true }
    }
}

/// Locks, order and states of a run.
#[derive(Debug, Default)]
pub struct Sync {}

impl Sync {
    /// Whether what `earlier` did up to its clock comes before what `now` does from here on, for other reasons than locks.
    pub fn ordered(&self, _earlier: (StrandId, u32), _now: StrandId) -> bool {
        false
    }

    /// The same, where a lock's release comes before its next acquisition.
    pub fn ordered_fully(&self, _earlier: (StrandId, u32), _now: StrandId) -> bool {
        false
    }

    /// A lock that is in both sets, and in one of them exclusively.
    pub fn common(&self, _a: LocksetId, _b: LocksetId) -> Option<LockId> {
        None
    }

    /// The locks of a set.
    pub fn locks(&self, _set: LocksetId) -> &[(LockId, LockMode)] {
        &[]
    }

    /// What a lock is.
    pub fn lock(&self, _lock: LockId) -> Option<&LockInfo> {
        None
    }

    /// A strand in words, such as `the timer function watchdog of the timer at 0x…`.
    pub fn describe(&self, _strand: StrandId) -> String {
        String::new()
    }

    /// The charts.
    pub fn charts(&self) -> &[Chart] {
        &[]
    }

    /// The state (a leaf) of an instance of a chart.
    pub fn state(&self, _chart: usize, _instance: u32) -> Option<usize> {
        None
    }

    /// The states of the objects that an activation is about, in words such as `netdev registered.running`.
    pub fn states_of(&self, _activation: &Activation) -> Vec<String> {
        Vec::new()
    }
}
