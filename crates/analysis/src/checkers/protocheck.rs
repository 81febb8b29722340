//! ProtoCheck: checks the driver against the charts of the kernel's classes.
//!
//! A call in a state that does not allow it in the chart is a fault of the driver (rule 1 of the active
//! drivers' protocols). While an object is in a busy state, it must not be freed and the driver must not be
//! unloaded. A request that is owed an answer must have got it by then (rules 4 and 5). Objects whose
//! beginning was not seen are not judged.

use super::names;
use crate::checker::{Checker, Cx, Draft, Site, Violation};
use crate::machine::{Context, Object, ObjectId};
use crate::order::{
    Step,
    chart::{Chart, Set, State},
};
use crate::stacks::StackId;
use guardrail_finding::Related;
use guardrail_knowledge::role::Role;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

const NAME: &str = "protocheck";
/// Most objects that are watched at a time.
const MAX_OBJECTS: usize = 1 << 16;
/// Deepest nesting of states.
const MAX_DEPTH: usize = 8;
/// Keys below this value are numbers, not addresses of objects.
const KERNEL: u64 = 1 << 47;

/// An object in a state that must end before the object is freed.
#[derive(Clone, Debug)]
struct Open {
    state: usize,
    /// The stack of the step that led to the state.
    stack: StackId,
    module: Option<u32>,
}

/// The checker's state.
#[derive(Debug, Default)]
pub struct ProtoCheck {
    /// The open objects, by first key part, chart and instance.
    open: BTreeMap<(u64, usize, u32), Open>,
    /// Objects with a reported fault: a fault that follows from it is not reported.
    reported: FxHashSet<(usize, u32)>,
    /// Objects that the kernel or other drivers made. What these do with them is not seen, so their end is
    /// not known.
    foreign: FxHashSet<(usize, u32)>,
}

impl Checker for ProtoCheck {
    fn name(&self) -> &'static str {
        NAME
    }

    fn needs_sync(&self) -> bool {
        true
    }

    fn needs_loads(&self) -> bool {
        false
    }

    fn needs_stores(&self) -> bool {
        false
    }

    fn moved(&mut self, cx: &mut Cx<'_>, step: &Step) {
        let Some(chart) = cx.state.order.charts().get(step.chart) else { return };
        if self.reported.contains(&(step.chart, step.instance)) {
            return;
        }
        if !step.allowed && step.known && step.cause.is_ok() && !left_for_another(cx, chart, step) {
            self.wrong_state(cx, chart, step);
            self.open.remove(&(step.key[0], step.chart, step.instance));
            if self.reported.len() < MAX_OBJECTS {
                self.reported.insert((step.chart, step.instance));
            }
            return;
        }
        let id = (step.key[0], step.chart, step.instance);
        if begins(chart, step) {
            self.foreign.remove(&(step.chart, step.instance));
        } else if !step.known && !cx.state.modules.contains(step.key[0]) && self.foreign.len() < MAX_OBJECTS {
            self.foreign.insert((step.chart, step.instance));
        }
        let foreign = self.foreign.contains(&(step.chart, step.instance)) || is_foreign(cx);
        if step.key[0] < KERNEL || foreign || busy(chart, step.to).is_none() && !owed(chart, step.to) {
            self.open.remove(&id);
        } else if self.open.get(&id).is_none_or(|open| open.state != step.to) && self.open.len() < MAX_OBJECTS
        {
            // What kernel functions begin on the driver's behalf, they also end.
            let own = step.cause.map_or(true, |call| is_called(cx, chart, call));
            let place = cx.state.stacks.get(step.stack).first();
            let module = place.and_then(|&pc| cx.state.modules.at(pc)).map(|(index, _)| index);
            let module = module.filter(|_| own);
            self.open.insert(id, Open { state: step.to, stack: step.stack, module });
        }
    }

    fn freed(&mut self, cx: &mut Cx<'_>, _: ObjectId, object: &Object) {
        let ended: Vec<_> = self
            .open
            .range((object.base, 0, 0)..(object.slot_end, 0, 0))
            .map(|(&id, open)| (id, open.clone()))
            .collect();
        for (id, open) in ended {
            self.open.remove(&id);
            let Some(chart) = cx.state.order.charts().get(id.1) else { continue };
            let Some(busy) = busy(chart, open.state).map(str::to_owned) else { continue };
            let Some(stack) = object.freed.filter(|_| open.module.is_some()) else { continue };
            let related = came(cx, &open);
            let name = chart.name.clone();
            cx.report(NAME, "protocol-order", Site::Stack(stack), || Draft {
                related: vec![related],
                object: Some(object.clone()),
                ..Draft::error(format!("the memory of a {name} is freed while {busy}"))
            });
        }
    }

    fn violated(&mut self, cx: &mut Cx<'_>, violation: &Violation<'_>) {
        let kind = match violation.rule {
            1 => "protocol-rule-1",
            2 => "protocol-rule-2",
            3 => "protocol-rule-3",
            4 => "protocol-rule-4",
            5 => "protocol-rule-5",
            6 => "protocol-rule-6",
            _ => return,
        };
        cx.report_stack(NAME, kind, violation.stack, || Draft {
            notes: vec![format!("The states of its protocols: {}", violation.states)],
            ..Draft::error(format!("an active driver breaks rule {}: {}", violation.rule, violation.message))
        });
    }

    fn module_unloaded(&mut self, cx: &mut Cx<'_>, module: u32) {
        let left: Vec<_> = self
            .open
            .iter()
            .filter(|(_, open)| open.module == Some(module))
            .map(|(&id, open)| (id, open.clone()))
            .collect();
        for (id, open) in left {
            self.open.remove(&id);
            let Some(chart) = cx.state.order.charts().get(id.1) else { continue };
            let (name, full) = (chart.name.clone(), full_name(chart, open.state));
            let stack = cx.state.stacks.trace(open.stack);
            let (kind, message) = match busy(chart, open.state) {
                _ if owed(chart, open.state) => (
                    "protocol-unanswered",
                    format!("a {name} was still {full} when the module was unloaded: it was never completed"),
                ),
                Some(busy) => ("protocol-order", format!("the module was unloaded while {busy}")),
                None => continue,
            };
            cx.report_stack(NAME, kind, &stack, || Draft::error(message));
        }
    }
}

impl ProtoCheck {
    fn wrong_state(&self, cx: &mut Cx<'_>, chart: &Chart, step: &Step) {
        let Ok(call) = step.cause else { return };
        let Some(call) = chart.calls.get(call) else { return };
        let open = self.open.get(&(step.key[0], step.chart, step.instance));
        let related = open.map(|open| came(cx, open));
        let object = names::memory(cx.state, step.key[0]);
        cx.report(NAME, "protocol-order", Site::Call, || Draft {
            related: related.into_iter().collect(),
            ..Draft::error(format!(
                "{} of the {} at {object} while it is {}; this is for one that is {}",
                call.function,
                chart.name,
                full_name(chart, step.from),
                set(chart, call.from),
            ))
        });
    }
}

/// Where an object entered its state, as a related site.
fn came(cx: &Cx<'_>, open: &Open) -> Related {
    names::related(cx.state, "it came into this state", open.stack)
}

/// Whether the driver itself calls the function of a rule, and not a function that does it among other
/// things.
fn is_called(cx: &Cx<'_>, chart: &Chart, call: usize) -> bool {
    let out = cx.context.and_then(Context::out).and_then(|out| out.summary.as_ref());
    // Where the context has already returned, the rule's call was its own.
    out.zip(chart.calls.get(call)).is_none_or(|(summary, call)| summary.name == call.function)
}

/// Whether an object of the chart begins like this. An object whose first step is another one was made by the
/// kernel or another driver, unless it is one of the driver's variables.
fn begins(chart: &Chart, step: &Step) -> bool {
    !chart.made || step.cause.is_ok() && step.to == chart.initial
}

/// Whether the driver's call is a jump to another function, which may be over: then the kernel calls this
/// function for itself.
fn left_for_another(cx: &Cx<'_>, chart: &Chart, step: &Step) -> bool {
    let jumped = cx.context.and_then(Context::out).is_some_and(|out| out.jump);
    jumped && step.cause.is_ok_and(|call| !is_called(cx, chart, call))
}

/// Whether the driver queues a function of the kernel itself for the end of a grace period. The run of that
/// function is not seen.
fn is_foreign(cx: &Cx<'_>) -> bool {
    cx.context.and_then(Context::out).is_some_and(|out| {
        let deferred = out.summary.as_ref().and_then(|summary| Role::Defers.param(&summary.name));
        let function = deferred.and_then(|param| out.args.get(param));
        function.is_some_and(|function| !cx.state.modules.contains(*function))
    })
}

/// A state and those that it is part of, innermost first.
fn states(chart: &Chart, state: usize) -> impl Iterator<Item = &State> {
    let get = |at: usize| chart.states.get(at);
    std::iter::successors(get(state), move |state| state.parent.and_then(get)).take(MAX_DEPTH)
}

/// Why an object in this state must not be freed; `None` where it may be.
fn busy(chart: &Chart, state: usize) -> Option<&str> {
    states(chart, state).find_map(|state| state.busy.as_deref())
}

/// Whether an object in this state waits for an answer.
fn owed(chart: &Chart, state: usize) -> bool {
    states(chart, state).any(|state| state.owed)
}

/// A state with those that it is part of, as text like `registered.running`.
fn full_name(chart: &Chart, state: usize) -> String {
    let mut names: Vec<&str> = states(chart, state).map(|state| state.name.as_str()).collect();
    names.reverse();
    names.join(".")
}

/// The leaf states of a set, as text like `a, b or c`.
fn set(chart: &Chart, set: Set) -> String {
    let names: Vec<String> = (0..chart.states.len().min(64))
        .filter(|&state| {
            set >> state & 1 != 0 && chart.states.iter().all(|other| other.parent != Some(state))
        })
        .map(|state| full_name(chart, state))
        .collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => "in no state".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_named_with_what_they_are_part_of() {
        let state = |name: &str, parent| State { name: name.into(), parent, busy: None, owed: false };
        let states = vec![
            state("free", None),
            state("requested", None),
            state("enabled", Some(1)),
            state("disabled", Some(1)),
        ];
        let chart = Chart { states, ..Chart::default() };
        assert_eq!(full_name(&chart, 2), "requested.enabled");
        assert_eq!(set(&chart, u64::MAX), "free, requested.enabled or requested.disabled");
        assert_eq!(set(&chart, 0), "in no state");
    }
}
