//! Drivers that run on a stack of their own, as active drivers do: one waits there for a message, and goes on in whichever task or
//! interrupt has one for it. All that runs on such a stack is one context and one strand.

use super::{Entering, MAX_CONTEXTS, Replay};
use crate::checker::Violation;
use crate::level::Level;
use crate::machine::{Activation, Context};
use crate::order::{EARLY, Identity, is_task};
use crate::stacks::{CallTrace, STACK_SIZE};
use std::mem;

/// The number of the stack at an address. Such stacks are aligned to their size.
fn stack_of(rsp: u64) -> u64 {
    rsp / STACK_SIZE
}

impl Replay {
    /// The context of a driver's own stack that holds an address.
    pub(super) fn own_stack_at(&self, rsp: u64) -> Option<usize> {
        self.own_stacks.get(&stack_of(rsp)).copied()
    }

    /// The context of a driver's own stack, if driver code is about to run on one. From now on it has the task and level of the vCPU.
    pub(super) fn context_of_stack(&mut self, entering: &Entering) -> Option<usize> {
        let stack = stack_of(entering.rsp);
        let c = *self.own_stacks.get(&stack)?;
        let context = self.contexts.get_mut(c)?;
        let goes_on = |part: &Activation| part.at().is_some_and(|at| at > entering.rsp);
        if entering.args && !context.stack.iter().any(goes_on) {
            // The stack is another driver's by now, whose first run is that of the thread that starts it.
            self.own_stacks.remove(&stack);
            return None;
        }
        context.task = entering.task;
        context.pid = entering.pid;
        context.level = Level::of(entering.preempt_count);
        context.order.moves_to(context.level, entering.pid);
        Some(c)
    }

    /// A task or an interrupt goes on with a driver's own stack: what it has done happens before.
    pub(super) fn carries(&mut self, c: usize, entering: &Entering) {
        let level = Level::of(entering.preempt_count);
        let known = |context: &&Context| {
            context.pid == entering.pid && (is_task(level) || !context.order.entries.is_empty())
        };
        let carrier = self.by_key.get(&(entering.task, level)).copied();
        let strand = carrier.and_then(|carrier| self.contexts.get(carrier)).filter(known);
        let carrier = match strand.map(|context| context.order.now.strand) {
            Some(strand) => Some((carrier, strand)),
            None if is_task(level) => {
                let early = Identity::Task { task: entering.task, pid: EARLY };
                self.state.order.strand(early).map(|strand| (None, strand))
            }
            None => None,
        };
        let Some(context) = self.contexts.get_mut(c) else { return };
        context.carrier = carrier;
        let own = context.own_stack;
        if let (true, Some((carrier, strand)), Some(stack)) = (self.order.on, carrier, own) {
            let own = self.strand(Identity::OwnStack { stack }, None);
            self.state.order.follow(own, strand);
            carrier.into_iter().for_each(|carrier| self.refresh_clock(carrier));
        }
    }

    /// The driver waits on its own stack: what it has done happens before what its task or interrupt does next.
    pub(super) fn carried(&mut self, c: usize) {
        let Some(context) = self.contexts.get(c).filter(|_| self.order.on) else { return };
        if let (Some(stack), Some((_, strand))) = (context.own_stack, context.carrier) {
            let own = self.strand(Identity::OwnStack { stack }, None);
            self.state.order.follow(strand, own);
            self.refresh_clock(c);
        }
    }

    /// The driver waits in a call on a stack of its own. If it is the first time, what the log shows of that stack becomes a
    /// context, whose index is returned.
    pub(super) fn waits_on_own_stack(&mut self, c: usize) -> Option<usize> {
        let full = self.contexts.len() >= MAX_CONTEXTS;
        let context = self.contexts.get_mut(c)?;
        let rsp = context.out().map(|out| out.entry_rsp).filter(|_| context.own_stack.is_none() && !full)?;
        let stack = stack_of(rsp);
        let on_it = |rsp: u64| stack_of(rsp) == stack;
        let first = context.stack.iter().position(|part| part.at().is_some_and(on_it))?;
        let mut own = Context::new(context.task, context.level, context.pid);
        own.own_stack = Some(stack * STACK_SIZE);
        own.stack = context.split_off(first);
        let regs = match own.stack.first_mut() {
            Some(Activation::Frame { saved, .. }) => saved.take(),
            _ => None,
        };
        own.regs = mem::replace(&mut context.regs, regs);
        let (inside, outside) =
            mem::take(&mut context.order.pending).into_iter().partition(|call| on_it(call.rsp));
        (own.order.pending, context.order.pending) = (inside, outside);
        context.order.entries.retain(|entry| !on_it(entry.rsp));
        // So far it has run in the strand of its task.
        let strand = context.order.now.strand;
        own.carrier = Some((Some(c), strand));
        self.contexts.push(own);
        self.own_stacks.insert(stack, self.contexts.len() - 1);
        if self.order.on {
            let own = self.strand(Identity::OwnStack { stack: stack * STACK_SIZE }, None);
            self.state.order.follow(own, strand);
            self.refresh_clock(c);
            if let Some(context) = self.contexts.last_mut() {
                context.order.now.strand = own;
            }
        }
        Some(self.contexts.len() - 1)
    }

    /// The core of active drivers announces that one of them has broken a rule.
    pub(super) fn violation(&mut self, v: usize, [rule, stack, main]: [u64; 3], text: &[u64]) {
        let known = self.own_stacks.get(&stack_of(stack)).copied();
        // Before it waits for the first time, its stack is still a part of its task's context.
        let context = known.or(self.vcpus[v].context);
        let context_of = context.and_then(|c| self.contexts.get(c));
        let near = |context: &Context| context.out().map(|out| out.pc).into_iter().collect();
        let stack = context_of.map(|context| context.trace(near(context)));
        let stack = stack.filter(|stack| !stack.near.is_empty()).unwrap_or_else(|| CallTrace::at(main));
        let bytes = text.iter().flat_map(|word| word.to_le_bytes()).take_while(|&byte| byte != 0);
        let shown =
            |byte: u8| if byte == b'\n' || (b' '..=b'~').contains(&byte) { char::from(byte) } else { '?' };
        let text: String = bytes.map(shown).collect();
        let (message, states) = text.split_once('\n').unwrap_or((&text, ""));
        let violation = Violation { rule, message, states, stack: &stack };
        self.each(v, context, |checker, cx| checker.violated(cx, &violation));
    }
}
