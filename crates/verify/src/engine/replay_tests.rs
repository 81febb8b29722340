use super::*;
use crate::engine::search::Budget;
use crate::ir::debug::Line;
use crate::ir::instruction::{Binary, Predicate};
use crate::messages::Protocols;
use crate::program::{Cell, Edge, Node, Origin};
use std::time::{Duration, Instant};

/// How many cells the program below has.
const CELLS: u32 = 4;

/// A loop whose edges compare the cells of a byte, copy one to another, and count.
fn program() -> Program {
    let mut program = Program::default();
    let cell = |at: u32| Cell {
        object: at,
        offset: 0,
        length: 1,
        bits: 8,
        name: format!("cell {at}"),
        lost: false,
        local: true,
        origin: Origin::Unknown,
    };
    program.cells.extend((0..CELLS).map(cell));
    let arena = &mut program.arena;
    let cells: Vec<Id> = (0..CELLS).map(|at| arena.cell(at, 8)).collect();
    let (one, three) = (arena.constant(8, 1), arena.constant(8, 3));
    let count = arena.binary(Binary::Add, cells[0], one);
    let low = arena.binary(Binary::And, cells[1], three);
    let mut actions = vec![
        Action::Assign(vec![(0, Some(count))]),
        Action::Assign(vec![(1, Some(cells[2])), (2, Some(low))]),
        Action::Assign(vec![(3, None)]),
        Action::Assign(vec![(0, Some(one)), (3, Some(cells[1]))]),
        Action::Skip,
    ];
    for (a, b) in [(cells[0], three), (low, one), (cells[3], cells[2]), (cells[2], three)] {
        let equal = arena.compare(Predicate::Eq, a, b);
        let less = arena.compare(Predicate::Ult, a, b);
        let other = arena.not(equal);
        actions.extend([equal, less, other].map(Action::Assume));
    }
    program.nodes = vec![Node { line: Line::default(), function: 0 }; 2];
    let edge = |action| Edge { from: 0, to: 0, action, line: Line::default() };
    program.edges.extend(actions.into_iter().map(edge));
    program.out = vec![(0..program.edges.len() as u32).collect(), Vec::new()];
    program.exit = 1;
    program
}

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}

/// Paths that share their beginnings, with one set of cells after another, get the answers that each gets by itself:
/// verdict, knowledge and expressions.
#[test]
fn paths_before_change_nothing() {
    let program = program();
    let protocols = Protocols::new(&[], &[]).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let budget = Budget { deadline, states: 10_000, work: 10_000 };
    let graph = Graph::explore(&program, &protocols, &vec![false; CELLS as usize], &budget).unwrap();
    let edges = program.edges.len();
    let touched: Vec<Vec<u32>> = (0..edges as u32).map(|edge| touched(&program, edge)).collect();
    let mut numbers = Numbers(1);
    let (mut impossible, mut shared) = (0, 0);
    let (mut some, mut all) = (Replay::default(), Replay::default());
    let mut path: Vec<Step> = Vec::new();
    let mut on = vec![true; CELLS as usize];
    for _ in 0..3000 {
        path.truncate(numbers.below(path.len() + 1).max(path.len() / 2));
        for _ in 0..numbers.below(40) {
            // Few conditions, so that paths are long.
            let most = if numbers.below(8) == 0 { edges } else { 5 };
            let edge = numbers.below(most);
            path.push(Step { edge: edge as u32, received: None, to: 0 });
        }
        let cell = numbers.below(CELLS as usize);
        on[cell] = !on[cell];
        let claim = Claim { path: &path, last: None };
        for (replay, on) in [(&mut some, Some(&on[..])), (&mut all, None)] {
            let mut seen = path.len();
            let mut later = Vec::new();
            let again = replay.follow((&graph, &touched), &claim, on, &mut |index, known| {
                seen = seen.min(index);
                later.push((index, known.clone()));
            });
            let mut alone = Replay::default();
            let mut whole = Vec::new();
            let verdict = alone.follow((&graph, &touched), &claim, on, &mut |index, known| {
                whole.push((index, known.clone()));
            });
            assert_eq!(again, verdict, "{path:?} {on:?}");
            whole.retain(|(index, _)| *index >= seen);
            assert_eq!(later, whole, "{path:?} {on:?}");
            assert_eq!(replay.arena.count(), alone.arena.count(), "{path:?} {on:?}");
            let same = (0..alone.arena.count()).all(|id| replay.arena.get(id) == alone.arena.get(id));
            assert!(same, "{path:?} {on:?}");
            if let Verdict::Impossible(at) = verdict {
                impossible += 1;
                shared += u32::from(seen > 0);
                // Steps after it are not followed by either.
                assert!(later.iter().all(|(index, _)| *index <= at));
            }
        }
    }
    assert!(impossible > 300 && shared > 100, "{impossible} {shared}");
}
