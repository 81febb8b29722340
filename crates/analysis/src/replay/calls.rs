//! Entries into the driver, calls out of it, and returns.

use super::{Entering, Leaving, Replay};
use crate::level::Level;
use crate::machine::{Activation, End, Out};
use crate::stacks::OuterId;
use crate::value_flow::Regs;
use guardrail_knowledge::effect::{Effect, Ptr};
use guardrail_knowledge::role::Role;
use guardrail_trace::event::EnterFlags;

impl Replay {
    /// Driver code begins to run at `addr` after other code ran on the vCPU.
    pub(super) fn enter(&mut self, v: usize, entering: &Entering, addr: u64) {
        let own = self.context_of_stack(entering);
        if let Some(c) = own {
            self.carries(c, entering);
        }
        let c = own.unwrap_or_else(|| {
            self.context_for(entering.task, Level::of(entering.preempt_count), entering.pid)
        });
        self.vcpus[v].context = Some(c);
        let (rsp, ret) = (entering.rsp, entering.ret);
        self.hooks.over(entering.task, rsp, None);
        // The kernel allocates thread stacks from vmalloc space on a path that no hook sees.
        if entering.args
            && let Some((_, object)) = self.state.objects.at(rsp)
            && !object.is_live()
        {
            let (base, end) = (object.base, object.slot_end);
            self.forget(base, end);
        }
        self.arrive(v, c, entering);
        let context = &mut self.contexts[c];
        // An indirect call from the driver to itself: the registers keep their state.
        if let Some(out) = context.out()
            && out.target == addr
            && out.entry_rsp == rsp
        {
            let (jump, ret) = (out.jump, out.ret);
            context.cut(context.stack.len() - 1);
            if !jump {
                context.push(Activation::called(rsp, ret));
            }
            if let Some(regs) = context.regs.as_deref_mut() {
                regs.set_rsp(Some(rsp));
            }
            return;
        }
        if entering.args || entering.flags & EnterFlags::ARGS != 0 {
            let state = &self.state;
            context.drop_jumped(|out| state.kernel_function(out.target) == state.kernel_function(ret));
            context.drop_stale(rsp);
            let saved = if context.stack.is_empty() { None } else { context.regs.take() };
            context.regs = Some(Box::new(Regs::at_entry(rsp)));
            context.low = rsp;
            context.push(Activation::entered(rsp, ret, entering.outer, saved));
            return self.activate(v, c, entering, addr);
        }
        let Some(at) = context.resumes(rsp) else {
            context.drop_stale(rsp);
            context.regs = Some(Box::new(Regs::at_entry(rsp)));
            context.low = rsp;
            return context.push(Activation::entered(rsp, 0, OuterId::default(), None));
        };
        context.cut(at + 1);
        match context.pop() {
            Some(Activation::Out(out)) => {
                if out.jump {
                    // The function that jumped has returned as well.
                    context.returned(rsp);
                }
                let mut regs = context.regs.take().unwrap_or_default();
                regs.clobber_call(false);
                regs.set_rsp(Some(rsp));
                let result = entering.rax;
                if let Some(pointer) = self.definedness.provenance.returned(c, result) {
                    regs.set_pointer(0, pointer);
                }
                context.regs = Some(regs);
                context.low = rsp;
                self.returned_from(v, c, Some(out.entry_rsp), Some(result));
                self.definedness.returned(&self.state, self.contexts.get(c), &out, result);
                self.each(v, Some(c), |checker, cx| checker.call_returned(cx, &out, result));
            }
            Some(Activation::Interrupted { pc, .. }) => {
                context.low = rsp;
                if let Some((finding, at)) = context.fault.take()
                    && at == pc
                    && addr == pc
                {
                    // The instruction runs again: the kernel has handled the fault.
                    self.reports.retract(finding);
                }
                if let Some(regs) = context.regs.as_deref_mut() {
                    regs.set_rsp(Some(rsp));
                }
            }
            _ => {}
        }
    }

    /// A block begins directly after another block of the driver.
    pub(super) fn go_on(&mut self, v: usize) {
        let vcpu = &mut self.vcpus[v];
        if let (Some(c), Some(after)) = (vcpu.context, vcpu.called.take()) {
            self.called(c, after);
        }
    }

    /// A driver function has been called directly.
    pub(super) fn called(&mut self, c: usize, after: u64) {
        let Some(context) = self.contexts.get_mut(c) else { return };
        if let Some(rsp) = context.regs.as_deref().and_then(Regs::rsp) {
            context.returned(rsp.wrapping_add(8));
            context.push(Activation::called(rsp, after));
        }
    }

    /// The driver calls or jumps to other code, or to itself through a pointer.
    pub(super) fn leave(&mut self, v: usize, c: usize, leaving: &Leaving, last: (u64, u64), end: End) {
        let entry_rsp = if leaving.jump { leaving.rsp } else { leaving.rsp.wrapping_sub(8) };
        let internal = self.state.modules.contains(leaving.target);
        let jump = leaving.jump || !matches!(end, End::Call(_));
        let summary = (!internal).then(|| self.state.summary(leaving.target));
        let out = Out {
            pc: last.0,
            ret: last.1,
            target: leaving.target,
            entry_rsp,
            jump,
            args: leaving.args,
            summary: summary.clone(),
        };
        let Some(context) = self.contexts.get_mut(c) else { return };
        if let Some(regs) = context.regs.as_deref_mut() {
            regs.set_rsp(Some(entry_rsp));
        }
        context.push(Activation::Out(out.clone()));
        let regs = context.regs.take().unwrap_or_default();
        if let Some(summary) = &summary {
            // Roles are those of the kernel itself, not of other modules.
            if !Role::KeepsNothing.has(&summary.name) || self.state.modules.other_at(out.target).is_some() {
                self.escape(&summary.effects, &out.args);
            }
            self.gives_to_call(c, &out.args);
            self.each(v, Some(c), |checker, cx| checker.call(cx, &out, &regs));
            self.definedness.called(&self.state, self.contexts.get(c), &out);
            self.calls(v, c, &out);
        }
        let Some(context) = self.contexts.get_mut(c) else { return };
        context.regs = Some(regs);
        if !internal {
            let low = std::mem::replace(&mut context.low, entry_rsp);
            self.leave_stack(v, c, low, entry_rsp);
        }
        if out.summary.is_some_and(|summary| Role::SwitchesStacks.has(&summary.name)) {
            let own = self.waits_on_own_stack(c);
            self.carried(own.unwrap_or(c));
        }
    }

    /// Marks the objects that the kernel may keep as escaped.
    fn escape(&mut self, effects: &[Effect], args: &[u64; 6]) {
        for effect in effects {
            let addresses = match effect {
                Effect::Escape { arg } => {
                    let value = self.state.pointer(Ptr::Arg(*arg), args);
                    // The value may be the memory's address or that of its `struct page`.
                    [value, self.state.page_address(value)]
                }
                Effect::TakeOver { ptr } => [self.state.pointer(*ptr, args), 0],
                _ => continue,
            };
            for addr in addresses {
                if let Some((id, _)) = self.state.objects.at(addr)
                    && let Some(object) = self.state.objects.get_mut(id)
                {
                    object.escaped = true;
                }
            }
        }
    }
}
