//! Feeds the order of events, and the checkers with what follows.

mod calls;
mod entries;
mod functions;
mod holds;
mod hooks;
mod locks;

use crate::checker::Checker;
use crate::order::{Order, Parts};
use crate::replay::Replay;
use functions::{Functions, MAX_HOOKS};
use holds::Holds;

/// What the machine keeps for locks, order and states.
#[derive(Debug, Default)]
pub(super) struct Ordering {
    /// Some checker asks for it.
    pub on: bool,
    functions: Functions,
    holds: Holds,
    /// Counts entries into the driver.
    serial: u64,
    /// What the function that returns next to the kernel gives.
    pub result: Option<u64>,
}

impl Ordering {
    /// Nothing is known yet.
    pub fn new(on: bool) -> Ordering {
        Ordering { on, ..Ordering::default() }
    }

    /// Forgets what depends on where things are.
    pub fn moved(&mut self) {
        self.functions.moved();
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
    /// Gets ready for a world.
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
