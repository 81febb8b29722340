//! Rules of shifts, rotates, bit tests and bit scans.

use super::bits::{Bits, mask, smear_left, smear_right, top};
use super::exec::Machine;
use super::insn::{BitOp, Opnd, Shift};
use super::regs::{if_undefined, result_flags};
use super::{Flags, Memory, Origin};
use iced_x86::Mnemonic;

impl<M: Memory> Machine<'_, '_, M> {
    pub(super) fn shift(&mut self, kind: Shift, a: Bits, count: Bits, with_flags: bool) -> Bits {
        let size = self.insn.size;
        let range = if size == 8 { 63 } else { 31 };
        let rotate = matches!(kind, Shift::Rol | Shift::Ror);
        let written = match (with_flags, rotate) {
            (false, _) => 0,
            (true, true) => Flags::CF | Flags::OF,
            (true, false) => Flags::ALL,
        };
        if count.undef & range != 0 {
            self.set_flags(written, Flags::ALL, count.origin);
            let zero = a.known & mask(size) == mask(size) && a.value == 0;
            return if zero { a } else { Bits::with_undef(u64::MAX, size, count.origin) };
        }
        if count.known & range != range {
            let undef = match kind {
                Shift::Shl => smear_left(a.undef),
                Shift::Shr | Shift::Sar => smear_right(a.undef),
                Shift::Rol | Shift::Ror if a.is_defined() => 0,
                Shift::Rol | Shift::Ror => u64::MAX,
            };
            if undef != 0 {
                // The count may be zero, which leaves the flags unchanged.
                self.set_flags(written, Flags::ALL, a.origin);
            } else if a.is_defined() {
                let old = self.regs.flags;
                let origin = self.regs.flags_origin;
                self.set_flags(written, old, origin);
            }
            return Bits::with_undef(undef, size, a.origin);
        }
        let c = (count.value & range) as u32;
        let r = shift_known(kind, a, c, size);
        if c != 0 && with_flags {
            self.shift_flags(kind, a, r, c, written);
        }
        r
    }

    pub(super) fn shift_flags(&mut self, kind: Shift, a: Bits, r: Bits, c: u32, written: u8) {
        let size = self.insn.size;
        let width = u32::from(size) * 8;
        let bit = |x: Bits, at: u32| x.undef >> at.min(63) & 1 != 0;
        let last = width - 1;
        let carry = match kind {
            Shift::Shl if c <= width => bit(a, width - c),
            Shift::Shr if c <= width => bit(a, c - 1),
            Shift::Shl | Shift::Shr => !a.is_defined(),
            Shift::Sar => bit(a, (c - 1).min(last)),
            Shift::Rol => bit(r, 0),
            Shift::Ror => bit(r, last),
        };
        let overflow = match kind {
            Shift::Shl | Shift::Rol => carry || bit(r, last),
            Shift::Shr => bit(a, last),
            Shift::Sar => false,
            Shift::Ror => bit(r, last) || bit(r, last - 1),
        };
        let flags =
            result_flags(r, size) | if_undefined(carry, Flags::CF) | if_undefined(overflow, Flags::OF);
        self.set_flags(written, flags, a.origin);
    }

    pub(super) fn shift_double(&mut self, left: bool) {
        let insn = self.insn;
        let size = insn.size;
        let width = u32::from(size) * 8;
        let (a, b, count) = (self.read(insn.dst, size), self.read(insn.src, size), self.read(insn.src2, 1));
        let range = if size == 8 { 63 } else { 31 };
        let origin = first_origin([a.origin, b.origin, count.origin]);
        let c = (count.value & range) as u32;
        let exact = count.undef & range == 0 && count.known & range == range && c <= width;
        if !exact {
            let any = a.undef | b.undef | count.undef & range != 0;
            let r = Bits::whole(any, size, origin);
            let flags = if any { Flags::ALL } else { self.regs.flags };
            self.set_flags(Flags::ALL, flags, if any { origin } else { self.regs.flags_origin });
            self.write(insn.dst, size, r);
            return;
        }
        if c == 0 {
            self.write(insn.dst, size, a);
            return;
        }
        let (first, second) = if left { (Shift::Shl, Shift::Shr) } else { (Shift::Shr, Shift::Shl) };
        let r = Bits::or(shift_known(first, a, c, size), shift_known(second, b, width - c, size));
        let out = if left { width - c } else { c - 1 };
        let carry = a.undef >> out & 1 != 0;
        let overflow = (a.undef | r.undef) & top(size) != 0 || carry;
        let flags =
            result_flags(r, size) | if_undefined(carry, Flags::CF) | if_undefined(overflow, Flags::OF);
        self.set_flags(Flags::ALL, flags, origin);
        self.write(insn.dst, size, r);
    }

    pub(super) fn bit(&mut self, what: BitOp) {
        let insn = self.insn;
        let size = insn.size;
        let range = u64::from(size) * 8 - 1;
        if let (Opnd::Mem, Opnd::Reg(reg)) = (insn.dst, insn.src)
            && let Some(access) = self.log.peek(insn.index)
        {
            self.check_address_register(access, reg);
        }
        let (a, index) = (self.read(insn.dst, size), self.read(insn.src, size));
        let m = mask(size);
        let at = index.value & range;
        let known_index = index.known & range == range;
        let one = 1u64 << at;
        let (carry, r, origin) = if index.undef & range != 0 {
            (true, Bits::with_undef(u64::MAX, size, index.origin), index.origin)
        } else if known_index {
            let r = match what {
                BitOp::Test => a,
                BitOp::Set => Bits::or(a, Bits::of(one)),
                BitOp::Reset => Bits::and(a, Bits::of(!one & m)),
                BitOp::Complement => Bits::xor(a, Bits::of(one)),
            };
            (a.undef & one != 0, r, a.origin)
        } else {
            // The log does not say which bit. A bit that is known to be one stays known when some bit is set.
            let known = match what {
                BitOp::Test => a.known,
                BitOp::Set => a.value,
                BitOp::Reset => a.known & !a.value,
                BitOp::Complement => 0,
            };
            let r = Bits { known: known | !m, value: a.value & known, ..a };
            (!a.is_defined(), r, a.origin)
        };
        self.set_flags(Flags::CF, if_undefined(carry, Flags::CF), origin);
        if what != BitOp::Test {
            self.write(insn.dst, size, r);
        }
    }

    pub(super) fn bit_scan(&mut self, written: u8) {
        let insn = self.insn;
        let size = insn.size;
        let a = self.read(insn.src, size);
        let from_low = matches!(insn.mnemonic, Mnemonic::Bsf | Mnemonic::Tzcnt);
        let counts = matches!(insn.mnemonic, Mnemonic::Tzcnt | Mnemonic::Lzcnt | Mnemonic::Popcnt);
        let beyond = if from_low { !smear_left(a.undef) } else { !smear_right(a.undef) };
        // A bit that is known to be one before the first undefined bit decides the scan.
        let decided =
            a.is_defined() || insn.mnemonic != Mnemonic::Popcnt && a.value & beyond & mask(size) != 0;
        let mut r = Bits::with_undef(if decided { 0 } else { u64::MAX }, size, a.origin);
        if counts {
            r.undef &= 0x7f;
            r.known = !0x7f;
        }
        let nonzero = a.value & mask(size) != 0;
        let flags = match insn.mnemonic {
            _ if decided => 0,
            Mnemonic::Tzcnt | Mnemonic::Lzcnt => {
                let end = if from_low { 1 } else { top(size) };
                if_undefined(!nonzero, Flags::CF) | if_undefined(a.undef & end != 0, Flags::ZF)
            }
            _ => if_undefined(!nonzero, Flags::ZF),
        };
        self.set_flags(written, flags, a.origin);
        match insn.dst {
            // A zero source leaves the whole destination unchanged.
            Opnd::Reg(n) if !counts && !nonzero && size >= 4 => {
                let slot = &mut self.regs.gpr[usize::from(n & 15)];
                *slot = if decided {
                    Bits::select_either(r, *slot)
                } else {
                    Bits::select_undefined(r, *slot, 8, a.origin)
                };
            }
            dst => self.write(dst, size, r),
        }
    }
}

/// The first source that is known.
pub(super) fn first_origin(origins: [Origin; 3]) -> Origin {
    origins.into_iter().find(|&origin| origin != 0).unwrap_or(0)
}

/// A shift or rotation by a known count; `a` is zero-extended from `size` bytes.
pub(super) fn shift_known(kind: Shift, a: Bits, c: u32, size: u8) -> Bits {
    let m = mask(size);
    let width = u32::from(size) * 8;
    let left = |bits: u64| bits.checked_shl(c).unwrap_or(0);
    let right = |bits: u64| bits.checked_shr(c).unwrap_or(0);
    let (r, shifted_in) = match kind {
        Shift::Shl => (a.each(left), !left(u64::MAX)),
        Shift::Shr => (a.each(right), !right(u64::MAX)),
        Shift::Sar => (a.sign_extend(size).each(|bits| (bits as i64 >> c.min(63)) as u64), 0),
        Shift::Rol | Shift::Ror => {
            let c = if kind == Shift::Rol { c % width } else { (width - c % width) % width };
            let rotate = |bits: u64| if c == 0 { bits } else { bits << c | (bits & m) >> (width - c) };
            (a.each(|bits| rotate(bits & m) & m), !m)
        }
    };
    Bits { known: r.known | shifted_in, ..r }.zero_extend(size)
}
