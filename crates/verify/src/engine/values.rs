//! What is known about cells: numbers, and unknown numbers with conditions on them.

use super::facts::{bits, decide};
use crate::ir::instruction::{Binary, Predicate};
use crate::program::expression::{Arena, Expression, Id, mask};
use rustc_hash::{FxHashMap, FxHashSet};

/// Limits that keep what is known finite. Beyond them a value is unknown, which is sound.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Nodes of an expression in a cell.
    pub nodes: usize,
    /// Most conditions of a state.
    pub facts: usize,
    /// Whether sums of unknown numbers are kept.
    pub sums: bool,
}

/// Most nodes of a condition that is kept.
const LARGEST_FACT: usize = 512;
/// Most nodes of an expression whose cells are looked for.
const MOST_LEAVES: usize = 4096;

/// Most nodes from the top of an expression down, where sums of unknown numbers are not kept.
pub const HEIGHT: u32 = 16;

/// For the search.
pub const SEARCH: Limits = Limits { nodes: 24, facts: 24, sums: false };
/// For one path.
pub const PATH: Limits = Limits { nodes: 64, facts: 4096, sums: true };

/// What is known in a state, over symbols that belong to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Known {
    /// Values by cell, sorted.
    pub cells: Vec<(u32, Id)>,
    /// Conditions that hold, sorted.
    pub facts: Vec<Id>,
    /// Symbols that stand for what the engine does not know, rather than for what the device or the kernel decides.
    /// Only kept along a path.
    pub unsure: Vec<u32>,
}

/// A state's knowledge while it changes.
pub struct Work<'a> {
    /// The expressions.
    pub arena: &'a mut Arena,
    /// What is known.
    pub known: Known,
    /// The first symbol that is not used.
    pub next: u32,
    /// Which cells are followed; all if absent.
    pub tracked: Option<&'a [bool]>,
    /// Cells that are never followed.
    pub lost: &'a [bool],
    /// Cells whose unknown value the device or the kernel decides; absent where nobody asks.
    pub inputs: Option<&'a [bool]>,
    /// The limits.
    pub limits: Limits,
    /// Whether something was forgotten.
    pub forgot: bool,
}

impl Work<'_> {
    fn follows(&self, cell: u32) -> bool {
        !self.lost[cell as usize] && self.tracked.is_none_or(|tracked| tracked[cell as usize])
    }

    fn fresh(&mut self, bits: u32) -> Id {
        self.next += 1;
        self.arena.symbol(self.next - 1, bits)
    }

    fn position(&self, cell: u32) -> Result<usize, usize> {
        self.known.cells.binary_search_by_key(&cell, |(cell, _)| *cell)
    }

    fn put(&mut self, cell: u32, value: Id) {
        match self.position(cell) {
            Ok(at) => self.known.cells[at].1 = value,
            Err(at) => self.known.cells.insert(at, (cell, value)),
        }
    }

    /// An expression over symbols.
    pub fn value(&mut self, id: Id) -> Id {
        if self.arena.number(id).is_some() {
            return id;
        }
        if self.arena.size(id).nodes as usize > MOST_LEAVES {
            // Which cells are in it is not known.
            self.forgot = true;
            return self.fresh(self.arena.bits(id));
        }
        let mut cells = Vec::new();
        self.arena.leaves(id, MOST_LEAVES, &mut |leaf| {
            if let Expression::Cell(cell, bits) = leaf {
                cells.push((cell, bits));
            }
        });
        cells.sort_unstable();
        cells.dedup_by_key(|(cell, _)| *cell);
        let mut own: Vec<(u32, Id)> = Vec::with_capacity(cells.len());
        for (cell, width) in cells {
            let value = match self.position(cell) {
                Ok(at) => self.known.cells[at].1,
                Err(_) => {
                    let value = self.fresh(width);
                    if self.inputs.is_some_and(|inputs| !inputs[cell as usize]) {
                        self.known.unsure.push(self.next - 1);
                    }
                    if self.follows(cell) {
                        self.put(cell, value);
                    }
                    value
                }
            };
            own.push((cell, value));
        }
        let value = self.arena.replace(id, &mut |_, leaf| match leaf {
            Expression::Cell(cell, _) => {
                own.binary_search_by_key(&cell, |(at, _)| *at).ok().map(|at| own[at].1)
            }
            _ => None,
        });
        let all = mask(self.arena.bits(value));
        let (known, content) = bits(self.arena, &self.known.facts, value, 16);
        if known == all { self.arena.constant(self.arena.bits(value), content) } else { value }
    }

    /// Whether a condition over symbols holds.
    pub fn decide(&mut self, value: Id) -> Option<bool> {
        decide(self.arena, &self.known.facts, value)
    }

    /// Takes a condition over cells to hold; false if it cannot.
    pub fn assume(&mut self, condition: Id) -> bool {
        let value = self.value(condition);
        self.take(value, 16)
    }

    fn take(&mut self, value: Id, depth: u32) -> bool {
        match self.decide(value) {
            Some(holds) => return holds,
            None if depth == 0 => {
                self.forgot = true;
                return true;
            }
            None => {}
        }
        if self.arena.size(value).nodes as usize > LARGEST_FACT {
            self.forgot = true;
            return true;
        }
        if !self.known.unsure.is_empty() {
            let Known { unsure, .. } = &self.known;
            let mut forgot = false;
            self.arena.leaves(value, LARGEST_FACT, &mut |leaf| {
                forgot |= matches!(leaf, Expression::Symbol(symbol, _) if unsure.contains(&symbol));
            });
            self.forgot |= forgot;
        }
        match self.arena.get(value) {
            Expression::Binary(Binary::And, 1, a, b) => {
                return self.take(a, depth - 1) && self.take(b, depth - 1);
            }
            Expression::Symbol(..) => {
                let one = self.arena.constant(1, 1);
                return self.equate(value, one);
            }
            Expression::Binary(Binary::Xor, 1, a, _)
                if matches!(self.arena.get(a), Expression::Symbol(..)) =>
            {
                let zero = self.arena.constant(1, 0);
                return self.equate(a, zero);
            }
            Expression::Compare(Predicate::Eq, a, b) => {
                let is_symbol = |id: Id| matches!(self.arena.get(id), Expression::Symbol(..));
                if is_symbol(a) && (self.arena.number(b).is_some() || is_symbol(b)) {
                    return self.equate(a, b);
                }
            }
            _ => {}
        }
        if self.known.facts.len() >= self.limits.facts {
            self.forget_others();
        }
        if self.known.facts.len() >= self.limits.facts {
            self.forgot = true;
            return true;
        }
        if let Err(at) = self.known.facts.binary_search(&value) {
            self.known.facts.insert(at, value);
        }
        true
    }

    /// Drops conditions on unknown numbers that no cell has any more, as the search does after each step. Along a path
    /// they would fill what there is room for.
    fn forget_others(&mut self) {
        let mut symbols = FxHashSet::default();
        for (_, value) in &self.known.cells {
            self.arena.leaves(*value, MOST_LEAVES, &mut |leaf| {
                symbols.extend(matches!(leaf, Expression::Symbol(..)).then_some(leaf));
            });
        }
        let arena = &*self.arena;
        self.known.facts.retain(|fact| {
            let mut own = true;
            arena.leaves(*fact, LARGEST_FACT, &mut |leaf| {
                own &= !matches!(leaf, Expression::Symbol(..)) || symbols.contains(&leaf);
            });
            own
        });
        self.forgot = true;
    }

    /// Replaces a symbol everywhere; false if a condition fails then.
    fn equate(&mut self, symbol: Id, with: Id) -> bool {
        let target = self.arena.get(symbol);
        let mut swap = |_: &mut Arena, leaf: Expression| (leaf == target).then_some(with);
        for (_, value) in &mut self.known.cells {
            *value = self.arena.replace(*value, &mut swap);
        }
        let facts = std::mem::take(&mut self.known.facts);
        let mut again = Vec::new();
        for fact in facts {
            let new = self.arena.replace(fact, &mut swap);
            if new != fact {
                again.push(new);
            } else {
                self.known.facts.push(fact);
            }
        }
        again.into_iter().all(|fact| self.take(fact, 8))
    }

    /// Sets cells at once.
    pub fn assign(&mut self, all: &[(u32, Option<Id>)]) {
        let mut values = Vec::with_capacity(all.len());
        for &(cell, value) in all {
            if self.follows(cell) {
                let value = value.map(|value| {
                    let value = self.value(value);
                    self.storable(value)
                });
                values.push((cell, value));
            }
        }
        for (cell, value) in values {
            match value {
                Some(value) => self.put(cell, value),
                None => {
                    if let Ok(at) = self.position(cell) {
                        self.known.cells.remove(at);
                    }
                }
            }
        }
    }

    /// The value, or an unknown one that shares what is known of its bits.
    fn storable(&mut self, value: Id) -> Id {
        let size = self.arena.size(value);
        if size.nodes as usize <= self.limits.nodes && (self.limits.sums || !size.has_sum(HEIGHT)) {
            return value;
        }
        self.forgot = true;
        let width = self.arena.bits(value);
        let (known, content) = bits(self.arena, &self.known.facts, value, 16);
        let symbol = self.fresh(width);
        if known != 0 && self.known.facts.len() < self.limits.facts {
            let which = self.arena.constant(width, known);
            let low = self.arena.binary(Binary::And, symbol, which);
            let content = self.arena.constant(width, content);
            let fact = self.arena.compare(Predicate::Eq, low, content);
            if let Err(at) = self.known.facts.binary_search(&fact) {
                self.known.facts.insert(at, fact);
            }
        }
        symbol
    }

    /// Sets a cell to a number.
    pub fn set(&mut self, cell: u32, width: u32, number: u64) {
        if self.follows(cell) {
            let value = self.arena.constant(width, number);
            self.put(cell, value);
        }
    }

    /// The same knowledge with its symbols numbered by their order, without dead cells and what is about nothing.
    pub fn canonical(mut self, live: &dyn Fn(u32) -> bool) -> Known {
        let mut known = std::mem::take(&mut self.known);
        known.cells.retain(|(cell, _)| live(*cell));
        // Symbols of cells count; a condition that has another says nothing about cells.
        let mut number: FxHashMap<u32, u32> = FxHashMap::default();
        let mut seen: FxHashMap<u32, u32> = FxHashMap::default();
        for (_, value) in &known.cells {
            self.arena.leaves(*value, 4096, &mut |leaf| {
                if let Expression::Symbol(symbol, _) = leaf {
                    let next = number.len() as u32;
                    number.entry(symbol).or_insert(next);
                    *seen.entry(symbol).or_default() += 1;
                }
            });
        }
        known.facts.retain(|fact| {
            let mut all = true;
            self.arena.leaves(*fact, 4096, &mut |leaf| {
                if let Expression::Symbol(symbol, _) = leaf {
                    all &= number.contains_key(&symbol);
                }
            });
            if all {
                self.arena.leaves(*fact, 4096, &mut |leaf| {
                    if let Expression::Symbol(symbol, _) = leaf {
                        *seen.entry(symbol).or_default() += 1;
                    }
                });
            }
            all
        });
        // A cell whose whole value is a symbol of its own is any number.
        known.cells.retain(|(_, value)| match self.arena.get(*value) {
            Expression::Symbol(symbol, _) => seen.get(&symbol).copied().unwrap_or(0) > 1,
            _ => true,
        });
        number.clear();
        for (_, value) in &known.cells {
            self.arena.leaves(*value, 4096, &mut |leaf| {
                if let Expression::Symbol(symbol, _) = leaf {
                    let next = number.len() as u32;
                    number.entry(symbol).or_insert(next);
                }
            });
        }
        let mut rename = |arena: &mut Arena, leaf: Expression| match leaf {
            Expression::Symbol(symbol, bits) => number.get(&symbol).map(|symbol| arena.symbol(*symbol, bits)),
            _ => None,
        };
        for (_, value) in &mut known.cells {
            *value = self.arena.replace(*value, &mut rename);
        }
        for fact in &mut known.facts {
            *fact = self.arena.replace(*fact, &mut rename);
        }
        known.facts.sort_unstable();
        known.facts.dedup();
        known
    }
}

/// The first symbol that a state does not use.
pub fn first_free(arena: &Arena, known: &Known) -> u32 {
    let all = known.cells.iter().map(|(_, value)| *value).chain(known.facts.iter().copied());
    all.map(|id| arena.size(id).free).max().unwrap_or(0)
}
