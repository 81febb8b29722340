//! States of kernel objects by their charts, and the order that follows from them.

use super::clocks::{Relation, Var};
use super::strands::Strands;
use super::{Parts, StrandId};
use crate::stacks::StackId;
use guardrail_knowledge::chart::{Callback, Chart, Set};
use guardrail_knowledge::effect::{Key, When};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A step of an object in its chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The stack of the driver's call, or the function of the callback.
    pub stack: StackId,
    /// Index of the chart.
    pub chart: usize,
    /// Number of the object among the chart's instances.
    pub instance: u32,
    /// The object's key: addresses or numbers; the second part is 0 where the chart has one part.
    pub key: [u64; 2],
    /// The call (`Ok`) or callback (`Err`) that caused the step, as an index in the chart.
    pub cause: Result<usize, usize>,
    /// The state before the step (a leaf).
    pub from: usize,
    /// The state after the step.
    pub to: usize,
    /// The state before allows the call or callback.
    pub allowed: bool,
    /// The object was seen before, so that its state is certain.
    pub known: bool,
}

/// Most instances of a chart that are known at a time. With more, the least recently used quarter is dropped.
const MAX_INSTANCES: usize = 4096;

/// Whether a set holds an item.
pub(super) fn has(set: Set, item: usize) -> bool {
    item < 64 && set >> item & 1 != 0
}

pub(super) fn items(set: Set) -> impl Iterator<Item = usize> {
    (0..64).filter(move |&item| has(set, item))
}

/// The callback that a caller makes: chart and callback.
pub(crate) type CallbackRef = (usize, usize);
/// The rules for one function in one chart.
pub(crate) type Rules = (usize, Arc<[usize]>);

/// An object of a chart.
#[derive(Debug)]
pub(super) struct Instance {
    pub key: [u64; 2],
    /// Index of the state (a leaf).
    pub state: usize,
    /// The state is certain.
    pub known: bool,
    /// Number of moves so far.
    pub moves: u32,
    /// Callbacks that a call that has not returned is about to allow.
    pub coming: Set,
    /// What was released for the next run of each callback.
    pub forks: Vec<Option<Var>>,
    /// What runs of each callback have released.
    pub joins: Vec<Option<Var>>,
    /// A context that brings a device up has left that to the next run of a callback.
    pub brings_up: Option<BringsUp>,
    pub used: u64,
}

/// The objects of a chart.
#[derive(Debug, Default)]
pub(super) struct Class {
    /// For each state, the callbacks that it allows.
    pub allowed: Vec<Set>,
    /// What was released for the next run of each callback, for all objects of the chart.
    pub forks: Vec<Option<Var>>,
    pub by_key: BTreeMap<[u64; 2], u32>,
    pub list: FxHashMap<u32, Instance>,
    pub next: u32,
}

/// A call on an object that has not returned.
#[derive(Clone, Debug)]
pub(crate) struct Moving {
    chart: usize,
    instance: u32,
    rules: Arc<[usize]>,
    from: usize,
    moves: u32,
    coming: Set,
    /// The rule that moved the object when the call began.
    done: Option<usize>,
}

/// What a context has done that brings a device up, and leaves the rest to deferred work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BringsUp {
    /// It has requested an interrupt line.
    pub line: bool,
}

/// The states of all objects of all charts.
#[derive(Debug)]
pub(super) struct Charts {
    pub list: Arc<[Chart]>,
    pub classes: Vec<Class>,
    pub callers: FxHashMap<String, Vec<CallbackRef>>,
    pub any: Vec<CallbackRef>,
    pub calls: FxHashMap<String, Vec<Rules>>,
    pub ticks: u64,
}

impl Default for Charts {
    fn default() -> Self {
        Charts::new(Arc::from([]))
    }
}

/// A function's name without the suffixes of compilers.
pub(super) fn plain(name: &str) -> &str {
    name.split_once('.').map_or(name, |(plain, _)| plain)
}

/// Whether an effect takes place. A call whose result is not known counts as a success.
pub(crate) fn takes_place(when: When, result: Option<u64>) -> bool {
    match result {
        Some(result) => when.holds(result),
        None => !matches!(when, When::NonZero | When::True),
    }
}

/// The value of a key part in a call.
pub(super) fn part(key: &Key, args: &[u64]) -> u64 {
    match key {
        Key::Arg { arg, offset } => args.get(usize::from(*arg)).copied().unwrap_or(0).wrapping_add(*offset),
        // A number that is no address is enough.
        Key::Global(name) => name.bytes().fold(0x1000, |sum, b| sum * 31 % 0xffff_ffff_fffb + u64::from(b)),
    }
}

impl Charts {
    pub fn new(list: Arc<[Chart]>) -> Charts {
        let mut charts = Charts {
            classes: Vec::new(),
            callers: FxHashMap::default(),
            any: Vec::new(),
            calls: FxHashMap::default(),
            ticks: 0,
            list: Arc::clone(&list),
        };
        for (c, chart) in list.iter().enumerate() {
            let allowed = |state: usize| {
                let allows = |(_, callback): &(usize, &Callback)| has(callback.states, state);
                chart.callbacks.iter().enumerate().take(64).filter(allows).fold(0, |set, (i, _)| set | 1 << i)
            };
            let allowed = (0..chart.states.len()).map(allowed).collect();
            charts.classes.push(Class { allowed, ..Class::default() });
            for (i, callback) in chart.callbacks.iter().enumerate() {
                if callback.from.is_empty() {
                    charts.any.push((c, i));
                }
                for from in &callback.from {
                    charts.callers.entry(from.clone()).or_default().push((c, i));
                }
            }
            let mut by_function: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
            for (i, call) in chart.calls.iter().enumerate() {
                by_function.entry(&call.function).or_default().push(i);
            }
            for (function, rules) in by_function {
                charts.calls.entry(function.to_owned()).or_default().push((c, rules.into()));
            }
        }
        charts
    }

    /// The rules for a kernel function, by chart.
    pub fn rules(&self, function: &str) -> Vec<Rules> {
        self.calls.get(plain(function)).cloned().unwrap_or_default()
    }

    /// The callbacks that a kernel function may make.
    pub fn made_by(&self, caller: &str) -> Vec<CallbackRef> {
        let mut made = self.callers.get(plain(caller)).cloned().unwrap_or_default();
        made.extend(&self.any);
        made
    }

    /// Whether a chart's order counts.
    pub(super) fn counts(&self, chart: usize, parts: Parts) -> bool {
        self.list.get(chart).is_some_and(|c| if c.deferred { parts.deferral } else { parts.states })
    }

    /// Whether the runs of a callback are one strand.
    pub fn is_serial(&self, (chart, callback): CallbackRef, parts: Parts) -> bool {
        self.counts(chart, parts) && self.callback((chart, callback)).is_some_and(|c| c.serial)
    }

    /// The rules of a callback; `None` where there is no such callback.
    pub fn callback(&self, (chart, callback): CallbackRef) -> Option<&Callback> {
        self.list.get(chart)?.callbacks.get(callback)
    }

    /// Whether a callback names no object.
    pub(super) fn is_nameless(&self, callback: CallbackRef) -> bool {
        self.callback(callback).is_some_and(|rule| rule.keys.iter().all(Option::is_none))
    }

    /// The state and the key of an object; `None` where it is not known.
    pub fn get(&self, chart: usize, instance: u32) -> Option<(usize, [u64; 2])> {
        let instance = self.classes.get(chart)?.list.get(&instance)?;
        Some((instance.state, instance.key))
    }

    /// The known objects of a chart with their keys and states, by key.
    pub fn instances(&self, chart: usize) -> impl Iterator<Item = (u32, [u64; 2], usize)> + '_ {
        let class = self.classes.get(chart);
        class.into_iter().flat_map(|class| {
            class.by_key.iter().filter_map(|(key, id)| Some((*id, *key, class.list.get(id)?.state)))
        })
    }

    /// Objects whose key has all the given parts.
    pub(super) fn matching(&self, chart: usize, parts: &[Option<u64>]) -> Vec<u32> {
        let Some(class) = self.classes.get(chart) else { return Vec::new() };
        let part = |i: usize| parts.get(i).copied().flatten();
        let (low, high) = match part(0) {
            Some(first) => ([first, 0], [first, u64::MAX]),
            None => ([0, 0], [u64::MAX, u64::MAX]),
        };
        let second = part(1);
        // An object that is known by its first part alone may be the one that the call means.
        if let (None, Some(second)) = (part(0), second)
            && !class.by_key.keys().any(|key| key[1] == second)
        {
            return class.by_key.get(&[second, 0]).copied().into_iter().collect();
        }
        let in_range = class.by_key.range(low..=high);
        in_range.filter(|(key, _)| second.is_none_or(|second| key[1] == second)).map(|(_, id)| *id).collect()
    }

    /// The objects that a call or callback with these key parts is about. Where all parts are given, an
    /// unknown object is added in a state of `states`.
    pub(super) fn about(
        &mut self,
        chart: usize,
        parts: &[Option<u64>],
        states: Set,
        create: bool,
    ) -> Vec<u32> {
        let Some(rules) = self.list.get(chart) else { return Vec::new() };
        let count = rules.keys.len().min(2);
        let all = (0..count).all(|i| parts.get(i).is_some_and(Option::is_some));
        if !all {
            let found = self.matching(chart, parts);
            if !found.is_empty() || !create || count < 2 || parts.first().copied().flatten().is_none() {
                return found;
            }
        }
        let part = |i: usize| parts.get(i).copied().flatten().filter(|_| i < count).unwrap_or(0);
        let key = [part(0), part(1)];
        let Some(class) = self.classes.get_mut(chart) else { return Vec::new() };
        if let Some(&id) = class.by_key.get(&key) {
            return vec![id];
        }
        // An object that was known by its first part alone has its second part now.
        if key[1] != 0
            && let Some(id) = class.by_key.remove(&[key[0], 0])
        {
            class.by_key.insert(key, id);
            if let Some(instance) = class.list.get_mut(&id) {
                instance.key = key;
            }
            return vec![id];
        }
        if !create || count > 0 && key == [0, 0] {
            return Vec::new();
        }
        self.add(chart, key, states).into_iter().collect()
    }

    /// Adds an object in a state of `states`. One that nothing names has the key 0.
    pub(super) fn add(&mut self, chart: usize, key: [u64; 2], states: Set) -> Option<u32> {
        let (rules, class) = (self.list.get(chart)?, self.classes.get_mut(chart)?);
        if class.by_key.len() >= MAX_INSTANCES {
            class.evict();
        }
        let initial = rules.initial;
        let count = rules.states.len();
        let state = if has(states, initial) { Some(initial) } else { items(states).find(|&s| s < count) };
        class.next = class.next.wrapping_add(1);
        let id = class.next;
        self.ticks += 1;
        class.by_key.insert(key, id);
        class.list.insert(
            id,
            Instance {
                key,
                state: state.unwrap_or(initial),
                known: false,
                moves: 0,
                coming: 0,
                forks: Vec::new(),
                joins: Vec::new(),
                brings_up: None,
                used: self.ticks,
            },
        );
        Some(id)
    }

    pub(super) fn instance(&mut self, chart: usize, instance: u32) -> Option<&mut Instance> {
        self.ticks += 1;
        let instance = self.classes.get_mut(chart)?.list.get_mut(&instance)?;
        instance.used = self.ticks;
        Some(instance)
    }

    /// The callbacks that a move allows anew. An object starts in a state that allows everything that may
    /// have been missed. So the callbacks begin with the move out of that state.
    pub(super) fn opened(&self, chart: usize, from: usize, to: usize) -> Set {
        let begins = self.list.get(chart).is_some_and(|c| c.initial == from) && from != to;
        let before = if begins { 0 } else { self.allowed(chart, from) };
        self.allowed(chart, to) & !before
    }

    pub(super) fn allowed(&self, chart: usize, state: usize) -> Set {
        self.classes.get(chart).and_then(|class| class.allowed.get(state)).copied().unwrap_or(0)
    }

    /// Releases what `by` has done to runs of callbacks. Those that name no object may be about this one.
    pub(super) fn fork(&mut self, strands: &mut Strands, by: StrandId, (chart, id): (usize, u32), set: Set) {
        let Some(strand) = strands.get_mut(by) else { return };
        if let Some(instance) = self.instance(chart, id) {
            for callback in items(set) {
                strand.release(place(&mut instance.forks, callback), Relation::Hard);
            }
        }
        let nameless: Vec<usize> = items(set).filter(|&at| self.is_nameless((chart, at))).collect();
        self.fork_for_all(strands, by, chart, nameless.into_iter());
    }

    /// Releases what `by` has done to runs of callbacks of all objects, also of those that are not known yet.
    fn fork_for_all(
        &mut self,
        strands: &mut Strands,
        by: StrandId,
        chart: usize,
        callbacks: impl Iterator<Item = usize>,
    ) {
        if let (Some(strand), Some(class)) = (strands.get_mut(by), self.classes.get_mut(chart)) {
            for callback in callbacks {
                strand.release(place(&mut class.forks, callback), Relation::Hard);
            }
        }
    }

    /// Acquires, for `by`, what runs of callbacks have released.
    pub(super) fn join(&mut self, strands: &mut Strands, by: StrandId, (chart, id): (usize, u32), set: Set) {
        if let (Some(strand), Some(instance)) = (strands.get_mut(by), self.instance(chart, id)) {
            for callback in items(set) {
                if let Some(var) = instance.joins.get(callback) {
                    strand.acquire(var, Relation::Hard);
                }
            }
        }
    }

    /// Moves an object. Returns the step where it is a move or is not allowed.
    pub(super) fn step(
        &mut self,
        (chart, id): (usize, u32),
        cause: Result<usize, usize>,
        to: Option<usize>,
        allowed: bool,
    ) -> Option<Step> {
        let count = self.list.get(chart)?.states.len();
        let instance = self.instance(chart, id)?;
        let from = instance.state;
        let to = to.filter(|&to| to < count).unwrap_or(from);
        let known = instance.known;
        instance.known = true;
        if from != to {
            instance.state = to;
            instance.moves = instance.moves.wrapping_add(1);
        }
        let key = instance.key;
        let stack = StackId::default();
        (from != to || !allowed).then_some(Step {
            stack,
            chart,
            instance: id,
            key,
            cause,
            from,
            to,
            allowed,
            known,
        })
    }

    /// A call begins. It releases earlier work of its strand to the callbacks that it allows or triggers.
    #[allow(clippy::too_many_arguments)]
    pub fn called(
        &mut self,
        strands: &mut Strands,
        parts: Parts,
        by: StrandId,
        (chart, rules): &Rules,
        args: &[u64],
        create: bool,
        steps: &mut Vec<Step>,
        moving: &mut Vec<Moving>,
    ) {
        let chart = *chart;
        let list = Arc::clone(&self.list);
        let Some(calls) = list.get(chart).map(|c| &c.calls) else { return };
        let Some(first) = rules.first().and_then(|&rule| calls.get(rule)) else { return };
        let keys: Vec<Option<u64>> =
            first.keys.iter().map(|key| key.as_ref().map(|k| part(k, args))).collect();
        let from = rules.iter().filter_map(|&r| calls.get(r)).fold(0, |set, call| set | call.from);
        if parts.deferral && keys.iter().all(Option::is_none) {
            let wakes = rules.iter().filter_map(|&r| calls.get(r)).fold(0, |set, call| set | call.wakes);
            self.fork_for_all(strands, by, chart, items(wakes));
        }
        for id in self.about(chart, &keys, from, create) {
            let Some(instance) = self.instance(chart, id) else { continue };
            let (state, moves) = (instance.state, instance.moves);
            let able: Vec<usize> = rules
                .iter()
                .copied()
                .filter(|&r| calls.get(r).is_some_and(|call| has(call.from, state)))
                .collect();
            if able.is_empty() {
                let cause = Ok(rules[0]);
                steps.extend(self.step((chart, id), cause, None, false));
            }
            let now = self.allowed(chart, state);
            let (mut coming, mut wakes) = (0, 0);
            for call in able.iter().filter_map(|&r| calls.get(r)) {
                coming |= call.to.map_or(0, |to| self.opened(chart, state, to));
                wakes |= call.wakes;
            }
            if self.counts(chart, parts) {
                self.fork(strands, by, (chart, id), coming & !wakes);
            }
            if parts.deferral {
                self.fork(strands, by, (chart, id), wakes);
            }
            // A call that only allows more callbacks takes effect at once: they may run before it returns. A
            // call that waits for callbacks takes effect after them, whatever they did to the object
            // meanwhile.
            let done = able.first().copied().filter(|&r| {
                able.len() == 1
                    && calls.get(r).is_some_and(|call| {
                        let after = call.to.map_or(now, |to| self.allowed(chart, to));
                        call.when == When::Always && call.waits == 0 && now & !after == 0
                    })
            });
            if let Some(rule) = done {
                steps.extend(self.step((chart, id), Ok(rule), calls[rule].to, true));
            } else if let Some(instance) = self.instance(chart, id) {
                instance.coming |= coming;
            }
            moving.push(Moving { chart, instance: id, rules: able.into(), from: state, moves, coming, done });
        }
    }

    /// A call leaves it to the runs that it defers to bring a device up.
    pub fn leaves(&mut self, moving: &Moving, what: BringsUp) {
        let Some(chart) = self.list.get(moving.chart).filter(|chart| chart.deferred) else { return };
        let defers =
            moving.rules.iter().any(|&rule| chart.calls.get(rule).is_some_and(|call| call.wakes != 0));
        if defers && let Some(instance) = self.instance(moving.chart, moving.instance) {
            instance.brings_up = Some(what);
        }
    }

    /// A call returns. A `result` of `None` is not known and counts as a success.
    pub fn returned(
        &mut self,
        strands: &mut Strands,
        parts: Parts,
        by: StrandId,
        moving: &Moving,
        result: Option<u64>,
        steps: &mut Vec<Step>,
    ) {
        let list = Arc::clone(&self.list);
        let (chart, id) = (moving.chart, moving.instance);
        let Some(calls) = list.get(chart).map(|c| &c.calls) else { return };
        let Some(instance) = self.instance(chart, id) else { return };
        if moving.done.is_none() {
            instance.coming &= !moving.coming;
        }
        let (state, moves) = (instance.state, instance.moves);
        let holds = |when: When| takes_place(when, result);
        let rule = moving.done.or_else(|| {
            moving.rules.iter().copied().find(|&r| calls.get(r).is_some_and(|call| holds(call.when)))
        });
        let Some((rule, call)) = rule.and_then(|rule| Some((rule, calls.get(rule)?))) else { return };
        let before = self.allowed(chart, moving.from);
        let after = call.to.map_or(before, |to| self.allowed(chart, to));
        let mut ended = before & !after;
        if moving.done.is_none() && (moves == moving.moves || ended != 0 || call.waits != 0) {
            if call.to.is_some() {
                ended |= self.allowed(chart, state) & !after;
            }
            steps.extend(self.step((chart, id), Ok(rule), call.to, true));
        }
        if !call.nowait && self.counts(chart, parts) {
            self.join(strands, by, (chart, id), ended);
        }
        if parts.deferral {
            self.join(strands, by, (chart, id), call.waits);
        }
    }

    /// Forgets the objects in a range: its memory was freed or allocated.
    pub fn forget(&mut self, from: u64, to: u64) {
        for class in self.classes.iter_mut().filter(|class| !class.by_key.is_empty()) {
            while let Some((&key, &id)) = class.by_key.range([from, 0]..[to, 0]).next() {
                class.by_key.remove(&key);
                class.list.remove(&id);
            }
        }
    }
}

impl Class {
    fn evict(&mut self) {
        let mut used: Vec<(u64, u32)> = self.list.iter().map(|(id, i)| (i.used, *id)).collect();
        used.sort_unstable();
        for (_, id) in used.into_iter().take(MAX_INSTANCES / 4) {
            if let Some(gone) = self.list.remove(&id) {
                self.by_key.remove(&gone.key);
            }
        }
    }
}

/// The variable of a callback in a list that grows as needed.
pub(super) fn place(list: &mut Vec<Option<Var>>, callback: usize) -> &mut Option<Var> {
    if list.len() <= callback {
        list.resize(callback + 1, None);
    }
    &mut list[callback]
}
