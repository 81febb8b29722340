//! Locks are taken and released.

use crate::machine::Context;
use crate::order::{Acquired, LockId, Name};
use crate::replay::Replay;
use guardrail_knowledge::effect::{LockKind, LockMode};

/// Most locks of one context.
const MAX_HELD: usize = 64;

impl Replay {
    /// Drops an exclusive lock that the context holds already. A thread takes such a lock once. A second time
    /// is the outer of two functions that both report it, as `refcount_dec_and_mutex_lock` calls
    /// `mutex_lock`.
    pub(super) fn drop_repeated(&mut self, c: usize, lock: &Acquired) {
        let kind = self.state.order.lock(lock.lock).map(|info| info.kind);
        if lock.mode != LockMode::Exclusive || !matches!(kind, Some(LockKind::Spin | LockKind::Mutex)) {
            return;
        }
        let same = |held: &Acquired| held.lock == lock.lock && held.mode == LockMode::Exclusive;
        if let Some(at) = self.contexts.get(c).and_then(|context| context.order.held.iter().rposition(same)) {
            self.drop_held(c, at);
        }
    }

    /// A context has taken a lock.
    pub(super) fn hold(&mut self, v: usize, c: usize, lock: Acquired) {
        let Some(context) = self.contexts.get_mut(c) else { return };
        if context.order.held.len() >= MAX_HELD {
            context.order.held.remove(0);
        }
        context.order.held.push(lock.clone());
        if !lock.by_kernel
            && lock.mode == LockMode::Exclusive
            && let Some(info) = self.state.order.lock(lock.lock)
            && info.kind == LockKind::Spin
        {
            context.order.begin_section(lock.lock, info.address);
        }
        context.order.now.locks = self.state.order.lockset(&context.order.held);
        let strand = context.order.now.strand;
        self.state.order.taken(strand, lock.lock, lock.mode);
        self.each(v, Some(c), |checker, cx| checker.locked(cx, &lock));
    }

    /// A context releases a lock.
    pub(super) fn unlock(
        &mut self,
        v: usize,
        c: usize,
        name: Name,
        kind: LockKind,
        mode: LockMode,
        by_kernel: bool,
    ) {
        let id = self.state.order.lock_id(name, kind);
        let find = |context: &Context| {
            let same = context.order.held.iter().rposition(|held| held.lock == id && held.mode == mode);
            same.or_else(|| context.order.held.iter().rposition(|held| held.lock == id))
        };
        let Some(at) = self.contexts.get(c).map(find) else { return };
        // Any thread may release a semaphore, not only the one that took it.
        let elsewhere = at.is_none() && matches!(kind, LockKind::Semaphore | LockKind::RwSem);
        if elsewhere
            && let Some((other, at)) =
                self.contexts.iter().enumerate().find_map(|(i, context)| Some((i, find(context)?)))
        {
            self.drop_held(other, at);
        }
        let mode = at.and_then(|at| self.contexts.get(c)?.order.held.get(at)).map_or(mode, |held| held.mode);
        self.release_lock(v, c, id, mode, at, by_kernel);
        // The lock may be held twice: once because a kernel function holds it while it runs, and once because
        // it was taken.
        if mode == LockMode::Exclusive && matches!(kind, LockKind::Spin | LockKind::Mutex) {
            while let Some(at) = self.contexts.get(c).and_then(find) {
                self.drop_held(c, at);
            }
        }
    }

    pub(super) fn release_lock(
        &mut self,
        v: usize,
        c: usize,
        id: LockId,
        mode: LockMode,
        at: Option<usize>,
        by_kernel: bool,
    ) {
        let held = at.and_then(|at| self.contexts.get(c)?.order.held.get(at).cloned());
        self.each(v, Some(c), |checker, cx| checker.unlocked(cx, id, held.as_ref(), by_kernel));
        let Some(context) = self.contexts.get_mut(c) else { return };
        self.state.order.gave_back(&mut context.order, id, mode, at);
    }

    pub(super) fn drop_held(&mut self, c: usize, at: usize) {
        let Some(context) = self.contexts.get_mut(c) else { return };
        self.state.order.drop_held(&mut context.order, at);
    }
}
