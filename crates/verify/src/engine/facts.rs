//! What follows from conditions on unknown numbers.

use super::exact;
use crate::ir::instruction::{Binary, Predicate};
use crate::program::expression::{Arena, Expression, Id, calculate, mask, signed};

/// Whether a condition holds for certain, fails for certain, or either.
pub fn decide(arena: &mut Arena, facts: &[Id], condition: Id) -> Option<bool> {
    if let Some(value) = arena.number(condition) {
        return Some(value != 0);
    }
    let opposite = arena.not(condition);
    if let Some(value) = arena.number(opposite) {
        return Some(value == 0);
    }
    if facts.contains(&condition) {
        return Some(true);
    }
    if facts.contains(&opposite) {
        return Some(false);
    }
    let known = bits(arena, facts, condition, 16);
    if known.0 & 1 == 1 {
        return Some(known.1 & 1 == 1);
    }
    if let Expression::Binary(operation @ (Binary::And | Binary::Or), 1, a, b) = arena.get(condition) {
        let (a, b) = (decide(arena, facts, a), decide(arena, facts, b));
        return match (operation, a, b) {
            (Binary::And, Some(false), _) | (Binary::And, _, Some(false)) => Some(false),
            (Binary::Or, Some(true), _) | (Binary::Or, _, Some(true)) => Some(true),
            (_, Some(a), Some(b)) => Some(if operation == Binary::And { a && b } else { a || b }),
            _ => None,
        };
    }
    if let Some(term) = term(arena, condition) {
        if empty(arena, facts, term, condition) {
            return Some(false);
        }
        if empty(arena, facts, term, opposite) {
            return Some(true);
        }
    }
    exact::decide(arena, facts, condition)
}

/// The side of a comparison with a number that is no number.
fn term(arena: &Arena, condition: Id) -> Option<Id> {
    let Expression::Compare(_, a, b) = arena.get(condition) else { return None };
    match (arena.number(a), arena.number(b)) {
        (None, Some(_)) => Some(a),
        (Some(_), None) => Some(b),
        _ => None,
    }
}

/// Whether no value of a term meets all facts about it and one more condition.
fn empty(arena: &Arena, facts: &[Id], of: Id, condition: Id) -> bool {
    let width = arena.bits(of);
    let most = mask(width);
    let (mut low, mut high) = (0u64, most);
    let (mut least, mut greatest) = (-((most >> 1) as i64) - 1, (most >> 1) as i64);
    if let Expression::Binary(Binary::And, _, _, limit) = arena.get(of)
        && let Some(limit) = arena.number(limit)
    {
        high = limit;
    }
    if let Expression::Zero(_, inner) = arena.get(of) {
        high = mask(arena.bits(inner));
    }
    let mut not = Vec::new();
    for &fact in facts.iter().chain([&condition]) {
        if term(arena, fact) != Some(of) {
            continue;
        }
        let Expression::Compare(predicate, a, b) = arena.get(fact) else { continue };
        match (predicate, arena.number(a), arena.number(b)) {
            (Predicate::Eq, _, Some(n)) => {
                low = low.max(n);
                high = high.min(n);
            }
            (Predicate::Ne, _, Some(n)) => not.push(n),
            (Predicate::Ult, _, Some(n)) => high = high.min(n.wrapping_sub(1)),
            (Predicate::Ult, Some(n), _) => low = low.max(n.saturating_add(1)),
            (Predicate::Ule, _, Some(n)) => high = high.min(n),
            (Predicate::Ule, Some(n), _) => low = low.max(n),
            (Predicate::Slt, _, Some(n)) => greatest = greatest.min(signed(width, n).saturating_sub(1)),
            (Predicate::Slt, Some(n), _) => least = least.max(signed(width, n).saturating_add(1)),
            (Predicate::Sle, _, Some(n)) => greatest = greatest.min(signed(width, n)),
            (Predicate::Sle, Some(n), _) => least = least.max(signed(width, n)),
            _ => {}
        }
    }
    if low > high || least > greatest {
        return true;
    }
    // Where both views are of one sign, they are one.
    if least >= 0 {
        low = low.max(least as u64);
        high = high.min(greatest as u64);
    } else if greatest < 0 {
        low = low.max(least as u64 & most);
        high = high.min(greatest as u64 & most);
    } else if high <= most >> 1 {
        high = high.min(greatest as u64);
    }
    if low > high {
        return true;
    }
    not.sort_unstable();
    not.dedup();
    let excluded = not.iter().filter(|n| (low..=high).contains(*n)).count() as u64;
    excluded > high - low
}

/// The bits of an expression that are known: which, and their values.
pub fn bits(arena: &Arena, facts: &[Id], id: Id, depth: u32) -> (u64, u64) {
    let width = arena.bits(id);
    let all = mask(width);
    if depth == 0 {
        return (0, 0);
    }
    let inner = |id| bits(arena, facts, id, depth - 1);
    let found = match arena.get(id) {
        Expression::Number(_, value) => (all, value),
        Expression::Symbol(..) => symbol(arena, facts, id),
        Expression::Zero(_, a) => {
            let (known, value) = inner(a);
            (known | (all & !mask(arena.bits(a))), value)
        }
        Expression::Cut(_, a) => inner(a),
        Expression::Binary(Binary::And, _, a, b) => {
            let ((k, v), (l, w)) = (inner(a), inner(b));
            ((k & l) | (k & !v) | (l & !w), v & w)
        }
        Expression::Binary(Binary::Or, _, a, b) => {
            let ((k, v), (l, w)) = (inner(a), inner(b));
            ((k & l) | (k & v) | (l & w), v | w)
        }
        Expression::Binary(Binary::Xor, _, a, b) => {
            let ((k, v), (l, w)) = (inner(a), inner(b));
            (k & l, (v ^ w) & k & l)
        }
        Expression::Binary(operation @ (Binary::Shl | Binary::LShr), bits, a, b) => match arena.number(b) {
            Some(shift) if shift < u64::from(bits) => {
                let (known, value) = inner(a);
                if operation == Binary::Shl {
                    ((known << shift) | mask(shift as u32), value << shift)
                } else {
                    ((known >> shift) | (all & !(all >> shift)), value >> shift)
                }
            }
            _ => (0, 0),
        },
        Expression::Binary(operation, bits, a, b) => {
            let ((k, v), (l, w)) = (inner(a), inner(b));
            match calculate(operation, bits, v, w) {
                Some(value) if k & all == all && l & all == all => (all, value),
                _ => (0, 0),
            }
        }
        Expression::Compare(predicate @ (Predicate::Eq | Predicate::Ne), a, b) => {
            let ((k, v), (l, w)) = (inner(a), inner(b));
            let width = mask(arena.bits(a));
            if (v ^ w) & k & l != 0 {
                (1, u64::from(predicate == Predicate::Ne))
            } else if k & width == width && l & width == width {
                (1, u64::from(predicate == Predicate::Eq))
            } else {
                (0, 0)
            }
        }
        _ => (0, 0),
    };
    (found.0 & all, found.1 & found.0 & all)
}

/// The bits of a symbol that facts tell.
fn symbol(arena: &Arena, facts: &[Id], id: Id) -> (u64, u64) {
    let (mut known, mut value) = (0, 0);
    for &fact in facts {
        let Expression::Compare(predicate, a, b) = arena.get(fact) else { continue };
        let Some(n) = arena.number(b) else { continue };
        let Some((of, which)) = masked(arena, a, id) else { continue };
        match predicate {
            Predicate::Eq => {
                known |= which;
                value |= n << of & which;
            }
            Predicate::Ne if which.is_power_of_two() && n == 0 => {
                known |= which;
                value |= which;
            }
            _ => {}
        }
    }
    (known, value)
}

/// Whether a term is some bits of a symbol: how far they are shifted, and which they are.
fn masked(arena: &Arena, term: Id, symbol: Id) -> Option<(u32, u64)> {
    if term == symbol {
        return Some((0, mask(arena.bits(symbol))));
    }
    match arena.get(term) {
        Expression::Binary(Binary::And, _, a, b) => {
            let which = arena.number(b)?;
            let (shift, bits) = masked(arena, a, symbol)?;
            Some((shift, bits & which.checked_shl(shift)?))
        }
        Expression::Binary(Binary::LShr, _, a, b) => {
            let by = u32::try_from(arena.number(b)?).ok()?;
            let (shift, bits) = masked(arena, a, symbol)?;
            let shift = shift.checked_add(by).filter(|shift| *shift < 64)?;
            Some((shift, bits & (u64::MAX << shift)))
        }
        Expression::Cut(bits, a) => {
            let (shift, which) = masked(arena, a, symbol)?;
            Some((shift, which & mask(bits).checked_shl(shift)?))
        }
        Expression::Zero(_, a) => masked(arena, a, symbol),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decisions agree with trying all values of a byte.
    #[test]
    fn decisions_are_right_for_all_values() {
        let mut arena = Arena::default();
        let s = arena.symbol(0, 8);
        let mut conditions = Vec::new();
        for n in [0u64, 1, 3, 4, 0x40, 0x7f, 0x80, 0x81, 0xfe, 0xff] {
            let number = arena.constant(8, n);
            let low = arena.binary(Binary::And, s, number);
            let zero = arena.constant(8, 0);
            conditions.push(arena.compare(Predicate::Ne, low, zero));
            conditions.push(arena.compare(Predicate::Eq, low, number));
            for predicate in
                [Predicate::Eq, Predicate::Ne, Predicate::Ult, Predicate::Slt, Predicate::Ugt, Predicate::Sgt]
            {
                conditions.push(arena.compare(predicate, s, number));
            }
        }
        let conditions: Vec<Id> = conditions.into_iter().filter(|id| arena.number(*id).is_none()).collect();
        let value = |arena: &mut Arena, id: Id, v: u64| {
            let number = arena.constant(8, v);
            let id = arena.replace(id, &mut |_, _| Some(number));
            arena.number(id).unwrap() == 1
        };
        let mut decided = 0;
        for &first in &conditions {
            for &second in &conditions {
                let facts = [first, second];
                for &third in &conditions {
                    let Some(answer) = decide(&mut arena, &facts, third) else { continue };
                    decided += 1;
                    for v in [
                        0u64, 1, 2, 3, 4, 5, 0x3f, 0x40, 0x41, 0x7e, 0x7f, 0x80, 0x81, 0x82, 0xfd, 0xfe, 0xff,
                    ] {
                        if value(&mut arena, first, v) && value(&mut arena, second, v) {
                            assert_eq!(value(&mut arena, third, v), answer, "{first} {second} {third} {v}");
                        }
                    }
                }
            }
        }
        assert!(decided > 10_000, "{decided}");
    }
}
