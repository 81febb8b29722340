//! Tells locks, strands and states of what happens, and checkers of what follows.

use super::{Entering, Machine};
use crate::checker::Checker;
use crate::level::Level;
use crate::machine::{Context, Out};
use crate::order::{
    Acquired, Activation, CallbackRef, DEVICE, GRACE, HANDLERS, LIBRARY, LockId, MAX_PENDING, Name, Now, Off,
    Parts, Pending, RCU, Rules, StrandId, Sync, Who, is_task, takes_place,
};
use crate::stacks::{MAX_FRAMES, StackId, same_stack};
use guardrail_knowledge::effect::{Effect, Key, LockKind, LockMode, Summary, SyncOp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::rc::Rc;
use std::sync::Arc;

const MAX_CACHED: usize = 1 << 16;
const MAX_TASKS: usize = 8192;
/// Hooks that there may be.
const MAX_HOOKS: u64 = 4096;
/// Locks and activations of one context.
const MAX_HELD: usize = 64;
const MAX_ACTIVATIONS: usize = 64;
/// Where callbacks have the current task, behind their arguments.
const CURRENT: u8 = guardrail_knowledge::chart::CURRENT;
/// Kernel functions that run what is one strand for each object, in threads that many objects share.
const WORKERS: [&str; 7] = [
    "process_one_work",
    "kthread_worker_fn",
    "irq_thread_fn",
    "irq_forced_thread_fn",
    "irq_thread",
    "napi_threaded_poll",
    "rcu_work_rcufn",
];
/// Callbacks that set a device or its driver going. What they do before they write to the device comes before interrupts that follow,
/// and what they do before they call a module that is not watched comes before what that calls back.
const BRINGS_UP: [&str; 11] = [
    "probe",
    "open",
    "prepare",
    "trigger",
    "resume",
    "early",
    "phase",
    "restore",
    "reset_done",
    "runtime_resume",
    "runtime",
];
/// What all functions that request an interrupt line end in.
const REQUESTS_LINE: &str = "request_threaded_irq";
/// In the place of a vCPU: what runs on any of them, but on one at a time.
const ONE_AT_A_TIME: u32 = u32::MAX;
/// Modules with handlers that are known.
const MAX_HANDLERS: usize = 256;
/// Where modules begin.
const MODULES: u64 = 0xffff_ffff_c000_0000;
/// Kernel functions that call what waited for a grace period.
const AFTER_GRACE: [&str; 4] = ["rcu_do_batch", "rcu_core", "srcu_invoke_callbacks", "rcu_tasks_invoke_cbs"];

/// What is known of a kernel function that the driver calls.
#[derive(Debug)]
struct Callee {
    /// The hook tells of it.
    hooked: bool,
    /// It does something to locks or order.
    sync: bool,
    rules: Vec<Rules>,
}

/// What is known of a kernel function that calls the driver.
#[derive(Debug)]
struct Caller {
    name: String,
    candidates: Vec<CallbackRef>,
    worker: bool,
    after_grace: bool,
    /// It runs what modules do when they go.
    exit: bool,
    /// It is in a module that is not watched.
    library: bool,
    /// Where that module begins, if it has handlers of the driver's interrupts.
    handler: u64,
}

/// A lock that is held as long as a hooked function runs.
#[derive(Clone, Debug)]
struct Hold {
    hook: u64,
    rsp: u64,
    lock: Acquired,
    /// Objects that the function acquires before it calls the driver.
    acquires: Vec<Name>,
    /// The context that holds it.
    context: Option<usize>,
}

/// What the machine keeps for locks, order and states.
#[derive(Debug, Default)]
pub(super) struct Ordering {
    /// Some checker asks for it.
    pub on: bool,
    callees: FxHashMap<u64, Rc<Callee>>,
    callers: FxHashMap<u64, Rc<Caller>>,
    hooks: FxHashMap<u64, Rc<Callee>>,
    hooked: FxHashSet<u64>,
    /// Where modules begin that are not watched and have handlers of the driver's interrupts.
    handlers: FxHashSet<u64>,
    holds: FxHashMap<u64, Vec<Hold>>,
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
        self.callees.clear();
        self.callers.clear();
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

impl Machine {
    /// Gets ready for a world.
    pub(super) fn prepare_order(&mut self, parts: Parts) {
        let world = &self.state.world;
        self.state.sync = Sync::new(world.charts(), parts);
        for hook in (0..MAX_HOOKS).take_while(|&hook| world.hook(hook).is_some()) {
            let address = world.hook_address(hook);
            if address != 0 {
                self.order.hooked.insert(address);
            }
        }
    }

    /// Driver code is about to run in a context. Before frames are dropped or added.
    pub(super) fn arrive(&mut self, v: usize, c: usize, entering: &Entering) {
        if !self.order.on {
            return;
        }
        let Some(context) = self.contexts.get_mut(c) else { return };
        let mut kept = Vec::new();
        if context.own.pid != entering.pid {
            // Another task at the same address. What it took outside of the driver was seen before it was.
            kept = std::mem::take(&mut context.held);
            kept.retain(|held| held.by_kernel);
            context.activations.clear();
            context.own.end_bringing_up(0);
            context.own.pending.clear();
            context.own.sections.clear();
            context.own.pid = entering.pid;
            context.now = Now::default();
        }
        let irqs_on = entering.flags & guardrail_trace::event::EnterFlags::INTERRUPTS_ON != 0;
        context.own.set(irqs_on, entering.preempt_count as u32);
        context.own.cpu = v as u32;
        context.now.off = context.own.off(context.level);
        if is_task(context.level) {
            let task = context.task;
            for lock in self.state.sync.waited(task) {
                self.hold(v, c, lock);
            }
        }
        if entering.args {
            self.end_stale(v, c, entering.rsp);
        }
        self.refresh(v, c, 0);
        if !entering.args {
            self.thaw(c);
        }
        for lock in kept {
            self.hold(v, c, lock);
        }
    }

    /// Sets what the context shows of itself.
    fn refresh(&mut self, v: usize, c: usize, function: u64) {
        let strand = match self.contexts.get(c).and_then(|context| context.activations.last()) {
            Some(activation) => Some(activation.strand),
            None => self.base_strand(v, c, function),
        };
        let (Some(strand), Some(context)) = (strand, self.contexts.get_mut(c)) else { return };
        context.now.strand = strand;
        context.now.clock = self.state.sync.runs(strand);
    }

    /// The strand of what runs in a context outside of any activation that is known.
    fn base_strand(&mut self, v: usize, c: usize, function: u64) -> Option<StrandId> {
        let context = self.contexts.get(c)?;
        let who = if is_task(context.level) {
            Who::Task { task: context.task, pid: context.pid }
        } else {
            Who::Interrupt { cpu: v as u32, level: context.level, function }
        };
        Some(self.strand(who, None))
    }

    fn strand(&mut self, who: Who, callback: Option<(usize, usize, u32)>) -> StrandId {
        if let Some(strand) = self.state.sync.strand(who) {
            return strand;
        }
        let function =
            |addr: u64| if addr == 0 { "?".to_owned() } else { self.state.frame(addr, false).function };
        let label = match (who, callback) {
            (Who::Task { task, pid }, _) => format!("the thread {}", self.state.thread_name(task, pid)),
            (Who::Serial { .. }, Some(callback)) => {
                let (name, object) = self.state.sync.callback_words(callback);
                format!("the callback {name} of {object}")
            }
            (Who::Serial { .. }, None) => String::new(),
            (Who::Work { function: at, item }, _) => format!("the work {} of {item:#x}", function(at)),
            (Who::Interrupt { cpu: ONE_AT_A_TIME, function: at, .. }, _) => {
                let module = self.state.modules.other_at(at).map_or("?", |module| &module.name);
                format!("the interrupt handler in {module}")
            }
            (Who::Interrupt { cpu, level, function: at }, _) => {
                format!("{} in {}s on CPU {cpu}", function(at), level.name())
            }
        };
        let user = matches!(who, Who::Task { task, .. } if self.state.is_user(task));
        self.state.sync.add_strand(who, label, user)
    }

    /// Driver code runs in a context. Unless that is within the system's sleep, its process is not frozen, if it is one.
    fn thaw(&mut self, c: usize) {
        let sync = &mut self.state.sync;
        let Some(context) = self.contexts.get(c).filter(|context| is_task(context.level) && sync.has_slept())
        else {
            return;
        };
        let frozen = |run: &Activation| run.callback.is_some_and(|callback| sync.is_frozen(callback));
        if !context.activations.iter().any(frozen) {
            sync.thaw(context.now.strand);
        }
    }

    /// A callback begins while user processes are frozen: what they did comes before.
    fn freeze(&mut self, strand: StrandId) {
        self.state.sync.freeze(strand);
        // Theirs have handed on what they did.
        for context in self.contexts.iter_mut().filter(|context| is_task(context.level)) {
            context.now.clock = self.state.sync.clock(context.now.strand);
        }
    }

    /// The kernel has called the driver's function at `addr`.
    pub(super) fn activate(&mut self, v: usize, c: usize, entering: &Entering, addr: u64) {
        if !self.order.on {
            return;
        }
        let caller = self.caller(entering.ret);
        let mut args = [0; 7];
        args[..6].copy_from_slice(&entering.registers);
        args[usize::from(CURRENT)] = entering.task;
        let callback = self.state.sync.recognize(&caller.candidates, &args);
        let Some(context) = self.contexts.get_mut(c) else { return };
        let (level, outer) = (context.level, context.activations.last().map(|a| a.strand));
        if outer.is_none() && is_task(level) && context.own.may_sleep() {
            // An unlock that was not seen: nothing that spins can be held here.
            let sync = &mut self.state.sync;
            let spins = |held: &Acquired| {
                sync.lock(held.lock).is_some_and(|lock| matches!(lock.kind, LockKind::Spin | LockKind::Rw))
            };
            context.held.retain(|held| held.by_kernel || !spins(held));
            context.own.sections.clear();
            context.now.locks = sync.lockset(&context.held);
        }
        if context.activations.len() >= MAX_ACTIVATIONS {
            context.activations.remove(0);
        }
        let serial = callback.filter(|&(chart, cb, _)| self.state.sync.is_serial((chart, cb)));
        let strand = match (outer, serial) {
            (Some(outer), _) => outer,
            (None, Some((chart, cb, instance))) if !is_task(level) || self.is_worker(c, &caller, chart) => {
                self.strand(Who::Serial { chart, callback: cb, instance }, callback)
            }
            (None, _) if is_task(level) && caller.worker && self.state.sync.parts().deferral => {
                self.strand(Who::Work { function: addr, item: entering.registers[0] }, None)
            }
            (None, _) if level == Level::Hardirq && caller.handler != 0 => {
                // One line's handler, which runs on one CPU at a time, whatever it calls back.
                self.strand(Who::Interrupt { cpu: ONE_AT_A_TIME, level, function: caller.handler }, None)
            }
            (None, _) if !is_task(level) => {
                self.strand(Who::Interrupt { cpu: v as u32, level, function: addr }, None)
            }
            (None, _) => match self.base_strand(v, c, addr) {
                Some(strand) => strand,
                None => return,
            },
        };
        self.order.serial += 1;
        let activation = Activation {
            function: addr,
            caller: caller.name.clone(),
            callback,
            strand,
            serial: self.order.serial,
            rsp: entering.rsp,
            turns: self.turns(callback, &args, entering.task),
            library: caller.library,
            hand: self.state.sync.hand_of(&caller.candidates, &args),
        };
        let Some(context) = self.contexts.get_mut(c) else { return };
        context.activations.push(activation.clone());
        if let Some(callback) = callback {
            self.state.sync.entered(strand, callback);
        }
        self.state.sync.entered_also(strand, &caller.candidates, &args, callback);
        if let Some(object) = activation.turns {
            self.state.sync.acquire(strand, object);
        }
        if callback.is_some_and(|callback| self.state.sync.is_frozen(callback)) {
            self.freeze(strand);
        } else {
            self.thaw(c);
        }
        let states = self.state.sync.parts().states;
        // Work that the driver has not queued itself was queued by a library for it.
        let lent = caller.worker && callback.is_some_and(|callback| !self.state.sync.was_forked(callback));
        if states && (caller.library || lent) {
            self.state.sync.acquire(strand, LIBRARY);
        }
        if states && level >= Level::Hardirq {
            self.state.sync.acquire(strand, DEVICE);
        }
        if lent || self.is_one_of(&activation, &BRINGS_UP) {
            let depth = self.contexts.get(c).map_or(0, |context| context.activations.len());
            if let Some(context) = self.contexts.get_mut(c) {
                context.own.begin_bringing_up(depth);
            }
        }
        if outer.is_none() && !is_task(level) {
            self.state.sync.acquire(strand, GRACE);
        }
        if caller.after_grace && self.state.sync.parts().deferral {
            self.state.sync.acquire(strand, RCU);
        }
        if caller.exit
            && let Some(module) = self.module_of(addr)
        {
            self.state.sync.acquire(strand, module);
        }
        self.refresh(v, c, addr);
        if let (Some(hand), Some(context)) = (activation.hand, self.contexts.get_mut(c)) {
            self.state.sync.hand_begins(context, hand);
        }
        self.take_holds(v, c, entering.task, entering.rsp);
        self.tell_steps(v, c, StackId::default());
        self.each(v, Some(c), |checker, cx| checker.entered(cx, &activation));
    }

    /// The object by which a callback takes turns with others.
    fn turns(&self, callback: Option<(usize, usize, u32)>, args: &[u64], task: u64) -> Option<Name> {
        let (chart, callback, _) = callback.filter(|_| self.state.sync.parts().states)?;
        let key = self.state.sync.charts().get(chart)?.callbacks.get(callback)?.turns.as_ref()?;
        match Sync::name(key, args, task)? {
            // Not the lock or the atomic that may be there.
            Name::At(object) => Some(Name::At(object | 2)),
            global => Some(global),
        }
    }

    /// Stands for a module: what comes before its exit function is released into it.
    fn module_of(&self, addr: u64) -> Option<Name> {
        let (_, module) = self.state.modules.at(addr)?;
        // No lock or atomic is at an odd address.
        module.regions.first().map(|region| Name::At(region.start | 1))
    }

    /// A run of a driver function is over that keeps its module, or comes before the module may go.
    fn release_module(&mut self, activation: &Activation) {
        let sync = &self.state.sync;
        let pins =
            |(chart, _, _): (usize, usize, u32)| sync.charts().get(chart).is_some_and(|chart| chart.pins);
        let before = activation.caller == "do_one_initcall" || activation.callback.is_some_and(pins);
        if before
            && sync.parts().states
            && let Some(module) = self.module_of(activation.function)
        {
            self.state.sync.release(activation.strand, module);
        }
    }

    /// Whether a task runs callbacks for many objects, so that its own order says nothing.
    fn is_worker(&self, c: usize, caller: &Caller, chart: usize) -> bool {
        let deferred = self.state.sync.charts().get(chart).is_some_and(|chart| chart.deferred);
        let task = self.contexts.get(c).map_or(0, |context| context.task);
        deferred || caller.worker || self.state.is_worker(task)
    }

    /// Whether an address is in a module that is not watched.
    fn is_library(&self, addr: u64) -> bool {
        addr >= MODULES && !self.state.modules.contains(addr)
    }

    /// Where the module begins that is not watched and has an address.
    fn library_start(&self, addr: u64) -> Option<u64> {
        if !self.is_library(addr) {
            return None;
        }
        Some(self.state.modules.other_at(addr)?.regions.first()?.start)
    }

    /// A handler may run from the request of its line on.
    fn notes_line(&mut self, c: usize, name: &str) {
        if name == REQUESTS_LINE
            && let Some(context) = self.contexts.get_mut(c)
        {
            context.own.requests_line();
        }
    }

    /// The driver requests an interrupt whose handler may be in a module that is not watched.
    fn notes_handler(&mut self, name: &str, args: &[u64; 6]) {
        if name == REQUESTS_LINE
            && let Some(start) = self.library_start(args[1])
            && self.order.handlers.len() < MAX_HANDLERS
            && self.order.handlers.insert(start)
        {
            self.order.callers.clear();
        }
    }

    /// Whether an activation is a callback with one of these names.
    fn is_one_of(&self, activation: &Activation, names: &[&str]) -> bool {
        activation.callback.is_some_and(|(chart, callback, _)| {
            let chart = self.state.sync.charts().get(chart);
            let callback = chart.and_then(|chart| chart.callbacks.get(callback));
            callback.is_some_and(|callback| names.contains(&callback.name.as_str()))
        })
    }

    /// What a context does that sets something going may be told to a module that is not watched, which calls back later.
    fn call_library(&mut self, c: usize, target: u64) {
        let Some(context) = self.contexts.get(c) else { return };
        let strand = context.now.strand;
        if context.own.brings_up() && self.state.sync.parts().states && self.is_library(target) {
            self.state.sync.release(strand, LIBRARY);
            self.refresh_clock(c);
        }
    }

    fn refresh_clock(&mut self, c: usize) {
        if let Some(context) = self.contexts.get_mut(c) {
            context.now.clock = self.state.sync.clock(context.now.strand);
        }
    }

    fn caller(&mut self, ret: u64) -> Rc<Caller> {
        if let Some(caller) = self.order.callers.get(&ret) {
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
        let name = Sync::plain(&name).to_owned();
        let caller = Rc::new(Caller {
            candidates: self.state.sync.made_by(&name),
            worker: WORKERS.contains(&name.as_str()),
            after_grace: AFTER_GRACE.contains(&name.as_str()),
            exit: name.ends_with("sys_delete_module"),
            library: self.is_library(ret),
            handler: self.library_start(ret).filter(|start| self.order.handlers.contains(start)).unwrap_or(0),
            name,
        });
        if self.order.callers.len() >= MAX_CACHED {
            self.order.callers.clear();
        }
        self.order.callers.insert(ret, Rc::clone(&caller));
        caller
    }

    /// Ends activations and calls that cannot be live when the kernel calls the driver with `rsp`.
    fn end_stale(&mut self, v: usize, c: usize, rsp: u64) {
        loop {
            let Some(context) = self.contexts.get(c) else { return };
            match context.own.pending.last() {
                Some(pending) if !(pending.rsp > rsp && same_stack(pending.rsp, rsp)) => {
                    self.returned_from(v, c, None, None)
                }
                _ => break,
            }
        }
        loop {
            let Some(context) = self.contexts.get(c) else { return };
            match context.activations.last() {
                Some(last) if !(last.rsp > rsp && same_stack(last.rsp, rsp)) => {
                    self.end_activation(v, c, None)
                }
                _ => break,
            }
        }
    }

    /// Driver functions have returned, so that rsp is `rsp` now.
    pub(super) fn left_up_to(&mut self, v: usize, c: usize, rsp: u64) {
        if !self.order.on {
            return;
        }
        while let Some(last) = self.contexts.get(c).and_then(|context| context.activations.last())
            && last.rsp < rsp
            && same_stack(last.rsp, rsp)
        {
            let result = self.order.result.take();
            self.end_activation(v, c, result);
        }
    }

    /// The log says that a driver function returns to the kernel with `result`.
    pub(super) fn told_return(&mut self, v: usize, result: u64) {
        if !self.order.on || self.vcpus[v].running.is_none() {
            return self.finish_block(v);
        }
        let count = |machine: &Machine| {
            let c = machine.vcpus[v].context?;
            Some((c, machine.contexts.get(c)?.activations.last()?.serial))
        };
        let before = count(self);
        self.order.result = Some(result);
        self.finish_block(v);
        // The stack pointer may not have been known.
        if let (Some((c, serial)), Some((_, now))) = (before, count(self))
            && serial == now
            && self.order.result.is_some()
        {
            self.end_activation(v, c, Some(result));
        }
        self.order.result = None;
    }

    /// The innermost activation is over.
    fn end_activation(&mut self, v: usize, c: usize, result: Option<u64>) {
        let Some(activation) = self.contexts.get(c).and_then(|context| context.activations.last()).cloned()
        else {
            return;
        };
        if let Some(callback) = activation.callback {
            self.state.sync.left(activation.strand, callback, result);
        }
        if let Some(hand) = activation.hand {
            self.state.sync.hand_ends(activation.strand, hand, result);
        }
        if let Some(object) = activation.turns {
            self.state.sync.release(activation.strand, object);
        }
        if activation.callback.is_some_and(|callback| self.state.sync.is_frozen(callback)) {
            self.state.sync.freeze_ends(activation.strand);
        }
        self.release_module(&activation);
        let Some(context) = self.contexts.get_mut(c) else { return };
        let (interrupt, task) = (!is_task(context.level), context.task);
        let outermost = context.activations.len() == 1;
        if interrupt && outermost && activation.library {
            self.state.sync.release(activation.strand, HANDLERS);
        }
        if interrupt && outermost {
            // Interrupts are read sections: who waits for those waits for this.
            self.state.sync.release(activation.strand, RCU);
            // The context holds nothing any more when the hooked function that took these returns.
            for held in context.held.iter().filter(|held| held.by_kernel) {
                self.state.sync.given(activation.strand, held.lock, held.mode);
            }
        }
        context.now.clock = self.state.sync.clock(activation.strand);
        self.tell_steps(v, c, StackId::default());
        self.each(v, Some(c), |checker, cx| checker.left(cx, &activation));
        let Some(context) = self.contexts.get_mut(c) else { return };
        context.activations.pop();
        context.own.end_bringing_up(context.activations.len());
        if interrupt && outermost {
            context.held.clear();
            context.now.locks = Default::default();
            // The function that took them may call the driver again before it returns.
            for hold in self.order.holds.get_mut(&task).into_iter().flatten() {
                hold.context = hold.context.filter(|&holder| holder != c);
            }
        }
        if !outermost || !interrupt {
            self.refresh(v, c, activation.function);
        }
    }

    /// The driver's function that the kernel called has jumped to the kernel: what it does is done.
    fn jumped_out(&mut self, v: usize, c: usize, out: &Out) {
        let last = self.contexts.get(c).and_then(|context| context.activations.last());
        if out.jump && last.is_some_and(|last| last.rsp == out.entry_rsp) {
            self.end_activation(v, c, None);
        }
    }

    fn callee(&mut self, target: u64, summary: &Summary) -> Rc<Callee> {
        if let Some(callee) = self.order.callees.get(&target) {
            return Rc::clone(callee);
        }
        let callee = Rc::new(Callee {
            hooked: self.order.hooked.contains(&target.wrapping_sub(self.state.slide)),
            sync: has_sync(summary),
            rules: self.state.sync.rules(&self.state.kernel_function(target)),
        });
        if self.order.callees.len() >= MAX_CACHED {
            self.order.callees.clear();
        }
        self.order.callees.insert(target, Rc::clone(&callee));
        callee
    }

    /// A kernel function is about to be given memory, which it touches for its caller.
    pub(super) fn gives_to_call(&mut self, c: usize, args: &[u64; 6]) {
        if let Some(context) = self.contexts.get_mut(c).filter(|_| self.order.on) {
            args.iter().for_each(|&arg| self.state.sync.touches(context, arg, 1));
        }
    }

    /// The driver calls a kernel function.
    pub(super) fn calls(&mut self, v: usize, c: usize, out: &Out) {
        if !self.order.on {
            return;
        }
        self.call_library(c, out.target);
        let Some(summary) = &out.summary else { return };
        self.notes_line(c, &summary.name);
        self.notes_handler(&summary.name, &out.args);
        let callee = self.callee(out.target, summary);
        if !callee.sync
            && let Some(context) = self.contexts.get_mut(c)
        {
            context.own.call_in_section();
        }
        if !callee.hooked && (callee.sync || !callee.rules.is_empty()) {
            let stack = self.stack_of(c, out.pc);
            let pending = self.begins(v, c, summary, &callee, out.args, stack, false, true);
            if let (Some(mut pending), Some(context)) = (pending, self.contexts.get_mut(c)) {
                pending.rsp = out.entry_rsp;
                context.own.pending.push(pending);
                if context.own.pending.len() > MAX_PENDING {
                    context.own.pending.remove(0);
                }
            }
        }
        if callee.hooked && out.jump {
            self.gives_back_by_jump(v, c, summary, &out.args);
        }
        self.jumped_out(v, c, out);
    }

    /// The driver's function ends with a jump to one that gives a lock back: the hook tells of it when the function counts as left.
    fn gives_back_by_jump(&mut self, v: usize, c: usize, summary: &Arc<Summary>, args: &[u64; 6]) {
        let task = self.contexts.get(c).map_or(0, |context| context.task);
        for effect in &summary.effects {
            if let Effect::Sync(SyncOp::Unlock { kind, key, mode }) = effect
                && let Some(name) = Sync::name(key, args, task)
            {
                self.unlock(v, c, name, *kind, *mode, false);
            }
        }
    }

    fn stack_of(&mut self, c: usize, pc: u64) -> StackId {
        let Some(context) = self.contexts.get(c) else { return StackId::default() };
        let mut stack = Vec::with_capacity(MAX_FRAMES);
        stack.push(pc);
        context.callers(&mut stack, MAX_FRAMES);
        self.state.stacks.intern(&stack)
    }

    /// Does what a function does when it begins; gives what it does when it returns.
    #[allow(clippy::too_many_arguments)]
    fn begins(
        &mut self,
        v: usize,
        c: usize,
        summary: &Arc<Summary>,
        callee: &Callee,
        args: [u64; 6],
        stack: StackId,
        by_kernel: bool,
        create: bool,
    ) -> Option<Pending> {
        let context = self.contexts.get(c)?;
        let (strand, off, task) = (context.now.strand, context.now.off, context.task);
        // Of a jump to a function that is watched, what it gives back is given back.
        let given_back = callee.hooked && context.out().is_some_and(|out| out.jump);
        self.notes_line(c, &summary.name);
        let mut late = false;
        if callee.sync {
            for effect in &summary.effects {
                match effect {
                    Effect::Sync(SyncOp::Unlock { kind, key, mode }) => {
                        if let Some(name) = Sync::name(key, &args, task) {
                            self.unlock(v, c, name, *kind, *mode, by_kernel || given_back);
                        }
                    }
                    Effect::Sync(SyncOp::Release { key: Key::Global("device"), .. }) => {
                        if let Some(context) = self.contexts.get_mut(c) {
                            self.state.sync.tells_device(context, true);
                        }
                        let lets = |context: &Context| context.own.lets_device_interrupt();
                        if self.contexts.get(c).is_some_and(lets) && self.state.sync.parts().states {
                            self.state.sync.release(strand, DEVICE);
                        }
                    }
                    Effect::Sync(SyncOp::Release { key, word }) => {
                        if let Some(name) = Sync::name(key, &args, task) {
                            if let (true, Name::At(addr)) = (*word, name) {
                                self.state.sync.release_word(strand, addr);
                            }
                            self.state.sync.release(strand, name);
                        }
                    }
                    Effect::Sync(SyncOp::Acquire { .. }) if holds(summary) => {}
                    Effect::Sync(SyncOp::Lock { .. } | SyncOp::Acquire { .. }) => late = true,
                    _ => {}
                }
            }
        }
        let mut moving = Vec::new();
        self.state.sync.hand_called(strand, &callee.rules, &args, create);
        self.state.sync.called(strand, &callee.rules, &args, create, &mut moving);
        if let Some(context) = self.contexts.get_mut(c) {
            context.now.clock = self.state.sync.clock(strand);
        }
        self.tell_steps(v, c, stack);
        (late || !moving.is_empty()).then(|| Pending {
            rsp: 0,
            summary: late.then(|| Arc::clone(summary)),
            args,
            off,
            stack,
            by_kernel,
            moving,
        })
    }

    /// Does what a function does when it returns.
    fn ends(&mut self, v: usize, c: usize, pending: &Pending, result: Option<u64>) {
        let Some(context) = self.contexts.get(c) else { return };
        let (strand, task) = (context.now.strand, context.task);
        for effect in pending.summary.iter().flat_map(|summary| &summary.effects) {
            match effect {
                // Of a call that the driver left by, nobody knows when it returned: it holds nothing for the driver.
                Effect::Sync(SyncOp::Lock { kind, key, mode, when, tries })
                    if result.is_some_and(|result| when.holds(result)) =>
                {
                    if let Some(name) = Sync::name(key, &pending.args, task) {
                        let lock = Acquired {
                            lock: self.state.sync.lock_id(name, *kind),
                            mode: *mode,
                            stack: pending.stack,
                            tried: *tries,
                            by_kernel: pending.by_kernel,
                            off: pending.off,
                        };
                        self.drop_told_twice(c, &lock);
                        self.hold(v, c, lock);
                    }
                }
                Effect::Sync(SyncOp::Acquire { key, when })
                    if takes_place(*when, result) && pending.summary.as_deref().is_none_or(|s| !holds(s)) =>
                {
                    if let Some(name) = Sync::name(key, &pending.args, task)
                        && self.state.sync.parts().deferral
                    {
                        self.state.sync.acquire(strand, name);
                    }
                }
                _ => {}
            }
        }
        self.state.sync.returned(strand, &pending.moving, result);
        self.tell_steps(v, c, pending.stack);
    }

    /// The call on which the context was out with rsp `rsp`, or the innermost, has returned.
    pub(super) fn returned_from(&mut self, v: usize, c: usize, rsp: Option<u64>, result: Option<u64>) {
        if !self.order.on {
            return;
        }
        loop {
            let Some(context) = self.contexts.get_mut(c) else { return };
            match (context.own.pending.last(), rsp) {
                (Some(pending), Some(rsp)) if pending.rsp > rsp && same_stack(pending.rsp, rsp) => return,
                (Some(_), _) => {}
                (None, _) => return,
            }
            let Some(pending) = context.own.pending.pop() else { return };
            let own = rsp.is_none_or(|rsp| rsp == pending.rsp);
            self.ends(v, c, &pending, result.filter(|_| own));
            if rsp.is_none() {
                return;
            }
        }
    }

    /// A thread takes an exclusive lock once: a second time is the outer of two functions that both tell of it, as
    /// `refcount_dec_and_mutex_lock` calls `mutex_lock`.
    fn drop_told_twice(&mut self, c: usize, lock: &Acquired) {
        let kind = self.state.sync.lock(lock.lock).map(|info| info.kind);
        if lock.mode != LockMode::Exclusive || !matches!(kind, Some(LockKind::Spin | LockKind::Mutex)) {
            return;
        }
        let same = |held: &Acquired| held.lock == lock.lock && held.mode == LockMode::Exclusive;
        if let Some(at) = self.contexts.get(c).and_then(|context| context.held.iter().rposition(same)) {
            self.drop_held(c, at);
        }
    }

    /// A context has taken a lock.
    fn hold(&mut self, v: usize, c: usize, lock: Acquired) {
        let Some(context) = self.contexts.get_mut(c) else { return };
        if context.held.len() >= MAX_HELD {
            context.held.remove(0);
        }
        context.held.push(lock.clone());
        if !lock.by_kernel
            && lock.mode == LockMode::Exclusive
            && let Some(info) = self.state.sync.lock(lock.lock)
            && info.kind == LockKind::Spin
        {
            context.own.begin_section(lock.lock, info.address);
        }
        context.now.locks = self.state.sync.lockset(&context.held);
        let strand = context.now.strand;
        self.state.sync.taken(strand, lock.lock, lock.mode);
        self.each(v, Some(c), |checker, cx| checker.locked(cx, &lock));
    }

    /// A context gives a lock back.
    fn unlock(&mut self, v: usize, c: usize, name: Name, kind: LockKind, mode: LockMode, by_kernel: bool) {
        let id = self.state.sync.lock_id(name, kind);
        let find = |context: &Context| {
            let same = context.held.iter().rposition(|held| held.lock == id && held.mode == mode);
            same.or_else(|| context.held.iter().rposition(|held| held.lock == id))
        };
        let Some(at) = self.contexts.get(c).map(find) else { return };
        // Whoever may give a semaphore back, not only who took it.
        let elsewhere = at.is_none() && matches!(kind, LockKind::Semaphore | LockKind::RwSem);
        if elsewhere
            && let Some((other, at)) =
                self.contexts.iter().enumerate().find_map(|(i, context)| Some((i, find(context)?)))
        {
            self.drop_held(other, at);
        }
        let mode = at.and_then(|at| self.contexts.get(c)?.held.get(at)).map_or(mode, |held| held.mode);
        self.release_lock(v, c, id, mode, at, by_kernel);
        // It may be told of twice: as what a kernel function runs under, and as taken.
        if mode == LockMode::Exclusive && matches!(kind, LockKind::Spin | LockKind::Mutex) {
            while let Some(at) = self.contexts.get(c).and_then(find) {
                self.drop_held(c, at);
            }
        }
    }

    fn release_lock(
        &mut self,
        v: usize,
        c: usize,
        id: LockId,
        mode: LockMode,
        at: Option<usize>,
        by_kernel: bool,
    ) {
        let held = at.and_then(|at| self.contexts.get(c)?.held.get(at).cloned());
        self.each(v, Some(c), |checker, cx| checker.unlocked(cx, id, held.as_ref(), by_kernel));
        let Some(context) = self.contexts.get_mut(c) else { return };
        let strand = context.now.strand;
        if context.own.end_section(id) {
            self.state.sync.waited_for_holders(strand, id);
        }
        self.state.sync.given(strand, id, mode);
        context.now.clock = self.state.sync.clock(strand);
        if let Some(at) = at {
            self.drop_held(c, at);
        }
    }

    fn drop_held(&mut self, c: usize, at: usize) {
        let Some(context) = self.contexts.get_mut(c) else { return };
        if at < context.held.len() {
            context.held.remove(at);
        }
        context.now.locks = self.state.sync.lockset(&context.held);
    }

    /// Tells checkers where objects have gone. `call` is the call that did it, where the context is back from it.
    fn tell_steps(&mut self, v: usize, c: usize, call: StackId) {
        for mut step in self.state.sync.take_steps() {
            let context = self.contexts.get(c);
            let place = match step.cause {
                Ok(_) => context.and_then(Context::out).map(|out| out.pc),
                Err(_) => context.and_then(|context| context.activations.last()).map(|run| run.function),
            };
            step.stack = place.map_or(call, |pc| self.stack_of(c, pc));
            self.each(v, Some(c), |checker, cx| checker.moved(cx, &step));
        }
        if let Some(context) = self.contexts.get_mut(c) {
            context.now.clock = self.state.sync.clock(context.now.strand);
        }
    }

    fn hook_callee(&mut self, hook: u64, summary: &Summary) -> Rc<Callee> {
        if let Some(callee) = self.order.hooks.get(&hook) {
            return Rc::clone(callee);
        }
        let callee = Rc::new(Callee {
            hooked: true,
            sync: has_sync(summary),
            rules: self.state.sync.rules(&summary.name),
        });
        if self.order.hooks.len() < MAX_HOOKS as usize {
            self.order.hooks.insert(hook, Rc::clone(&callee));
        }
        callee
    }

    /// A hooked function begins, in a context that is out of the driver or in none that is known.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn hook_begins(
        &mut self,
        v: usize,
        task: u64,
        (hook, rsp): (u64, u64),
        context: Option<usize>,
        summary: &Arc<Summary>,
        args: &[u64],
        stack: StackId,
        by_driver: bool,
    ) -> Option<Pending> {
        if !self.order.on {
            return None;
        }
        let callee = self.hook_callee(hook, summary);
        if !callee.sync && callee.rules.is_empty() {
            return None;
        }
        let mut six = [0; 6];
        let count = args.len().min(6);
        six[..count].copy_from_slice(&args[..count]);
        self.add_holds(task, (hook, rsp), summary, &six, stack);
        let c = context.or_else(|| self.by_key.get(&(task, Level::Process)).copied());
        // A task that slept may be on another processor, where nothing has told of it since.
        let out = c.and_then(|c| self.contexts.get(c)?.out());
        let on_behalf = context.is_some()
            || out.is_some_and(|out| !out.jump && rsp <= out.entry_rsp && same_stack(rsp, out.entry_rsp));
        let Some(c) = c else {
            // No driver code has run in this task: only what it holds matters.
            for effect in &summary.effects {
                if let Effect::Sync(SyncOp::Unlock { kind, key, .. }) = effect
                    && let Some(name) = Sync::name(key, &six, task)
                {
                    let lock = self.state.sync.lock_id(name, *kind);
                    self.state.sync.wait_no_more(task, lock);
                }
            }
            let late = |e: &Effect| matches!(e, Effect::Sync(SyncOp::Lock { .. }));
            return summary.effects.iter().any(late).then(|| Pending {
                rsp,
                summary: Some(Arc::clone(summary)),
                args: six,
                off: Off::default(),
                stack,
                by_kernel: !by_driver,
                moving: Vec::new(),
            });
        };
        if context.is_none() {
            // It is the task that called, whatever ran last on the vCPU.
            self.refresh(v, c, 0);
        }
        self.begins(v, c, summary, &callee, six, stack, !by_driver, on_behalf)
    }

    /// A hooked function returns.
    pub(super) fn hook_ends(
        &mut self,
        v: usize,
        task: u64,
        (hook, rsp): (u64, u64),
        context: Option<usize>,
        pending: Option<&Pending>,
        result: u64,
    ) {
        if !self.order.on {
            return;
        }
        self.drop_holds(v, task, |hold| hold.hook == hook && hold.rsp == rsp);
        let Some(pending) = pending else { return };
        if let Some(c) = context.or_else(|| self.by_key.get(&(task, Level::Process)).copied()) {
            return self.ends(v, c, pending, Some(result));
        }
        for effect in pending.summary.iter().flat_map(|summary| &summary.effects) {
            if let Effect::Sync(SyncOp::Lock { kind, key, mode, when, tries }) = effect
                && when.holds(result)
                && let Some(name) = Sync::name(key, &pending.args, task)
            {
                let lock = Acquired {
                    lock: self.state.sync.lock_id(name, *kind),
                    mode: *mode,
                    stack: pending.stack,
                    tried: *tries,
                    by_kernel: true,
                    off: Off::default(),
                };
                self.state.sync.wait(task, lock);
            }
        }
    }

    fn add_holds(
        &mut self,
        task: u64,
        (hook, rsp): (u64, u64),
        summary: &Summary,
        args: &[u64; 6],
        stack: StackId,
    ) {
        if !holds(summary) {
            return;
        }
        let acquired = |effect: &Effect| match effect {
            Effect::Sync(SyncOp::Acquire { key, .. }) => Sync::name(key, args, task),
            _ => None,
        };
        let acquires: Vec<Name> = summary.effects.iter().filter_map(acquired).collect();
        for effect in &summary.effects {
            let Effect::Sync(SyncOp::Hold { kind, key }) = effect else { continue };
            let Some(name) = Sync::name(key, args, task) else { continue };
            self.drop_holds(0, task, |hold| hold.rsp <= rsp && same_stack(hold.rsp, rsp));
            let lock = Acquired {
                lock: self.state.sync.lock_id(name, *kind),
                mode: LockMode::Exclusive,
                stack,
                tried: false,
                by_kernel: true,
                off: Off::default(),
            };
            if self.order.holds.len() >= MAX_TASKS {
                self.order.holds.clear();
            }
            let holds = self.order.holds.entry(task).or_default();
            if holds.len() < MAX_HELD {
                holds.push(Hold { hook, rsp, lock, acquires: acquires.clone(), context: None });
            }
        }
    }

    /// The kernel calls the driver from within hooked functions that hold locks.
    fn take_holds(&mut self, v: usize, c: usize, task: u64, rsp: u64) {
        let level = self.contexts.get(c).map_or(Level::Process, |context| context.level);
        let Some(holds) = self.order.holds.get_mut(&task) else { return };
        let mut taken = Vec::new();
        // An interrupt may come in between on the same stack: the functions run in softirqs or tasks, those with mutexes in tasks.
        let spins = |lock: LockId| self.state.sync.lock(lock).is_some_and(|lock| lock.kind == LockKind::Spin);
        let may = |hold: &Hold| {
            hold.context.is_none() && (is_task(level) || level == Level::Softirq && spins(hold.lock.lock))
        };
        for hold in holds.iter_mut().filter(|hold| may(hold)) {
            if hold.rsp > rsp && same_stack(hold.rsp, rsp) {
                hold.context = Some(c);
                taken.push((hold.lock.clone(), hold.acquires.clone()));
            }
        }
        for (lock, acquires) in taken {
            let strand = self.contexts.get(c).map(|context| context.now.strand);
            if let Some(strand) = strand.filter(|_| self.state.sync.parts().deferral) {
                acquires.into_iter().for_each(|name| self.state.sync.acquire(strand, name));
            }
            self.hold(v, c, lock);
        }
    }

    fn drop_holds(&mut self, v: usize, task: u64, over: impl Fn(&Hold) -> bool) {
        let Some(holds) = self.order.holds.get_mut(&task) else { return };
        let mut gone = Vec::new();
        holds.retain(|hold| {
            let over = over(hold);
            if over {
                gone.push(hold.clone());
            }
            !over
        });
        if holds.is_empty() {
            self.order.holds.remove(&task);
        }
        for hold in gone {
            let Some(c) = hold.context else { continue };
            let held = |context: &Context| {
                context.held.iter().rposition(|held| held.lock == hold.lock.lock && held.by_kernel)
            };
            if let Some(at) = self.contexts.get(c).and_then(held) {
                self.release_lock(v, c, hold.lock.lock, LockMode::Exclusive, Some(at), true);
            }
        }
    }

    /// All driver code of modules that have gone is over.
    pub(super) fn all_left(&mut self) {
        if !self.order.on {
            return;
        }
        for c in 0..self.contexts.len() {
            let v = self.contexts[c].own.cpu as usize;
            // What the module's exit function left by.
            while self.contexts.get(c).is_some_and(|c| c.activations.is_empty() && !c.own.pending.is_empty())
            {
                self.returned_from(v, c, None, None);
            }
        }
    }
}

/// Whether a function runs with a lock held that the driver does not see taken.
fn holds(summary: &Summary) -> bool {
    summary.effects.iter().any(|effect| matches!(effect, Effect::Sync(SyncOp::Hold { .. })))
}

fn has_sync(summary: &Summary) -> bool {
    summary
        .effects
        .iter()
        .any(|effect| matches!(effect, Effect::Sync(op) if !matches!(op, SyncOp::Sleeps { .. })))
}
