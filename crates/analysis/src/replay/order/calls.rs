//! Effects of kernel function calls on locks, order and states.

use super::functions::{Callee, holds};
use crate::machine::{Context, Out};
use crate::order::{Acquired, DEVICE, MAX_PENDING, Name, Order, Pending, takes_place};
use crate::replay::Replay;
use crate::stacks::{CallTrace, StackId, same_stack};
use guardrail_knowledge::effect::{Effect, Key, Summary, SyncOp};
use std::sync::Arc;

impl Replay {
    /// A call is about to pass memory to a kernel function, which accesses it for its caller.
    pub(in crate::replay) fn gives_to_call(&mut self, c: usize, args: &[u64; 6]) {
        if let Some(context) = self.contexts.get_mut(c).filter(|_| self.order.on) {
            args.iter().for_each(|&arg| self.state.order.touches(&mut context.order, arg, 1));
        }
    }

    /// The driver calls a kernel function.
    pub(in crate::replay) fn calls(&mut self, v: usize, c: usize, out: &Out) {
        if !self.order.on {
            return;
        }
        self.call_library(c, out.target);
        let Some(summary) = &out.summary else { return };
        self.notes_line(c, &summary.name);
        self.notes_handler(&summary.name, &out.args);
        let callee = self.callee(out.target, summary);
        if !callee.ordering
            && let Some(context) = self.contexts.get_mut(c)
        {
            context.order.call_in_section();
        }
        if !callee.hooked && (callee.ordering || !callee.rules.is_empty()) {
            let stack = self.stack_of(c, out.pc);
            let pending = self.begins(v, c, summary, &callee, out.args, stack, false, true);
            if let (Some(mut pending), Some(context)) = (pending, self.contexts.get_mut(c)) {
                pending.rsp = out.entry_rsp;
                context.order.pending.push(pending);
                if context.order.pending.len() > MAX_PENDING {
                    context.order.pending.remove(0);
                }
            }
        }
        if callee.hooked && out.jump {
            self.gives_back_by_jump(v, c, summary, &out.args);
        }
        self.jumped_out(v, c, out);
    }

    /// The driver's function ends with a jump to a function that releases a lock. The hook's record follows
    /// only after the driver's function counts as left.
    fn gives_back_by_jump(&mut self, v: usize, c: usize, summary: &Arc<Summary>, args: &[u64; 6]) {
        let task = self.contexts.get(c).map_or(0, |context| context.task);
        for effect in &summary.effects {
            if let Effect::Sync(SyncOp::Unlock { kind, key, mode }) = effect
                && let Some(name) = Order::name(key, args, task)
            {
                self.unlock(v, c, name, *kind, *mode, false);
            }
        }
    }

    pub(super) fn stack_of(&mut self, c: usize, pc: u64) -> StackId {
        let Some(context) = self.contexts.get(c) else { return StackId::default() };
        let CallTrace { near, outer } = context.trace(vec![pc]);
        self.state.stacks.intern(&near, outer)
    }

    /// Applies a function's effects at its beginning. Returns the effects that remain for its return.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn begins(
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
        let (strand, off, task) = (context.order.now.strand, context.order.now.off, context.task);
        // After a jump to a hooked function, its lock was already released at the jump.
        let given_back = callee.hooked && context.out().is_some_and(|out| out.jump);
        self.notes_line(c, &summary.name);
        if let Some(context) = self.contexts.get_mut(c).filter(|_| callee.silences && !by_kernel) {
            context.order.silences_device();
        }
        let mut late = false;
        if callee.ordering {
            for effect in &summary.effects {
                match effect {
                    Effect::Sync(SyncOp::Unlock { kind, key, mode }) => {
                        if let Some(name) = Order::name(key, &args, task) {
                            self.unlock(v, c, name, *kind, *mode, by_kernel || given_back);
                        }
                    }
                    Effect::Sync(SyncOp::Release { key: Key::Global("device"), .. }) => {
                        if let Some(context) = self.contexts.get_mut(c) {
                            self.state.order.signals_device(&mut context.order, true);
                        }
                        let lets = |context: &Context| context.order.lets_device_interrupt();
                        if self.contexts.get(c).is_some_and(lets) && self.state.order.parts().states {
                            self.state.order.release(strand, DEVICE);
                        }
                    }
                    Effect::Sync(SyncOp::Release { key, word }) => {
                        if let Some(name) = Order::name(key, &args, task) {
                            if let (true, Name::At(addr)) = (*word, name) {
                                self.state.order.release_word(strand, addr);
                            }
                            self.state.order.release(strand, name);
                        }
                    }
                    Effect::Sync(SyncOp::Acquire { .. }) if holds(summary) => {}
                    Effect::Sync(SyncOp::Lock { .. } | SyncOp::Acquire { .. }) => late = true,
                    _ => {}
                }
            }
        }
        let mut moving = Vec::new();
        self.state.order.hand_called(strand, &callee.rules, &args, create);
        self.state.order.called(strand, &callee.rules, &args, create, &mut moving);
        if let Some(context) = self.contexts.get_mut(c) {
            context.order.now.clock = self.state.order.clock(strand);
            if let Some(what) = context.order.leaves_bringing_up() {
                self.state.order.leaves(&moving, what);
            }
        }
        self.report_steps(v, c, stack);
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

    /// Applies a function's effects at its return.
    pub(super) fn ends(&mut self, v: usize, c: usize, pending: &Pending, result: Option<u64>) {
        let Some(context) = self.contexts.get(c) else { return };
        let (strand, task) = (context.order.now.strand, context.task);
        for effect in pending.summary.iter().flat_map(|summary| &summary.effects) {
            match effect {
                // Where the driver left with a jump, the time of the return is not known: the call holds no
                // lock for the driver.
                Effect::Sync(SyncOp::Lock { kind, key, mode, when, tries })
                    if result.is_some_and(|result| when.holds(result)) =>
                {
                    if let Some(name) = Order::name(key, &pending.args, task) {
                        let lock = Acquired {
                            lock: self.state.order.lock_id(name, *kind),
                            mode: *mode,
                            stack: pending.stack,
                            tried: *tries,
                            by_kernel: pending.by_kernel,
                            off: pending.off,
                        };
                        self.drop_repeated(c, &lock);
                        self.hold(v, c, lock);
                    }
                }
                Effect::Sync(SyncOp::Acquire { key, when })
                    if takes_place(*when, result) && pending.summary.as_deref().is_none_or(|s| !holds(s)) =>
                {
                    if let Some(name) = Order::name(key, &pending.args, task)
                        && self.state.order.parts().deferral
                    {
                        self.state.order.acquire(strand, name);
                    }
                }
                _ => {}
            }
        }
        self.state.order.returned(strand, &pending.moving, result);
        self.report_steps(v, c, pending.stack);
    }

    /// A call has returned: the one with rsp `rsp`, or the innermost.
    pub(in crate::replay) fn returned_from(
        &mut self,
        v: usize,
        c: usize,
        rsp: Option<u64>,
        result: Option<u64>,
    ) {
        if !self.order.on {
            return;
        }
        loop {
            let Some(context) = self.contexts.get_mut(c) else { return };
            match (context.order.pending.last(), rsp) {
                (Some(pending), Some(rsp)) if pending.rsp > rsp && same_stack(pending.rsp, rsp) => return,
                (Some(_), _) => {}
                (None, _) => return,
            }
            let Some(pending) = context.order.pending.pop() else { return };
            let own = rsp.is_none_or(|rsp| rsp == pending.rsp);
            self.ends(v, c, &pending, result.filter(|_| own));
            if rsp.is_none() {
                return;
            }
        }
    }

    /// Passes the steps of objects to the checkers. `call` is the stack of the call that caused them, where
    /// the context is back from it.
    pub(super) fn report_steps(&mut self, v: usize, c: usize, call: StackId) {
        for mut step in self.state.order.take_steps() {
            let context = self.contexts.get(c);
            let place = match step.cause {
                Ok(_) => context.and_then(Context::out).map(|out| out.pc),
                Err(_) => context.and_then(|context| context.order.entries.last()).map(|run| run.function),
            };
            step.stack = place.map_or(call, |pc| self.stack_of(c, pc));
            self.each(v, Some(c), |checker, cx| checker.moved(cx, &step));
        }
        if let Some(context) = self.contexts.get_mut(c) {
            context.order.now.clock = self.state.order.clock(context.order.now.strand);
        }
    }
}
