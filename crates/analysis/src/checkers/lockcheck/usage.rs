//! Where classes of locks are taken: in interrupts, and with interrupts on.

use super::NAME;
use crate::checker::{Cx, Draft, Site};
use crate::checkers::names::{self, Class};
use crate::level::Level;
use crate::order::Acquired;
use crate::stacks::StackId;
use guardrail_finding::ContextInfo;
use guardrail_knowledge::effect::{LockKind, LockMode};
use rustc_hash::FxHashMap;

/// Most classes that are known.
const MAX_CLASSES: usize = 1 << 14;

/// A place where a class was taken.
#[derive(Clone, Debug)]
struct Taken {
    stack: StackId,
    mode: LockMode,
    context: ContextInfo,
}

/// What is known about a class, for hardware interrupts and for softirqs.
#[derive(Clone, Debug, Default)]
struct Usage {
    /// Where it was taken in such interrupts, waiting.
    inside: [Option<Taken>; 2],
    /// Where it was taken elsewhere while such interrupts were enabled.
    outside: [Option<Taken>; 2],
    reported: [bool; 2],
}

/// All classes of locks.
#[derive(Debug, Default)]
pub(super) struct Usages {
    classes: FxHashMap<(LockKind, Class), Usage>,
}

const INTERRUPTS: [&str; 2] = ["an interrupt handler", "a softirq"];
const ON: [&str; 2] = ["interrupts", "softirqs"];

impl Usages {
    /// A lock was taken; what is off is as it was after the lock.
    pub(super) fn locked(&mut self, cx: &mut Cx<'_>, lock: &Acquired) {
        let Some(context) = cx.context else { return };
        let state = cx.state;
        let Some(info) = state.order.lock(lock.lock).cloned() else { return };
        if !matches!(info.kind, LockKind::Spin | LockKind::Rw) || self.classes.len() >= MAX_CLASSES {
            return;
        }
        let off = context.order.now.off;
        let inside = [context.level == Level::Hardirq, context.level == Level::Softirq];
        // A hardware interrupt can hit the lock in a softirq as well as in a task.
        let outside = [
            context.level <= Level::Softirq && !off.irqs,
            context.level == Level::Process && !off.softirqs && !off.irqs,
        ];
        let usage = self.classes.entry((info.kind, names::class(state, &info))).or_default();
        for i in 0..2 {
            let place = |slot: &Option<Taken>| {
                slot.as_ref()
                    .is_none_or(|old| old.mode == LockMode::Shared && lock.mode == LockMode::Exclusive)
            };
            let taken = || Taken { stack: lock.stack, mode: lock.mode, context: names::who(cx) };
            if inside[i] && !lock.tried && place(&usage.inside[i]) {
                usage.inside[i] = Some(taken());
            }
            if outside[i] && place(&usage.outside[i]) {
                usage.outside[i] = Some(taken());
            }
            let (Some(in_irq), Some(with_on)) = (&usage.inside[i], &usage.outside[i]) else { continue };
            let readers = in_irq.mode == LockMode::Shared && with_on.mode == LockMode::Shared;
            if readers || std::mem::replace(&mut usage.reported[i], true) {
                continue;
            }
            let (in_irq, with_on) = (in_irq.clone(), with_on.clone());
            cx.report(NAME, "irq-inversion", Site::Stack(with_on.stack), || {
                let name = names::lock(state, &info);
                let mut inside = names::related(state, format!("taken in {}", INTERRUPTS[i]), in_irq.stack);
                inside.context = Some(in_irq.context);
                Draft {
                    related: vec![inside],
                    ..Draft::error(format!(
                        "the {} {name} is taken with {} on, and also in {}",
                        names::kind(info.kind),
                        ON[i],
                        INTERRUPTS[i],
                    ))
                }
            });
        }
    }
}
