//! Whether a path can happen, and which cells show that it cannot.

use super::exact;
use super::search::{Before, Graph, Step, Stepper, Wrong, along};
use super::values::{Known, SEARCH, has_sum};
use crate::program::expression::{Arena, Expression};
use crate::program::{Action, Program};
use rustc_hash::FxHashSet;

/// What is known of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It can happen: every condition on it is decided, or depends on the device or the kernel alone.
    Feasible,
    /// Nothing says that it cannot, but something on it was too complex to be decided.
    Unknown,
    /// It cannot: the index of the step that cannot be taken.
    Impossible(usize),
}

/// A path, and what its last step is said to break.
pub struct Claim<'a> {
    /// The steps.
    pub path: &'a [Step],
    /// The edge after them that breaks a rule, and which.
    pub last: Option<(u32, &'a Wrong)>,
}

/// Follows a path. `tracked` are the cells that are followed, all if absent.
pub fn follow(graph: &Graph<'_>, claim: &Claim<'_>, tracked: Option<&[bool]>) -> Verdict {
    let mut arena = graph.arena.clone();
    follow_in(graph, claim, tracked, &mut arena).0
}

/// The same, with what is known at each of some steps.
pub fn follow_in(
    graph: &Graph<'_>,
    claim: &Claim<'_>,
    tracked: Option<&[bool]>,
    arena: &mut Arena,
) -> (Verdict, Vec<Known>) {
    let mut stepper = along(graph, tracked);
    if tracked.is_some() {
        // What is shown to be impossible here must be so in the search.
        stepper.limits = SEARCH;
    }
    let mut known = Known::default();
    let mut modes = graph.protocols.start();
    let mut atomic = 0;
    let mut forgot = false;
    let mut all = Vec::new();
    for (index, step) in claim.path.iter().enumerate() {
        let before = Before { known: &known, modes: &modes, atomic };
        let action = &graph.program.edges[step.edge as usize].action;
        let result = stepper.step(arena, &before, action);
        if result.wrong == Some(Wrong::Open) {
            // Without the cells that say which message it is, nothing shows that the path is impossible.
            return (Verdict::Unknown, all);
        }
        let Some(outcome) = result.outcomes.into_iter().find(|outcome| outcome.received == step.received)
        else {
            return (Verdict::Impossible(index), all);
        };
        all.push(std::mem::take(&mut known));
        known = outcome.known;
        modes = outcome.modes;
        atomic = outcome.atomic;
        forgot |= outcome.forgot;
    }
    let mut last = known.clone();
    if let Some((edge, what)) = claim.last {
        let before = Before { known: &known, modes: &modes, atomic };
        match breaks(&stepper, arena, &before, &graph.program.edges[edge as usize].action, what) {
            None => return (Verdict::Impossible(claim.path.len()), all),
            Some((after, unsure)) => {
                last = after;
                forgot |= unsure;
            }
        }
    }
    all.push(known);
    let feasible = !forgot && tracked.is_none() && exact::can_all_hold(arena, &last.facts);
    (if feasible { Verdict::Feasible } else { Verdict::Unknown }, all)
}

/// Whether a run that goes around a cycle comes to the same state again, as far as the cycle depends on it: then it
/// can go around for ever. `stem` steps of the claim lead to the cycle, and it goes around at least three times.
pub fn repeats(graph: &Graph<'_>, claim: &Claim<'_>, stem: usize, cycle: &[Step]) -> bool {
    let program = graph.program;
    let mut wanted: FxHashSet<u32> = FxHashSet::default();
    loop {
        let before = wanted.len();
        for step in cycle {
            match &program.edges[step.edge as usize].action {
                Action::Assume(id) | Action::Emit(id) | Action::Sleep(id, _) | Action::Await(id, _) => {
                    wanted.extend(program.arena.cells(*id));
                }
                Action::Assign(all) => {
                    let values = all.iter().filter(|(cell, _)| wanted.contains(cell));
                    let cells = values.filter_map(|(_, value)| *value).flat_map(|id| program.arena.cells(id));
                    let cells: Vec<u32> = cells.collect();
                    wanted.extend(cells);
                }
                Action::Skip => {}
            }
        }
        if wanted.len() == before {
            break;
        }
    }
    let mut arena = graph.arena.clone();
    let (_, all) = follow_in(graph, claim, None, &mut arena);
    let stepper = along(graph, None);
    let mut at = |turn: usize| {
        let known = all.get(stem + turn * cycle.len())?;
        if ties(&arena, known, &wanted) {
            return None;
        }
        Some(stepper.work(&mut arena, known).canonical(&|cell| wanted.contains(&cell)))
    };
    matches!((at(1), at(2)), (Some(one), Some(two)) if one == two)
}

/// Whether a condition ties the unknown numbers of these cells to others: each turn may then ask for more.
fn ties(arena: &Arena, known: &Known, cells: &FxHashSet<u32>) -> bool {
    let symbols = |id| {
        let mut found = Vec::new();
        arena.leaves(id, 4096, &mut |leaf| {
            if let Expression::Symbol(symbol, _) = leaf {
                found.push(symbol);
            }
        });
        found
    };
    let values = known.cells.iter().filter(|(cell, _)| cells.contains(cell));
    let own: FxHashSet<u32> = values.flat_map(|(_, value)| symbols(*value)).collect();
    known.facts.iter().any(|fact| {
        let all = symbols(*fact);
        all.iter().any(|symbol| own.contains(symbol)) && !all.iter().all(|symbol| own.contains(symbol))
    })
}

/// Whether an action breaks a rule in this way: what is known then, and whether something was forgotten.
fn breaks(
    stepper: &Stepper<'_>,
    arena: &mut Arena,
    before: &Before<'_>,
    action: &Action,
    what: &Wrong,
) -> Option<(Known, bool)> {
    if stepper.step(arena, before, action).wrong.as_ref() != Some(what) {
        return None;
    }
    // A call that sleeps by its flags breaks the rule only where it has them.
    let Action::Sleep(bit, _) = action else { return Some((before.known.clone(), false)) };
    let mut work = stepper.work(arena, before.known);
    work.assume(*bit).then_some(())?;
    Some((work.known, work.forgot))
}

/// How much it costs to follow a cell: 0, or 1 for a local counter, 2 for one that stays.
pub fn costs(program: &Program) -> Vec<u8> {
    let mut costs = vec![0; program.cells.len()];
    for edge in &program.edges {
        let Action::Assign(all) = &edge.action else { continue };
        for (cell, value) in all {
            if value.is_some_and(|value| {
                program.arena.mentions(value, *cell) && has_sum(&program.arena, value, 16)
            }) {
                costs[*cell as usize] = if program.cells[*cell as usize].local { 1 } else { 2 };
            }
        }
    }
    costs
}

/// What a path is worth.
pub enum Judged {
    /// It breaks the rule, for certain or as far as one can say.
    Breaks(bool),
    /// These cells rule it out.
    Ruled(Vec<u32>),
}

/// Follows a path, with cheap cells first: what they rule out needs no counters.
pub fn judge(graph: &Graph<'_>, claim: &Claim<'_>, costs: &[u8]) -> Judged {
    for most in 0..2 {
        let on: Vec<bool> =
            costs.iter().enumerate().map(|(at, cost)| *cost <= most || graph.tracked[at]).collect();
        let Verdict::Impossible(at) = follow(graph, claim, Some(&on)) else { continue };
        let cells = needed(graph, claim, at, costs, &on);
        if !cells.is_empty() {
            return Judged::Ruled(cells);
        }
    }
    match follow(graph, claim, None) {
        Verdict::Impossible(at) => {
            let cells = needed(graph, claim, at, costs, &vec![true; costs.len()]);
            // This run cannot be, but the search cannot follow what says so: a longer one may well be.
            if cells.is_empty() { Judged::Breaks(false) } else { Judged::Ruled(cells) }
        }
        verdict => Judged::Breaks(verdict == Verdict::Feasible),
    }
}

/// Cells that, if they are followed, rule out a path which is impossible at a step. Empty if none do.
fn needed(graph: &Graph<'_>, claim: &Claim<'_>, at: usize, costs: &[u8], of: &[bool]) -> Vec<u32> {
    let last = claim.last.filter(|_| at >= claim.path.len());
    let short = Claim { path: &claim.path[..claim.path.len().min(at + 1)], last };
    let mut wanted: Vec<u32> = slice(graph, &short)
        .into_iter()
        .filter(|cell| !graph.lost[*cell as usize] && of[*cell as usize])
        .collect();
    let mut on = vec![false; graph.lost.len()];
    let set = |on: &mut Vec<bool>, cells: &[u32], value: bool| {
        for cell in cells {
            on[*cell as usize] = value;
        }
    };
    set(&mut on, &wanted, true);
    let impossible = |on: &[bool]| matches!(follow(graph, &short, Some(on)), Verdict::Impossible(_));
    if !impossible(&on) {
        return Vec::new();
    }
    // Cells that are followed already cost nothing: others are dropped first.
    wanted
        .sort_by_key(|cell| (graph.tracked[*cell as usize], std::cmp::Reverse(costs[*cell as usize]), *cell));
    let mut size = wanted.len().div_ceil(2).max(1);
    loop {
        let mut start = 0;
        while start < wanted.len() {
            let end = (start + size).min(wanted.len());
            let part: Vec<u32> = wanted[start..end].to_vec();
            set(&mut on, &part, false);
            if impossible(&on) {
                wanted.drain(start..end);
            } else {
                set(&mut on, &part, true);
                start = end;
            }
        }
        if size == 1 {
            break;
        }
        size = size.div_ceil(2);
    }
    wanted
}

/// The cells on which the last step of a path depends.
fn slice(graph: &Graph<'_>, claim: &Claim<'_>) -> FxHashSet<u32> {
    let arena = &graph.program.arena;
    let mut wanted: FxHashSet<u32> = FxHashSet::default();
    let edges = claim.path.iter().map(|step| step.edge).chain(claim.last.map(|(edge, _)| edge));
    let mut first = true;
    for edge in edges.collect::<Vec<_>>().into_iter().rev() {
        match &graph.program.edges[edge as usize].action {
            Action::Assume(id) | Action::Emit(id) | Action::Sleep(id, _) | Action::Await(id, _) => {
                let cells = arena.cells(*id);
                if first
                    || cells.iter().any(|cell| wanted.contains(cell))
                    || matches!(
                        graph.program.edges[edge as usize].action,
                        Action::Await(..) | Action::Emit(_)
                    )
                {
                    wanted.extend(cells);
                }
            }
            Action::Assign(all) => {
                for (cell, value) in all {
                    if let (true, Some(value)) = (wanted.contains(cell), value) {
                        wanted.extend(arena.cells(*value));
                    }
                }
            }
            Action::Skip => {}
        }
        first = false;
    }
    wanted
}
