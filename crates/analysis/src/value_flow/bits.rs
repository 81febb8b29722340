//! Values with some undefined and some known bits, and arithmetic on them.

use super::Origin;

/// The shadow of a 64-bit value.
///
/// `known` and `undef` are disjoint: a known bit is the same whatever the undefined bits are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    /// The undefined bits.
    pub undef: u64,
    /// Bits whose value is known.
    pub known: u64,
    /// The value of the known bits; zero elsewhere.
    pub value: u64,
    /// The source of the undefined bits; 0 where no bit is undefined, or it is not known.
    pub origin: Origin,
}

/// The mask of a value of 1 to 8 bytes.
#[inline]
pub const fn mask(size: u8) -> u64 {
    if size >= 8 { u64::MAX } else { (1u64 << (size as u32 * 8)) - 1 }
}

/// The highest bit of a value of `size` bytes.
#[inline]
pub(super) const fn top(size: u8) -> u64 {
    1u64 << (size as u32 * 8 - 1)
}

/// All bits from the lowest set one up.
#[inline]
pub(super) const fn smear_left(bits: u64) -> u64 {
    bits | bits.wrapping_neg()
}

/// All bits from the highest set one down.
#[inline]
pub(super) const fn smear_right(bits: u64) -> u64 {
    if bits == 0 { 0 } else { u64::MAX >> bits.leading_zeros() }
}

/// A sum or difference, with the carries that the flags need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub bits: Bits,
    /// Whether these are undefined: the carry out, the carry into the highest bit, the carry into bit 4.
    pub carry_out: bool,
    pub carry_top: bool,
    pub carry_4: bool,
    /// The source of the undefined carries.
    pub origin: Origin,
}

/// A carry into a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carry {
    Zero,
    One,
    /// Defined, of unknown value.
    Defined,
    Undefined(Origin),
}

impl Bits {
    /// A value that is defined and not known.
    pub const DEFINED: Bits = Bits { undef: 0, known: 0, value: 0, origin: 0 };

    /// A known value in which all bits are defined.
    #[inline]
    pub const fn of(value: u64) -> Bits {
        Bits { undef: 0, known: u64::MAX, value, origin: 0 }
    }

    /// A value in which all bits are undefined.
    #[inline]
    pub const fn undefined(origin: Origin) -> Bits {
        Bits { undef: u64::MAX, known: 0, value: 0, origin }
    }

    /// The value, where all bits are known.
    #[inline]
    pub fn constant(self) -> Option<u64> {
        (self.known == u64::MAX).then_some(self.value)
    }

    /// Whether no bit is undefined.
    #[inline]
    pub fn is_defined(self) -> bool {
        self.undef == 0
    }

    /// The low `size` bytes, zero-extended.
    #[inline]
    pub(super) fn zero_extend(self, size: u8) -> Bits {
        let m = mask(size);
        Bits { undef: self.undef & m, known: self.known | !m, value: self.value & m, origin: self.origin }
            .tidy()
    }

    /// The low `size` bytes, sign-extended to 64 bits.
    #[inline]
    pub(super) fn sign_extend(self, size: u8) -> Bits {
        let by = 64 - u32::from(size) * 8;
        let extend = |bits: u64| ((bits << by) as i64 >> by) as u64;
        self.each(extend).tidy()
    }

    /// A value whose masks are made by a rule that moves bits.
    #[inline]
    pub(super) fn each(self, rule: impl Fn(u64) -> u64) -> Bits {
        Bits { undef: rule(self.undef), known: rule(self.known), value: rule(self.value), ..self }
    }

    /// Bits 8..16, zero-extended.
    #[inline]
    pub(super) fn high_byte(self) -> Bits {
        self.each(|bits| bits >> 8).zero_extend(1)
    }

    /// `self` with the bits in `m` taken from `new`.
    #[inline]
    pub(super) fn merge(self, new: Bits, m: u64) -> Bits {
        let origin = if new.undef & m != 0 { new.origin } else { self.origin };
        Bits {
            undef: self.undef & !m | new.undef & m,
            known: self.known & !m | new.known & m,
            value: self.value & !m | new.value & m,
            origin,
        }
        .tidy()
    }

    /// Drops the origin of a defined value.
    #[inline]
    fn tidy(mut self) -> Bits {
        if self.undef == 0 {
            self.origin = 0;
        }
        self
    }

    #[inline]
    fn either(a: Bits, b: Bits) -> Origin {
        if a.undef != 0 { a.origin } else { b.origin }
    }

    /// A value that is undefined exactly in `undef`, and not known in the low `size` bytes.
    #[inline]
    pub(super) fn with_undef(undef: u64, size: u8, origin: Origin) -> Bits {
        let m = mask(size);
        Bits { undef: undef & m, known: !m, value: 0, origin }.tidy()
    }

    /// Bits on which `a` and `b` are known to agree.
    #[inline]
    fn agree(a: Bits, b: Bits) -> u64 {
        a.known & b.known & !(a.value ^ b.value)
    }

    /// A value of `size` bytes that is wholly undefined, or not at all.
    pub(super) fn whole(undefined: bool, size: u8, origin: Origin) -> Bits {
        Bits::with_undef(if undefined { u64::MAX } else { 0 }, size, origin)
    }

    /// Either of `a` and `b`, where the choice is undefined.
    #[inline]
    pub(super) fn select_undefined(a: Bits, b: Bits, size: u8, origin: Origin) -> Bits {
        let known = Bits::agree(a, b) | !mask(size);
        Bits { undef: !known, known, value: a.value & known & mask(size), origin }.tidy()
    }

    /// Either of `a` and `b`, where the choice is defined but not in the log. See the module's documentation.
    #[inline]
    pub(super) fn select_either(a: Bits, b: Bits) -> Bits {
        let known = Bits::agree(a, b);
        let undef = a.undef & b.undef;
        Bits { undef, known, value: a.value & known, origin: Bits::either(a, b) }.tidy()
    }

    /// Either of `a` and `b`, undefined where one of them is.
    #[inline]
    pub(super) fn union(a: Bits, b: Bits) -> Bits {
        let known = Bits::agree(a, b);
        Bits { undef: a.undef | b.undef, known, value: a.value & known, origin: Bits::either(a, b) }.tidy()
    }

    #[inline]
    pub(super) fn and(a: Bits, b: Bits) -> Bits {
        let zero = a.known & !a.value | b.known & !b.value;
        let known = zero | a.known & b.known;
        Bits {
            undef: (a.undef | b.undef) & !zero,
            known,
            value: a.value & b.value & known,
            origin: Bits::either(a, b),
        }
        .tidy()
    }

    #[inline]
    pub(super) fn or(a: Bits, b: Bits) -> Bits {
        let one = a.value | b.value;
        let known = one | a.known & b.known;
        Bits { undef: (a.undef | b.undef) & !one, known, value: one, origin: Bits::either(a, b) }.tidy()
    }

    #[inline]
    pub(super) fn xor(a: Bits, b: Bits) -> Bits {
        let known = a.known & b.known;
        Bits {
            undef: a.undef | b.undef,
            known,
            value: (a.value ^ b.value) & known,
            origin: Bits::either(a, b),
        }
        .tidy()
    }

    /// The complement of the low `size` bytes; the rest is zero.
    #[inline]
    pub(super) fn not(self, size: u8) -> Bits {
        let m = mask(size);
        Bits { value: !self.value & self.known & m, known: self.known | !m, ..self }
    }

    #[inline]
    pub(super) fn swap_bytes(self, size: u8) -> Bits {
        let by = 64 - u32::from(size) * 8;
        let swapped = self.each(|bits| bits.swap_bytes() >> by);
        Bits { known: swapped.known | !mask(size), ..swapped }
    }

    /// `a + b + carry` in `size` bytes; `a` and `b` are zero-extended.
    #[inline]
    pub(super) fn add(a: Bits, b: Bits, carry: Carry, size: u8) -> Sum {
        let m = mask(size);
        let (low, high) = match carry {
            Carry::Zero => (0, 0),
            Carry::One => (1, 1),
            Carry::Defined | Carry::Undefined(_) => (0, 1),
        };
        if a.undef | b.undef == 0 && !matches!(carry, Carry::Undefined(_)) {
            let (amax, bmax) = (a.value | !a.known, b.value | !b.known);
            let min = a.value.wrapping_add(b.value).wrapping_add(low);
            let max = amax.wrapping_add(bmax).wrapping_add(high);
            let unsure = (min ^ a.value ^ b.value) ^ (max ^ amax ^ bmax);
            let known = a.known & b.known & !unsure | !m;
            let bits = Bits { undef: 0, known, value: min & known & m, origin: 0 };
            return Sum { bits, carry_out: false, carry_top: false, carry_4: false, origin: 0 };
        }
        Bits::add_undefined(a, b, carry, low, high, size)
    }

    /// The general case of [`Bits::add`]: finds the carries that can be undefined. A carry is monotone in all
    /// bits below it. So it is known exactly where the least and the greatest operands produce the same one.
    fn add_undefined(a: Bits, b: Bits, carry: Carry, low: u64, high: u64, size: u8) -> Sum {
        let m = u128::from(mask(size));
        let (amin, bmin) = (u128::from(a.value) & m, u128::from(b.value) & m);
        let (amax, bmax) = (u128::from(a.value | !a.known) & m, u128::from(b.value | !b.known) & m);
        let min = amin + bmin + u128::from(low);
        let max = amax + bmax + u128::from(high);
        let unsure = (min ^ amin ^ bmin) ^ (max ^ amax ^ bmax);
        let sources = u128::from(a.undef | b.undef) & m;
        let first = u128::from(matches!(carry, Carry::Undefined(_)));
        let mut undef = (sources << 1 | first) & (unsure | first);
        let mut through = unsure;
        for by in [1, 2, 4, 8, 16, 32, 64] {
            undef |= through & (undef << by);
            through &= through << by;
        }
        let known = u128::from(a.known & b.known) & !unsure & m;
        let origin = match carry {
            Carry::Undefined(origin) if a.undef | b.undef == 0 => origin,
            _ => Bits::either(a, b),
        };
        let bits = Bits {
            undef: ((sources | undef) & m) as u64,
            known: known as u64 | !(m as u64),
            value: (min & known) as u64,
            origin,
        }
        .tidy();
        let width = u32::from(size) * 8;
        Sum {
            bits,
            carry_out: undef >> width & 1 != 0,
            carry_top: undef >> (width - 1) & 1 != 0,
            carry_4: undef >> 4 & 1 != 0,
            origin,
        }
    }

    /// `a - b - borrow`, as `a + !b + !borrow`: `carry` is the complement of the borrow.
    #[inline]
    pub(super) fn sub(a: Bits, b: Bits, carry: Carry, size: u8) -> Sum {
        Bits::add(a, b.not(size), carry, size)
    }

    /// The low half of a product of `size` bytes.
    pub(super) fn mul(a: Bits, b: Bits, size: u8) -> Bits {
        let m = mask(size);
        // Bits beyond the operand have no effect.
        let (aknown, bknown) = (a.known & m, b.known & m);
        if aknown == m && bknown == m {
            return Bits::of(a.value.wrapping_mul(b.value) & m);
        }
        let zeros = |x: Bits| (x.known & !x.value).trailing_ones();
        let (za, zb) = (zeros(a), zeros(b));
        let lowest = |undef: u64, zeros: u32| {
            if undef == 0 { 64 } else { (undef.trailing_zeros() + zeros).min(64) }
        };
        let from = lowest(a.undef & m, zb).min(lowest(b.undef & m, za));
        let undef = u64::MAX.checked_shl(from).unwrap_or(0) & m;
        let zero_bits = !u64::MAX.checked_shl(za + zb).unwrap_or(0) & m;
        Bits { undef: undef & !zero_bits, known: !m | zero_bits, value: 0, origin: Bits::either(a, b) }.tidy()
    }
}
