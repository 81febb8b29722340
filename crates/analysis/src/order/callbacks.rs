//! What runs of callbacks mean for the states of objects and for the order.

use super::charts::{CallbackRef, Charts, has, place, takes_place};
use super::clocks::Relation;
use super::strands::Strands;
use super::{Parts, Step, StrandId};
use guardrail_knowledge::chart::{Callback, Chart, Set};
use std::sync::Arc;

impl Charts {
    /// The callback that an entry into the driver is, among those that its caller makes. One that the state
    /// of its object allows is preferred.
    pub fn recognize(&mut self, candidates: &[CallbackRef], args: &[u64]) -> Option<(usize, usize, u32)> {
        let (mut forbidden, mut unknown) = (None, None);
        for &(chart, callback) in candidates {
            let list = Arc::clone(&self.list);
            let Some(rule) = list.get(chart).and_then(|c| c.callbacks.get(callback)) else { continue };
            let keys: Vec<Option<u64>> =
                rule.keys.iter().map(|key| key.and_then(|arg| args.get(usize::from(arg)).copied())).collect();
            if rule.from.is_empty() && !keys.iter().any(Option::is_some) {
                continue;
            }
            let found = self.about(chart, &keys, rule.states, false);
            let fits = |id: &&u32| {
                let state = self.classes.get(chart).and_then(|c| c.list.get(id));
                state.is_some_and(|i| has(rule.states, i.state) || has(i.coming, callback))
            };
            if let Some(&id) = found.iter().find(fits) {
                return Some((chart, callback, id));
            }
            forbidden = forbidden.or(found.first().map(|&id| (chart, callback, id)));
            if unknown.is_none() && !rule.from.is_empty() {
                unknown = Some((chart, callback, keys, rule.states));
            }
        }
        if forbidden.is_some() {
            return forbidden;
        }
        let (chart, callback, keys, states) = unknown?;
        // One that names no object may come before any object is known.
        let id = match self.about(chart, &keys, states, true).first() {
            Some(&id) => id,
            None if self.is_nameless((chart, callback)) => self.add(chart, [0, 0], states)?,
            None => return None,
        };
        Some((chart, callback, id))
    }

    /// A callback begins: acquires what was released for it, and moves its object.
    pub fn entered(
        &mut self,
        strands: &mut Strands,
        parts: Parts,
        by: StrandId,
        (chart, callback, id): (usize, usize, u32),
        steps: &mut Vec<Step>,
    ) {
        let counts = self.counts(chart, parts);
        if let (Some(strand), Some(instance)) = (strands.get_mut(by), self.instance(chart, id))
            && let Some(var) = instance.forks.get(callback)
        {
            // What is there was released because it counts.
            strand.acquire(var, Relation::Hard);
        }
        if let (Some(strand), Some(class)) = (strands.get_mut(by), self.classes.get(chart))
            && let Some(var) = class.forks.get(callback)
        {
            strand.acquire(var, Relation::Hard);
        }
        let list = Arc::clone(&self.list);
        let Some(rule) = self.callback_of(&list, chart, callback) else { return };
        let Some(instance) = self.instance(chart, id) else { return };
        let state = instance.state;
        let allowed = has(rule.states, state) || has(instance.coming, callback);
        self.shift(strands, counts, by, (chart, id), callback, rule.enters, allowed, steps);
    }

    /// Acquires what was released for a callback of a known object, for a strand that runs it under another
    /// name.
    pub fn entered_also(
        &mut self,
        strands: &mut Strands,
        by: StrandId,
        (chart, callback): CallbackRef,
        args: &[u64],
    ) {
        let Some(rule) = self.callback((chart, callback)) else { return };
        let part = |key: &Option<u8>| key.and_then(|arg| args.get(usize::from(arg)).copied());
        let keys: Option<Vec<u64>> = rule.keys.iter().map(part).collect();
        let Some(keys) = keys.filter(|keys| !keys.is_empty()) else { return };
        let key = [keys[0], keys.get(1).copied().unwrap_or(0)];
        let Some(class) = self.classes.get(chart) else { return };
        let instance = class.by_key.get(&key).and_then(|id| class.list.get(id));
        let Some(strand) = strands.get_mut(by) else { return };
        for forks in instance.map(|instance| &instance.forks).into_iter().chain([&class.forks]) {
            if let Some(var) = forks.get(callback) {
                strand.acquire(var, Relation::Hard);
            }
        }
    }

    /// Whether something was released for the next run of a callback.
    pub fn was_forked(&self, (chart, callback, id): (usize, usize, u32)) -> bool {
        let instance = self.classes.get(chart).and_then(|class| class.list.get(&id));
        instance.and_then(|instance| instance.forks.get(callback)).is_some_and(Option::is_some)
    }

    fn callback_of<'a>(&self, list: &'a [Chart], chart: usize, callback: usize) -> Option<&'a Callback> {
        list.get(chart)?.callbacks.get(callback)
    }

    /// A callback moves its object. Callbacks that are no longer allowed have ended; newly allowed ones come
    /// later.
    #[allow(clippy::too_many_arguments)]
    fn shift(
        &mut self,
        strands: &mut Strands,
        counts: bool,
        by: StrandId,
        (chart, id): (usize, u32),
        callback: usize,
        to: Option<usize>,
        allowed: bool,
        steps: &mut Vec<Step>,
    ) {
        let Some((state, _)) = self.get(chart, id) else { return };
        if let Some(to) = to.filter(|_| counts) {
            let (before, after) = (self.allowed(chart, state), self.allowed(chart, to));
            self.join(strands, by, (chart, id), before & !after & !(1 << callback.min(63)));
            self.fork(strands, by, (chart, id), self.opened(chart, state, to));
        }
        steps.extend(self.step((chart, id), Err(callback), to, allowed));
    }

    /// A callback returns: moves its object, and releases what it has done.
    pub fn left(
        &mut self,
        strands: &mut Strands,
        parts: Parts,
        by: StrandId,
        (chart, callback, id): (usize, usize, u32),
        result: Option<u64>,
        steps: &mut Vec<Step>,
    ) {
        let counts = self.counts(chart, parts);
        let list = Arc::clone(&self.list);
        let Some(rule) = self.callback_of(&list, chart, callback) else { return };
        if let Some((to, when)) = rule.leaves
            && takes_place(when, result)
        {
            self.shift(strands, counts, by, (chart, id), callback, Some(to), true, steps);
        }
        if parts.deferral {
            self.fork(strands, by, (chart, id), rule.wakes);
        }
        // A chart's `waits` count with deferral, whether the chart is deferred or not.
        if (counts || parts.deferral)
            && let (Some(strand), Some(instance)) = (strands.get_mut(by), self.instance(chart, id))
        {
            strand.release(place(&mut instance.joins, callback), Relation::Hard);
        }
    }

    /// Objects that are on one of these work queues, and on no other known queue.
    fn queued_on(&self, queues: &[u64]) -> Vec<(usize, u32)> {
        let mut found = Vec::new();
        for (chart, class) in self.classes.iter().enumerate() {
            let queued =
                self.list.get(chart).and_then(|rules| rules.keys.get(1)).is_some_and(|key| key == "wq");
            if !queued || queues.is_empty() {
                continue;
            }
            let all = |work: u64| class.by_key.range([work, 0]..=[work, u64::MAX]);
            let frozen = |([_, queue], _): (&[u64; 2], &u32)| queues.contains(queue);
            found.extend(
                class
                    .by_key
                    .iter()
                    .filter(|([work, _], _)| all(*work).all(frozen))
                    .map(|(_, &id)| (chart, id)),
            );
        }
        found
    }

    /// Work queues are frozen: what ran on them comes before what follows.
    pub fn freeze(&mut self, strands: &mut Strands, by: StrandId, queues: &[u64]) {
        for object in self.queued_on(queues) {
            self.join(strands, by, object, Set::MAX);
        }
    }

    /// Work queues will be thawed: earlier work of the strand comes before what runs on them.
    pub fn thaw(&mut self, strands: &mut Strands, by: StrandId, queues: &[u64]) {
        for object in self.queued_on(queues) {
            let count = self.list.get(object.0).map_or(0, |chart| chart.callbacks.len().min(64));
            self.fork(strands, by, object, (0..count).fold(0, |set, callback| set | 1 << callback));
        }
    }
}
