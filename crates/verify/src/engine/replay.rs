//! Paths that are followed one after another: where two begin alike, the beginning is followed once.

use super::exact;
use super::search::{Before, Graph, Step, Stepper, Wrong, along};
use super::values::{Known, SEARCH};
use crate::program::expression::{Arena, Id};
use crate::program::{Action, Program};

/// How many steps lie between two places from which a path can be followed again.
const APART: usize = 16;

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

/// The cells that an edge reads or sets.
pub fn touched(program: &Program, edge: u32) -> Vec<u32> {
    let arena = &program.arena;
    let mut all = Vec::new();
    match &program.edges[edge as usize].action {
        Action::Skip => {}
        Action::Assume(id) | Action::Emit(id) | Action::Sleep(id, _) => all.extend(arena.cells(*id)),
        Action::Await(id, cell) => {
            all.extend(arena.cells(*id));
            all.push(*cell);
        }
        Action::Assign(values) => {
            for (cell, value) in values {
                all.push(*cell);
                all.extend(value.iter().flat_map(|value| arena.cells(*value)));
            }
        }
    }
    all
}

/// A place on a path.
#[derive(Clone)]
struct Place {
    known: Known,
    modes: Vec<u8>,
    atomic: u8,
    /// Whether something was forgotten on the way.
    forgot: bool,
    /// How many expressions there are here. Those that were made later are forgotten when one comes back.
    expressions: Id,
}

/// Follows paths of one graph. The answer about each is what it would be if no other had been followed before.
#[derive(Default)]
pub struct Replay {
    /// The expressions of the graph and of the path that was followed last. Empty before the first.
    pub arena: Arena,
    /// The cells with which it was followed; all if absent.
    on: Option<Vec<bool>>,
    /// The steps of it that could be taken.
    path: Vec<Step>,
    /// Every so many-th place on it, with its start.
    places: Vec<Place>,
}

impl Replay {
    /// Follows a path. `on` are the cells that are followed, all if absent. `touched` has the cells of each edge.
    /// `see` gets what is known before each step that is taken anew.
    pub fn follow(
        &mut self,
        (graph, touched): (&Graph<'_>, &[Vec<u32>]),
        claim: &Claim<'_>,
        on: Option<&[bool]>,
        see: &mut dyn FnMut(usize, &Known),
    ) -> Verdict {
        let mut stepper = along(graph, on);
        if on.is_some() {
            // What is shown to be impossible here must be so in the search.
            stepper.limits = SEARCH;
        }
        let Place { mut known, mut modes, mut atomic, mut forgot, .. } =
            self.back(graph, touched, claim.path, on);
        for (index, step) in claim.path.iter().enumerate().skip(self.path.len()) {
            if index % APART == 0 && index / APART == self.places.len() {
                let expressions = self.arena.count();
                let (known, modes) = (known.clone(), modes.clone());
                self.places.push(Place { known, modes, atomic, forgot, expressions });
            }
            see(index, &known);
            let action = &graph.program.edges[step.edge as usize].action;
            let result = stepper.step(&mut self.arena, Before { known, modes, atomic }, action);
            if result.wrong == Some(Wrong::Open) {
                // Without the cells that say which message it is, nothing shows that the path is impossible.
                return Verdict::Unknown;
            }
            let taken = result.outcomes.into_iter().find(|outcome| outcome.received == step.received);
            let Some(outcome) = taken else { return Verdict::Impossible(index) };
            known = outcome.known;
            modes = outcome.modes;
            atomic = outcome.atomic;
            forgot |= outcome.forgot;
            self.path.push(*step);
        }
        if let Some((edge, what)) = claim.last {
            let action = &graph.program.edges[edge as usize].action;
            let before = Before { known, modes, atomic };
            let Some((after, unsure)) = breaks(&stepper, &mut self.arena, before, action, what) else {
                return Verdict::Impossible(claim.path.len());
            };
            known = after;
            forgot |= unsure;
        }
        let feasible = !forgot && on.is_none() && exact::can_all_hold(&self.arena, &known.facts);
        if feasible { Verdict::Feasible } else { Verdict::Unknown }
    }

    /// Goes back to the last place that a path with these cells has in common with the one that was followed last.
    fn back(&mut self, graph: &Graph<'_>, touched: &[Vec<u32>], path: &[Step], on: Option<&[bool]>) -> Place {
        if self.places.is_empty() {
            self.arena = graph.arena.clone();
            let (known, modes) = (Known::default(), graph.protocols.start());
            let expressions = self.arena.count();
            self.places.push(Place { known, modes, atomic: 0, forgot: false, expressions });
            self.on = on.map(<[bool]>::to_vec);
        }
        let mut same = self.path.iter().zip(path).take_while(|(one, other)| one == other).count();
        if self.on.as_deref() != on {
            let is_on = |cell: &u32, on: Option<&[bool]>| on.is_none_or(|on| on[*cell as usize]);
            let differs = |cell: &u32| is_on(cell, self.on.as_deref()) != is_on(cell, on);
            let alike = |step: &&Step| !touched[step.edge as usize].iter().any(differs);
            same = path[..same].iter().take_while(alike).count();
            self.on = on.map(<[bool]>::to_vec);
        }
        self.places.truncate(same / APART + 1);
        self.path.truncate((self.places.len() - 1) * APART);
        let place = self.places[self.places.len() - 1].clone();
        self.arena.truncate(place.expressions);
        place
    }
}

/// Whether an action breaks a rule in this way: what is known then, and whether something was forgotten.
fn breaks(
    stepper: &Stepper<'_>,
    arena: &mut Arena,
    before: Before,
    action: &Action,
    what: &Wrong,
) -> Option<(Known, bool)> {
    let known = before.known.clone();
    if stepper.step(arena, before, action).wrong.as_ref() != Some(what) {
        return None;
    }
    // A call that sleeps by its flags breaks the rule only where it has them.
    let Action::Sleep(bit, _) = action else { return Some((known, false)) };
    let mut work = stepper.work(arena, known);
    work.assume(*bit).then_some(())?;
    Some((work.known, work.forgot))
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
