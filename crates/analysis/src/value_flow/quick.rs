//! Instructions that change nothing but a register or the flags, as long as they move no pointer and need no report.
//! They take no more than a few comparisons then.

use super::bits::{Bits, mask};
use super::insn::{Insn, NO_REG, Op, Opnd, Quick};
use super::pointer::Flow;
use super::regs::RSP;
use super::{AccessCursor, Memory, Regs, Value};

impl Quick {
    /// What a translated instruction does; it must be translated to its end.
    pub(super) fn of(insn: &Insn) -> Quick {
        if insn.control.is_some() {
            return Quick::Never;
        }
        let whole = |dst: u8| dst != RSP && insn.size >= 4;
        if insn.needs_access {
            return match (&insn.op, insn.dst, insn.src) {
                (Op::Mov, Opnd::Reg(dst), Opnd::Mem) if whole(dst) => Quick::Load,
                (Op::Mov, Opnd::Mem, Opnd::Reg(_)) if insn.src_size == insn.size => Quick::Store,
                (Op::Mov, Opnd::Mem, Opnd::Imm) => Quick::Store,
                _ => Quick::Never,
            };
        }
        match (&insn.op, insn.dst, insn.src) {
            (Op::Nop, ..) if insn.uses.written == 0 => Quick::Nothing,
            (Op::Jcc(flags), ..) if insn.uses.written == 0 => Quick::Branch(*flags),
            (Op::Cmp | Op::Test, Opnd::Reg(_), Opnd::Reg(_) | Opnd::Imm) => Quick::Compare,
            (Op::Mov, Opnd::Reg(dst), Opnd::Reg(_)) if whole(dst) && insn.src_size == insn.size => {
                Quick::Move
            }
            (Op::Mov, Opnd::Reg(dst), Opnd::Imm) if whole(dst) => Quick::Constant,
            (Op::Zero, Opnd::Reg(dst), _) if whole(dst) => Quick::Zero,
            _ => Quick::Never,
        }
    }
}

impl Insn {
    /// Runs the instruction if it can run quickly. Returns false, and changes nothing, where it cannot. The log must
    /// have no access of it.
    #[inline]
    pub(super) fn runs_quickly(&self, regs: &mut Regs) -> bool {
        // Pointers stay where they are.
        let stay = regs.pointers.live & (self.uses.written | self.uses.mixed) == 0;
        match self.quick {
            Quick::Never | Quick::Load | Quick::Store => false,
            Quick::Nothing => true,
            Quick::Branch(flags) => regs.flags & flags == 0,
            Quick::Compare => {
                let undef = |opnd| match opnd {
                    Opnd::Reg(n) => regs.gpr[usize::from(n & 15)].undef,
                    _ => 0,
                };
                let defined = (undef(self.dst) | undef(self.src)) & mask(self.size) == 0;
                if !defined || !stay && self.uses.flow == Flow::Compare {
                    return false;
                }
                (regs.flags, regs.flags_origin) = (0, 0);
                true
            }
            Quick::Move => {
                let (Opnd::Reg(dst), Opnd::Reg(src), true) = (self.dst, self.src, stay) else { return false };
                regs.gpr[usize::from(dst & 15)] = regs.gpr[usize::from(src & 15)].zero_extend(self.size);
                true
            }
            Quick::Constant => {
                let (Opnd::Reg(dst), true) = (self.dst, stay) else { return false };
                let value = Bits::of(self.imm & mask(self.src_size));
                regs.gpr[usize::from(dst & 15)] = value.zero_extend(self.size);
                true
            }
            Quick::Zero => {
                let (Opnd::Reg(dst), true) = (self.dst, stay) else { return false };
                regs.gpr[usize::from(dst & 15)] = Bits::of(0);
                (regs.flags, regs.flags_origin) = (0, 0);
                true
            }
        }
    }

    /// Runs the instruction if it moves a value to or from memory, in one access, by an address that is defined and
    /// made of no known pointer. Returns false, and changes nothing, where that is not so.
    #[inline]
    pub(super) fn moves_quickly<M: Memory>(
        &self,
        regs: &mut Regs,
        mem: &mut M,
        log: &mut AccessCursor<'_>,
    ) -> bool {
        let (store, size) = match self.quick {
            Quick::Load => (false, self.src_size),
            Quick::Store => (true, self.size),
            _ => return false,
        };
        let undef = |reg: u8| if reg == NO_REG { 0 } else { regs.gpr[usize::from(reg & 15)].undef };
        let Some(access) = log.only(self.index) else { return false };
        let uses = &self.uses;
        let learns_rsp = self.mem.base == RSP && self.mem.index == NO_REG && regs.rsp().is_none();
        if (access.store, access.size) != (store, size)
            || undef(self.mem.base) | undef(self.mem.index) != 0
            || regs.pointers.live & (uses.based | uses.written | uses.mixed) != 0
            || learns_rsp
        {
            return false;
        }
        log.advance();
        let ctx = self.ctx(regs);
        if let (false, Opnd::Reg(dst)) = (store, self.dst) {
            let value = mem.load(&ctx, access);
            let bits = Bits::with_undef(value.undef, size, value.origin);
            regs.gpr[usize::from(dst & 15)] = bits.zero_extend(self.size);
            if uses.flow == Flow::Load {
                let pointer = mem.pointer_at(&ctx, access);
                regs.pointers.set(dst, pointer);
            }
        } else {
            let bits = match self.src {
                Opnd::Reg(src) => regs.gpr[usize::from(src & 15)],
                _ => Bits::DEFINED,
            };
            let undef = bits.undef & mask(size);
            let origin = if undef != 0 { bits.origin } else { 0 };
            mem.store(&ctx, access, Value { undef, origin });
        }
        true
    }
}
