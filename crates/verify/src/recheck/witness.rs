//! Whether a listed state holds all that another view allows: a guess of what its unknown numbers stand for, and a proof.

use super::terms::{Id, Term, compares, ones};
use super::{Checker, View};
use crate::ir::instruction::{Binary, Predicate};
use rustc_hash::FxHashMap;

/// How deep terms are looked into for a guess.
const DEPTH: u32 = 64;

/// Some bits of an unknown number: the number, a term that has them, and which they are.
type Bits = (Id, Id, u64);

impl Checker<'_> {
    /// Whether each state that a view allows is one that a listed one allows.
    pub(super) fn covers(&mut self, listed: u32, view: &View) -> bool {
        (0..2).any(|guess| {
            let (given, goals) = self.goals(listed, view, guess);
            goals.into_iter().all(|goal| self.proves(&given, goal))
        })
    }

    /// Conditions of a view, and what must follow from them for a listed one to hold it, by one guess or another.
    pub(super) fn goals(&mut self, listed: u32, view: &View, guess: u32) -> (Vec<Id>, Vec<Id>) {
        let wide = self.views[listed as usize].clone();
        let mut pairs: Vec<(Id, Id)> = Vec::new();
        let mut own = view.clone();
        for (cell, value) in &wide.cells {
            let known = match own.cells.get(cell) {
                Some(known) => *known,
                None => {
                    let known = self.unknown(self.program.cells[*cell as usize].bits);
                    own.cells.insert(*cell, known);
                    known
                }
            };
            pairs.push((*value, known));
        }
        // Numbers that stand alone say what the others mean.
        pairs.sort_by_key(|(value, _)| !matches!(self.terms.get(*value), Term::Unknown(..)));
        let mut bits: Vec<Bits> = Vec::new();
        for &(value, known) in &pairs {
            if guess == 0 {
                self.unify(value, known, &mut bits);
            }
        }
        for &(value, known) in &pairs {
            let all = ones(self.terms.bits(value));
            self.invert(value, known, all, &mut bits, DEPTH);
        }
        let yes = self.terms.number(1, 1);
        for &condition in &wide.conditions {
            self.invert(condition, yes, 1, &mut bits, DEPTH);
        }
        let mut roots: Vec<Id> = pairs.iter().map(|(value, _)| *value).collect();
        roots.extend(&wide.conditions);
        let mut meaning: FxHashMap<Id, Id> = FxHashMap::default();
        for unknown in self.terms.unknowns(&roots) {
            let value = self.combined(unknown, &bits);
            meaning.insert(unknown, value);
        }
        let mut goals = Vec::new();
        for (value, known) in pairs {
            let meant = self.terms.replace(value, &meaning);
            goals.push(self.terms.equal(meant, known));
        }
        for condition in wide.conditions {
            goals.push(self.terms.replace(condition, &meaning));
        }
        goals.sort_unstable();
        goals.dedup();
        (own.conditions, goals)
    }

    /// A number from bits that are known of it; the rest is zero.
    fn combined(&mut self, unknown: Id, bits: &[Bits]) -> Id {
        let width = self.terms.bits(unknown);
        let mut all = self.terms.number(width, 0);
        let mut have = 0;
        for &(_, value, which) in bits.iter().filter(|(of, ..)| *of == unknown) {
            let new = which & !have & ones(width);
            if new == 0 {
                continue;
            }
            have |= new;
            if new == ones(width) {
                return value;
            }
            let mask = self.terms.number(width, new);
            let part = self.terms.make(Term::Binary(Binary::And, value, mask));
            all = self.terms.make(Term::Binary(Binary::Or, all, part));
        }
        all
    }

    /// Unknown numbers of a listed term as parts of another of the same form.
    fn unify(&self, listed: Id, own: Id, bits: &mut Vec<Bits>) {
        let mut work = vec![(listed, own)];
        let mut steps = 0;
        while let Some((listed, own)) = work.pop() {
            steps += 1;
            let (a, b) = (self.terms.get(listed), self.terms.get(own));
            if let Term::Unknown(_, width) = a {
                if width == self.terms.bits(own) && !bits.iter().any(|(of, ..)| *of == listed) {
                    bits.push((listed, own, ones(width)));
                }
                continue;
            }
            if steps < 256 && std::mem::discriminant(&a) == std::mem::discriminant(&b) {
                work.extend(self.terms.operands(listed).zip(self.terms.operands(own)));
            }
        }
    }

    /// The bits of a term that may be 1.
    fn may_be_one(&self, id: Id, depth: u32) -> u64 {
        let all = ones(self.terms.bits(id));
        if depth == 0 {
            return all;
        }
        let inner = |id| self.may_be_one(id, depth - 1);
        match self.terms.get(id) {
            Term::Number(_, value) => value,
            Term::Binary(Binary::And, a, b) => inner(a) & inner(b),
            Term::Binary(Binary::Or | Binary::Xor, a, b) => inner(a) | inner(b),
            Term::Binary(operation @ (Binary::Shl | Binary::LShr), a, b) => match self.terms.value(b) {
                Some(by) if by < 64 && operation == Binary::Shl => inner(a) << by & all,
                Some(by) if by < 64 => inner(a) >> by,
                _ => all,
            },
            Term::Wide(false, _, a) => inner(a),
            Term::Cut(_, a) => inner(a) & all,
            _ => all,
        }
    }

    /// What bits of unknown numbers must be for a term to have some bits of a value.
    fn invert(&mut self, id: Id, value: Id, which: u64, bits: &mut Vec<Bits>, depth: u32) {
        if which == 0 || depth == 0 {
            return;
        }
        let depth = depth - 1;
        match self.terms.get(id) {
            Term::Unknown(..) => bits.push((id, value, which)),
            Term::Binary(operation, a, b) => match (self.terms.value(a), self.terms.value(b)) {
                (_, Some(number)) => self.invert_with(operation, a, number, (value, which), bits, depth),
                (Some(number), _) if !matches!(operation, Binary::Sub | Binary::Shl | Binary::LShr) => {
                    self.invert_with(operation, b, number, (value, which), bits, depth);
                }
                _ if matches!(operation, Binary::Or | Binary::Xor | Binary::Add) => {
                    let (left, right) = (self.may_be_one(a, 16), self.may_be_one(b, 16));
                    if operation != Binary::Add || left & right == 0 {
                        self.invert(a, value, which & !right, bits, depth);
                        self.invert(b, value, which & !left, bits, depth);
                    }
                }
                _ => {}
            },
            Term::Wide(_, _, a) => {
                let from = self.terms.bits(a);
                let low = self.terms.make(Term::Cut(from, value));
                self.invert(a, low, which & ones(from), bits, depth);
            }
            Term::Cut(_, a) => {
                let wide = self.terms.make(Term::Wide(false, self.terms.bits(a), value));
                self.invert(a, wide, which, bits, depth);
            }
            Term::Choose(c, a, b) if self.terms.value(a).is_some() && self.terms.value(b).is_some() => {
                let is = self.terms.equal(value, a);
                self.invert(c, is, 1, bits, depth);
            }
            Term::Compare(predicate, a, b) => {
                let (term, number, left) = match (self.terms.value(a), self.terms.value(b)) {
                    (None, Some(number)) => (a, number, true),
                    (Some(number), None) => (b, number, false),
                    _ => return,
                };
                if let Some(meant) = self.either(predicate, term, (number, left), value) {
                    self.invert(term, meant, ones(self.terms.bits(term)), bits, depth);
                }
            }
            _ => {}
        }
    }

    fn invert_with(
        &mut self,
        operation: Binary,
        a: Id,
        number: u64,
        (value, which): (Id, u64),
        bits: &mut Vec<Bits>,
        depth: u32,
    ) {
        let width = self.terms.bits(a);
        let all = ones(width);
        let by = self.terms.number(width, number);
        match operation {
            Binary::And => self.invert(a, value, which & number, bits, depth),
            Binary::Or => self.invert(a, value, which & !number, bits, depth),
            Binary::Xor => {
                let turned = self.terms.make(Term::Binary(Binary::Xor, value, by));
                self.invert(a, turned, which, bits, depth);
            }
            // The low bits of a sum depend on low bits only.
            Binary::Add | Binary::Sub if which.wrapping_add(1) & which == 0 => {
                let back = if operation == Binary::Add { Binary::Sub } else { Binary::Add };
                let less = self.terms.make(Term::Binary(back, value, by));
                self.invert(a, less, which, bits, depth);
            }
            Binary::Shl if number < 64 => {
                let back = self.terms.make(Term::Binary(Binary::LShr, value, by));
                self.invert(a, back, which >> number, bits, depth);
            }
            Binary::LShr if number < 64 => {
                let back = self.terms.make(Term::Binary(Binary::Shl, value, by));
                self.invert(a, back, which << number & all, bits, depth);
            }
            _ => {}
        }
    }

    /// A number for which a comparison gives a bit.
    fn either(&mut self, predicate: Predicate, term: Id, (number, left): (u64, bool), bit: Id) -> Option<Id> {
        let width = self.terms.bits(term);
        let (all, may) = (ones(width), self.may_be_one(term, 16));
        let some = [number, number.wrapping_add(1), number.wrapping_sub(1), 0, may, all >> 1, (all >> 1) + 1];
        let holds = |x: u64| {
            if left { compares(predicate, width, x, number) } else { compares(predicate, width, number, x) }
        };
        let mut fits = some.into_iter().map(|x| x & all).filter(|x| x & !may == 0);
        let yes = fits.clone().find(|x| holds(*x))?;
        let no = fits.find(|x| !holds(*x)).unwrap_or(yes);
        let (yes, no) = (self.terms.number(width, yes), self.terms.number(width, no));
        Some(self.terms.make(Term::Choose(bit, yes, no)))
    }
}
