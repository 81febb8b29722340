//! States of kernel objects, as the replay changes them and checkers read them.

use super::charts::{BringsUp, CallbackRef, Moving, Rules, plain};
use super::{Chart, Entry, Order, Step, StrandId};
use guardrail_knowledge::chart::Callback;

/// Most steps that wait to be reported.
const MAX_STEPS: usize = 4096;

impl Order {
    /// The states of the objects that an entry is about, as text like `netdev registered.running`.
    pub fn states_of(&self, entry: &Entry) -> Vec<String> {
        let Some((chart, _, instance)) = entry.callback else { return Vec::new() };
        let words = self.state(chart, instance).and_then(|state| {
            Some(format!("{} {}", self.charts().get(chart)?.name, self.path(chart, state)))
        });
        words.into_iter().collect()
    }

    /// A state with those that it is part of, as text like `registered.running`.
    pub fn path(&self, chart: usize, state: usize) -> String {
        self.charts().get(chart).map_or_else(String::new, |chart| chart.path(state))
    }

    /// The rules of charts for a kernel function.
    pub(crate) fn rules(&self, function: &str) -> Vec<Rules> {
        self.charts.rules(function)
    }

    /// The callbacks that a kernel function may make.
    pub(crate) fn made_by(&self, caller: &str) -> Vec<CallbackRef> {
        self.charts.made_by(caller)
    }

    /// A function's name without the suffixes of compilers.
    pub(crate) fn plain(name: &str) -> &str {
        plain(name)
    }

    /// Whether the runs of a callback are one strand.
    pub(crate) fn is_serial(&self, callback: CallbackRef) -> bool {
        self.charts.is_serial(callback, self.parts)
    }

    /// What a chart says of the callback that a run is; `None` where no chart knows it.
    pub(crate) fn described(&self, entry: &Entry) -> Option<&Callback> {
        let (chart, callback, _) = entry.callback?;
        self.charts.callback((chart, callback))
    }

    /// Whether user processes are frozen while a callback runs.
    pub(crate) fn is_frozen(&self, (chart, callback, _): (usize, usize, u32)) -> bool {
        self.parts.states && self.charts.callback((chart, callback)).is_some_and(|callback| callback.frozen)
    }

    /// Whether the layer above waits for the runs of a callback before the system sleeps.
    pub(crate) fn is_drained(&self, (chart, callback, _): (usize, usize, u32)) -> bool {
        self.charts.callback((chart, callback)).is_some_and(|callback| callback.drained)
    }

    /// A call that charts have rules for begins.
    pub(crate) fn called(
        &mut self,
        by: StrandId,
        rules: &[Rules],
        args: &[u64],
        create: bool,
        moving: &mut Vec<Moving>,
    ) {
        for rules in rules {
            self.charts.called(
                &mut self.strands,
                self.parts,
                by,
                rules,
                args,
                create,
                &mut self.steps,
                moving,
            );
        }
    }

    /// A context that brings a device up has called these. Where they defer a run, that brings it up, too.
    pub(crate) fn leaves(&mut self, moving: &[Moving], what: BringsUp) {
        for moving in moving {
            self.charts.leaves(moving, what);
        }
    }

    /// What was left to the run that begins.
    pub(crate) fn takes_over(&mut self, (chart, _, id): (usize, usize, u32)) -> Option<BringsUp> {
        self.charts.instance(chart, id)?.brings_up.take()
    }

    /// Such a call returns.
    pub(crate) fn returned(&mut self, by: StrandId, moving: &[Moving], result: Option<u64>) {
        for moving in moving {
            self.charts.returned(&mut self.strands, self.parts, by, moving, result, &mut self.steps);
        }
    }

    /// The callback that an entry is; `None` where no chart knows it.
    pub(crate) fn recognize(
        &mut self,
        candidates: &[CallbackRef],
        args: &[u64],
    ) -> Option<(usize, usize, u32)> {
        self.charts.recognize(candidates, args)
    }

    /// A callback begins.
    pub(crate) fn entered(&mut self, by: StrandId, callback: (usize, usize, u32)) {
        self.charts.entered(&mut self.strands, self.parts, by, callback, &mut self.steps);
    }

    /// Acquires what was released for other callbacks of known objects that the entry may be.
    pub(crate) fn entered_also(
        &mut self,
        by: StrandId,
        candidates: &[CallbackRef],
        args: &[u64],
        recognized: Option<(usize, usize, u32)>,
    ) {
        let first = recognized.map(|(chart, callback, _)| (chart, callback));
        for &other in candidates.iter().filter(|&&other| Some(other) != first) {
            self.charts.entered_also(&mut self.strands, by, other, args);
        }
    }

    /// Whether watched code has triggered a callback.
    pub(crate) fn was_forked(&self, callback: (usize, usize, u32)) -> bool {
        self.charts.was_forked(callback)
    }

    /// A callback ends.
    pub(crate) fn left(&mut self, by: StrandId, callback: (usize, usize, u32), result: Option<u64>) {
        self.charts.left(&mut self.strands, self.parts, by, callback, result, &mut self.steps);
    }

    /// Removes and returns the steps that are not passed to checkers yet.
    pub(crate) fn take_steps(&mut self) -> Vec<Step> {
        let mut steps = std::mem::take(&mut self.steps);
        steps.truncate(MAX_STEPS);
        steps
    }

    /// Describes a callback: its name and its object.
    pub(crate) fn callback_words(
        &self,
        (chart, callback, instance): (usize, usize, u32),
    ) -> (String, String) {
        let words = || {
            let chart_of = self.charts().get(chart)?;
            let key = self.charts.get(chart, instance)?.1;
            let object = if chart_of.keys.is_empty() {
                chart_of.name.clone()
            } else {
                format!("{} {:#x}", chart_of.name, key[0])
            };
            Some((chart_of.callbacks.get(callback)?.name.clone(), object))
        };
        words().unwrap_or_default()
    }

    /// The charts that the knowledge holds.
    pub fn charts(&self) -> &[Chart] {
        &self.charts.list
    }

    /// The state (a leaf) of an instance of a chart; `None` where the instance is not known.
    pub fn state(&self, chart: usize, instance: u32) -> Option<usize> {
        Some(self.charts.get(chart, instance)?.0)
    }

    /// The known instances of a chart: number, key and state.
    pub fn instances(&self, chart: usize) -> impl Iterator<Item = (u32, [u64; 2], usize)> + '_ {
        self.charts.instances(chart)
    }
}
