//! Passes what instructions do to all checkers.

use crate::checker::{Checker, Cx};
use crate::definedness::Definedness;
use crate::machine::{Context, State};
use crate::reports::Reports;
use crate::value_flow::{Control, InsnCtx, Memory, Origin, Pointer, Reach, RepRange, Value};
use guardrail_trace::event::Access;
use std::collections::BTreeMap;

/// The indices of checkers that need accesses.
#[derive(Debug, Default)]
pub(super) struct Accessed {
    pub loads: Vec<usize>,
    pub stores: Vec<usize>,
}

impl Accessed {
    /// Those among all checkers of a run.
    pub fn by(checkers: &[Box<dyn Checker>]) -> Accessed {
        let which = |needs: fn(&dyn Checker) -> bool| {
            (0..checkers.len()).filter(|&at| needs(checkers[at].as_ref())).collect()
        };
        Accessed {
            loads: which(|checker| checker.needs_loads()),
            stores: which(|checker| checker.needs_stores()),
        }
    }
}

/// Passes what instructions do to all checkers.
pub(super) struct Fan<'a> {
    pub accessed: &'a Accessed,
    pub checkers: &'a mut [Box<dyn Checker>],
    pub unknown: &'a mut BTreeMap<String, u64>,
    pub low: &'a mut u64,
    /// Some checker needs locks and order.
    pub order: bool,
    pub state: &'a mut State,
    pub context: &'a mut Context,
    pub reports: &'a mut Reports,
    pub definedness: &'a mut Definedness,
    pub cpu: u32,
    pub event: u64,
}

impl Fan<'_> {
    /// The checkers, and what they are called with.
    #[inline]
    fn parts(&mut self) -> (&mut [Box<dyn Checker>], Cx<'_>) {
        let cx = Cx {
            state: self.state,
            context: Some(self.context),
            reports: self.reports,
            definedness: self.definedness,
            cpu: self.cpu,
            event: self.event,
        };
        (self.checkers, cx)
    }

    /// Calls `f` for all checkers.
    #[inline]
    pub fn each(&mut self, mut f: impl FnMut(&mut dyn Checker, &mut Cx<'_>)) {
        let (checkers, mut cx) = self.parts();
        for checker in checkers {
            f(checker.as_mut(), &mut cx);
        }
    }

    /// Calls `f` for the checkers with these indices.
    #[inline]
    fn some(&mut self, which: &[usize], mut f: impl FnMut(&mut dyn Checker, &mut Cx<'_>)) {
        let (checkers, mut cx) = self.parts();
        for &at in which {
            if let Some(checker) = checkers.get_mut(at) {
                f(checker.as_mut(), &mut cx);
            }
        }
    }

    /// The context gives back a lock by a store.
    #[cold]
    fn give_back(&mut self, at: usize) {
        let held = self.context.order.held[at].clone();
        self.each(|checker, cx| checker.unlocked(cx, held.lock, Some(&held), false));
        self.state.order.gave_back(&mut self.context.order, held.lock, held.mode, Some(at));
    }

    /// A string instruction has accessed a range.
    fn range(&mut self, addr: u64, range: &RepRange, store: bool) {
        self.touches(addr, range);
        if self.order && addr != 0 && !range.io {
            let size = range.bytes();
            self.state.order.touched_range(&mut self.context.order, addr, size, store);
        }
    }

    /// A string instruction is about to access a range.
    fn touches(&mut self, addr: u64, range: &RepRange) {
        if self.order && addr != 0 && !range.io {
            let size = range.bytes();
            self.state.order.touches(&mut self.context.order, addr, size);
        }
    }
}

impl Memory for Fan<'_> {
    #[inline]
    fn load(&mut self, ctx: &InsnCtx, access: Access) -> Value {
        // A read may acquire order for what follows, this access included.
        if self.order {
            self.state.order.touches(&mut self.context.order, access.addr, u64::from(access.size));
            self.state.order.touched(&mut self.context.order, ctx, &access);
        }
        let which = &self.accessed.loads;
        self.some(which, |checker, cx| checker.load(cx, ctx, access));
        self.definedness.load(&access)
    }

    #[inline]
    fn store(&mut self, ctx: &InsnCtx, access: Access, value: Value) {
        if self.order {
            self.state.order.touches(&mut self.context.order, access.addr, u64::from(access.size));
        }
        let which = &self.accessed.stores;
        self.some(which, |checker, cx| checker.store(cx, ctx, access, value));
        self.definedness.store(&access, value);
        // The store itself is part of what it releases.
        if self.order {
            self.state.order.touched(&mut self.context.order, ctx, &access);
            let given = self.state.order.given_back(&self.context.order, &access, ctx.access.locked);
            if let Some(at) = given.filter(|_| self.state.world.inlines_unlock()) {
                self.give_back(at);
            }
        }
    }

    fn undefined_branch(&mut self, ctx: &InsnCtx, origin: Origin) {
        self.each(|checker, cx| checker.undefined_branch(cx, ctx, origin));
    }

    fn undefined_address(&mut self, ctx: &InsnCtx, access: Access, reg: u8, origin: Origin) {
        self.each(|checker, cx| checker.undefined_address(cx, ctx, access, reg, origin));
    }

    fn undefined_port_output(&mut self, ctx: &InsnCtx, origin: Origin) {
        self.each(|checker, cx| checker.undefined_port_output(cx, ctx, origin));
    }

    fn rep_move(&mut self, ctx: &InsnCtx, range: RepRange) {
        self.range(range.src, &range, false);
        self.touches(range.dst, &range);
        self.each(|checker, cx| checker.rep_move(cx, ctx, range));
        self.definedness.rep_move(self.state, &range);
        self.range(range.dst, &range, true);
    }

    fn rep_set(&mut self, ctx: &InsnCtx, range: RepRange, value: Value) {
        self.touches(range.dst, &range);
        self.each(|checker, cx| checker.rep_set(cx, ctx, range, value));
        self.definedness.rep_set(&range, value);
        self.range(range.dst, &range, true);
    }

    fn rep_read(&mut self, ctx: &InsnCtx, range: RepRange) -> Value {
        self.range(range.src, &range, false);
        self.each(|checker, cx| checker.rep_read(cx, ctx, range));
        self.definedness.rep_read(&range)
    }

    fn stack_adjusted(&mut self, ctx: &InsnCtx, old: u64, new: u64) {
        *self.low = (*self.low).min(new);
        self.each(|checker, cx| checker.stack_adjusted(cx, ctx, old, new));
        self.definedness.stack_adjusted(ctx, old, new);
    }

    #[inline]
    fn pointer_at(&mut self, _: &InsnCtx, access: Access) -> Option<Pointer> {
        self.definedness.provenance.loaded(&access)
    }

    fn pointer_stored(&mut self, ctx: &InsnCtx, access: Access, pointer: Pointer) {
        self.definedness.provenance.stored(self.state, ctx, &access, pointer);
    }

    fn pointer_compared(&mut self, pointer: Pointer) -> bool {
        self.definedness.provenance.compared(pointer)
    }

    fn reached(&mut self, ctx: &InsnCtx, reach: Reach) {
        if let Some(stray) = self.definedness.stray(self.state, &reach) {
            self.each(|checker, cx| checker.strayed(cx, ctx, &reach, stray.clone()));
        }
    }

    fn control(&mut self, _: &InsnCtx, control: Control) {
        if self.order {
            let slide = self.state.slide;
            let place = self
                .state
                .preempt_count
                .map(|(place, relative)| if relative { place.wrapping_add(slide) } else { place });
            self.context.order.control(control, place);
            self.context.order.now.off = self.context.order.off();
        }
    }

    fn unknown(&mut self, _: &InsnCtx, mnemonic: iced_x86::Mnemonic) {
        *self.unknown.entry(format!("{mnemonic:?}").to_lowercase()).or_default() += 1;
    }
}
