//! Terms as circuits: whether conditions can hold together, bit by bit.

use super::solver::{Answer, Literal, Solver, not};
use super::terms::{Id, Term, Terms};
use crate::ir::instruction::{Binary, Predicate};
use rustc_hash::FxHashMap;

/// A circuit, with its inputs.
pub struct Circuit<'t> {
    terms: &'t Terms,
    solver: Solver,
    yes: Literal,
    wires: FxHashMap<Id, Vec<Literal>>,
    gates: FxHashMap<(bool, Literal, Literal), Literal>,
    /// Addresses of objects' first bytes.
    objects: FxHashMap<u32, Vec<Literal>>,
    /// Addresses so far, with their objects; functions have none.
    addresses: Vec<(Option<u32>, Vec<Literal>)>,
}

/// Whether all these bits can be 1 together.
pub fn together(terms: &Terms, bits: &[Id]) -> Answer {
    let mut circuit = Circuit::new(terms);
    for bit in bits {
        let wires = circuit.wires(*bit);
        circuit.solver.clause(&wires);
    }
    circuit.solver.solve()
}

/// A value of a term while some bits are 1; absent where they cannot be.
pub fn example(terms: &Terms, bits: &[Id], of: Id) -> Option<u64> {
    let mut circuit = Circuit::new(terms);
    let wires = circuit.wires(of);
    for bit in bits {
        let wires = circuit.wires(*bit);
        circuit.solver.clause(&wires);
    }
    (circuit.solver.solve() == Answer::Possible).then(|| {
        let bit = |(at, wire): (usize, &Literal)| u64::from(circuit.solver.is_true(*wire)) << at;
        wires.iter().enumerate().map(bit).sum()
    })
}

impl<'t> Circuit<'t> {
    fn new(terms: &'t Terms) -> Circuit<'t> {
        let mut solver = Solver::default();
        let yes = solver.variable();
        solver.clause(&[yes]);
        Circuit {
            terms,
            solver,
            yes,
            wires: FxHashMap::default(),
            gates: FxHashMap::default(),
            objects: FxHashMap::default(),
            addresses: Vec::new(),
        }
    }

    fn constant(&self, bits: u32, value: u64) -> Vec<Literal> {
        (0..bits).map(|at| if value >> at & 1 == 1 { self.yes } else { not(self.yes) }).collect()
    }

    fn free(&mut self, bits: u32) -> Vec<Literal> {
        (0..bits).map(|_| self.solver.variable()).collect()
    }

    fn and(&mut self, a: Literal, b: Literal) -> Literal {
        let (a, b) = (a.min(b), a.max(b));
        match (a, b) {
            _ if a == self.yes => return b,
            _ if b == self.yes => return a,
            _ if a == not(self.yes) || b == not(self.yes) || a == not(b) => return not(self.yes),
            _ if a == b => return a,
            _ => {}
        }
        if let Some(&gate) = self.gates.get(&(true, a, b)) {
            return gate;
        }
        let gate = self.solver.variable();
        self.solver.clause(&[not(gate), a]);
        self.solver.clause(&[not(gate), b]);
        self.solver.clause(&[gate, not(a), not(b)]);
        self.gates.insert((true, a, b), gate);
        gate
    }

    fn or(&mut self, a: Literal, b: Literal) -> Literal {
        not(self.and(not(a), not(b)))
    }

    fn xor(&mut self, a: Literal, b: Literal) -> Literal {
        let turned = (a ^ b) & 1;
        let (a, b) = (a & !1, b & !1);
        let (a, b) = (a.min(b), a.max(b));
        let no = not(self.yes);
        if a == b {
            return no ^ turned;
        }
        // The constant is variable 0.
        if a == self.yes & !1 {
            return not(b) ^ turned;
        }
        if let Some(&gate) = self.gates.get(&(false, a, b)) {
            return gate ^ turned;
        }
        let gate = self.solver.variable();
        self.solver.clause(&[not(gate), a, b]);
        self.solver.clause(&[not(gate), not(a), not(b)]);
        self.solver.clause(&[gate, not(a), b]);
        self.solver.clause(&[gate, a, not(b)]);
        self.gates.insert((false, a, b), gate);
        gate ^ turned
    }

    fn choose(&mut self, c: Literal, a: Literal, b: Literal) -> Literal {
        let (left, right) = (self.and(c, a), self.and(not(c), b));
        self.or(left, right)
    }

    fn choose_all(&mut self, c: Literal, a: &[Literal], b: &[Literal]) -> Vec<Literal> {
        a.iter().zip(b).map(|(a, b)| self.choose(c, *a, *b)).collect()
    }

    /// The sum and what is carried out of it.
    fn sum(&mut self, a: &[Literal], b: &[Literal], carry: Literal) -> (Vec<Literal>, Literal) {
        let mut carry = carry;
        let mut all = Vec::with_capacity(a.len());
        for (&a, &b) in a.iter().zip(b) {
            let half = self.xor(a, b);
            all.push(self.xor(half, carry));
            let (both, through) = (self.and(a, b), self.and(half, carry));
            carry = self.or(both, through);
        }
        (all, carry)
    }

    fn minus(&mut self, a: &[Literal]) -> Vec<Literal> {
        let turned: Vec<Literal> = a.iter().map(|bit| not(*bit)).collect();
        let zero = self.constant(a.len() as u32, 0);
        self.sum(&turned, &zero, self.yes).0
    }

    /// `a < b` without signs.
    fn less(&mut self, a: &[Literal], b: &[Literal]) -> Literal {
        let turned: Vec<Literal> = b.iter().map(|bit| not(*bit)).collect();
        // a + !b + 1 carries where a >= b.
        not(self.sum(a, &turned, self.yes).1)
    }

    fn same(&mut self, a: &[Literal], b: &[Literal]) -> Literal {
        let mut all = self.yes;
        for (a, b) in a.iter().zip(b) {
            let differ = self.xor(*a, *b);
            all = self.and(all, not(differ));
        }
        all
    }

    fn product(&mut self, a: &[Literal], b: &[Literal]) -> Vec<Literal> {
        let width = a.len();
        let mut all = self.constant(width as u32, 0);
        for (at, &bit) in b.iter().enumerate().take(width) {
            let mut row = vec![not(self.yes); at];
            for &a in &a[..width - at] {
                row.push(self.and(a, bit));
            }
            all = self.sum(&all, &row, not(self.yes)).0;
        }
        all
    }

    /// Quotient and rest of numbers without signs. By zero both are any numbers.
    fn divide(&mut self, a: &[Literal], b: &[Literal]) -> (Vec<Literal>, Vec<Literal>) {
        let width = a.len();
        let (quotient, rest) = (self.free(width as u32), self.free(width as u32));
        let no = not(self.yes);
        let double = |bits: &[Literal]| -> Vec<Literal> {
            bits.iter().copied().chain(std::iter::repeat_n(no, width)).collect()
        };
        let product = self.product(&double(b), &double(&quotient));
        let whole = self.sum(&product, &double(&rest), no).0;
        let fits = self.same(&whole, &double(a));
        let small = self.less(&rest, b);
        let zero = self.constant(width as u32, 0);
        let by_zero = self.same(b, &zero);
        self.solver.clause(&[by_zero, fits]);
        self.solver.clause(&[by_zero, small]);
        (quotient, rest)
    }

    /// The same with signs: C cuts towards zero, and the rest has the sign of the first number.
    fn divide_signed(&mut self, a: &[Literal], b: &[Literal]) -> (Vec<Literal>, Vec<Literal>) {
        let (sign_a, sign_b) = (a[a.len() - 1], b[b.len() - 1]);
        let (minus_a, minus_b) = (self.minus(a), self.minus(b));
        let (size_a, size_b) = (self.choose_all(sign_a, &minus_a, a), self.choose_all(sign_b, &minus_b, b));
        let (quotient, rest) = self.divide(&size_a, &size_b);
        let differ = self.xor(sign_a, sign_b);
        let (minus_quotient, minus_rest) = (self.minus(&quotient), self.minus(&rest));
        (self.choose_all(differ, &minus_quotient, &quotient), self.choose_all(sign_a, &minus_rest, &rest))
    }

    /// A shift to the left or right, filled with a bit. By too much it is any number.
    fn shift(&mut self, a: &[Literal], by: &[Literal], left: bool, fill: Literal) -> Vec<Literal> {
        let width = a.len();
        let mut all = a.to_vec();
        for (at, &bit) in by.iter().enumerate() {
            let step = 1usize.checked_shl(at as u32).unwrap_or(width).min(width);
            let moved: Vec<Literal> = (0..width)
                .map(|to| {
                    let from = if left { to.checked_sub(step) } else { Some(to + step) };
                    from.and_then(|from| all.get(from).copied()).unwrap_or(fill)
                })
                .collect();
            all = self.choose_all(bit, &moved, &all);
        }
        let limit = self.constant(by.len() as u32, width as u64);
        // Where the width needs more bits than the amount has, no amount is too large.
        let fine =
            if width as u64 > super::terms::ones(by.len() as u32) { self.yes } else { self.less(by, &limit) };
        let any = if fine == self.yes { all.clone() } else { self.free(width as u32) };
        self.choose_all(fine, &all, &any)
    }

    fn address(&mut self, object: Option<u32>, wires: Vec<Literal>) -> Vec<Literal> {
        let zero = self.constant(64, 0);
        let null = self.same(&wires, &zero);
        self.solver.clause(&[not(null)]);
        for (other, known) in self.addresses.clone() {
            if object.is_none() || other != object {
                let same = self.same(&wires, &known);
                self.solver.clause(&[not(same)]);
            }
        }
        self.addresses.push((object, wires.clone()));
        wires
    }

    fn binary(&mut self, operation: Binary, a: &[Literal], b: &[Literal]) -> Vec<Literal> {
        let no = not(self.yes);
        let pairs = || a.iter().copied().zip(b.iter().copied());
        match operation {
            Binary::Add => self.sum(a, b, no).0,
            Binary::Sub => {
                let turned: Vec<Literal> = b.iter().map(|bit| not(*bit)).collect();
                self.sum(a, &turned, self.yes).0
            }
            Binary::Mul => self.product(a, b),
            Binary::UDiv => self.divide(a, b).0,
            Binary::URem => self.divide(a, b).1,
            Binary::SDiv => self.divide_signed(a, b).0,
            Binary::SRem => self.divide_signed(a, b).1,
            Binary::Shl => self.shift(a, b, true, no),
            Binary::LShr => self.shift(a, b, false, no),
            Binary::AShr => self.shift(a, b, false, a[a.len() - 1]),
            Binary::And => pairs().map(|(a, b)| self.and(a, b)).collect(),
            Binary::Or => pairs().map(|(a, b)| self.or(a, b)).collect(),
            Binary::Xor => pairs().map(|(a, b)| self.xor(a, b)).collect(),
        }
    }

    fn compare(&mut self, predicate: Predicate, a: &[Literal], b: &[Literal]) -> Literal {
        // With the signs turned, the order without signs is that with signs.
        let turned = |bits: &[Literal]| {
            let mut bits = bits.to_vec();
            if let Some(sign) = bits.last_mut() {
                *sign = not(*sign);
            }
            bits
        };
        match predicate {
            Predicate::Eq => self.same(a, b),
            Predicate::Ne => not(self.same(a, b)),
            Predicate::Ult => self.less(a, b),
            Predicate::Uge => not(self.less(a, b)),
            Predicate::Ugt => self.less(b, a),
            Predicate::Ule => not(self.less(b, a)),
            Predicate::Slt => self.less(&turned(a), &turned(b)),
            Predicate::Sge => not(self.less(&turned(a), &turned(b))),
            Predicate::Sgt => self.less(&turned(b), &turned(a)),
            Predicate::Sle => not(self.less(&turned(b), &turned(a))),
        }
    }

    fn wires(&mut self, id: Id) -> Vec<Literal> {
        for at in self.terms.inside(&[id]) {
            if self.wires.contains_key(&at) {
                continue;
            }
            let of = |id: Id| self.wires[&id].clone();
            let wires = match self.terms.get(at) {
                Term::Number(bits, value) => self.constant(bits, value),
                Term::Unknown(_, bits) => self.free(bits),
                Term::Binary(operation, a, b) => {
                    let (a, b) = (of(a), of(b));
                    self.binary(operation, &a, &b)
                }
                Term::Compare(predicate, a, b) => {
                    let (a, b) = (of(a), of(b));
                    vec![self.compare(predicate, &a, &b)]
                }
                Term::Wide(sign, bits, a) => {
                    let mut wires = of(a);
                    let fill = if sign { wires[wires.len() - 1] } else { not(self.yes) };
                    wires.resize(bits as usize, fill);
                    wires
                }
                Term::Cut(bits, a) => of(a)[..bits as usize].to_vec(),
                Term::Choose(c, a, b) => {
                    let (c, a, b) = (of(c)[0], of(a), of(b));
                    self.choose_all(c, &a, &b)
                }
                Term::Address(object, offset) => {
                    let base = match self.objects.get(&object) {
                        Some(base) => base.clone(),
                        None => self.free(64),
                    };
                    self.objects.insert(object, base.clone());
                    let offset = self.constant(64, offset);
                    let wires = self.sum(&base, &offset, not(self.yes)).0;
                    self.address(Some(object), wires)
                }
                Term::Function(_) => {
                    let wires = self.free(64);
                    self.address(None, wires)
                }
            };
            self.wires.insert(at, wires);
        }
        self.wires[&id].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::BINARIES;
    use super::super::terms::{compares, ones, result};
    use super::*;

    const PREDICATES: [Predicate; 10] = [
        Predicate::Eq,
        Predicate::Ne,
        Predicate::Ult,
        Predicate::Ule,
        Predicate::Ugt,
        Predicate::Uge,
        Predicate::Slt,
        Predicate::Sle,
        Predicate::Sgt,
        Predicate::Sge,
    ];

    /// The only value of a term under a condition.
    fn only(terms: &mut Terms, given: &[Id], of: Id) -> Option<u64> {
        let value = example(terms, given, of)?;
        let bits = terms.bits(of);
        let number = terms.number(bits, value);
        let equal = terms.equal(of, number);
        let other = terms.opposite(equal);
        let all: Vec<Id> = given.iter().copied().chain([other]).collect();
        (together(terms, &all) == Answer::Impossible).then_some(value)
    }

    /// Circuits give what plain arithmetic gives, for all values of three and four bits.
    #[test]
    fn circuits_are_arithmetic() {
        for bits in [3, 4] {
            for (x, y) in (0..1u64 << bits).flat_map(|x| (0..1u64 << bits).map(move |y| (x, y))) {
                let mut terms = Terms::default();
                let (a, b) = (terms.unknown(0, bits), terms.unknown(1, bits));
                let (m, n) = (terms.number(bits, x), terms.number(bits, y));
                let given = [terms.equal(a, m), terms.equal(b, n)];
                for operation in BINARIES {
                    let term = terms.make(Term::Binary(operation, a, b));
                    let expected = result(operation, bits, x, y);
                    assert_eq!(only(&mut terms, &given, term), expected, "{operation:?} {x} {y}");
                }
                for predicate in PREDICATES {
                    let term = terms.make(Term::Compare(predicate, a, b));
                    let expected = u64::from(compares(predicate, bits, x, y));
                    assert_eq!(only(&mut terms, &given, term), Some(expected), "{predicate:?} {x} {y}");
                }
                let wide = terms.make(Term::Wide(true, 6, a));
                let sign = if x >> (bits - 1) == 1 { ones(6) & !ones(bits) } else { 0 };
                assert_eq!(only(&mut terms, &given, wide), Some(x | sign));
            }
        }
    }

    #[test]
    fn addresses_differ_and_are_not_null() {
        let mut terms = Terms::default();
        let (a, b) = (terms.make(Term::Address(1, 0)), terms.make(Term::Address(2, 8)));
        let inner = terms.make(Term::Address(1, 4));
        let f = terms.make(Term::Function(0));
        let zero = terms.number(64, 0);
        for (x, y) in [(a, b), (a, inner), (a, f), (a, zero), (f, zero)] {
            let equal = terms.equal(x, y);
            assert_eq!(together(&terms, &[equal]), Answer::Impossible);
        }
        let four = terms.number(64, 4);
        let sum = terms.make(Term::Binary(Binary::Add, a, four));
        let equal = terms.equal(sum, inner);
        let differ = terms.opposite(equal);
        assert_eq!(together(&terms, &[differ]), Answer::Impossible);
        // Nothing is taken for granted about an address's low bits.
        let three = terms.number(64, 3);
        let low = terms.make(Term::Binary(Binary::And, a, three));
        let odd = terms.make(Term::Compare(Predicate::Ne, low, zero));
        assert_eq!(together(&terms, &[odd]), Answer::Possible);
    }
}
