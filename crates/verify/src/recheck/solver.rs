//! A small solver of clauses: conflicts teach new clauses, and the latest variables of conflicts are decided first.

use std::collections::BinaryHeap;

/// A variable or its opposite: twice the variable, plus 1 for the opposite.
pub type Literal = u32;

/// After so many conflicts the answer stays open.
const CONFLICTS: u32 = 20_000;
const NO_REASON: u32 = u32::MAX;

/// The opposite.
pub fn not(literal: Literal) -> Literal {
    literal ^ 1
}

/// What clauses say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Some values meet all clauses.
    Possible,
    /// No values do.
    Impossible,
    /// The limit of conflicts was reached.
    Open,
}

/// Clauses over variables.
#[derive(Default)]
pub struct Solver {
    clauses: Vec<Vec<Literal>>,
    /// Of each literal, the clauses that watch it.
    watches: Vec<Vec<u32>>,
    /// Of each variable: 0 where it is open, 1 for true, -1 for false.
    values: Vec<i8>,
    levels: Vec<u32>,
    reasons: Vec<u32>,
    stamps: Vec<u64>,
    clock: u64,
    queue: BinaryHeap<(u64, u32)>,
    trail: Vec<Literal>,
    ends: Vec<usize>,
    head: usize,
    broken: bool,
}

impl Solver {
    /// A new variable, as its literal.
    pub fn variable(&mut self) -> Literal {
        let variable = self.values.len() as u32;
        self.values.push(0);
        self.levels.push(0);
        self.reasons.push(NO_REASON);
        self.stamps.push(0);
        self.watches.extend([Vec::new(), Vec::new()]);
        self.queue.push((0, variable));
        variable * 2
    }

    fn value(&self, literal: Literal) -> i8 {
        let value = self.values[literal as usize / 2];
        if literal & 1 == 0 { value } else { -value }
    }

    /// Whether a literal is true in the values that were found.
    pub fn is_true(&self, literal: Literal) -> bool {
        self.value(literal) > 0
    }

    /// At least one of these holds. To be called before [`Solver::solve`].
    pub fn clause(&mut self, literals: &[Literal]) {
        let mut clause: Vec<Literal> = literals.to_vec();
        clause.sort_unstable();
        clause.dedup();
        if clause.windows(2).any(|two| two[0] == not(two[1])) || clause.iter().any(|one| self.is_true(*one)) {
            return;
        }
        clause.retain(|literal| self.value(*literal) == 0);
        match clause[..] {
            [] => self.broken = true,
            [only] => {
                self.assign(only, NO_REASON);
                self.broken |= self.propagate().is_some();
            }
            _ => {
                self.attach(clause);
            }
        }
    }

    fn attach(&mut self, clause: Vec<Literal>) -> u32 {
        let index = self.clauses.len() as u32;
        for literal in &clause[..2] {
            self.watches[*literal as usize].push(index);
        }
        self.clauses.push(clause);
        index
    }

    fn assign(&mut self, literal: Literal, reason: u32) {
        let variable = literal as usize / 2;
        self.values[variable] = if literal & 1 == 0 { 1 } else { -1 };
        self.levels[variable] = self.ends.len() as u32;
        self.reasons[variable] = reason;
        self.trail.push(literal);
    }

    /// Draws what follows; gives a clause that fails.
    fn propagate(&mut self) -> Option<u32> {
        while let Some(&literal) = self.trail.get(self.head) {
            self.head += 1;
            let false_ = not(literal);
            let mut at = 0;
            while at < self.watches[false_ as usize].len() {
                let index = self.watches[false_ as usize][at];
                let clause = &mut self.clauses[index as usize];
                if clause[0] == false_ {
                    clause.swap(0, 1);
                }
                let first = clause[0];
                let value = |literal: Literal| {
                    let value = self.values[literal as usize / 2];
                    if literal & 1 == 0 { value } else { -value }
                };
                if value(first) > 0 {
                    at += 1;
                    continue;
                }
                if let Some(other) = (2..clause.len()).find(|other| value(clause[*other]) >= 0) {
                    clause.swap(1, other);
                    let watched = clause[1];
                    self.watches[false_ as usize].swap_remove(at);
                    self.watches[watched as usize].push(index);
                    continue;
                }
                if value(first) < 0 {
                    self.head = self.trail.len();
                    return Some(index);
                }
                self.assign(first, index);
                at += 1;
            }
        }
        None
    }

    fn back(&mut self, level: usize) {
        while self.ends.len() > level {
            let end = self.ends.pop().unwrap_or(0);
            for literal in self.trail.drain(end..) {
                let variable = literal / 2;
                self.values[variable as usize] = 0;
                self.queue.push((self.stamps[variable as usize], variable));
            }
        }
        self.head = self.trail.len();
    }

    /// The clause that a conflict teaches, its first literal being what follows, and the level to go back to.
    fn learn(&mut self, conflict: u32) -> (Vec<Literal>, usize) {
        let level = self.ends.len() as u32;
        let mut seen = vec![false; self.values.len()];
        let mut clause = vec![0];
        let (mut open, mut at, mut index) = (0, self.trail.len(), conflict);
        loop {
            for literal in self.clauses[index as usize].clone() {
                let variable = literal as usize / 2;
                if seen[variable] || self.levels[variable] == 0 || self.value(literal) > 0 {
                    continue;
                }
                seen[variable] = true;
                self.clock += 1;
                self.stamps[variable] = self.clock;
                if self.levels[variable] == level {
                    open += 1;
                } else {
                    clause.push(literal);
                }
            }
            loop {
                at -= 1;
                if seen[self.trail[at] as usize / 2] {
                    break;
                }
            }
            open -= 1;
            let literal = self.trail[at];
            if open == 0 {
                clause[0] = not(literal);
                break;
            }
            index = self.reasons[literal as usize / 2];
        }
        let back = (1..clause.len()).max_by_key(|other| self.levels[clause[*other] as usize / 2]);
        let back = back.map_or(0, |other| {
            clause.swap(1, other);
            self.levels[clause[1] as usize / 2] as usize
        });
        (clause, back)
    }

    /// Looks for values that meet all clauses.
    pub fn solve(&mut self) -> Answer {
        if self.broken || self.propagate().is_some() {
            return Answer::Impossible;
        }
        let mut conflicts = 0;
        loop {
            if let Some(conflict) = self.propagate() {
                conflicts += 1;
                if self.ends.is_empty() {
                    return Answer::Impossible;
                }
                if conflicts > CONFLICTS {
                    return Answer::Open;
                }
                let (clause, level) = self.learn(conflict);
                self.back(level);
                let first = clause[0];
                let reason = if clause.len() == 1 { NO_REASON } else { self.attach(clause) };
                self.assign(first, reason);
                continue;
            }
            let next = loop {
                match self.queue.pop() {
                    None => return Answer::Possible,
                    Some((_, variable)) if self.values[variable as usize] == 0 => break variable,
                    Some(_) => {}
                }
            };
            self.ends.push(self.trail.len());
            self.assign(next * 2 + 1, NO_REASON);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random clauses are decided as by trying all values.
    #[test]
    fn answers_are_those_of_trying_all_values() {
        let mut seed = 88_172_645_463_325_252_u64;
        let mut next = move |limit: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % limit
        };
        let mut impossible = 0;
        for _ in 0..2000 {
            let variables = 4 + next(7) as u32;
            let count = next(u64::from(variables) * 6);
            let clauses: Vec<Vec<Literal>> = (0..count)
                .map(|_| (0..1 + next(3)).map(|_| next(u64::from(variables) * 2) as u32).collect())
                .collect();
            let mut solver = Solver::default();
            for _ in 0..variables {
                solver.variable();
            }
            for clause in &clauses {
                solver.clause(clause);
            }
            let meets = |values: u32| {
                clauses.iter().all(|clause| clause.iter().any(|one| values >> (one / 2) & 1 != one & 1))
            };
            let expected = (0..1 << variables).any(meets);
            let answer = solver.solve();
            assert_eq!(answer == Answer::Possible, expected, "{clauses:?}");
            if answer == Answer::Possible {
                let true_ = |one: &u32| solver.is_true(*one);
                assert!(clauses.iter().all(|clause| clause.iter().any(true_)), "{clauses:?}");
            } else {
                impossible += 1;
            }
        }
        assert!(impossible > 200, "{impossible}");
    }
}
