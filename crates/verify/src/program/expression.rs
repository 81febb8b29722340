//! Expressions over cells and symbols: shared, simplified, with the widths of C.

use super::size::Size;
use crate::ir::instruction::{Binary, Predicate};
use rustc_hash::FxHashMap;

pub use super::arithmetic::{calculate, holds, mask, signed};

/// An expression's index.
pub type Id = u32;

/// An expression. Operands come before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expression {
    /// A number of so many bits.
    Number(u32, u64),
    /// The content of a cell.
    Cell(u32, u32),
    /// An unknown number.
    Symbol(u32, u32),
    /// An operation on two of one width.
    Binary(Binary, u32, Id, Id),
    /// A comparison: `Eq`, `Ne`, `Ult`, `Ule`, `Slt` or `Sle`. One bit.
    Compare(Predicate, Id, Id),
    /// Zeros in front, up to so many bits.
    Zero(u32, Id),
    /// The sign in front.
    Sign(u32, Id),
    /// The low bits.
    Cut(u32, Id),
    /// The second if the first is 1, else the third.
    Select(Id, Id, Id),
    /// The address of a byte of an object; never zero.
    Address(u32, u64),
    /// The address of a function; never zero.
    Function(u32),
}

use Expression as E;

/// All expressions.
#[derive(Clone, Debug, Default)]
pub struct Arena {
    all: Vec<Expression>,
    sizes: Vec<Size>,
    known: FxHashMap<Expression, Id>,
}

impl Arena {
    /// The expression of an index.
    pub fn get(&self, id: Id) -> Expression {
        self.all[id as usize]
    }

    fn add(&mut self, expression: Expression) -> Id {
        let next = self.all.len() as Id;
        let id = *self.known.entry(expression).or_insert(next);
        if id == next {
            self.all.push(expression);
            let operation = if let E::Binary(operation, ..) = expression { Some(operation) } else { None };
            self.sizes.push(match expression {
                E::Symbol(symbol, _) => Size::symbol(symbol),
                _ => Size::above(operation, self.operands(id).map(|operand| self.size(operand))),
            });
        }
        id
    }

    /// Forgets all expressions from an index on.
    pub fn truncate(&mut self, count: Id) {
        for expression in self.all.drain(count as usize..) {
            self.known.remove(&expression);
        }
        self.sizes.truncate(count as usize);
    }

    /// How large it is.
    pub fn size(&self, id: Id) -> &Size {
        &self.sizes[id as usize]
    }

    /// How many expressions there are; their indices are below it.
    pub fn count(&self) -> Id {
        self.all.len() as Id
    }

    /// How many bits it has.
    pub fn bits(&self, id: Id) -> u32 {
        match self.get(id) {
            E::Number(bits, _)
            | E::Cell(_, bits)
            | E::Symbol(_, bits)
            | E::Binary(_, bits, ..)
            | E::Zero(bits, _)
            | E::Sign(bits, _)
            | E::Cut(bits, _) => bits,
            E::Compare(..) => 1,
            E::Select(_, a, _) => self.bits(a),
            E::Address(..) | E::Function(_) => 64,
        }
    }

    /// Its value, where it is a number.
    pub fn number(&self, id: Id) -> Option<u64> {
        match self.get(id) {
            E::Number(_, value) => Some(value),
            _ => None,
        }
    }

    /// A number.
    pub fn constant(&mut self, bits: u32, value: u64) -> Id {
        self.add(E::Number(bits, value & mask(bits)))
    }

    /// The content of a cell.
    pub fn cell(&mut self, cell: u32, bits: u32) -> Id {
        self.add(E::Cell(cell, bits))
    }

    /// An unknown number.
    pub fn symbol(&mut self, symbol: u32, bits: u32) -> Id {
        self.add(E::Symbol(symbol, bits))
    }

    /// An address.
    pub fn address(&mut self, object: u32, offset: u64) -> Id {
        self.add(E::Address(object, offset))
    }

    /// The address of a function.
    pub fn function(&mut self, function: u32) -> Id {
        self.add(E::Function(function))
    }

    /// The operands.
    pub fn operands(&self, id: Id) -> impl Iterator<Item = Id> + use<> {
        let all = match self.get(id) {
            E::Binary(_, _, a, b) | E::Compare(_, a, b) => [Some(a), Some(b), None],
            E::Zero(_, a) | E::Sign(_, a) | E::Cut(_, a) => [Some(a), None, None],
            E::Select(a, b, c) => [Some(a), Some(b), Some(c)],
            _ => [None, None, None],
        };
        all.into_iter().flatten()
    }

    /// Calls `see` with every leaf, as often as it occurs; at most `limit` nodes are visited, and the result is
    /// their number.
    pub fn leaves(&self, id: Id, limit: usize, see: &mut dyn FnMut(Expression)) -> usize {
        let mut seen = 0;
        self.visit(id, limit, &mut seen, see);
        seen
    }

    fn visit(&self, id: Id, limit: usize, seen: &mut usize, see: &mut dyn FnMut(Expression)) {
        if *seen > limit {
            return;
        }
        *seen += 1;
        if *seen > limit {
            return;
        }
        match self.get(id) {
            E::Binary(_, _, a, b) | E::Compare(_, a, b) => {
                self.visit(b, limit, seen, see);
                self.visit(a, limit, seen, see);
            }
            E::Zero(_, a) | E::Sign(_, a) | E::Cut(_, a) => self.visit(a, limit, seen, see),
            E::Select(a, b, c) => {
                self.visit(c, limit, seen, see);
                self.visit(b, limit, seen, see);
                self.visit(a, limit, seen, see);
            }
            leaf => see(leaf),
        }
    }

    /// The cells in it.
    pub fn cells(&self, id: Id) -> Vec<u32> {
        let mut found = Vec::new();
        self.leaves(id, 4096, &mut |leaf| {
            if let E::Cell(cell, _) = leaf {
                found.push(cell);
            }
        });
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether a cell occurs in it.
    pub fn mentions(&self, id: Id, cell: u32) -> bool {
        let mut found = false;
        self.leaves(id, 4096, &mut |leaf| found |= matches!(leaf, E::Cell(at, _) if at == cell));
        found
    }

    /// The same with other leaves, simplified again.
    pub fn replace(&mut self, id: Id, with: &mut dyn FnMut(&mut Arena, Expression) -> Option<Id>) -> Id {
        match self.get(id) {
            leaf @ (E::Cell(..) | E::Symbol(..)) => with(self, leaf).unwrap_or(id),
            E::Number(..) | E::Address(..) | E::Function(_) => id,
            E::Binary(operation, _, a, b) => {
                let (a, b) = (self.replace(a, with), self.replace(b, with));
                self.binary(operation, a, b)
            }
            E::Compare(predicate, a, b) => {
                let (a, b) = (self.replace(a, with), self.replace(b, with));
                self.compare(predicate, a, b)
            }
            E::Zero(bits, a) => {
                let a = self.replace(a, with);
                self.zero(bits, a)
            }
            E::Sign(bits, a) => {
                let a = self.replace(a, with);
                self.sign(bits, a)
            }
            E::Cut(bits, a) => {
                let a = self.replace(a, with);
                self.cut(bits, a)
            }
            E::Select(c, a, b) => {
                let c = self.replace(c, with);
                let (a, b) = (self.replace(a, with), self.replace(b, with));
                self.select(c, a, b)
            }
        }
    }

    /// An operation.
    pub fn binary(&mut self, operation: Binary, a: Id, b: Id) -> Id {
        use Binary::*;
        let bits = self.bits(a);
        let (x, y) = (self.number(a), self.number(b));
        if let (Some(x), Some(y)) = (x, y)
            && let Some(value) = calculate(operation, bits, x, y)
        {
            return self.constant(bits, value);
        }
        if x.is_some() && matches!(operation, Add | Mul | And | Or | Xor) {
            return self.binary(operation, b, a);
        }
        let Some(y) = y else {
            return match operation {
                Sub | Xor if a == b => self.constant(bits, 0),
                And | Or if a == b => a,
                Add | Mul | And | Or | Xor if a > b => self.add(E::Binary(operation, bits, b, a)),
                _ => self.add(E::Binary(operation, bits, a, b)),
            };
        };
        let all = mask(bits);
        match (operation, self.get(a)) {
            (Sub, _) => {
                let minus = self.constant(bits, y.wrapping_neg());
                self.binary(Add, a, minus)
            }
            (Add | Or | Xor | Shl | LShr | AShr, _) if y == 0 => a,
            // One form for the opposite of a bit, so that a condition and its opposite are recognized.
            (Xor, _) if bits == 1 => self.not(a),
            (And | Mul, _) if y == 0 => b,
            (Mul | UDiv | SDiv, _) if y == 1 => a,
            (And, _) if y == all => a,
            (Or, _) if y == all => b,
            (Add, E::Address(object, offset)) => self.address(object, offset.wrapping_add(y)),
            (Add | And | Or | Xor, E::Binary(inner, _, base, other)) if inner == operation => {
                match self.number(other) {
                    Some(z) => {
                        let both = calculate(operation, bits, y, z).unwrap_or(0);
                        let both = self.constant(bits, both);
                        self.binary(operation, base, both)
                    }
                    None => self.add(E::Binary(operation, bits, a, b)),
                }
            }
            (And, E::Binary(Or, _, base, other)) => match self.number(other) {
                Some(z) => {
                    let low = self.binary(And, base, b);
                    let high = self.constant(bits, z & y);
                    self.binary(Or, low, high)
                }
                None => self.add(E::Binary(And, bits, a, b)),
            },
            // Bits that are shifted out do not matter: fields of one byte stay apart.
            (LShr, E::Binary(And, _, base, other)) if y < u64::from(bits) && self.number(other).is_some() => {
                let kept = self.number(other).unwrap_or(0) >> y;
                let low = self.binary(LShr, base, b);
                let kept = self.constant(bits, kept);
                self.binary(And, low, kept)
            }
            (And, E::Zero(_, inner)) => {
                let width = self.bits(inner);
                let narrow = self.constant(width, y);
                let inner = self.binary(And, inner, narrow);
                self.zero(bits, inner)
            }
            (URem, _) if y.is_power_of_two() => {
                let low = self.constant(bits, y - 1);
                self.binary(And, a, low)
            }
            (UDiv, _) if y.is_power_of_two() => {
                let shift = self.constant(bits, u64::from(y.trailing_zeros()));
                self.binary(LShr, a, shift)
            }
            _ => self.add(E::Binary(operation, bits, a, b)),
        }
    }

    /// Zeros in front.
    pub fn zero(&mut self, bits: u32, a: Id) -> Id {
        match self.get(a) {
            _ if self.bits(a) >= bits => a,
            E::Number(_, value) => self.constant(bits, value),
            E::Zero(_, inner) => self.add(E::Zero(bits, inner)),
            _ => self.add(E::Zero(bits, a)),
        }
    }

    /// The sign in front.
    pub fn sign(&mut self, bits: u32, a: Id) -> Id {
        let from = self.bits(a);
        match self.get(a) {
            _ if from >= bits => a,
            E::Number(_, value) => self.constant(bits, signed(from, value) as u64),
            E::Zero(_, inner) => self.zero(bits, inner),
            E::Sign(_, inner) => self.add(E::Sign(bits, inner)),
            _ => self.add(E::Sign(bits, a)),
        }
    }

    /// The low bits.
    pub fn cut(&mut self, bits: u32, a: Id) -> Id {
        use Binary::*;
        if self.bits(a) <= bits {
            return a;
        }
        match self.get(a) {
            E::Number(_, value) => self.constant(bits, value),
            E::Cut(_, inner) => self.cut(bits, inner),
            E::Zero(_, inner) | E::Sign(_, inner) => {
                let width = self.bits(inner);
                match self.get(a) {
                    _ if width >= bits => self.cut(bits, inner),
                    E::Zero(..) => self.zero(bits, inner),
                    _ => self.sign(bits, inner),
                }
            }
            E::Binary(operation @ (Add | Sub | And | Or | Xor | Mul), _, x, y) => {
                let (x, y) = (self.cut(bits, x), self.cut(bits, y));
                self.binary(operation, x, y)
            }
            E::Select(c, x, y) => {
                let (x, y) = (self.cut(bits, x), self.cut(bits, y));
                self.select(c, x, y)
            }
            _ => self.add(E::Cut(bits, a)),
        }
    }

    /// One of two.
    pub fn select(&mut self, c: Id, a: Id, b: Id) -> Id {
        match self.number(c) {
            Some(0) => return b,
            Some(_) => return a,
            None if a == b => return a,
            None => {}
        }
        if self.bits(a) == 1 && self.number(a) == Some(1) && self.number(b) == Some(0) {
            return c;
        }
        self.add(E::Select(c, a, b))
    }

    /// The opposite of one bit.
    pub fn not(&mut self, a: Id) -> Id {
        use Predicate::*;
        match self.get(a) {
            E::Number(_, value) => self.constant(1, u64::from(value == 0)),
            E::Compare(Eq, x, y) => self.compare(Ne, x, y),
            E::Compare(Ne, x, y) => self.compare(Eq, x, y),
            E::Compare(Ult, x, y) => self.compare(Ule, y, x),
            E::Compare(Ule, x, y) => self.compare(Ult, y, x),
            E::Compare(Slt, x, y) => self.compare(Sle, y, x),
            E::Compare(Sle, x, y) => self.compare(Slt, y, x),
            E::Binary(Binary::Xor, 1, x, y) if self.number(y) == Some(1) => x,
            _ => {
                let one = self.constant(1, 1);
                self.add(E::Binary(Binary::Xor, 1, a, one))
            }
        }
    }

    /// A comparison.
    pub fn compare(&mut self, predicate: Predicate, a: Id, b: Id) -> Id {
        use Predicate::*;
        match predicate {
            Ugt => return self.compare(Ult, b, a),
            Uge => return self.compare(Ule, b, a),
            Sgt => return self.compare(Slt, b, a),
            Sge => return self.compare(Sle, b, a),
            _ => {}
        }
        let bits = self.bits(a);
        if let (Some(x), Some(y)) = (self.number(a), self.number(b)) {
            return self.constant(1, u64::from(holds(predicate, bits, x, y)));
        }
        if a == b {
            return self.constant(1, u64::from(matches!(predicate, Eq | Ule | Sle)));
        }
        if let Some(id) = self.strict(predicate, bits, a, b) {
            return id;
        }
        if matches!(predicate, Eq | Ne) {
            return self.equal(predicate, bits, a, b);
        }
        if let Some(id) = self.narrower(predicate, a, b).or_else(|| self.no_error(predicate, a, b)) {
            return id;
        }
        self.add(E::Compare(predicate, a, b))
    }

    /// The last 4095 addresses are errors, never objects or functions.
    fn no_error(&mut self, predicate: Predicate, a: Id, b: Id) -> Option<Id> {
        const FIRST: u64 = 0u64.wrapping_sub(4095);
        let is_address = |id| matches!(self.get(id), E::Address(..) | E::Function(_));
        match (predicate, self.number(a), self.number(b)) {
            (Predicate::Ult, Some(n), None) if n >= FIRST - 1 && is_address(b) => Some(self.constant(1, 0)),
            (Predicate::Ult, None, Some(n)) if n >= FIRST && is_address(a) => Some(self.constant(1, 1)),
            _ => None,
        }
    }

    /// `<=` with a number as `<`, and orders that are equalities.
    fn strict(&mut self, predicate: Predicate, bits: u32, a: Id, b: Id) -> Option<Id> {
        use Predicate::*;
        let (x, y) = (self.number(a), self.number(b));
        let most = mask(bits);
        let (least_signed, most_signed) = (1u64 << (bits - 1), most >> 1);
        let zero = self.constant(bits, 0);
        let yes = self.constant(1, 1);
        let no = self.constant(1, 0);
        Some(match (predicate, x, y) {
            (Ule, _, Some(y)) if y == most => yes,
            (Ule, _, Some(y)) => {
                let next = self.constant(bits, y + 1);
                self.compare(Ult, a, next)
            }
            (Ule, Some(0), _) => yes,
            (Ule, Some(x), _) => {
                let before = self.constant(bits, x - 1);
                self.compare(Ult, before, b)
            }
            (Ult, _, Some(0)) => no,
            (Ult, _, Some(1)) => self.compare(Eq, a, zero),
            (Ult, Some(0), _) => self.compare(Ne, b, zero),
            (Ult, Some(x), _) if x == most => no,
            (Sle, _, Some(y)) if y == most_signed => yes,
            (Sle, _, Some(y)) => {
                let next = self.constant(bits, y.wrapping_add(1));
                self.compare(Slt, a, next)
            }
            (Sle, Some(x), _) if x == least_signed => yes,
            (Sle, Some(x), _) => {
                let before = self.constant(bits, x.wrapping_sub(1));
                self.compare(Slt, before, b)
            }
            (Slt, _, Some(y)) if y == least_signed => no,
            (Slt, Some(x), _) if x == most_signed => no,
            _ => return None,
        })
    }

    fn equal(&mut self, predicate: Predicate, bits: u32, a: Id, b: Id) -> Id {
        use Predicate::*;
        if self.number(a).is_some() || (self.number(b).is_none() && a > b) {
            return self.compare(predicate, b, a);
        }
        let different = u64::from(predicate == Ne);
        match (self.get(a), self.get(b)) {
            (E::Address(x, _), E::Address(y, _)) if x != y => return self.constant(1, different),
            (E::Address(..), E::Address(..)) => return self.constant(1, different),
            (E::Address(..) | E::Function(_), E::Number(_, 0)) => return self.constant(1, different),
            (E::Function(_), E::Function(_)) => return self.constant(1, different),
            _ => {}
        }
        let Some(y) = self.number(b) else { return self.add(E::Compare(predicate, a, b)) };
        match self.get(a) {
            _ if bits == 1 => {
                let plain = (y == 1) == (predicate == Eq);
                if plain { a } else { self.not(a) }
            }
            E::Zero(_, inner) => {
                let width = self.bits(inner);
                if y > mask(width) {
                    return self.constant(1, different);
                }
                let narrow = self.constant(width, y);
                self.compare(predicate, inner, narrow)
            }
            E::Sign(_, inner) => {
                let width = self.bits(inner);
                if signed(width, y & mask(width)) as u64 & mask(bits) != y {
                    return self.constant(1, different);
                }
                let narrow = self.constant(width, y);
                self.compare(predicate, inner, narrow)
            }
            E::Binary(Binary::Add, _, base, other) if self.number(other).is_some() => {
                let other = self.number(other).unwrap_or(0);
                let moved = self.constant(bits, y.wrapping_sub(other));
                self.compare(predicate, base, moved)
            }
            E::Binary(Binary::Xor, _, base, other) if self.number(other).is_some() => {
                let other = self.number(other).unwrap_or(0);
                let moved = self.constant(bits, y ^ other);
                self.compare(predicate, base, moved)
            }
            E::Binary(Binary::And, _, _, other) if y.is_power_of_two() && self.number(other) == Some(y) => {
                let zero = self.constant(bits, 0);
                let turned = if predicate == Eq { Ne } else { Eq };
                self.add(E::Compare(turned, a, zero))
            }
            E::Select(c, x, z) => match (self.number(x), self.number(z)) {
                (Some(x), Some(z)) => {
                    let (first, second) = ((x == y) == (predicate == Eq), (z == y) == (predicate == Eq));
                    match (first, second) {
                        (true, false) => c,
                        (false, true) => self.not(c),
                        (same, _) => self.constant(1, u64::from(same)),
                    }
                }
                _ => self.add(E::Compare(predicate, a, b)),
            },
            _ => self.add(E::Compare(predicate, a, b)),
        }
    }

    /// An order of a widened value and a number, at the value's own width.
    fn narrower(&mut self, predicate: Predicate, a: Id, b: Id) -> Option<Id> {
        use Predicate::*;
        let bits = self.bits(a);
        let (wide, number, left) = match (self.number(a), self.number(b)) {
            (None, Some(y)) => (a, y, true),
            (Some(x), None) => (b, x, false),
            _ => return None,
        };
        let as_signed = matches!(predicate, Slt | Sle);
        let value = signed(bits, number);
        match self.get(wide) {
            E::Zero(_, inner) => {
                let width = self.bits(inner);
                let most = mask(width);
                let value = if as_signed { i128::from(value) } else { i128::from(number) };
                if value < 0 || value > i128::from(most) {
                    // Left of the number or right of it, and all that the narrow one holds lies on one side.
                    let below = value > 0;
                    return Some(self.constant(1, u64::from(left == below)));
                }
                let narrow = self.constant(width, value as u64);
                let order = if matches!(predicate, Ult | Slt) { Ult } else { Ule };
                Some(if left {
                    self.compare(order, inner, narrow)
                } else {
                    self.compare(order, narrow, inner)
                })
            }
            E::Sign(_, inner) if as_signed => {
                let width = self.bits(inner);
                let most = (mask(width) >> 1) as i64;
                if value > most || value < -most - 1 {
                    return Some(self.constant(1, u64::from(left == (value > most))));
                }
                let narrow = self.constant(width, value as u64);
                Some(if left {
                    self.compare(predicate, inner, narrow)
                } else {
                    self.compare(predicate, narrow, inner)
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "expression_tests.rs"]
mod tests;
