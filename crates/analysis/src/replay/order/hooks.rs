//! Effects of hooked functions on locks and order, by all callers, and locks that they hold meanwhile.

use super::functions::holds;
use super::holds::Hold;
use crate::checker::Hooked;
use crate::level::Level;
use crate::machine::Context;
use crate::order::{Acquired, EARLY, Identity, LockId, Name, Off, Order, Pending, is_task};
use crate::replay::Replay;
use crate::stacks::{StackId, same_stack};
use guardrail_knowledge::effect::{Effect, LockKind, LockMode, Summary, SyncOp, When};
use guardrail_knowledge::role::Role;
use std::sync::Arc;

impl Replay {
    /// A hooked function begins. The context is out of the driver, or is not known.
    pub(in crate::replay) fn hook_begins(
        &mut self,
        v: usize,
        task: u64,
        number: u64,
        context: Option<usize>,
        hook: &Hooked,
    ) -> Option<Pending> {
        if !self.order.on {
            return None;
        }
        let Hooked { rsp, ref args, ref summary, stack, by_driver, .. } = *hook;
        let callee = self.hook_callee(number, summary);
        if !callee.ordering && callee.rules.is_empty() {
            return None;
        }
        let mut six = [0; 6];
        let count = args.len().min(6);
        six[..count].copy_from_slice(&args[..count]);
        self.add_holds(task, (number, rsp), summary, &six, stack);
        let c = context.or_else(|| self.by_key.get(&(task, Level::Process)).copied());
        // A task that slept may be on another processor, where no event has named it since.
        let out = c.and_then(|c| self.contexts.get(c)?.out());
        // A wrapper may request the line of an active driver's handler, after the driver has left with a jump.
        let own_handler = Role::RequestsLine.has(&summary.name) && self.state.modules.contains(six[1]);
        let on_behalf = context.is_some()
            || own_handler
            || out.is_some_and(|out| !out.jump && rsp <= out.entry_rsp && same_stack(rsp, out.entry_rsp));
        let Some(c) = c else {
            // No driver code has run in this task: its held locks matter, and what it got from drivers.
            self.passes_on(task, summary, &six);
            for effect in &summary.effects {
                if let Effect::Sync(SyncOp::Unlock { kind, key, .. }) = effect
                    && let Some(name) = Order::name(key, &six, task)
                {
                    let lock = self.state.order.lock_id(name, *kind);
                    self.state.order.wait_no_more(task, lock);
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
            // The task made the call, no matter what ran last on the vCPU.
            self.refresh(v, c, 0);
        }
        self.begins(v, c, summary, &callee, six, stack, !by_driver, on_behalf)
    }

    /// A hooked function returns.
    pub(in crate::replay) fn hook_ends(
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
                && let Some(name) = Order::name(key, &pending.args, task)
            {
                let lock = Acquired {
                    lock: self.state.order.lock_id(name, *kind),
                    mode: *mode,
                    stack: pending.stack,
                    tried: *tries,
                    by_kernel: true,
                    off: Off::default(),
                };
                self.state.order.wait(task, lock);
            }
        }
    }

    /// A task in which no driver code has run acquires what drivers released, and releases what it acquired.
    fn passes_on(&mut self, task: u64, summary: &Summary, args: &[u64; 6]) {
        let order = &mut self.state.order;
        for effect in &summary.effects {
            match effect {
                Effect::Sync(SyncOp::Acquire { key, when: When::Always }) => {
                    if let Some(name) = Order::name(key, args, task).filter(|&name| order.has_released(name))
                    {
                        let strand = order.early(task);
                        order.acquire(strand, name);
                    }
                }
                Effect::Sync(SyncOp::Release { key, word: false }) => {
                    let strand = order.strand(Identity::Task { task, pid: EARLY });
                    if let Some((strand, name)) = strand.zip(Order::name(key, args, task)) {
                        order.release(strand, name);
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn add_holds(
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
            Effect::Sync(SyncOp::Acquire { key, .. }) => Order::name(key, args, task),
            _ => None,
        };
        let acquires: Vec<Name> = summary.effects.iter().filter_map(acquired).collect();
        for effect in &summary.effects {
            let Effect::Sync(SyncOp::Hold { kind, key }) = effect else { continue };
            let Some(name) = Order::name(key, args, task) else { continue };
            self.drop_holds(0, task, |hold| hold.rsp <= rsp && same_stack(hold.rsp, rsp));
            let lock = Acquired {
                lock: self.state.order.lock_id(name, *kind),
                mode: LockMode::Exclusive,
                stack,
                tried: false,
                by_kernel: true,
                off: Off::default(),
            };
            self.order.holds.add(task, Hold { hook, rsp, lock, acquires: acquires.clone(), context: None });
        }
    }

    /// The kernel calls the driver from within hooked functions that hold locks.
    pub(super) fn take_holds(&mut self, v: usize, c: usize, task: u64, rsp: u64) {
        let level = self.contexts.get(c).map_or(Level::Process, |context| context.level);
        let mut taken = Vec::new();
        // An interrupt may hit in between on the same stack. The functions run in softirqs or tasks; those
        // with mutexes run in tasks.
        let spins =
            |lock: LockId| self.state.order.lock(lock).is_some_and(|lock| lock.kind == LockKind::Spin);
        let may = |hold: &Hold| {
            hold.context.is_none() && (is_task(level) || level == Level::Softirq && spins(hold.lock.lock))
        };
        for hold in self.order.holds.of(task).filter(|hold| may(hold)) {
            if hold.rsp > rsp && same_stack(hold.rsp, rsp) {
                hold.context = Some(c);
                taken.push((hold.lock.clone(), hold.acquires.clone()));
            }
        }
        for (lock, acquires) in taken {
            let strand = self.contexts.get(c).map(|context| context.order.now.strand);
            if let Some(strand) = strand.filter(|_| self.state.order.parts().deferral) {
                acquires.into_iter().for_each(|name| self.state.order.acquire(strand, name));
            }
            self.hold(v, c, lock);
        }
    }

    pub(super) fn drop_holds(&mut self, v: usize, task: u64, over: impl Fn(&Hold) -> bool) {
        for hold in self.order.holds.end(task, over) {
            let Some(c) = hold.context else { continue };
            let held = |context: &Context| {
                context.order.held.iter().rposition(|held| held.lock == hold.lock.lock && held.by_kernel)
            };
            if let Some(at) = self.contexts.get(c).and_then(held) {
                self.release_lock(v, c, hold.lock.lock, LockMode::Exclusive, Some(at), true);
            }
        }
    }
}
