//! Terms over unknown numbers, with an arithmetic of their own: nothing is simplified but what is constant.

use crate::ir::instruction::{Binary, Predicate};
use rustc_hash::FxHashMap;

/// A term's index. Operands come before it.
pub type Id = u32;

/// A term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Term {
    /// A number of so many bits.
    Number(u32, u64),
    /// An unknown number, by its name, of so many bits.
    Unknown(u32, u32),
    /// An operation on two of one width.
    Binary(Binary, Id, Id),
    /// A comparison. One bit.
    Compare(Predicate, Id, Id),
    /// Zeros in front, or the sign, up to so many bits.
    Wide(bool, u32, Id),
    /// The low bits.
    Cut(u32, Id),
    /// The second if the first is 1, else the third.
    Choose(Id, Id, Id),
    /// The address of a byte of an object.
    Address(u32, u64),
    /// The address of a function.
    Function(u32),
}

/// All terms.
#[derive(Default)]
pub struct Terms {
    all: Vec<Term>,
    index: FxHashMap<Term, Id>,
}

/// All ones.
pub fn ones(bits: u32) -> u64 {
    u64::MAX >> (64 - bits.clamp(1, 64))
}

/// The number with its sign.
fn integer(bits: u32, value: u64) -> i128 {
    let value = i128::from(value & ones(bits));
    if value >> (bits - 1) & 1 == 1 { value - (1 << bits) } else { value }
}

/// The result of an operation; absent where C does not define it.
pub fn result(operation: Binary, bits: u32, x: u64, y: u64) -> Option<u64> {
    let (a, b) = (u128::from(x), u128::from(y));
    let (s, t) = (integer(bits, x), integer(bits, y));
    let defined = |fine: bool| fine.then_some(());
    let wide: u128 = match operation {
        Binary::Add => a + b,
        Binary::Sub => a + (1 << bits) - b,
        Binary::Mul => a * b,
        Binary::UDiv => a.checked_div(b)?,
        Binary::URem => a.checked_rem(b)?,
        Binary::SDiv => s.checked_div(t)? as u128,
        Binary::SRem => s.checked_rem(t)? as u128,
        Binary::Shl => {
            defined(b < u128::from(bits))?;
            a << b
        }
        Binary::LShr => {
            defined(b < u128::from(bits))?;
            a >> b
        }
        Binary::AShr => {
            defined(b < u128::from(bits))?;
            (s >> b) as u128
        }
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
    };
    Some(wide as u64 & ones(bits))
}

/// Whether a comparison holds.
pub fn compares(predicate: Predicate, bits: u32, x: u64, y: u64) -> bool {
    let order = x.cmp(&y);
    let with_sign = integer(bits, x).cmp(&integer(bits, y));
    match predicate {
        Predicate::Eq => order.is_eq(),
        Predicate::Ne => order.is_ne(),
        Predicate::Ult => order.is_lt(),
        Predicate::Ule => order.is_le(),
        Predicate::Ugt => order.is_gt(),
        Predicate::Uge => order.is_ge(),
        Predicate::Slt => with_sign.is_lt(),
        Predicate::Sle => with_sign.is_le(),
        Predicate::Sgt => with_sign.is_gt(),
        Predicate::Sge => with_sign.is_ge(),
    }
}

impl Terms {
    /// The term of an index.
    pub fn get(&self, id: Id) -> Term {
        self.all[id as usize]
    }

    fn add(&mut self, term: Term) -> Id {
        let next = self.all.len() as Id;
        let id = *self.index.entry(term).or_insert(next);
        if id == next {
            self.all.push(term);
        }
        id
    }

    /// How many bits it has.
    pub fn bits(&self, id: Id) -> u32 {
        let mut at = id;
        loop {
            match self.get(at) {
                Term::Number(bits, _)
                | Term::Unknown(_, bits)
                | Term::Wide(_, bits, _)
                | Term::Cut(bits, _) => return bits,
                Term::Compare(..) => return 1,
                Term::Address(..) | Term::Function(_) => return 64,
                Term::Binary(_, a, _) | Term::Choose(_, a, _) => at = a,
            }
        }
    }

    /// Its value, where it is a number.
    pub fn value(&self, id: Id) -> Option<u64> {
        match self.get(id) {
            Term::Number(_, value) => Some(value),
            _ => None,
        }
    }

    /// A number.
    pub fn number(&mut self, bits: u32, value: u64) -> Id {
        self.add(Term::Number(bits, value & ones(bits)))
    }

    /// An unknown number.
    pub fn unknown(&mut self, name: u32, bits: u32) -> Id {
        self.add(Term::Unknown(name, bits))
    }

    /// Builds a term. Its operands fit.
    pub fn make(&mut self, term: Term) -> Id {
        match term {
            Term::Number(bits, value) => return self.number(bits, value),
            Term::Binary(operation, a, b) => {
                let bits = self.bits(a);
                if let (Some(x), Some(y)) = (self.value(a), self.value(b))
                    && let Some(value) = result(operation, bits, x, y)
                {
                    return self.number(bits, value);
                }
                let turns =
                    matches!(operation, Binary::Add | Binary::Mul | Binary::And | Binary::Or | Binary::Xor);
                if turns && a > b {
                    return self.add(Term::Binary(operation, b, a));
                }
            }
            Term::Compare(predicate, a, b) => {
                let bits = self.bits(a);
                if let (Some(x), Some(y)) = (self.value(a), self.value(b)) {
                    return self.number(1, u64::from(compares(predicate, bits, x, y)));
                }
                if a == b {
                    return self.number(1, u64::from(compares(predicate, bits, 0, 0)));
                }
                if matches!(predicate, Predicate::Eq | Predicate::Ne) && a > b {
                    return self.add(Term::Compare(predicate, b, a));
                }
            }
            Term::Wide(sign, bits, a) => {
                if let Some(value) = self.value(a) {
                    let from = self.bits(a);
                    let wide = if sign { integer(from, value) as u64 } else { value };
                    return self.number(bits, wide);
                }
                if self.bits(a) == bits {
                    return a;
                }
            }
            Term::Cut(bits, a) => {
                if let Some(value) = self.value(a) {
                    return self.number(bits, value);
                }
                if self.bits(a) == bits {
                    return a;
                }
            }
            Term::Choose(c, a, b) => match self.value(c) {
                Some(0) => return b,
                Some(_) => return a,
                None => {}
            },
            Term::Unknown(..) | Term::Address(..) | Term::Function(_) => {}
        }
        self.add(term)
    }

    /// `a == b`.
    pub fn equal(&mut self, a: Id, b: Id) -> Id {
        self.make(Term::Compare(Predicate::Eq, a, b))
    }

    /// The opposite of a bit.
    pub fn opposite(&mut self, bit: Id) -> Id {
        let one = self.number(1, 1);
        self.make(Term::Binary(Binary::Xor, bit, one))
    }

    /// The operands.
    pub fn operands(&self, id: Id) -> impl Iterator<Item = Id> + use<> {
        let all = match self.get(id) {
            Term::Binary(_, a, b) | Term::Compare(_, a, b) => [Some(a), Some(b), None],
            Term::Wide(_, _, a) | Term::Cut(_, a) => [Some(a), None, None],
            Term::Choose(a, b, c) => [Some(a), Some(b), Some(c)],
            _ => [None, None, None],
        };
        all.into_iter().flatten()
    }

    /// All terms in some, each once, operands first.
    pub fn inside(&self, roots: &[Id]) -> Vec<Id> {
        let mut seen: Vec<Id> = Vec::new();
        let mut known = rustc_hash::FxHashSet::default();
        let mut work: Vec<Id> = roots.to_vec();
        while let Some(id) = work.pop() {
            if known.insert(id) {
                seen.push(id);
                work.extend(self.operands(id));
            }
        }
        seen.sort_unstable();
        seen
    }

    /// The unknown numbers in some terms.
    pub fn unknowns(&self, roots: &[Id]) -> Vec<Id> {
        let all = self.inside(roots).into_iter();
        all.filter(|id| matches!(self.get(*id), Term::Unknown(..))).collect()
    }

    /// The same with other leaves.
    pub fn replace(&mut self, id: Id, with: &FxHashMap<Id, Id>) -> Id {
        if with.is_empty() {
            return id;
        }
        let mut new: FxHashMap<Id, Id> = FxHashMap::default();
        for at in self.inside(&[id]) {
            let of = |a: Id| new.get(&a).copied().unwrap_or(a);
            let built = match (with.get(&at), self.get(at)) {
                (Some(other), _) => *other,
                (None, Term::Binary(operation, a, b)) => {
                    let term = Term::Binary(operation, of(a), of(b));
                    self.make(term)
                }
                (None, Term::Compare(predicate, a, b)) => {
                    let term = Term::Compare(predicate, of(a), of(b));
                    self.make(term)
                }
                (None, Term::Wide(sign, bits, a)) => {
                    let term = Term::Wide(sign, bits, of(a));
                    self.make(term)
                }
                (None, Term::Cut(bits, a)) => {
                    let term = Term::Cut(bits, of(a));
                    self.make(term)
                }
                (None, Term::Choose(c, a, b)) => {
                    let term = Term::Choose(of(c), of(a), of(b));
                    self.make(term)
                }
                (None, _) => at,
            };
            new.insert(at, built);
        }
        new.get(&id).copied().unwrap_or(id)
    }
}
