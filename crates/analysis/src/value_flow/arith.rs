//! Rules of arithmetic and logic, and the dispatch to those of shifts and bits.

use super::bits::{Bits, Carry, mask, smear_left, top};
use super::exec::Machine;
use super::insn::{Logic, Op, Opnd, Shift};
use super::shift::shift_known;
use super::{Flags, Memory};

/// The undefined ones of the sign, zero and parity flags of a result.
#[inline]
pub(super) fn result_flags(r: Bits, size: u8) -> u8 {
    if r.undef == 0 {
        return 0;
    }
    let mut flags = 0;
    // A bit that is known to be one means that the result is not zero.
    if r.value & mask(size) == 0 {
        flags |= Flags::ZF;
    }
    if r.undef & top(size) != 0 {
        flags |= Flags::SF;
    }
    if r.undef & 0xff != 0 {
        flags |= Flags::PF;
    }
    flags
}

pub(super) fn if_undefined(undefined: bool, flags: u8) -> u8 {
    if undefined { flags } else { 0 }
}

impl<M: Memory> Machine<'_, '_, M> {
    pub(super) fn arithmetic(&mut self) {
        let insn = self.insn;
        let (size, dst, src) = (insn.size, insn.dst, insn.src);
        match &insn.op {
            Op::Zero => {
                self.write(dst, size, Bits::of(0));
                self.set_flags(Flags::ALL, 0, 0);
            }
            Op::Logic(Logic::AndNot) => {
                let a = self.read(src, size).not(size);
                let b = self.read(insn.src2, size);
                let r = Bits::and(a, b);
                self.set_flags(Flags::ALL, result_flags(r, size), r.origin);
                self.write(dst, size, r);
            }
            Op::Logic(what) => {
                let (a, b) = (self.read(dst, size), self.read(src, size));
                let r = match what {
                    Logic::And | Logic::AndNot => Bits::and(a, b),
                    Logic::Or => Bits::or(a, b),
                    Logic::Xor => Bits::xor(a, b),
                };
                self.set_flags(Flags::ALL, result_flags(r, size), r.origin);
                self.write(dst, size, r);
            }
            Op::Test => {
                let r = Bits::and(self.read(dst, size), self.read(src, size));
                self.set_flags(Flags::ALL, result_flags(r, size), r.origin);
            }
            Op::Add if dst == src => {
                // Doubling moves each bit up, and no carry depends on more than one bit.
                let a = self.read(dst, size);
                let r = shift_known(Shift::Shl, a, 1, size);
                let mut flags = result_flags(r, size);
                flags |= if_undefined(a.undef & top(size) != 0, Flags::CF | Flags::OF);
                flags |= if_undefined(a.undef & top(size) >> 1 != 0, Flags::OF);
                flags |= if_undefined(a.undef & 8 != 0, Flags::AF);
                self.set_flags(Flags::ALL, flags, a.origin);
                self.write(dst, size, r);
            }
            Op::Add => {
                let (a, b) = (self.read(dst, size), self.read(src, size));
                let r = self.add_flags(a, b, Carry::Zero, Flags::ALL);
                self.write(dst, size, r);
            }
            Op::Adc => {
                let (a, b) = (self.read(dst, size), self.read(src, size));
                let carry = self.carry(Flags::CF);
                let r = self.add_flags(a, b, carry, Flags::ALL);
                self.write(dst, size, r);
            }
            Op::AddFlag(flag) => {
                let (a, b) = (self.read(dst, size), self.read(src, size));
                let sum = Bits::add(a, b, self.carry(*flag), size);
                self.set_flags(*flag, if_undefined(sum.carry_out, *flag), sum.bits.origin);
                self.write(dst, size, sum.bits);
            }
            Op::Sub => {
                let (a, b) = (self.read(dst, size), self.read(src, size));
                let r = self.sub_flags(a, b, Carry::One, Flags::ALL);
                self.write(dst, size, r);
            }
            Op::Sbb => {
                let (a, b) = (self.read(dst, size), self.read(src, size));
                let carry = self.carry(Flags::CF);
                let r = self.sub_flags(a, b, carry, Flags::ALL);
                self.write(dst, size, r);
            }
            Op::SbbSelf => {
                let undefined = self.regs.flags & Flags::CF != 0;
                let origin = self.regs.flags_origin;
                let r = Bits::with_undef(if undefined { u64::MAX } else { 0 }, size, origin);
                self.set_flags(Flags::ALL, if_undefined(undefined, Flags::ALL), origin);
                self.write(dst, size, r);
            }
            Op::Cmp => {
                let (a, b) = (self.read(dst, size), self.read(src, size));
                self.sub_flags(a, b, Carry::One, Flags::ALL);
            }
            Op::Inc => {
                let a = self.read(dst, size);
                let r = self.add_flags(a, Bits::of(1), Carry::Zero, Flags::ALL & !Flags::CF);
                self.write(dst, size, r);
            }
            Op::Dec => {
                let a = self.read(dst, size);
                let r = self.sub_flags(a, Bits::of(1), Carry::One, Flags::ALL & !Flags::CF);
                self.write(dst, size, r);
            }
            Op::Neg => {
                let a = self.read(dst, size);
                let r = self.sub_flags(Bits::of(0), a, Carry::One, Flags::ALL);
                self.write(dst, size, r);
            }
            Op::Not => {
                let r = self.read(dst, size).not(size);
                self.write(dst, size, r);
            }
            Op::Imul => {
                let (a, b) = (self.read(src, size), self.read(insn.src2, size));
                let r = Bits::mul(a, b, size);
                let undefined = !(a.is_defined() && b.is_defined());
                let origin = if a.is_defined() { b.origin } else { a.origin };
                self.set_flags(Flags::ALL, if_undefined(undefined, Flags::ALL), origin);
                self.write(dst, size, r);
            }
            Op::MulWide => self.multiply_wide(),
            Op::Mulx => {
                let (a, b) = (self.read(Opnd::Reg(2), size), self.read(insn.src2, size));
                let (low, high) = wide_product(a, b, size);
                self.write(src, size, low);
                self.write(dst, size, high);
            }
            Op::Div => self.divide(),
            Op::Shift(kind) => {
                let (a, count) = (self.read(dst, size), self.read(src, 1));
                let r = self.shift(*kind, a, count, true);
                self.write(dst, size, r);
            }
            Op::ShiftX(kind) => {
                let (a, count) = (self.read(src, size), self.read(insn.src2, 1));
                let r = self.shift(*kind, a, count, false);
                self.write(dst, size, r);
            }
            Op::RotateCarry => {
                let (a, count) = (self.read(dst, size), self.read(src, 1));
                let carry = self.regs.flags & Flags::CF != 0;
                let any = carry || !a.is_defined() || !count.is_defined();
                let origin = [a.origin, count.origin, self.regs.flags_origin]
                    .into_iter()
                    .find(|&o| o != 0)
                    .unwrap_or(0);
                self.set_flags(Flags::CF | Flags::OF, if_undefined(any, Flags::ALL), origin);
                self.write(dst, size, Bits::with_undef(if any { u64::MAX } else { 0 }, size, origin));
            }
            Op::ShiftDouble(left) => self.shift_double(*left),
            Op::Bit(what) => self.bit(*what),
            Op::BitScan(written) => self.bit_scan(*written),
            Op::Whole(written) => {
                let a = self.read(src, insn.src_size);
                let b = self.read(insn.src2, size);
                let any = !(a.is_defined() && b.is_defined());
                let origin = if a.is_defined() { b.origin } else { a.origin };
                self.set_flags(*written, if_undefined(any, Flags::ALL), origin);
                self.write(dst, size, Bits::with_undef(if any { u64::MAX } else { 0 }, size, origin));
            }
            Op::LowBit => {
                let a = self.read(src, size);
                let r = Bits::with_undef(smear_left(a.undef), size, a.origin);
                self.set_flags(Flags::ALL, if_undefined(!a.is_defined(), Flags::ALL), a.origin);
                self.write(dst, size, r);
            }
            Op::SignExtendA => {
                let value = self.read(src, insn.src_size).sign_extend(insn.src_size).zero_extend(size);
                self.write(dst, size, value);
            }
            Op::SignExtendD => {
                let a = self.read(src, size).sign_extend(size);
                let sign = shift_known(Shift::Sar, a, 63, 8).zero_extend(size);
                self.write(dst, size, sign);
            }
            _ => {}
        }
    }

    fn carry(&self, flag: u8) -> Carry {
        if self.regs.flags & flag != 0 { Carry::Undefined(self.regs.flags_origin) } else { Carry::Defined }
    }

    #[inline]
    pub(super) fn add_flags(&mut self, a: Bits, b: Bits, carry: Carry, written: u8) -> Bits {
        let size = self.insn.size;
        let sum = Bits::add(a, b, carry, size);
        if a.undef | b.undef == 0 && !matches!(carry, Carry::Undefined(_)) {
            self.set_flags(written, 0, 0);
            return sum.bits;
        }
        self.sum_flags(sum, result_flags(sum.bits, size), written)
    }

    #[inline]
    pub(super) fn sub_flags(&mut self, a: Bits, b: Bits, carry: Carry, written: u8) -> Bits {
        let size = self.insn.size;
        let sum = Bits::sub(a, b, carry, size);
        if a.undef | b.undef == 0 && !matches!(carry, Carry::Undefined(_)) {
            self.set_flags(written, 0, 0);
            return sum.bits;
        }
        let mut flags = result_flags(sum.bits, size);
        // Operands that differ in a known bit differ, whatever the other bits are.
        if carry == Carry::One && a.known & b.known & (a.value ^ b.value) & mask(size) != 0 {
            flags &= !Flags::ZF;
        }
        self.sum_flags(sum, flags, written)
    }

    fn sum_flags(&mut self, sum: super::bits::Sum, mut flags: u8, written: u8) -> Bits {
        flags |= if_undefined(sum.carry_out, Flags::CF);
        flags |= if_undefined(sum.carry_out || sum.carry_top, Flags::OF);
        flags |= if_undefined(sum.carry_4, Flags::AF);
        self.set_flags(written, flags, sum.origin);
        sum.bits
    }

    fn multiply_wide(&mut self) {
        let size = self.insn.size;
        let (a, b) = (self.read(Opnd::Reg(0), size), self.read(self.insn.dst, size));
        let (low, high) = wide_product(a, b, size);
        let any = !(a.is_defined() && b.is_defined());
        let origin = if a.is_defined() { b.origin } else { a.origin };
        self.set_flags(Flags::ALL, if_undefined(any, Flags::ALL), origin);
        self.write(Opnd::Reg(0), size, low);
        if size == 1 {
            self.write(Opnd::High(0), 1, high);
        } else {
            self.write(Opnd::Reg(2), size, high);
        }
    }

    fn divide(&mut self) {
        let size = self.insn.size;
        let upper = if size == 1 { Opnd::High(0) } else { Opnd::Reg(2) };
        let low = self.read(Opnd::Reg(0), size);
        let high = self.read(upper, size);
        let by = self.read(self.insn.dst, size);
        let any = low.undef | high.undef | by.undef != 0;
        let origin = [low.origin, high.origin, by.origin].into_iter().find(|&o| o != 0).unwrap_or(0);
        let r = Bits::with_undef(if any { u64::MAX } else { 0 }, size, origin);
        self.set_flags(Flags::ALL, if_undefined(any, Flags::ALL), origin);
        self.write(Opnd::Reg(0), size, r);
        self.write(upper, size, r);
    }

    pub(super) fn lea(&mut self) {
        let insn = self.insn;
        let mem = insn.mem;
        let register = |regs: &super::Regs, n: u8| {
            if n == super::insn::NO_REG { Bits::of(0) } else { regs.gpr[usize::from(n & 15)] }
        };
        let base = register(self.regs, mem.base);
        let index = register(self.regs, mem.index);
        let log2 = u32::from(mem.scale.trailing_zeros() as u8).min(3);
        let sum = if mem.base == mem.index && mem.scale == 1 {
            shift_known(Shift::Shl, base, 1, 8)
        } else {
            Bits::add(base, shift_known(Shift::Shl, index, log2, 8), Carry::Zero, 8).bits
        };
        let r = if mem.disp == 0 { sum } else { Bits::add(sum, Bits::of(mem.disp), Carry::Zero, 8).bits };
        self.write(insn.dst, insn.size, r.zero_extend(insn.size));
    }

    pub(super) fn cmpxchg(&mut self) {
        let insn = self.insn;
        let size = insn.size;
        let old = self.read(insn.dst, size);
        let new = self.read(insn.src, size);
        let expected = self.read(Opnd::Reg(0), size);
        self.sub_flags(expected, old, Carry::One, Flags::ALL);
        let undecided = (self.regs.flags & Flags::ZF != 0).then_some(self.regs.flags_origin);
        let either = |a: Bits, b: Bits, size: u8| match undecided {
            Some(origin) => Bits::select_undefined(a, b, size, origin),
            None => Bits::union(a, b),
        };
        let stored = either(old, new, size);
        let rax = either(old, expected, size);
        // A register that the instruction does not write after all keeps its upper half.
        if size == 4 {
            self.regs.gpr[0] = either(rax, self.regs.gpr[0], 8);
        } else {
            self.write(Opnd::Reg(0), size, rax);
        }
        match insn.dst {
            Opnd::Reg(n) if size == 4 => {
                let slot = &mut self.regs.gpr[usize::from(n & 15)];
                *slot = either(stored, *slot, 8);
            }
            dst => self.write(dst, size, stored),
        }
    }
}

fn wide_product(a: Bits, b: Bits, size: u8) -> (Bits, Bits) {
    let low = Bits::mul(a, b, size);
    let any = !(a.is_defined() && b.is_defined());
    let origin = if a.is_defined() { b.origin } else { a.origin };
    (low, Bits::with_undef(if any { u64::MAX } else { 0 }, size, origin))
}
