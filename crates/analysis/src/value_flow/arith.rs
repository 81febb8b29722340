//! Rules of arithmetic and logic, and the dispatch to those of shifts and bits.

use super::bits::{Bits, Carry, mask, smear_left, top};
use super::exec::Machine;
use super::insn::{Logic, Op, Opnd, Shift};
use super::regs::{if_undefined, result_flags};
use super::shift::{first_origin, shift_known};
use super::{Flags, Memory, Origin};

impl<M: Memory> Machine<'_, '_, M> {
    /// Executes an instruction that writes a result to its first operand, or flags alone.
    pub(super) fn arithmetic(&mut self) {
        let insn = self.insn;
        let (size, dst, src, src2) = (insn.size, insn.dst, insn.src, insn.src2);
        let result = match &insn.op {
            Op::Zero => {
                self.set_flags(Flags::ALL, 0, 0);
                Bits::of(0)
            }
            Op::Logic(Logic::AndNot) => {
                let a = self.read(src, size).not(size);
                Bits::and(a, self.read(src2, size))
            }
            Op::Test | Op::Logic(Logic::And) => self.of_both(Bits::and),
            Op::Logic(Logic::Or) => self.of_both(Bits::or),
            Op::Logic(Logic::Xor) => self.of_both(Bits::xor),
            Op::Add if dst == src => self.double(),
            Op::Add => self.sum(Carry::Zero),
            Op::Adc => self.sum(self.carry(Flags::CF)),
            Op::AddFlag(flag) => {
                let (a, b) = self.both();
                let sum = Bits::add(a, b, self.carry(*flag), size);
                self.set_flags(*flag, if_undefined(sum.carry_out, *flag), sum.bits.origin);
                sum.bits
            }
            Op::Sub | Op::Cmp => self.difference(Carry::One),
            Op::Sbb => self.difference(self.carry(Flags::CF)),
            Op::SbbSelf => {
                let (undefined, origin) = (self.regs.flags & Flags::CF != 0, self.regs.flags_origin);
                self.whole(undefined, origin, Flags::ALL)
            }
            Op::Inc => {
                let a = self.read(dst, size);
                self.add_flags(a, Bits::of(1), Carry::Zero, Flags::ALL & !Flags::CF)
            }
            Op::Dec => {
                let a = self.read(dst, size);
                self.sub_flags(a, Bits::of(1), Carry::One, Flags::ALL & !Flags::CF)
            }
            Op::Neg => {
                let a = self.read(dst, size);
                self.sub_flags(Bits::of(0), a, Carry::One, Flags::ALL)
            }
            Op::Not => self.read(dst, size).not(size),
            Op::Imul => {
                let (a, b) = (self.read(src, size), self.read(src2, size));
                let (undefined, origin) = either(a, b);
                self.set_flags(Flags::ALL, if_undefined(undefined, Flags::ALL), origin);
                Bits::mul(a, b, size)
            }
            Op::MulWide => return self.multiply_wide(),
            Op::Mulx => {
                let (a, b) = (self.read(Opnd::Reg(2), size), self.read(src2, size));
                let (low, high) = wide_product(a, b, size);
                self.write(src, size, low);
                high
            }
            Op::Div => return self.divide(),
            Op::Shift(kind) => {
                let (a, count) = (self.read(dst, size), self.read(src, 1));
                self.shift(*kind, a, count, true)
            }
            Op::ShiftX(kind) => {
                let (a, count) = (self.read(src, size), self.read(src2, 1));
                self.shift(*kind, a, count, false)
            }
            Op::RotateCarry => self.rotate_carry(),
            Op::ShiftDouble(left) => return self.shift_double(*left),
            Op::Bit(what) => return self.bit(*what),
            Op::BitScan(written) => return self.bit_scan(*written),
            Op::Whole(written) => {
                let (undefined, origin) = either(self.read(src, insn.src_size), self.read(src2, size));
                self.whole(undefined, origin, *written)
            }
            Op::LowBit => {
                let a = self.read(src, size);
                self.set_flags(Flags::ALL, if_undefined(!a.is_defined(), Flags::ALL), a.origin);
                Bits::with_undef(smear_left(a.undef), size, a.origin)
            }
            Op::SignExtendA => self.read(src, insn.src_size).sign_extend(insn.src_size).zero_extend(size),
            Op::SignExtendD => {
                let a = self.read(src, size).sign_extend(size);
                shift_known(Shift::Sar, a, 63, 8).zero_extend(size)
            }
            _ => return,
        };
        if matches!(insn.op, Op::Logic(_) | Op::Test) {
            self.set_flags(Flags::ALL, result_flags(result, size), result.origin);
        }
        if !matches!(insn.op, Op::Test | Op::Cmp) {
            self.write(dst, size, result);
        }
    }

    /// The values of the first two operands.
    #[inline]
    fn both(&mut self) -> (Bits, Bits) {
        let size = self.insn.size;
        (self.read(self.insn.dst, size), self.read(self.insn.src, size))
    }

    #[inline]
    fn of_both(&mut self, rule: fn(Bits, Bits) -> Bits) -> Bits {
        let (a, b) = self.both();
        rule(a, b)
    }

    #[inline]
    fn sum(&mut self, carry: Carry) -> Bits {
        let (a, b) = self.both();
        self.add_flags(a, b, carry, Flags::ALL)
    }

    #[inline]
    fn difference(&mut self, carry: Carry) -> Bits {
        let (a, b) = self.both();
        self.sub_flags(a, b, carry, Flags::ALL)
    }

    /// A result and flags that are wholly undefined, or not at all.
    fn whole(&mut self, undefined: bool, origin: Origin, written: u8) -> Bits {
        self.set_flags(written, if_undefined(undefined, Flags::ALL), origin);
        Bits::whole(undefined, self.insn.size, origin)
    }

    /// Doubling moves each bit up, and no carry depends on more than one bit.
    fn double(&mut self) -> Bits {
        let size = self.insn.size;
        let a = self.read(self.insn.dst, size);
        let r = shift_known(Shift::Shl, a, 1, size);
        let mut flags = result_flags(r, size);
        flags |= if_undefined(a.undef & top(size) != 0, Flags::CF | Flags::OF);
        flags |= if_undefined(a.undef & top(size) >> 1 != 0, Flags::OF);
        flags |= if_undefined(a.undef & 8 != 0, Flags::AF);
        self.set_flags(Flags::ALL, flags, a.origin);
        r
    }

    fn rotate_carry(&mut self) -> Bits {
        let (a, count) = (self.read(self.insn.dst, self.insn.size), self.read(self.insn.src, 1));
        let any = self.regs.flags & Flags::CF != 0 || !a.is_defined() || !count.is_defined();
        let origin = first_origin([a.origin, count.origin, self.regs.flags_origin]);
        self.whole(any, origin, Flags::CF | Flags::OF)
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
        let (any, origin) = either(a, b);
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
        let r = self.whole(any, first_origin([low.origin, high.origin, by.origin]), Flags::ALL);
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
        let one_of = |a: Bits, b: Bits, size: u8| match undecided {
            Some(origin) => Bits::select_undefined(a, b, size, origin),
            None => Bits::union(a, b),
        };
        let stored = one_of(old, new, size);
        let rax = one_of(old, expected, size);
        // A register that the instruction does not write after all keeps its upper half.
        if size == 4 {
            self.regs.gpr[0] = one_of(rax, self.regs.gpr[0], 8);
        } else {
            self.write(Opnd::Reg(0), size, rax);
        }
        match insn.dst {
            Opnd::Reg(n) if size == 4 => {
                let slot = &mut self.regs.gpr[usize::from(n & 15)];
                *slot = one_of(stored, *slot, 8);
            }
            dst => self.write(dst, size, stored),
        }
    }
}

/// Whether one of two values has undefined bits, and their source.
fn either(a: Bits, b: Bits) -> (bool, Origin) {
    (!(a.is_defined() && b.is_defined()), if a.is_defined() { b.origin } else { a.origin })
}

fn wide_product(a: Bits, b: Bits, size: u8) -> (Bits, Bits) {
    let (any, origin) = either(a, b);
    (Bits::mul(a, b, size), Bits::whole(any, size, origin))
}
