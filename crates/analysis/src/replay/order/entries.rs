//! Entries into the driver begin and end: strands, callbacks, and what brings a device up.

use super::functions::Caller;
use crate::level::Level;
use crate::machine::{Module, Out};
use crate::order::{
    Acquired, DEVICE, EARLY, Entry, GRACE, HANDLERS, Identity, LIBRARY, LIBRARY_HANDLERS, Name, Now, Order,
    RCU, StrandId, is_task,
};
use crate::replay::{Entering, Replay};
use crate::stacks::{OuterId, StackId, same_stack};
use guardrail_knowledge::effect::LockKind;
use guardrail_knowledge::role::Role;

/// Most entries of a context that are open at a time. With more, the outermost one is dropped.
const MAX_ENTRIES: usize = 64;
/// The argument number that stands for the current task, behind the callback's arguments.
const CURRENT: u8 = guardrail_knowledge::chart::CURRENT;
/// In the place of a vCPU: the work runs on any of them, but on one at a time.
const ONE_AT_A_TIME: u32 = u32::MAX;

impl Replay {
    /// Driver code is about to run in a context. Called before frames are dropped or added.
    pub(in crate::replay) fn arrive(&mut self, v: usize, c: usize, entering: &Entering) {
        if !self.order.on {
            return;
        }
        let Some(context) = self.contexts.get_mut(c) else { return };
        let mut kept = Vec::new();
        if context.order.pid != entering.pid {
            // This is another task at the same address. The locks that it took outside of the driver were
            // seen before the task was.
            kept = std::mem::take(&mut context.order.held);
            kept.retain(|held| held.by_kernel);
            context.order.entries.clear();
            context.order.end_bringing_up(0);
            context.order.pending.clear();
            context.order.sections.clear();
            context.order.pid = entering.pid;
            context.order.now = Now::default();
        }
        let irqs_on = entering.flags & guardrail_trace::event::EnterFlags::INTERRUPTS_ON != 0;
        context.order.set(irqs_on, entering.preempt_count as u32);
        context.order.cpu = v as u32;
        context.order.now.off = context.order.off();
        // What a task took before it has gone on with a driver's own stack stays the task's.
        if is_task(context.level) && context.own_stack.is_none() {
            let task = context.task;
            for lock in self.state.order.waited(task) {
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

    /// Sets the context's current strand and clock.
    pub(super) fn refresh(&mut self, v: usize, c: usize, function: u64) {
        let strand = match self.contexts.get(c).and_then(|context| context.order.entries.last()) {
            Some(entry) => Some(entry.strand),
            None => self.base_strand(v, c, function),
        };
        let (Some(strand), Some(context)) = (strand, self.contexts.get_mut(c)) else { return };
        context.order.now.strand = strand;
        context.order.now.clock = self.state.order.runs(strand);
    }

    pub(in crate::replay) fn refresh_clock(&mut self, c: usize) {
        if let Some(context) = self.contexts.get_mut(c) {
            context.order.now.clock = self.state.order.clock(context.order.now.strand);
        }
    }

    /// The strand of what runs in a context outside of any known entry.
    fn base_strand(&mut self, v: usize, c: usize, function: u64) -> Option<StrandId> {
        let context = self.contexts.get(c)?;
        let who = if let Some(stack) = context.own_stack {
            Identity::OwnStack { stack }
        } else if is_task(context.level) {
            Identity::Task { task: context.task, pid: context.pid }
        } else {
            Identity::Interrupt { cpu: v as u32, level: context.level, function }
        };
        Some(self.strand(who, None))
    }

    pub(in crate::replay) fn strand(
        &mut self,
        who: Identity,
        callback: Option<(usize, usize, u32)>,
    ) -> StrandId {
        if let Some(strand) = self.state.order.strand(who) {
            return strand;
        }
        let function =
            |addr: u64| if addr == 0 { "?".to_owned() } else { self.state.frame(addr, false).function };
        let label = match (who, callback) {
            (Identity::Task { task, pid }, _) => format!("the thread {}", self.state.thread_name(task, pid)),
            (Identity::Serial { .. }, Some(callback)) => {
                let (name, object) = self.state.order.callback_words(callback);
                format!("the callback {name} of {object}")
            }
            (Identity::Serial { .. }, None) => String::new(),
            (Identity::Work { function: at, item }, _) => format!("the work {} of {item:#x}", function(at)),
            (Identity::OwnStack { stack }, _) => format!("the driver on its own stack at {stack:#x}"),
            (Identity::Interrupt { cpu: ONE_AT_A_TIME, function: at, .. }, _) => {
                let module = self.state.modules.other_at(at).map_or("?", |module| &module.name);
                format!("the interrupt handler in {module}")
            }
            (Identity::Interrupt { cpu, level, function: at }, _) => {
                format!("{} in {}s on CPU {cpu}", function(at), level.name())
            }
        };
        let user = matches!(who, Identity::Task { task, .. } if self.state.is_user(task));
        let strand = self.state.order.add_strand(who, label, user);
        if let Identity::Task { task, .. } = who
            && let Some(early) = self.state.order.strand(Identity::Task { task, pid: EARLY })
        {
            self.state.order.follow(strand, early);
        }
        strand
    }

    /// Driver code runs in a context. Outside of the system's sleep, the process, if it is one, is no longer
    /// frozen.
    fn thaw(&mut self, c: usize) {
        let order = &mut self.state.order;
        let Some(context) =
            self.contexts.get(c).filter(|context| is_task(context.level) && order.has_slept())
        else {
            return;
        };
        let frozen = |run: &Entry| run.callback.is_some_and(|callback| order.is_frozen(callback));
        if !context.order.entries.iter().any(frozen) {
            order.thaw(context.order.now.strand);
        }
    }

    /// A callback begins while user processes are frozen: what they did comes before.
    fn freeze(&mut self, strand: StrandId) {
        self.state.order.freeze(strand);
        // Their strands have released what they did, so their clocks have advanced.
        for context in self.contexts.iter_mut().filter(|context| is_task(context.level)) {
            context.order.now.clock = self.state.order.clock(context.order.now.strand);
        }
    }

    /// Whether the kernel suspends a device in this stack, or waits for this callback before it does.
    fn precedes_resume(&mut self, outer: OuterId, callback: Option<(usize, usize, u32)>) -> bool {
        let state = &self.state;
        if callback.is_some_and(|callback| state.order.is_drained(callback)) {
            return true;
        }
        *self.order.suspending.entry(outer).or_insert_with(|| {
            let mut above = state.stacks.outer_frames(outer);
            above.any(|frame| Role::Suspends.has(&state.kernel_function(frame.address)))
        })
    }

    /// The kernel has called the driver's function at `addr`.
    pub(in crate::replay) fn activate(&mut self, v: usize, c: usize, entering: &Entering, addr: u64) {
        if !self.order.on {
            return;
        }
        let caller = self.caller(entering.ret);
        let mut args = [0; 7];
        args[..6].copy_from_slice(&entering.registers);
        args[usize::from(CURRENT)] = entering.task;
        let callback = self.state.order.recognize(&caller.candidates, &args);
        let Some(context) = self.contexts.get_mut(c) else { return };
        let (level, outer) = (context.level, context.order.entries.last().map(|a| a.strand));
        if outer.is_none() && is_task(level) && context.order.may_sleep() {
            // An unlock was not seen: no spinning lock can be held here.
            let order = &mut self.state.order;
            let spins = |held: &Acquired| {
                order.lock(held.lock).is_some_and(|lock| matches!(lock.kind, LockKind::Spin | LockKind::Rw))
            };
            context.order.held.retain(|held| held.by_kernel || !spins(held));
            context.order.sections.clear();
            context.order.now.locks = order.lockset(&context.order.held);
        }
        if context.order.entries.len() >= MAX_ENTRIES {
            context.order.entries.remove(0);
        }
        let strand = outer.or_else(|| self.outermost_strand(v, c, &caller, callback, (addr, args[0])));
        let Some(strand) = strand else { return };
        self.order.serial += 1;
        let entry = Entry {
            function: addr,
            caller: caller.name.clone(),
            callback,
            strand,
            serial: self.order.serial,
            result: None,
            rsp: entering.rsp,
            turns: self.turns(callback, &args, entering.task),
            precedes_resume: self.precedes_resume(entering.outer, callback),
            library: caller.library,
            hand: self.state.order.hand_of(&caller.candidates, &args),
        };
        let Some(context) = self.contexts.get_mut(c) else { return };
        context.order.entries.push(entry.clone());
        if let Some(callback) = callback {
            self.state.order.entered(strand, callback);
        }
        self.state.order.entered_also(strand, &caller.candidates, &args, callback);
        self.acquire_at_entry(c, &entry, &caller, outer.is_none());
        self.refresh(v, c, addr);
        if let (Some(hand), Some(context)) = (entry.hand, self.contexts.get_mut(c)) {
            self.state.order.hand_begins(&mut context.order, hand);
        }
        self.take_holds(v, c, entering.task, entering.rsp);
        self.report_steps(v, c, StackId::default());
        self.each(v, Some(c), |checker, cx| checker.entered(cx, &entry));
    }

    /// The strand of an entry that no other entry is around. `function` is the driver's function, and `item`
    /// its first argument.
    fn outermost_strand(
        &mut self,
        v: usize,
        c: usize,
        caller: &Caller,
        callback: Option<(usize, usize, u32)>,
        (function, item): (u64, u64),
    ) -> Option<StrandId> {
        let level = self.contexts.get(c)?.level;
        let serial = callback.filter(|&(chart, cb, _)| self.state.order.is_serial((chart, cb)));
        if let Some((chart, cb, instance)) = serial
            && (!is_task(level) || self.is_worker(c, caller, chart))
        {
            return Some(self.strand(Identity::Serial { chart, callback: cb, instance }, callback));
        }
        if is_task(level) && caller.worker && self.state.order.parts().deferral {
            return Some(self.strand(Identity::Work { function, item }, None));
        }
        if level == Level::Hardirq && caller.handler != 0 {
            // The handler of one line runs on one CPU at a time, no matter what it calls back.
            let function = caller.handler;
            return Some(self.strand(Identity::Interrupt { cpu: ONE_AT_A_TIME, level, function }, None));
        }
        self.base_strand(v, c, function)
    }

    /// The strand of an entry acquires what comes before the entry.
    fn acquire_at_entry(&mut self, c: usize, entry: &Entry, caller: &Caller, outermost: bool) {
        let (strand, callback) = (entry.strand, entry.callback);
        let Some(level) = self.contexts.get(c).map(|context| context.level) else { return };
        if let Some(object) = entry.turns {
            self.state.order.acquire(strand, object);
        }
        let starts = self.state.order.described(entry).is_some_and(|callback| callback.starts);
        if callback.is_some_and(|callback| self.state.order.is_frozen(callback)) {
            self.freeze(strand);
            if starts {
                self.state.order.resume_begins(strand);
            }
        } else {
            self.thaw(c);
        }
        if callback.is_some_and(|callback| self.state.order.is_drained(callback)) {
            self.state.order.drained_begins(strand);
        }
        let parts = self.state.order.parts();
        // Work that the driver has not queued itself was queued by a library for it.
        let lent = caller.worker && callback.is_some_and(|callback| !self.state.order.was_forked(callback));
        if parts.states && (caller.library || lent) {
            self.state.order.acquire(strand, LIBRARY);
        }
        if parts.states && level >= Level::Hardirq {
            self.state.order.acquire(strand, DEVICE);
            if caller.library {
                self.state.order.acquire(strand, LIBRARY_HANDLERS);
            }
        }
        let left = callback.and_then(|callback| self.state.order.takes_over(callback));
        if (lent || starts || left.is_some())
            && let Some(context) = self.contexts.get_mut(c)
        {
            context.order.begin_bringing_up(context.order.entries.len(), left.filter(|_| !lent && !starts));
        }
        if outermost && !is_task(level) {
            self.state.order.acquire(strand, GRACE);
        }
        if caller.after_grace && parts.deferral {
            self.state.order.acquire(strand, RCU);
        }
        if caller.exit
            && let Some(module) = self.module_of(entry.function)
        {
            self.state.order.acquire(strand, module);
        }
    }

    /// The object by which a callback takes turns with others; `None` where it takes no turns.
    fn turns(&self, callback: Option<(usize, usize, u32)>, args: &[u64], task: u64) -> Option<Name> {
        let (chart, callback, _) = callback.filter(|_| self.state.order.parts().states)?;
        let key = self.state.order.charts().get(chart)?.callbacks.get(callback)?.turns.as_ref()?;
        match Order::name(key, args, task)? {
            // The tag distinguishes the object from a lock or an atomic at its address.
            Name::At(object) => Some(Name::At(object | 2)),
            global => Some(global),
        }
    }

    /// A run of a driver function ends that keeps its module loaded, or that comes before the module may be
    /// unloaded.
    fn release_module(&mut self, entry: &Entry) {
        let order = &self.state.order;
        let pins =
            |(chart, _, _): (usize, usize, u32)| order.charts().get(chart).is_some_and(|chart| chart.pins);
        let (comes, goes) = (Role::Initializes.has(&entry.caller), Role::Unloads.has(&entry.caller));
        let before = comes || entry.callback.is_some_and(pins);
        if before
            && order.parts().states
            && let Some(module) = self.module_of(entry.function)
        {
            self.state.order.release(entry.strand, module);
        }
        if (comes || goes) && self.state.order.parts().states {
            self.release_needed(entry);
        }
    }

    /// What a module needs stays loaded until its exit function has ended, or its init function, which may have failed.
    fn release_needed(&mut self, entry: &Entry) {
        let modules = &self.state.modules;
        let Some((_, module)) = modules.at(entry.function) else { return };
        let needed =
            modules.list().iter().filter(|other| other.loaded && module.map.needs.contains(&other.name));
        let needed: Vec<Name> = needed.filter_map(object_of).collect();
        for other in needed {
            self.state.order.release(entry.strand, other);
        }
    }

    /// The object of order for a module: what comes before its exit function is released into it.
    pub(super) fn module_of(&self, addr: u64) -> Option<Name> {
        object_of(self.state.modules.at(addr)?.1)
    }

    /// Ends entries and calls that cannot be live when the kernel calls the driver with `rsp`.
    fn end_stale(&mut self, v: usize, c: usize, rsp: u64) {
        loop {
            let Some(context) = self.contexts.get(c) else { return };
            match context.order.pending.last() {
                Some(pending) if !(pending.rsp > rsp && same_stack(pending.rsp, rsp)) => {
                    self.returned_from(v, c, None, None)
                }
                _ => break,
            }
        }
        loop {
            let Some(context) = self.contexts.get(c) else { return };
            match context.order.entries.last() {
                Some(last) if !(last.rsp > rsp && same_stack(last.rsp, rsp)) => self.end_entry(v, c, None),
                _ => break,
            }
        }
    }

    /// Driver functions have returned, so that rsp is `rsp` now.
    pub(in crate::replay) fn left_up_to(&mut self, v: usize, c: usize, rsp: u64) {
        if !self.order.on {
            return;
        }
        while let Some(last) = self.contexts.get(c).and_then(|context| context.order.entries.last())
            && last.rsp < rsp
            && same_stack(last.rsp, rsp)
        {
            let result = self.order.result.take();
            self.end_entry(v, c, result);
        }
    }

    /// The log says that a driver function returns to the kernel with `result`.
    pub(in crate::replay) fn logged_return(&mut self, v: usize, result: u64) {
        if !self.order.on || self.vcpus[v].running.is_none() {
            return self.finish_block(v);
        }
        let count = |machine: &Replay| {
            let c = machine.vcpus[v].context?;
            Some((c, machine.contexts.get(c)?.order.entries.last()?.serial))
        };
        let before = count(self);
        self.order.result = Some(result);
        self.finish_block(v);
        // The stack pointer may not have been known.
        if let (Some((c, serial)), Some((_, now))) = (before, count(self))
            && serial == now
            && self.order.result.is_some()
        {
            self.end_entry(v, c, Some(result));
        }
        self.order.result = None;
    }

    /// The innermost entry is over.
    pub(super) fn end_entry(&mut self, v: usize, c: usize, result: Option<u64>) {
        let Some(entry) = self.contexts.get(c).and_then(|context| context.order.entries.last()) else {
            return;
        };
        let entry = Entry { result, ..entry.clone() };
        if let Some(callback) = entry.callback {
            self.state.order.left(entry.strand, callback, result);
        }
        if let Some(hand) = entry.hand {
            self.state.order.hand_ends(entry.strand, hand, result);
        }
        if let Some(object) = entry.turns {
            self.state.order.release(entry.strand, object);
        }
        if entry.callback.is_some_and(|callback| self.state.order.is_frozen(callback)) {
            self.state.order.freeze_ends(entry.strand);
            if self.state.order.described(&entry).is_some_and(|callback| callback.starts) {
                self.state.order.resume_ends(entry.strand);
            }
        }
        if entry.precedes_resume {
            self.state.order.suspend_ends(entry.strand);
        }
        self.release_module(&entry);
        let Some(context) = self.contexts.get_mut(c) else { return };
        let (interrupt, task) = (!is_task(context.level), context.task);
        let outermost = context.order.entries.len() == 1;
        if interrupt && outermost && entry.library {
            self.state.order.release(entry.strand, HANDLERS);
        }
        if interrupt && outermost {
            // Interrupts are read sections: a strand that waits for readers waits for this interrupt.
            self.state.order.release(entry.strand, RCU);
            // The context no longer holds these locks when the hooked function that took them returns.
            for held in context.order.held.iter().filter(|held| held.by_kernel) {
                self.state.order.given(entry.strand, held.lock, held.mode);
            }
        }
        context.order.now.clock = self.state.order.clock(entry.strand);
        self.report_steps(v, c, StackId::default());
        self.each(v, Some(c), |checker, cx| checker.left(cx, &entry));
        let Some(context) = self.contexts.get_mut(c) else { return };
        context.order.entries.pop();
        context.order.end_bringing_up(context.order.entries.len());
        if interrupt && outermost {
            context.order.held.clear();
            context.order.now.locks = Default::default();
            // The function that took them may call the driver again before it returns.
            for hold in self.order.holds.of(task) {
                hold.context = hold.context.filter(|&holder| holder != c);
            }
        }
        if !outermost || !interrupt {
            self.refresh(v, c, entry.function);
        }
    }

    /// The driver's function that the kernel called has ended with a jump to the kernel: its effects are
    /// complete.
    pub(super) fn jumped_out(&mut self, v: usize, c: usize, out: &Out) {
        let last = self.contexts.get(c).and_then(|context| context.order.entries.last());
        if out.jump && last.is_some_and(|last| last.rsp == out.entry_rsp) {
            self.end_entry(v, c, None);
        }
    }

    /// All driver code of unloaded modules is over.
    pub(in crate::replay) fn all_left(&mut self) {
        if !self.order.on {
            return;
        }
        for c in 0..self.contexts.len() {
            let v = self.contexts[c].order.cpu as usize;
            // Ends the jump that the module's exit function left with.
            while self
                .contexts
                .get(c)
                .is_some_and(|c| c.order.entries.is_empty() && !c.order.pending.is_empty())
            {
                self.returned_from(v, c, None, None);
            }
        }
    }
}

/// The object of order for a module.
fn object_of(module: &Module) -> Option<Name> {
    // No lock or atomic is at an odd address.
    module.regions.first().map(|region| Name::At(region.start | 1))
}
