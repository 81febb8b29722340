//! Feeds the order of events, and calls the checkers with what follows.

mod calls;
mod entries;
mod functions;
mod holds;
mod hooks;
mod locks;

use crate::checker::Checker;
use crate::order::{Order, Parts};
use crate::replay::Replay;
use crate::stacks::OuterId;
use functions::{Functions, MAX_HOOKS};
use holds::Holds;
use rustc_hash::FxHashMap;

/// The replay's own state for locks, order and states.
#[derive(Debug, Default)]
pub(super) struct Ordering {
    /// Some checker needs locks, order or states.
    pub on: bool,
    functions: Functions,
    holds: Holds,
    /// Whether the kernel suspends a device in the stacks that were met.
    suspending: FxHashMap<OuterId, bool>,
    /// The number of the last entry into the driver.
    serial: u64,
    /// The result of the function that is about to return to the kernel.
    pub result: Option<u64>,
}

impl Ordering {
    /// The state before the first event.
    pub fn new(on: bool) -> Ordering {
        Ordering { on, ..Ordering::default() }
    }

    /// Forgets what depends on addresses.
    pub fn moved(&mut self) {
        self.functions.moved();
        self.suspending.clear();
    }
}

/// Whether some checker needs locks and order, and which parts of them count.
pub(super) fn wanted(checkers: &[Box<dyn Checker>]) -> (bool, Parts) {
    let on = checkers.iter().any(|checker| checker.needs_sync());
    let all = checkers.iter().filter_map(|checker| checker.parts()).reduce(|a, b| Parts {
        deferral: a.deferral || b.deferral,
        states: a.states || b.states,
        atomics: a.atomics || b.atomics,
    });
    (on, all.unwrap_or_default())
}

impl Replay {
    /// Sets up charts and hooks from the machine's world.
    pub(in crate::replay) fn prepare_order(&mut self, parts: Parts) {
        let world = &self.state.world;
        self.state.order = Order::new(world.charts(), parts);
        for hook in (0..MAX_HOOKS).take_while(|&hook| world.hook(hook).is_some()) {
            let address = world.hook_address(hook);
            if address != 0 {
                self.order.functions.hooked.insert(address);
            }
        }
    }
}
