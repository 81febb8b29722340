//! Arithmetic on numbers of some width, as C has it.

use crate::ir::instruction::{Binary, Predicate};

/// All bits of a width.
pub fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1u64 << bits) - 1 }
}

/// A number of so many bits, with its sign.
pub fn signed(bits: u32, value: u64) -> i64 {
    let shift = 64 - bits.clamp(1, 64);
    ((value << shift) as i64) >> shift
}

/// Whether a comparison of two numbers holds.
pub fn holds(predicate: Predicate, bits: u32, x: u64, y: u64) -> bool {
    use Predicate::*;
    let (s, t) = (signed(bits, x), signed(bits, y));
    match predicate {
        Eq => x == y,
        Ne => x != y,
        Ult => x < y,
        Ule => x <= y,
        Ugt => x > y,
        Uge => x >= y,
        Slt => s < t,
        Sle => s <= t,
        Sgt => s > t,
        Sge => s >= t,
    }
}

/// The result of an operation on two numbers; `None` where C leaves it open.
pub fn calculate(operation: Binary, bits: u32, x: u64, y: u64) -> Option<u64> {
    use Binary::*;
    let (s, t) = (signed(bits, x), signed(bits, y));
    let shift = || u32::try_from(y).ok().filter(|shift| *shift < bits);
    let value = match operation {
        Add => x.wrapping_add(y),
        Sub => x.wrapping_sub(y),
        Mul => x.wrapping_mul(y),
        UDiv => x.checked_div(y)?,
        URem => x.checked_rem(y)?,
        SDiv => s.checked_div(t)? as u64,
        SRem => s.checked_rem(t)? as u64,
        Shl => x << shift()?,
        LShr => x >> shift()?,
        AShr => (s >> shift()?) as u64,
        And => x & y,
        Or => x | y,
        Xor => x ^ y,
    };
    Some(value & mask(bits))
}
