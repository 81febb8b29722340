//! Knowledge about kernel functions that the driver calls and that call the driver.

use crate::order::{CallbackRef, LIBRARY, LIBRARY_HANDLERS, Order, Rules};
use crate::replay::Replay;
use guardrail_knowledge::effect::{Effect, Summary, SyncOp};
use guardrail_knowledge::role::Role;
use rustc_hash::{FxHashMap, FxHashSet};
use std::rc::Rc;

const MAX_CACHED: usize = 1 << 16;
/// Most hooks that a world may have.
pub(super) const MAX_HOOKS: u64 = 4096;
/// Most modules with handlers that are known.
const MAX_HANDLERS: usize = 256;
/// Where modules begin.
const MODULES: u64 = 0xffff_ffff_c000_0000;

/// What is known about a kernel function that the driver calls.
#[derive(Debug)]
pub(super) struct Callee {
    /// The tracer hooks it, so the log holds its calls.
    pub hooked: bool,
    /// It has effects on locks or order.
    pub ordering: bool,
    pub rules: Vec<Rules>,
    /// It waits until no handler of an interrupt runs.
    pub silences: bool,
}

/// What is known about a kernel function that calls the driver.
#[derive(Debug)]
pub(super) struct Caller {
    pub name: String,
    pub candidates: Vec<CallbackRef>,
    pub worker: bool,
    pub after_grace: bool,
    /// It runs the exit functions of modules.
    pub exit: bool,
    /// It is in a module that is not watched.
    pub library: bool,
    /// Where that module begins, if it has handlers of the driver's interrupts; otherwise 0.
    pub handler: u64,
}

/// What was found out about kernel functions, by their addresses.
#[derive(Debug, Default)]
pub(super) struct Functions {
    callees: FxHashMap<u64, Rc<Callee>>,
    callers: FxHashMap<u64, Rc<Caller>>,
    hooks: FxHashMap<u64, Rc<Callee>>,
    /// Link-time addresses of functions that the tracer hooks.
    pub hooked: FxHashSet<u64>,
    /// First addresses of modules that are not watched and have handlers of the driver's interrupts.
    handlers: FxHashSet<u64>,
}

impl Functions {
    /// Forgets what depends on addresses.
    pub fn moved(&mut self) {
        self.callees.clear();
        self.callers.clear();
    }
}

impl Replay {
    pub(super) fn callee(&mut self, target: u64, summary: &Summary) -> Rc<Callee> {
        if let Some(callee) = self.order.functions.callees.get(&target) {
            return Rc::clone(callee);
        }
        let callee = Rc::new(Callee {
            hooked: self.order.functions.hooked.contains(&target.wrapping_sub(self.state.slide)),
            ordering: has_sync(summary),
            rules: self.state.order.rules(&self.state.kernel_function(target)),
            silences: Role::Silences.has(&summary.name),
        });
        if self.order.functions.callees.len() >= MAX_CACHED {
            self.order.functions.callees.clear();
        }
        self.order.functions.callees.insert(target, Rc::clone(&callee));
        callee
    }

    pub(super) fn caller(&mut self, ret: u64) -> Rc<Caller> {
        if let Some(caller) = self.order.functions.callers.get(&ret) {
            return Rc::clone(caller);
        }
        // A call may be the last instruction of its function.
        let mut name = String::new();
        if ret != 0 {
            name = self.state.kernel_function(ret.wrapping_sub(1));
            if name.is_empty() && self.state.modules.contains(ret) {
                name = self.state.frame(ret, true).function;
            }
        }
        let name = Order::plain(&name).to_owned();
        let caller = Rc::new(Caller {
            candidates: self.state.order.made_by(&name),
            worker: Role::Worker.has(&name),
            after_grace: Role::AfterGrace.has(&name),
            exit: Role::Unloads.has(&name),
            library: self.is_library(ret),
            handler: self
                .library_start(ret)
                .filter(|start| self.order.functions.handlers.contains(start))
                .unwrap_or(0),
            name,
        });
        if self.order.functions.callers.len() >= MAX_CACHED {
            self.order.functions.callers.clear();
        }
        self.order.functions.callers.insert(ret, Rc::clone(&caller));
        caller
    }

    pub(super) fn hook_callee(&mut self, hook: u64, summary: &Summary) -> Rc<Callee> {
        if let Some(callee) = self.order.functions.hooks.get(&hook) {
            return Rc::clone(callee);
        }
        let callee = Rc::new(Callee {
            hooked: true,
            ordering: has_sync(summary),
            rules: self.state.order.rules(&summary.name),
            silences: Role::Silences.has(&summary.name),
        });
        if self.order.functions.hooks.len() < MAX_HOOKS as usize {
            self.order.functions.hooks.insert(hook, Rc::clone(&callee));
        }
        callee
    }

    /// Whether a task runs callbacks for many objects, so that its own order means nothing.
    pub(super) fn is_worker(&self, c: usize, caller: &Caller, chart: usize) -> bool {
        let deferred = self.state.order.charts().get(chart).is_some_and(|chart| chart.deferred);
        let task = self.contexts.get(c).map_or(0, |context| context.task);
        deferred || caller.worker || self.state.is_worker(task)
    }

    /// Whether an address is in a module that is not watched.
    pub(super) fn is_library(&self, addr: u64) -> bool {
        addr >= MODULES && !self.state.modules.contains(addr)
    }

    /// First address of the module that is not watched and holds an address; `None` where the address is in
    /// no such module.
    pub(super) fn library_start(&self, addr: u64) -> Option<u64> {
        if !self.is_library(addr) {
            return None;
        }
        Some(self.state.modules.other_at(addr)?.regions.first()?.start)
    }

    /// Notes a request for an interrupt line: its handler may run from now on.
    pub(super) fn notes_line(&mut self, c: usize, name: &str) {
        if Role::RequestsLine.has(name)
            && let Some(context) = self.contexts.get_mut(c)
        {
            context.order.requests_line();
        }
    }

    /// Notes the module of a handler that the driver requests an interrupt for, where this module is not
    /// watched.
    pub(super) fn notes_handler(&mut self, name: &str, args: &[u64; 6]) {
        if Role::RequestsLine.has(name)
            && let Some(start) = self.library_start(args[1])
            && self.order.functions.handlers.len() < MAX_HANDLERS
            && self.order.functions.handlers.insert(start)
        {
            self.order.functions.callers.clear();
        }
    }

    /// A context that brings a device up calls a module that is not watched. The call releases what the
    /// context did, because the module may call back later.
    pub(super) fn call_library(&mut self, c: usize, target: u64) {
        let Some(context) = self.contexts.get(c) else { return };
        let strand = context.order.now.strand;
        if context.order.brings_up() && self.state.order.parts().states && self.is_library(target) {
            let what = if context.order.was_left_bringing_up() { LIBRARY_HANDLERS } else { LIBRARY };
            self.state.order.release(strand, what);
            self.refresh_clock(c);
        }
    }
}

/// Whether a function runs with a lock held that the driver does not see taken.
pub(super) fn holds(summary: &Summary) -> bool {
    summary.effects.iter().any(|effect| matches!(effect, Effect::Sync(SyncOp::Hold { .. })))
}

fn has_sync(summary: &Summary) -> bool {
    summary
        .effects
        .iter()
        .any(|effect| matches!(effect, Effect::Sync(op) if !matches!(op, SyncOp::Sleeps { .. })))
}
