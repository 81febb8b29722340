//! LockCheck: finds what lockdep finds, without a kernel built for it.
//!
//! The class distinguishes locks: the variable that they are, or the offset in objects that one call
//! allocates. An edge between classes means that a context holds a lock of the first class when it takes one
//! of the second. A lock taken without waiting adds no edge.

mod order;
mod usage;

use super::names;
use crate::checker::{Checker, Cx, Draft, Site};
use crate::level::Level;
use crate::machine::Out;
use crate::order::{Acquired, Entry, LockId};
use crate::value_flow::{InsnCtx, Regs, Value};
use guardrail_knowledge::effect::{Effect, Key, LockKind, LockMode, SyncOp};
use guardrail_knowledge::role::Role;
use guardrail_trace::event::Access;
use order::Order;
use rustc_hash::{FxHashMap, FxHashSet};
use usage::Usages;

const NAME: &str = "lockcheck";
/// Most entries and lock addresses that are known at a time.
const MAX_KNOWN: usize = 1 << 16;

/// The checker's state.
#[derive(Debug, Default)]
pub struct LockCheck {
    order: Order,
    usages: Usages,
    /// How many locks a context held when an entry began, by the entry's number.
    at_entry: FxHashMap<u64, usize>,
    /// Locks that the driver was seen to take.
    taken: FxHashSet<LockId>,
}

impl Checker for LockCheck {
    fn name(&self) -> &'static str {
        NAME
    }

    fn needs_sync(&self) -> bool {
        true
    }

    fn needs_loads(&self) -> bool {
        false
    }

    fn store(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, access: Access, _: Value) {
        // Spinning locks are initialized by a plain store of the word. An inlined release stores a byte.
        if !insn.access.locked && access.size >= 4 {
            self.inits(cx, Site::Insn(insn.addr), access.addr, |kind| {
                matches!(kind, LockKind::Spin | LockKind::Rw)
            });
        }
    }

    fn call(&mut self, cx: &mut Cx<'_>, out: &Out, _: &Regs) {
        let Some(summary) = out.summary.clone() else { return };
        if let Some(&lock) = Role::InitsLock.param(&summary.name).and_then(|arg| out.args.get(arg)) {
            self.inits(cx, Site::Call, lock, owned);
        }
        for effect in &summary.effects {
            match effect {
                Effect::Sync(SyncOp::Lock { kind, key, mode, tries: false, .. }) => {
                    self.twice(cx, *kind, key, *mode, &out.args, &summary.name);
                }
                Effect::Sync(SyncOp::Sleeps { gfp }) => {
                    let flags = gfp.and_then(|arg| out.args.get(usize::from(arg)));
                    if flags.is_none_or(|flags| flags & cx.state.world.gfp_reclaim() != 0) {
                        self.sleeps(cx, &summary.name);
                    }
                }
                _ => {}
            }
        }
    }

    fn locked(&mut self, cx: &mut Cx<'_>, lock: &Acquired) {
        if !lock.by_kernel && self.taken.len() < MAX_KNOWN {
            self.taken.insert(lock.lock);
        }
        let new = self.order.locked(cx, lock);
        self.usages.locked(cx, &mut self.order, lock, &new);
    }

    fn unlocked(&mut self, cx: &mut Cx<'_>, lock: LockId, held: Option<&Acquired>, by_kernel: bool) {
        if let Some(held) = held.filter(|held| !held.by_kernel && !by_kernel) {
            self.usages.unlocked(cx, &mut self.order, held);
        }
        let Some(info) = cx.state.order.lock(lock).cloned() else { return };
        if held.is_none() && info.kind == LockKind::Semaphore {
            self.order.counts(cx.state, &info);
        }
        // The kernel may have taken it where nothing is watched, and any thread may release a semaphore.
        if held.is_some() || by_kernel || !owned(info.kind) || !self.taken.contains(&lock) {
            return;
        }
        let state = cx.state;
        cx.report(NAME, "unlock-unlocked", Site::Call, || {
            let name = names::lock(state, &info);
            Draft::error(format!(
                "the {} {name} is given back, but this thread does not hold it",
                names::kind(info.kind)
            ))
        });
    }

    fn entered(&mut self, cx: &mut Cx<'_>, entry: &Entry) {
        if self.at_entry.len() >= MAX_KNOWN {
            self.at_entry.clear();
        }
        self.at_entry.insert(entry.serial, cx.context.map_or(0, |context| context.order.held.len()));
    }

    fn left(&mut self, cx: &mut Cx<'_>, entry: &Entry) {
        let (Some(before), Some(context)) = (self.at_entry.remove(&entry.serial), cx.context) else {
            return;
        };
        if Role::KeepsLocks.has(&entry.caller) {
            return;
        }
        let left: Vec<Acquired> = context.order.held.iter().skip(before).cloned().collect();
        for lock in left.iter().filter(|lock| !lock.by_kernel) {
            let Some(info) = cx.state.order.lock(lock.lock).cloned().filter(|info| owned(info.kind)) else {
                continue;
            };
            let (state, caller) = (cx.state, entry.caller.clone());
            cx.report(NAME, "lock-held-at-return", Site::Stack(lock.stack), || {
                let function = state.frame(entry.function, false).function;
                let to = if caller.is_empty() { "the kernel".to_owned() } else { caller };
                Draft::error(format!(
                    "the {} {} is still held when {function} returns to {to}",
                    names::kind(info.kind),
                    names::lock(state, &info),
                ))
            });
        }
    }
}

/// Whether only the thread that took a lock of this kind releases it.
fn owned(kind: LockKind) -> bool {
    matches!(kind, LockKind::Spin | LockKind::Rw | LockKind::Mutex | LockKind::RwSem)
}

impl LockCheck {
    /// The driver is about to wait for a lock; it may hold it already.
    fn twice(
        &self,
        cx: &mut Cx<'_>,
        kind: LockKind,
        key: &Key,
        mode: LockMode,
        args: &[u64],
        function: &str,
    ) {
        let (Key::Arg { arg, offset }, Some(context)) = (key, cx.context) else { return };
        if !owned(kind) {
            return;
        }
        let Some(address) = args.get(usize::from(*arg)).map(|at| at.wrapping_add(*offset)) else { return };
        let state = cx.state;
        // A reader of an rw_semaphore waits for a writer that waits for an earlier reader.
        let waits = |held: &Acquired| {
            kind == LockKind::RwSem || held.mode == LockMode::Exclusive || mode == LockMode::Exclusive
        };
        let again = context.order.held.iter().find(|held| {
            waits(held)
                && state
                    .order
                    .lock(held.lock)
                    .is_some_and(|info| info.address == address && info.kind == kind)
        });
        let Some(again) = again.cloned() else { return };
        let in_context = Role::NeverWaitsForItself.param(function).and_then(|arg| args.get(arg));
        if in_context.is_some_and(|&context| context != 0) {
            return;
        }
        cx.report(NAME, "double-lock", Site::Call, || {
            let Some(info) = state.order.lock(again.lock) else { return Draft::error(String::new()) };
            let name = names::lock(state, info);
            Draft {
                related: vec![names::related(state, format!("{name} was taken first"), again.stack)],
                ..Draft::error(format!(
                    "{function} waits for the {} {name}, which this thread holds already",
                    names::kind(kind)
                ))
            }
        });
    }

    /// The driver initializes a lock of such a kind, if there is one at the address.
    fn inits(&self, cx: &mut Cx<'_>, site: Site, address: u64, is_kind: impl Fn(LockKind) -> bool) {
        let (Some(context), state) = (cx.context, cx.state) else { return };
        let held = context.order.held.iter().find_map(|held| {
            let info = state.order.lock(held.lock)?;
            (info.address == address && is_kind(info.kind) && state.order.is_live(held.lock))
                .then_some((held, info))
        });
        let Some((held, info)) = held else { return };
        cx.report(NAME, "init-locked", site, || {
            let name = names::lock(state, info);
            Draft {
                related: vec![names::related(state, format!("{name} was taken"), held.stack)],
                ..Draft::error(format!(
                    "the {} {name} is initialized, but this thread holds it",
                    names::kind(info.kind)
                ))
            }
        });
    }

    /// The driver calls a function that may sleep.
    fn sleeps(&self, cx: &mut Cx<'_>, function: &str) {
        let Some(context) = cx.context else { return };
        let state = cx.state;
        let spin = context.order.held.iter().find(|held| {
            state.order.lock(held.lock).is_some_and(|info| match info.kind {
                LockKind::Spin | LockKind::Rw => true,
                LockKind::Rcu => !held.by_kernel,
                _ => false,
            })
        });
        let off = context.order.now.off;
        let why = match context.level {
            Level::Nmi => "in a non-maskable interrupt".to_owned(),
            Level::Hardirq => "in an interrupt handler".to_owned(),
            Level::Softirq => "in a softirq".to_owned(),
            Level::Process => match spin.and_then(|held| Some((held, state.order.lock(held.lock)?))) {
                Some((_, info)) => {
                    format!("while the {} {} is held", names::kind(info.kind), names::lock(state, info))
                }
                None if off.irqs => "with interrupts off".to_owned(),
                None if off.softirqs => "with softirqs off".to_owned(),
                None if off.preemption => "with preemption off".to_owned(),
                None => return,
            },
        };
        let related = spin.map(|held| names::related(state, "the lock was taken".to_owned(), held.stack));
        cx.report(NAME, "sleep-in-atomic", Site::Call, || Draft {
            related: related.into_iter().collect(),
            ..Draft::error(format!("{function}, which may sleep, is called {why}"))
        });
    }
}
