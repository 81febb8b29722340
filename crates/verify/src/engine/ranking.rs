//! Loops that provably end: a counter in a register or in memory that nears its bound, a deadline, a list.

use super::parts::{Move, parts};
use super::search::Graph;
use crate::ir::instruction::{Binary, Predicate};
use crate::program::expression::{Expression, Id, mask, signed};
use crate::program::{Action, Origin, Program};
use rustc_hash::{FxHashMap, FxHashSet};

/// Why runs leave a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The cell moves by a constant towards the bound of each guard.
    Counter,
    /// The cell loses bits until it is zero.
    Bits,
    /// The cell goes around a ring of this many until it meets the bound.
    Ring(u64),
    /// The time passes.
    Clock,
    /// A list or a queue ends.
    List,
}

/// What ends runs.
#[derive(Clone, Debug)]
pub struct Rank {
    /// The cell.
    pub cell: u32,
    /// How it gets nearer to its end.
    pub measure: Measure,
    /// Edges that bring it nearer: taken a finite number of times.
    pub updates: Vec<u32>,
    /// Edges that ask whether it is there.
    pub guards: Vec<u32>,
}

impl Rank {
    /// Whether an edge is taken a finite number of times only.
    pub fn cuts(&self, edge: u32) -> bool {
        self.updates.contains(&edge)
    }
}

/// Assignments and conditions in a part.
struct Part<'a> {
    program: &'a Program,
    lost: &'a [bool],
    moves: &'a [Move],
    /// Of each cell, the edges that set it with the values.
    sets: FxHashMap<u32, Vec<(u32, Option<Id>)>>,
    /// Edges that assume a condition.
    conditions: Vec<(u32, Id)>,
}

/// Finds what ends runs in strongly connected steps.
pub fn rank(graph: &Graph<'_>, moves: &[Move]) -> Option<Rank> {
    let mut edges: Vec<u32> = moves.iter().map(|(_, step)| step.edge).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut part = Part {
        program: graph.program,
        lost: &graph.lost,
        moves,
        sets: FxHashMap::default(),
        conditions: Vec::new(),
    };
    for &edge in &edges {
        match &graph.program.edges[edge as usize].action {
            Action::Assume(condition) => part.conditions.push((edge, *condition)),
            Action::Assign(all) => {
                for (cell, value) in all {
                    part.sets.entry(*cell).or_default().push((edge, *value));
                }
            }
            Action::Await(_, cell) => part.sets.entry(*cell).or_default().push((edge, None)),
            _ => {}
        }
    }
    let mut cells: Vec<u32> = part.sets.keys().copied().filter(|cell| !graph.lost[*cell as usize]).collect();
    cells.sort_unstable();
    for &cell in &cells {
        let found = part.counter(cell).or_else(|| part.bits(cell)).or_else(|| part.ring(cell));
        if found.is_some() {
            return found;
        }
    }
    part.passing(Origin::Clock, Measure::Clock)
        .or_else(|| part.passing(Origin::Drained, Measure::List))
        .or_else(|| part.passing(Origin::Link, Measure::List))
}

/// `c + n` of a cell.
pub fn offset(program: &Program, id: Id, cell: u32) -> Option<u64> {
    match program.arena.get(id) {
        Expression::Cell(at, _) if at == cell => Some(0),
        Expression::Binary(Binary::Add, _, a, b) if matches!(program.arena.get(a), Expression::Cell(at, _) if at == cell) => {
            program.arena.number(b)
        }
        _ => None,
    }
}

impl Part<'_> {
    fn constant_within(&self, id: Id) -> bool {
        let cells = self.program.arena.cells(id);
        cells.iter().all(|cell| !self.sets.contains_key(cell) && !self.lost[*cell as usize])
    }

    /// A counter that only moves one way.
    fn counter(&self, cell: u32) -> Option<Rank> {
        let bits = self.program.cells[cell as usize].bits;
        let mut steps = Vec::new();
        let mut updates = Vec::new();
        for (edge, value) in &self.sets[&cell] {
            let step = signed(bits, offset(self.program, (*value)?, cell)?);
            if step == 0 || step.unsigned_abs() > 1 << 20 {
                return None;
            }
            steps.push(step);
            updates.push(*edge);
        }
        let up = *steps.first()? > 0;
        if steps.iter().any(|step| (*step > 0) != up) {
            return None;
        }
        let largest = steps.iter().map(|step| step.unsigned_abs()).max()?;
        let crossings = self.moves.iter().filter(|(_, step)| updates.contains(&step.edge)).count() as u64;
        let (mut near, mut single) = (Vec::new(), Vec::new());
        for &(edge, condition) in &self.conditions {
            match self.guard(condition, cell, up, largest.saturating_mul(crossings)) {
                Some(Guard::Any) => near.push(edge),
                Some(Guard::Single) => single.push(edge),
                None => {}
            }
        }
        if !near.is_empty() && self.between(&updates, &near, false) {
            return Some(Rank { cell, measure: Measure::Counter, updates, guards: near });
        }
        single.extend(near);
        if largest == 1 && !single.is_empty() && self.between(&updates, &single, true) {
            return Some(Rank { cell, measure: Measure::Counter, updates, guards: single });
        }
        None
    }

    /// Whether a condition keeps a counter from its bound.
    fn guard(&self, condition: Id, cell: u32, up: bool, most: u64) -> Option<Guard> {
        let arena = &self.program.arena;
        let Expression::Compare(predicate, a, b) = arena.get(condition) else { return None };
        let (term, bound, left) = match (self.term(a, cell), self.term(b, cell)) {
            (Some(term), None) => (term, b, true),
            (None, Some(term)) => (term, a, false),
            _ => return None,
        };
        if !self.constant_within(bound) {
            return None;
        }
        let width = self.program.cells[cell as usize].bits;
        let top = mask(width);
        let number = arena.number(bound);
        let narrow = |n: u64| (term == Width::Same) || n <= top;
        match predicate {
            Predicate::Ne if number.is_some_and(narrow) || term == Width::Same || self.fits(bound, width) => {
                Some(Guard::Single)
            }
            Predicate::Ult | Predicate::Ule if left == up && term != Width::Signed => {
                let slack = match number {
                    // Up to a bound, the counter stays below what it can hold; down to one, above zero.
                    Some(n) if up => n.checked_add(most).is_some_and(|sum| sum <= top),
                    Some(n) => n >= most,
                    None => {
                        return (predicate == Predicate::Ult
                            && (term == Width::Same || self.fits(bound, width)))
                        .then_some(Guard::Single);
                    }
                };
                slack.then_some(Guard::Any)
            }
            Predicate::Ult if left && up => {
                // A signed counter, compared as a wide unsigned number: it is between 0 and the bound.
                let n = number.filter(|n| n.checked_add(most).is_some_and(|sum| sum <= top >> 1))?;
                (n > 0).then_some(Guard::Any)
            }
            Predicate::Slt | Predicate::Sle if left == up && term != Width::Zero => {
                let half = (top >> 1) as i64;
                let most = i64::try_from(most).ok()?;
                let slack = match number {
                    Some(n) => {
                        let n = signed(arena.bits(bound), n);
                        if up { n.checked_add(most)? <= half } else { n.checked_sub(most)? >= -half }
                    }
                    None => {
                        return (predicate == Predicate::Slt && term == Width::Same).then_some(Guard::Single);
                    }
                };
                slack.then_some(Guard::Any)
            }
            _ => None,
        }
    }

    /// Whether an expression is a widened one of at most this width.
    fn fits(&self, id: Id, width: u32) -> bool {
        matches!(self.program.arena.get(id), Expression::Zero(_, inner) if self.program.arena.bits(inner) <= width)
    }

    /// Whether an expression is the cell plus a constant, widened or not.
    fn term(&self, id: Id, cell: u32) -> Option<Width> {
        let arena = &self.program.arena;
        match arena.get(id) {
            Expression::Zero(_, inner) => offset(self.program, inner, cell).map(|_| Width::Zero),
            Expression::Sign(_, inner) => offset(self.program, inner, cell).map(|_| Width::Signed),
            _ => offset(self.program, id, cell).map(|_| Width::Same),
        }
    }

    /// Whether each run from an update to the next passes a guard: to the same one, or to any.
    fn between(&self, updates: &[u32], guards: &[u32], any: bool) -> bool {
        let rest: Vec<Move> =
            self.moves.iter().filter(|(_, step)| !guards.contains(&step.edge)).copied().collect();
        if parts(&rest).iter().flatten().any(|(_, step)| updates.contains(&step.edge)) {
            return false;
        }
        if !any {
            return true;
        }
        let mut out: FxHashMap<u32, Vec<Move>> = FxHashMap::default();
        for one in &rest {
            out.entry(one.0).or_default().push(*one);
        }
        for (_, step) in rest.iter().filter(|(_, step)| updates.contains(&step.edge)) {
            let mut seen = FxHashSet::default();
            let mut work = vec![step.to];
            while let Some(state) = work.pop() {
                for (_, next) in out.get(&state).into_iter().flatten() {
                    if updates.contains(&next.edge) {
                        return false;
                    }
                    if seen.insert(next.to) {
                        work.push(next.to);
                    }
                }
            }
        }
        true
    }

    /// `c >> n` or `c & (c - 1)` until it is zero.
    fn bits(&self, cell: u32) -> Option<Rank> {
        let arena = &self.program.arena;
        let mut updates = Vec::new();
        for (edge, value) in &self.sets[&cell] {
            let Expression::Binary(operation, _, a, b) = arena.get((*value)?) else { return None };
            let fine = match operation {
                Binary::LShr => {
                    offset(self.program, a, cell) == Some(0) && arena.number(b).is_some_and(|n| n > 0)
                }
                Binary::And => {
                    let all = mask(arena.bits(a));
                    let pair = [offset(self.program, a, cell), offset(self.program, b, cell)];
                    pair == [Some(0), Some(all)] || pair == [Some(all), Some(0)]
                }
                _ => false,
            };
            if !fine {
                return None;
            }
            updates.push(*edge);
        }
        let guards: Vec<u32> = self
            .conditions
            .iter()
            .filter(|(_, condition)| self.differs(*condition, cell) == Some(0))
            .map(|(edge, _)| *edge)
            .collect();
        (!guards.is_empty() && self.between(&updates, &guards, false)).then_some(Rank {
            cell,
            measure: Measure::Bits,
            updates,
            guards,
        })
    }

    /// `c != n`, or a condition that implies it for zero.
    fn differs(&self, condition: Id, cell: u32) -> Option<u64> {
        let arena = &self.program.arena;
        let Expression::Compare(Predicate::Ne, a, b) = arena.get(condition) else { return None };
        let n = arena.number(b)?;
        let masked = matches!(arena.get(a), Expression::Binary(Binary::And, _, x, _) if offset(self.program, x, cell) == Some(0));
        (self.term(a, cell).is_some() && offset(self.program, a, cell).unwrap_or(0) == 0 || masked && n == 0)
            .then_some(n)
    }

    /// `(c + 1) % n` until it equals what does not change.
    fn ring(&self, cell: u32) -> Option<Rank> {
        let mut updates = Vec::new();
        let mut size = None;
        for (edge, value) in &self.sets[&cell] {
            let (base, around) = around(self.program, (*value)?)?;
            if offset(self.program, base, cell) != Some(1) || size.is_some_and(|size| size != around) {
                return None;
            }
            size = Some(around);
            updates.push(*edge);
        }
        let size = size?;
        let mut guards = Vec::new();
        for &(edge, condition) in &self.conditions {
            let Expression::Compare(Predicate::Ne, a, b) = self.program.arena.get(condition) else {
                continue;
            };
            let is = |id: Id| offset(self.program, id, cell) == Some(0);
            let bound = if is(a) {
                b
            } else if is(b) {
                a
            } else {
                continue;
            };
            if self.constant_within(bound) && self.below(bound, size) {
                guards.push(edge);
            }
        }
        (!guards.is_empty() && self.between(&updates, &guards, true)).then_some(Rank {
            cell,
            measure: Measure::Ring(size),
            updates,
            guards,
        })
    }

    /// Whether a run may come to the part before a cell is set: it has any value then.
    fn is_read_unset(&self, cell: u32) -> bool {
        let program = self.program;
        let inside: FxHashSet<u32> =
            self.moves.iter().map(|(_, step)| program.edges[step.edge as usize].from).collect();
        let mut seen = FxHashSet::from_iter([program.entry]);
        let mut work = vec![program.entry];
        while let Some(node) = work.pop() {
            if inside.contains(&node) {
                return true;
            }
            for edge in &program.out[node as usize] {
                let edge = &program.edges[*edge as usize];
                let sets =
                    matches!(&edge.action, Action::Assign(all) if all.iter().any(|(at, _)| *at == cell));
                if !sets && seen.insert(edge.to) {
                    work.push(edge.to);
                }
            }
        }
        false
    }

    /// Whether a bound is always in a ring: a number, or a cell that only gets such values.
    fn below(&self, bound: Id, size: u64) -> bool {
        match self.program.arena.get(bound) {
            Expression::Number(_, n) => n < size,
            Expression::Cell(cell, _) if !self.is_read_unset(cell) => {
                self.program.edges.iter().all(|edge| match &edge.action {
                    Action::Assign(all) => all.iter().all(|(at, value)| {
                        *at != cell
                            || value.is_some_and(|value| {
                                self.program.arena.number(value).is_some_and(|n| n < size)
                                    || around(self.program, value).is_some_and(|(_, around)| around <= size)
                            })
                    }),
                    Action::Await(_, at) => *at != cell,
                    _ => true,
                })
            }
            _ => false,
        }
    }

    /// Whether a condition fails in the end because a value in it, the time, rises.
    fn passes(&self, condition: Id, time: u32) -> bool {
        let Expression::Compare(predicate, a, b) = self.program.arena.get(condition) else { return false };
        match (self.rises(a, time), self.rises(b, time)) {
            (Some(Some(up)), Some(None)) => up || predicate == Predicate::Eq,
            (Some(None), Some(Some(up))) => !up || predicate == Predicate::Eq,
            _ => false,
        }
        .then_some(predicate)
        .is_some_and(|predicate| predicate != Predicate::Ne)
    }

    /// Whether an expression rises with a cell, or falls; inside, none where it does not depend on it.
    fn rises(&self, id: Id, cell: u32) -> Option<Option<bool>> {
        let arena = &self.program.arena;
        if !arena.mentions(id, cell) {
            return Some(None);
        }
        match arena.get(id) {
            Expression::Cell(..) => Some(Some(true)),
            Expression::Zero(_, a) | Expression::Sign(_, a) | Expression::Cut(_, a) => self.rises(a, cell),
            Expression::Binary(Binary::UDiv | Binary::SDiv | Binary::LShr | Binary::AShr, _, a, b) => {
                arena.number(b).and_then(|_| self.rises(a, cell))
            }
            Expression::Binary(operation @ (Binary::Add | Binary::Sub), _, a, b) => {
                match (self.rises(a, cell)?, self.rises(b, cell)?) {
                    (up, None) => Some(up),
                    (None, Some(up)) => Some(Some(up == (operation == Binary::Add))),
                    _ => None,
                }
            }
            Expression::Binary(Binary::Mul, bits, a, b) => {
                let factor = signed(bits, arena.number(b)?);
                let up = self.rises(a, cell)??;
                (factor != 0).then_some(Some(up == (factor > 0)))
            }
            _ => None,
        }
    }

    /// Conditions on a value that time or a list changes.
    fn passing(&self, origin: Origin, measure: Measure) -> Option<Rank> {
        let arena = &self.program.arena;
        let is = |cell: &u32| self.program.cells[*cell as usize].origin == origin;
        let mut from: FxHashSet<u32> = self.sets.keys().copied().filter(is).collect();
        loop {
            let before = from.len();
            for (cell, sets) in &self.sets {
                let follows = !from.contains(cell)
                    && sets.iter().all(|(_, value)| {
                        value.is_some_and(|value| {
                            let cells = arena.cells(value);
                            cells.iter().any(|cell| from.contains(cell))
                                && cells
                                    .iter()
                                    .all(|cell| from.contains(cell) || !self.sets.contains_key(cell))
                        })
                    });
                if follows {
                    from.insert(*cell);
                }
            }
            if from.len() == before {
                break;
            }
        }
        let mut guards = Vec::new();
        let mut first = None;
        for &(edge, condition) in &self.conditions {
            let cells = arena.cells(condition);
            let about: Vec<u32> = cells.iter().copied().filter(|cell| from.contains(cell)).collect();
            let rest = cells.iter().all(|cell| from.contains(cell) || !self.sets.contains_key(cell));
            let ends = match measure {
                // A deadline that moves with the time is never met.
                Measure::Clock => about.len() == 1 && self.passes(condition, about[0]),
                _ => matches!(arena.get(condition), Expression::Compare(Predicate::Ne, ..)),
            };
            if let (Some(cell), true, true) = (about.first(), rest, ends) {
                first = first.or(Some(*cell));
                guards.push(edge);
            }
        }
        let rest: Vec<Move> =
            self.moves.iter().filter(|(_, step)| !guards.contains(&step.edge)).copied().collect();
        let cell = first.filter(|_| rest.len() < self.moves.len())?;
        Some(Rank { cell, measure, updates: guards.clone(), guards })
    }
}

/// `x % n` or `x & (n - 1)`: the value and `n`.
pub fn around(program: &Program, id: Id) -> Option<(Id, u64)> {
    let arena = &program.arena;
    match arena.get(id) {
        Expression::Binary(Binary::And, _, a, b) => {
            let n = arena.number(b)?.checked_add(1)?;
            n.is_power_of_two().then_some((a, n))
        }
        Expression::Binary(Binary::URem, _, a, b) => arena.number(b).map(|n| (a, n)),
        _ => None,
    }
}

#[derive(PartialEq)]
enum Guard {
    /// However many updates lie between two.
    Any,
    /// If at most one update lies between two.
    Single,
}

#[derive(Clone, Copy, PartialEq)]
enum Width {
    Same,
    Zero,
    Signed,
}
