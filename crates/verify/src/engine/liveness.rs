//! Rules 2 and 4: runs that never end in a region of states.

use super::parts::{Move, parts};
use super::ranking::{Rank, rank};
use super::search::{Graph, Step};
use super::values::{SEARCH, Work, first_free};
use crate::messages::Mail;
use crate::program::Action;
use rustc_hash::{FxHashMap, FxHashSet};

/// What must not go on for ever.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Duty {
    /// Rule 2: this message may come and is not awaited.
    Await(Mail),
    /// Rule 4: this protocol is in this state.
    Leave(usize, u8),
}

/// Why a region is left in the end: a part in which runs could stay, and what ends them there.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The states of the part.
    pub states: Vec<u32>,
    /// What ends them.
    pub rank: Rank,
    /// What ends runs in what is left of it.
    pub inner: Vec<Ended>,
}

/// All duties of the protocols.
pub fn duties(graph: &Graph<'_>) -> Vec<Duty> {
    let mut all = Vec::new();
    for (at, machine) in graph.protocols.machines.iter().enumerate() {
        for (state, leaf) in machine.states.iter().enumerate() {
            if leaf.owed {
                all.push(Duty::Leave(at, state as u8));
            }
        }
        all.extend(machine.incoming().map(|message| Duty::Await((at, message))));
    }
    all
}

/// The mask of an AWAIT in a state; 0 for other edges.
fn awaits(graph: &mut Graph<'_>, state: u32, edge: u32) -> u64 {
    let Action::Await(mask, _) = graph.program.edges[edge as usize].action else { return 0 };
    if let Some(mask) = graph.program.arena.number(mask) {
        return mask;
    }
    let known = graph.known[graph.states[state as usize].known as usize].clone();
    let next = first_free(&graph.arena, &known);
    let (tracked, lost) = (Some(&graph.tracked[..]), &graph.lost[..]);
    let arena = &mut graph.arena;
    let mut work = Work { arena, known, next, tracked, lost, inputs: None, limits: SEARCH, forgot: false };
    let value = work.value(mask);
    // A mask that is not known is a violation of its own, and no step leads on from it.
    work.arena.number(value).unwrap_or(0)
}

/// Whether a state is in the region of a duty.
pub fn inside(graph: &Graph<'_>, duty: &Duty, state: u32) -> bool {
    let modes = &graph.modes[graph.states[state as usize].modes as usize];
    match duty {
        Duty::Leave(at, mode) => modes[*at] == *mode,
        Duty::Await(mail) => graph.protocols.machines[mail.0].allows(modes[mail.0] as usize, mail.1),
    }
}

/// The steps within the region of a duty that do not meet it.
pub fn region(graph: &mut Graph<'_>, duty: &Duty) -> Vec<Move> {
    let number = match duty {
        Duty::Await(mail) => graph.protocols.number(*mail),
        Duty::Leave(..) => None,
    };
    let mut all = Vec::new();
    for state in 0..graph.states.len() as u32 {
        if !inside(graph, duty, state) {
            continue;
        }
        for at in 0..graph.steps[state as usize].len() {
            let step = graph.steps[state as usize][at];
            let meets = number.is_some_and(|number| awaits(graph, state, step.edge) >> number & 1 == 1);
            if !meets && inside(graph, duty, step.to) {
                all.push((state, step));
            }
        }
    }
    all
}

/// Shows that no run stays in a region, or gives steps among which one may stay.
pub fn ends(graph: &Graph<'_>, moves: &[Move]) -> Result<Vec<Ended>, Vec<Move>> {
    let mut all = Vec::new();
    for part in parts(moves) {
        let Some(rank) = rank(graph, &part) else { return Err(part) };
        let rest: Vec<Move> = part.iter().filter(|(_, step)| !rank.cuts(step.edge)).copied().collect();
        let inner = ends(graph, &rest)?;
        let mut states: Vec<u32> = part.iter().map(|(state, _)| *state).collect();
        states.sort_unstable();
        states.dedup();
        all.push(Ended { states, rank, inner });
    }
    Ok(all)
}

/// A shortest cycle among steps that are strongly connected, from the state that was found first.
pub fn cycle(part: &[Move]) -> (u32, Vec<Step>) {
    let start = part.iter().map(|(state, _)| *state).min().unwrap_or(0);
    let mut out: FxHashMap<u32, Vec<Step>> = FxHashMap::default();
    for (from, step) in part {
        out.entry(*from).or_default().push(*step);
    }
    let mut before: FxHashMap<u32, Move> = FxHashMap::default();
    let mut seen: FxHashSet<u32> = FxHashSet::default();
    let mut work = std::collections::VecDeque::from([start]);
    while let Some(state) = work.pop_front() {
        for step in out.get(&state).into_iter().flatten() {
            if step.to == start {
                let mut path = vec![*step];
                let mut at = state;
                while at != start {
                    let (previous, step) = before[&at];
                    path.push(step);
                    at = previous;
                }
                path.reverse();
                return (start, path);
            }
            if seen.insert(step.to) {
                before.insert(step.to, (state, *step));
                work.push_back(step.to);
            }
        }
    }
    (start, Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(to: u32) -> Step {
        Step { edge: 0, received: None, to }
    }

    #[test]
    fn a_cycle_leads_back_to_its_start() {
        let (start, path) = cycle(&[(1, step(2)), (2, step(1)), (2, step(5)), (5, step(1))]);
        assert_eq!((start, path.len()), (1, 2));
    }
}
