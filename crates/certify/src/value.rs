//! Values of registers, as sums of unknowns and a number. Two equal values are equal in every run.

use crate::elf::Target;
use rustc_hash::FxHashMap;

/// A number of a sum of unknowns in a [`Values`]; 0 is the empty sum.
pub type Base = u32;

/// A sum of unknowns, plus a number; all arithmetic is modulo 2⁶⁴.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Val {
    /// The unknowns.
    pub base: Base,
    /// The number that is added.
    pub off: i64,
}

impl Val {
    /// A number without unknowns.
    pub fn number(off: i64) -> Val {
        Val { base: 0, off }
    }

    /// The value plus a number.
    pub fn plus(self, more: i64) -> Val {
        Val { off: self.off.wrapping_add(more), ..self }
    }

    /// The number, if the value has no unknowns.
    pub fn known(self) -> Option<i64> {
        (self.base == 0).then_some(self.off)
    }
}

/// Something unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Atom {
    /// A register, by its number, when the function begins.
    Init(u8),
    /// The address to which the function returns.
    Return,
    /// What an instruction left in a register.
    Fresh(u32, u8),
    /// What a register holds when a block begins; its value depends on the way there.
    Phi(u32, u8),
    /// The address of a section or of an import.
    Address(Target),
    /// The address of the rights table.
    Table,
    /// What an instruction has loaded from this place of the stack.
    Loaded(Val, u32),
    /// The four bytes in code at this address, sign-extended.
    Distance(Val),
    /// Rotated right.
    Ror(Val, u8),
    /// Shifted right; zeros move in.
    Shr(Val, u8),
    /// Shifted right; copies of the sign move in.
    Sar(Val, u8),
    /// Rounded down to a multiple of 2 to this power.
    Down(Val, u8),
    /// The lower half, sign-extended.
    Extended(Val, u8),
    /// The lower half.
    Low(Val),
}

/// The unknowns and sums that a function needs.
#[derive(Debug, Default)]
pub struct Values {
    atoms: FxHashMap<Atom, Base>,
    sums: FxHashMap<Vec<(Base, i64)>, Base>,
    /// The terms of each sum; an unknown by itself is its own only term.
    terms: Vec<Terms>,
}

#[derive(Debug)]
enum Terms {
    One(Atom),
    Sum(Vec<(Base, i64)>),
}

/// Most terms of a sum; longer ones become an unknown of their own.
const MOST: usize = 8;

impl Values {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.atoms.clear();
        self.sums.clear();
        self.terms.clear();
        self.terms.push(Terms::Sum(Vec::new()));
    }

    /// The value of an unknown.
    pub fn atom(&mut self, atom: Atom) -> Val {
        let next = self.terms.len() as Base;
        let base = *self.atoms.entry(atom).or_insert(next);
        if base == next {
            self.terms.push(Terms::One(atom));
        }
        Val { base, off: 0 }
    }

    /// The unknown that a value is, if it is just one.
    pub fn single(&self, val: Val) -> Option<Atom> {
        match self.terms.get(val.base as usize)? {
            Terms::One(atom) => Some(*atom),
            Terms::Sum(_) => None,
        }
    }

    /// The terms of a value: unknowns with their factors.
    pub fn terms(&self, val: Val) -> Vec<(Base, i64)> {
        match self.terms.get(val.base as usize) {
            Some(Terms::One(_)) => vec![(val.base, 1)],
            Some(Terms::Sum(terms)) => terms.clone(),
            None => Vec::new(),
        }
    }

    fn sum(&mut self, mut terms: Vec<(Base, i64)>, off: i64) -> Option<Val> {
        terms.sort_unstable_by_key(|term| term.0);
        terms.dedup_by(|next, before| {
            let same = next.0 == before.0;
            if same {
                before.1 = before.1.wrapping_add(next.1);
            }
            same
        });
        terms.retain(|term| term.1 != 0);
        let base = match terms.as_slice() {
            [] => 0,
            [(base, 1)] => *base,
            _ if terms.len() > MOST => return None,
            _ => {
                let next = self.terms.len() as Base;
                let base = *self.sums.entry(terms.clone()).or_insert(next);
                if base == next {
                    self.terms.push(Terms::Sum(terms));
                }
                base
            }
        };
        Some(Val { base, off })
    }

    /// The sum of two values; `None` where it has too many terms.
    pub fn add(&mut self, first: Val, second: Val) -> Option<Val> {
        let off = first.off.wrapping_add(second.off);
        match (first.base, second.base) {
            (base, 0) | (0, base) => Some(Val { base, off }),
            _ => {
                let mut terms = self.terms(first);
                terms.extend(self.terms(second));
                self.sum(terms, off)
            }
        }
    }

    /// A value times a number.
    pub fn times(&mut self, val: Val, factor: i64) -> Val {
        if factor == 1 {
            return val;
        }
        let terms = self.terms(val).into_iter().map(|(base, own)| (base, own.wrapping_mul(factor))).collect();
        self.sum(terms, val.off.wrapping_mul(factor)).unwrap_or_default()
    }

    /// The value with a term left out, if it has that term once.
    pub fn without(&mut self, val: Val, atom: Atom) -> Option<Val> {
        let base = self.atom(atom).base;
        let mut terms = self.terms(val);
        let at = terms.iter().position(|term| *term == (base, 1))?;
        terms.remove(at);
        self.sum(terms, val.off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sums_are_equal_values() {
        let mut values = Values::default();
        values.clear();
        let (a, b) = (values.atom(Atom::Init(0)), values.atom(Atom::Init(1)));
        let first = values.add(a.plus(8), b).unwrap();
        let second = values.add(b.plus(5), a.plus(3)).unwrap();
        assert_eq!(first, second);
        assert_ne!(first, second.plus(1));
        let twice = values.add(first, second).unwrap();
        assert_eq!(twice, values.times(first, 2));
        let less = values.times(a, -1);
        assert_eq!(values.add(first, less), Some(b.plus(8)));
        assert_eq!(values.without(first, Atom::Init(0)), Some(b.plus(8)));
        assert_eq!(values.without(twice, Atom::Init(0)), None);
        assert_eq!(values.times(a, 0), Val::number(0));
    }
}
