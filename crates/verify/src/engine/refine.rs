//! Whether a path can happen, and which cells show that it cannot.

use super::replay::{Claim, Replay, Verdict, touched};
use super::search::{Graph, Step, along};
use super::values::{HEIGHT, Known};
use crate::program::expression::{Arena, Expression};
use crate::program::{Action, Program};
use rustc_hash::FxHashSet;

/// Whether a run that goes around a cycle comes to the same state again, as far as the cycle depends on it: then it
/// can go around for ever. `stem` steps of the claim lead to the cycle, and it goes around at least three times.
pub fn repeats(
    graph: &Graph<'_>,
    claim: &Claim<'_>,
    stem: usize,
    cycle: &[Step],
    footprint: &Footprint,
) -> bool {
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
    let turns = [1, 2].map(|turn| stem + turn * cycle.len());
    let mut all = Vec::new();
    let mut replay = Replay::default();
    replay.follow((graph, &footprint.touched), claim, None, &mut |index, known| {
        all.extend(turns.contains(&index).then(|| known.clone()));
    });
    let stepper = along(graph, None);
    let mut arena = replay.arena;
    let mut at = |known: &Known| {
        let ties = ties(&arena, known, &wanted);
        (!ties).then(|| stepper.work(&mut arena, known.clone()).canonical(&|cell| wanted.contains(&cell)))
    };
    matches!(&all[..], [one, two] if at(one).is_some_and(|one| Some(one) == at(two)))
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

/// What refinement asks of a program again and again.
pub struct Footprint {
    /// How much it costs to follow each cell: 0, or 1 for a local counter, 2 for one that stays.
    pub costs: Vec<u8>,
    /// The cells that each edge reads or sets.
    pub touched: Vec<Vec<u32>>,
}

impl Footprint {
    /// That of a program.
    pub fn new(program: &Program) -> Self {
        let edges = 0..program.edges.len() as u32;
        Footprint { costs: costs(program), touched: edges.map(|edge| touched(program, edge)).collect() }
    }
}

fn costs(program: &Program) -> Vec<u8> {
    let mut costs = vec![0; program.cells.len()];
    for edge in &program.edges {
        let Action::Assign(all) = &edge.action else { continue };
        for (cell, value) in all {
            if value.is_some_and(|value| {
                program.arena.mentions(value, *cell) && program.arena.size(value).has_sum(HEIGHT)
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

/// Judges the paths of one graph.
pub struct Judge<'f> {
    footprint: &'f Footprint,
    /// With cells that cost nothing, with local counters too, and with all.
    by_cost: [Replay; 3],
    /// With what may be needed.
    few: Replay,
}

impl<'f> Judge<'f> {
    /// One that has judged nothing yet.
    pub fn new(footprint: &'f Footprint) -> Self {
        Judge { footprint, by_cost: Default::default(), few: Replay::default() }
    }

    /// Follows a path, with cheap cells first: what they rule out needs no counters.
    pub fn judge(&mut self, graph: &Graph<'_>, claim: &Claim<'_>) -> Judged {
        let Footprint { costs, touched } = self.footprint;
        let on = (graph, &touched[..]);
        for most in 0..2 {
            let cells: Vec<bool> =
                costs.iter().enumerate().map(|(at, cost)| *cost <= most || graph.tracked[at]).collect();
            let replay = &mut self.by_cost[usize::from(most)];
            let Verdict::Impossible(at) = replay.follow(on, claim, Some(&cells), &mut |_, _| {}) else {
                continue;
            };
            let cells = self.needed(graph, claim, at, &cells);
            if !cells.is_empty() {
                return Judged::Ruled(cells);
            }
        }
        match self.by_cost[2].follow(on, claim, None, &mut |_, _| {}) {
            Verdict::Impossible(at) => {
                let cells = self.needed(graph, claim, at, &vec![true; costs.len()]);
                // This run cannot be, but the search cannot follow what says so: a longer one may well be.
                if cells.is_empty() { Judged::Breaks(false) } else { Judged::Ruled(cells) }
            }
            verdict => Judged::Breaks(verdict == Verdict::Feasible),
        }
    }

    /// Cells that, if they are followed, rule out a path which is impossible at a step. Empty if none do.
    fn needed(&mut self, graph: &Graph<'_>, claim: &Claim<'_>, at: usize, of: &[bool]) -> Vec<u32> {
        let Footprint { costs, touched } = self.footprint;
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
        let mut impossible = |on: &[bool]| {
            let verdict = self.few.follow((graph, touched), &short, Some(on), &mut |_, _| {});
            matches!(verdict, Verdict::Impossible(_))
        };
        if !impossible(&on) {
            return Vec::new();
        }
        // Cells that are followed already cost nothing: others are dropped first.
        wanted.sort_by_key(|cell| {
            (graph.tracked[*cell as usize], std::cmp::Reverse(costs[*cell as usize]), *cell)
        });
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
