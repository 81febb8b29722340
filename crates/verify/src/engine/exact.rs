//! Exact answers about conditions: by trying values that stand for all others, and by finding one that meets all.

use crate::ir::instruction::Binary;
use crate::program::expression::{Arena, Expression, Id, calculate, holds, mask, signed};
use rustc_hash::FxHashMap;

/// Most nodes of a condition that is looked at.
const NODES: usize = 512;
/// Most bits of an unknown number that are tried in all combinations.
const BITS: u32 = 8;
/// Most values that are tried when the order of a number decides.
const VALUES: usize = 64;
/// How many times conditions are computed in the search for values that meet all.
const TRIES: u32 = 50_000;

/// The value of an expression where its symbols have these values; absent where C leaves it open.
pub fn evaluate(arena: &Arena, id: Id, of: &dyn Fn(u32) -> Option<u64>) -> Option<u64> {
    let inner = |id| evaluate(arena, id, of);
    Some(match arena.get(id) {
        Expression::Number(_, value) => value,
        Expression::Symbol(symbol, bits) => of(symbol)? & mask(bits),
        Expression::Binary(operation, bits, a, b) => calculate(operation, bits, inner(a)?, inner(b)?)?,
        Expression::Compare(predicate, a, b) => {
            u64::from(holds(predicate, arena.bits(a), inner(a)?, inner(b)?))
        }
        Expression::Zero(_, a) => inner(a)?,
        Expression::Sign(bits, a) => signed(arena.bits(a), inner(a)?) as u64 & mask(bits),
        Expression::Cut(bits, a) => inner(a)? & mask(bits),
        Expression::Select(c, a, b) => inner(if inner(c)? == 1 { a } else { b })?,
        Expression::Cell(..) | Expression::Address(..) | Expression::Function(_) => return None,
    })
}

/// The symbols of an expression with their widths; absent where it is too large or has other unknown leaves.
fn symbols(arena: &Arena, id: Id) -> Option<Vec<(u32, u32)>> {
    let (mut found, mut other) = (Vec::new(), false);
    let seen = arena.leaves(id, NODES, &mut |leaf| match leaf {
        Expression::Symbol(symbol, bits) => found.push((symbol, bits)),
        Expression::Number(..) => {}
        _ => other = true,
    });
    found.sort_unstable();
    found.dedup();
    (seen <= NODES && !other).then_some(found)
}

/// Whether a condition on one unknown number holds for certain, fails for certain, or either, given what is known of
/// that number. The values that are tried stand for all: either they have each combination of the bits on which the
/// conditions depend, or there is one from each range between numbers with which they compare.
pub fn decide(arena: &Arena, facts: &[Id], condition: Id) -> Option<bool> {
    let [(symbol, bits)] = symbols(arena, condition)?[..] else { return None };
    let of_it = |fact: &&Id| symbols(arena, **fact).is_some_and(|all| all == [(symbol, bits)]);
    let mut all: Vec<Id> = facts.iter().filter(of_it).copied().collect();
    if all.is_empty() {
        return None;
    }
    all.push(condition);
    let (mut yes, mut no) = (false, false);
    for value in representatives(arena, &all, bits)? {
        let of = |_: u32| Some(value);
        let mut meets = true;
        for fact in &all[..all.len() - 1] {
            meets &= evaluate(arena, *fact, &of)? == 1;
            if !meets {
                break;
            }
        }
        if meets {
            match evaluate(arena, condition, &of)? {
                1 => yes = true,
                _ => no = true,
            }
        }
    }
    match (yes, no) {
        (true, true) => None,
        // Where no value meets what is known, nothing holds.
        (yes, _) => Some(yes),
    }
}

/// Values of a symbol such that each other value makes all conditions what one of these makes them.
fn representatives(arena: &Arena, conditions: &[Id], bits: u32) -> Option<Vec<u64>> {
    let relevant = conditions.iter().fold(0, |all, id| all | relevant(arena, *id, 1));
    if relevant.count_ones() <= BITS {
        let mut values = vec![0u64];
        for bit in (0..64).filter(|bit| relevant >> bit & 1 == 1) {
            for at in 0..values.len() {
                values.push(values[at] | 1 << bit);
            }
        }
        return Some(values);
    }
    let mut values = vec![0];
    conditions.iter().all(|id| bounds(arena, *id, &mut values)).then_some(())?;
    values.iter_mut().for_each(|value| *value &= mask(bits));
    values.sort_unstable();
    values.dedup();
    (values.len() <= VALUES).then_some(values)
}

/// The bits of the only symbol on which these bits of an expression depend.
fn relevant(arena: &Arena, id: Id, wanted: u64) -> u64 {
    if wanted == 0 {
        return 0;
    }
    let below = mask(64 - wanted.leading_zeros());
    match arena.get(id) {
        Expression::Symbol(_, bits) => wanted & mask(bits),
        Expression::Zero(_, a) | Expression::Cut(_, a) => relevant(arena, a, wanted & mask(arena.bits(a))),
        Expression::Sign(_, a) => {
            let width = arena.bits(a);
            let sign = if wanted & !mask(width) != 0 { 1 << (width - 1) } else { 0 };
            relevant(arena, a, wanted & mask(width) | sign)
        }
        Expression::Select(c, a, b) => {
            relevant(arena, c, 1) | relevant(arena, a, wanted) | relevant(arena, b, wanted)
        }
        Expression::Compare(_, a, b) => {
            let all = mask(arena.bits(a));
            relevant(arena, a, all) | relevant(arena, b, all)
        }
        Expression::Binary(operation, bits, a, b) => match (operation, arena.number(b)) {
            (Binary::And, Some(n)) => relevant(arena, a, wanted & n),
            (Binary::Or, Some(n)) => relevant(arena, a, wanted & !n),
            (Binary::And | Binary::Or | Binary::Xor, _) => {
                relevant(arena, a, wanted) | relevant(arena, b, wanted)
            }
            (Binary::Shl, Some(n)) if n < u64::from(bits) => relevant(arena, a, wanted >> n),
            (Binary::LShr, Some(n)) if n < u64::from(bits) => relevant(arena, a, wanted << n & mask(bits)),
            (Binary::Add | Binary::Sub | Binary::Mul, _) => {
                relevant(arena, a, below) | relevant(arena, b, below)
            }
            _ => relevant(arena, a, mask(bits)) | relevant(arena, b, mask(bits)),
        },
        _ => 0,
    }
}

/// Collects the values at which a condition may change, if it only compares the symbol, plus a constant, with numbers.
fn bounds(arena: &Arena, id: Id, values: &mut Vec<u64>) -> bool {
    match arena.get(id) {
        Expression::Number(..) => true,
        Expression::Binary(Binary::And | Binary::Or | Binary::Xor, 1, a, b) => {
            bounds(arena, a, values) && bounds(arena, b, values)
        }
        Expression::Compare(_, a, b) => {
            let (term, number) = match (arena.number(a), arena.number(b)) {
                (None, Some(number)) => (a, number),
                (Some(number), None) => (b, number),
                _ => return false,
            };
            let moved = match arena.get(term) {
                Expression::Symbol(..) => 0,
                Expression::Binary(Binary::Add, _, base, by)
                    if matches!(arena.get(base), Expression::Symbol(..)) =>
                {
                    match arena.number(by) {
                        Some(by) => by,
                        None => return false,
                    }
                }
                _ => return false,
            };
            let sign = 1 << (arena.bits(term) - 1);
            let starts = [number, number.wrapping_add(1), 0, sign];
            values.extend(starts.map(|start: u64| start.wrapping_sub(moved)));
            true
        }
        _ => false,
    }
}

/// Symbols with their widths, and the conditions that tie them.
type Group = (Vec<(u32, u32)>, Vec<Id>);

/// Whether there are values of the symbols that meet all conditions. False says only that none was found.
pub fn can_all_hold(arena: &Arena, conditions: &[Id]) -> bool {
    let mut groups: Vec<Group> = Vec::new();
    for &condition in conditions {
        let Some(mut all) = symbols(arena, condition) else { return false };
        let mut own = vec![condition];
        let shares = |group: &Group| group.0.iter().any(|one| all.contains(one));
        let (joined, rest): (Vec<_>, Vec<_>) = groups.into_iter().partition(shares);
        groups = rest;
        for (symbols, conditions) in joined {
            all.extend(symbols);
            own.extend(conditions);
        }
        all.sort_unstable();
        all.dedup();
        groups.push((all, own));
    }
    groups.iter().all(|(symbols, conditions)| group_can_hold(arena, symbols, conditions))
}

fn group_can_hold(arena: &Arena, symbols: &[(u32, u32)], conditions: &[Id]) -> bool {
    if let [(_, bits)] = symbols
        && let Some(values) = representatives(arena, conditions, *bits)
    {
        return values
            .into_iter()
            .any(|value| conditions.iter().all(|id| evaluate(arena, *id, &|_| Some(value)) == Some(1)));
    }
    let mut numbers = vec![0u64, 1, 2, u64::MAX, u64::MAX >> 1];
    for id in conditions {
        arena.leaves(*id, NODES, &mut |leaf| {
            if let Expression::Number(bits, value) = leaf {
                let more = [value.wrapping_sub(1), value, value.wrapping_add(1), value << 1, !value];
                numbers.extend(more.map(|value| value & mask(bits)));
                numbers.push(1 << (bits - 1));
            }
        });
    }
    let mut search =
        Search { arena, symbols, conditions, numbers, values: FxHashMap::default(), tries: TRIES };
    search.from(0)
}

struct Search<'a> {
    arena: &'a Arena,
    symbols: &'a [(u32, u32)],
    conditions: &'a [Id],
    numbers: Vec<u64>,
    values: FxHashMap<u32, u64>,
    tries: u32,
}

impl Search<'_> {
    /// Gives values to the symbols from this one on.
    fn from(&mut self, at: usize) -> bool {
        let Some(&(symbol, bits)) = self.symbols.get(at) else { return true };
        let mut numbers: Vec<u64> = self.numbers.iter().map(|value| value & mask(bits)).collect();
        // What others have already: conditions often compare two unknown numbers.
        numbers.extend(self.values.values().flat_map(|v| [*v, v.wrapping_add(1), v.wrapping_sub(1)]));
        numbers.iter_mut().for_each(|value| *value &= mask(bits));
        numbers.sort_unstable();
        numbers.dedup();
        for value in numbers {
            self.values.insert(symbol, value);
            let values = &self.values;
            let mut fails = false;
            for id in self.conditions {
                self.tries = self.tries.saturating_sub(1);
                fails |= match evaluate(self.arena, *id, &|symbol| values.get(&symbol).copied()) {
                    Some(value) => value != 1,
                    // Another symbol of it has no value yet, or C leaves it open.
                    None => at + 1 == self.symbols.len(),
                };
            }
            if !fails && self.from(at + 1) {
                return true;
            }
            if self.tries == 0 {
                break;
            }
        }
        self.values.remove(&symbol);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::instruction::Predicate::*;

    /// Conditions of several forms on a byte, and on its bits.
    fn conditions(arena: &mut Arena) -> Vec<Id> {
        let s = arena.symbol(0, 8);
        let mut all = Vec::new();
        for n in [0u64, 1, 2, 3, 0x40, 0x7f, 0x80, 0xff] {
            let number = arena.constant(8, n);
            let low = arena.binary(Binary::And, s, number);
            let sum = arena.binary(Binary::Add, s, number);
            let high = arena.binary(Binary::LShr, s, number);
            for term in [s, low, sum, high] {
                for predicate in [Eq, Ult, Slt, Sgt] {
                    let other = arena.constant(8, 0x81 ^ n);
                    all.push(arena.compare(predicate, term, other));
                    all.push(arena.compare(predicate, term, number));
                }
            }
        }
        all.retain(|id| arena.number(*id).is_none());
        all
    }

    /// What is decided is what trying all 256 values gives, and what can hold does for one of them.
    #[test]
    fn answers_are_those_of_all_values() {
        let mut arena = Arena::default();
        let all = conditions(&mut arena);
        let (mut decided, mut contradictions) = (0, 0);
        for (at, &first) in all.iter().enumerate() {
            for &second in &all[at..] {
                let third = all[(at * 7 + 3) % all.len()];
                let facts = [first, second];
                let meets = |value: u64, id: Id| evaluate(&arena, id, &|_| Some(value));
                let values: Vec<u64> =
                    (0..256).filter(|v| facts.iter().all(|id| meets(*v, *id) == Some(1))).collect();
                assert_eq!(can_all_hold(&arena, &facts), !values.is_empty(), "{first} {second}");
                contradictions += u32::from(values.is_empty());
                let Some(answer) = decide(&arena, &facts, third) else { continue };
                decided += 1;
                for value in values {
                    assert_eq!(meets(value, third), Some(u64::from(answer)), "{first} {second} {third}");
                }
            }
        }
        assert!(decided > 1000 && contradictions > 100, "{decided} {contradictions}");
    }

    /// Values that several conditions on two unknown numbers share are found; none are where there are none.
    #[test]
    fn two_unknown_numbers_meet() {
        let mut arena = Arena::default();
        let (x, y) = (arena.symbol(0, 32), arena.symbol(1, 32));
        let five = arena.constant(32, 5);
        let sum = arena.binary(Binary::Add, x, five);
        let less = arena.compare(Ult, y, x);
        let equal = arena.compare(Eq, sum, y);
        let more = arena.compare(Ult, x, y);
        // x + 5 wraps around below x.
        assert!(can_all_hold(&arena, &[equal, less]));
        assert!(!can_all_hold(&arena, &[less, more]));
    }
}
