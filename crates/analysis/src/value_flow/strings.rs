//! String instructions.

use super::bits::{Bits, Carry};
use super::exec::Machine;
use super::insn::{Opnd, Str};
use super::regs::Regs;
use super::{Flags, Memory, RepRange, Value};
use guardrail_trace::event::Access;

const RAX: usize = 0;
const RCX: usize = 1;
const RSI: u8 = 6;
const RDI: u8 = 7;

impl Str {
    fn reads(self) -> bool {
        !matches!(self, Str::Stos | Str::Ins | Str::Scas)
    }

    fn uses_rdi(self) -> bool {
        !matches!(self, Str::Lods | Str::Outs)
    }
}

/// Moves a pointer by `bytes`, and keeps what is known about it.
fn advance(regs: &mut Regs, reg: u8, bytes: u64) {
    let slot = &mut regs.gpr[usize::from(reg)];
    *slot = match slot.constant() {
        Some(value) if regs.df => Bits::of(value.wrapping_sub(bytes)),
        Some(value) => Bits::of(value.wrapping_add(bytes)),
        None => Bits { known: 0, value: 0, ..*slot },
    };
}

impl<M: Memory> Machine<'_, '_, M> {
    pub(super) fn string(&mut self, what: Str) {
        let size = self.insn.size;
        // The order of the two loads does not matter: both addresses count.
        if let Some(access) = self.log.peek(self.insn.index) {
            if what.reads() {
                self.check_address_register(access, RSI);
            }
            if what.uses_rdi() {
                self.check_address_register(access, RDI);
            }
        }
        match what {
            Str::Movs => {
                let value = self.load(size);
                self.store(value, size);
            }
            Str::Stos => {
                let value = self.read(Opnd::Reg(0), size);
                self.store(value, size);
            }
            Str::Lods => {
                let value = self.load(size);
                self.write(Opnd::Reg(0), size, value);
            }
            Str::Cmps => {
                let (a, b) = (self.load(size), self.load(size));
                self.sub_flags(a, b, Carry::One, Flags::ALL);
            }
            Str::Scas => {
                let (a, b) = (self.read(Opnd::Reg(0), size), self.load(size));
                self.sub_flags(a, b, Carry::One, Flags::ALL);
            }
            Str::Ins => self.store(Bits::DEFINED, size),
            Str::Outs => {
                let value = self.load(size);
                if !value.is_defined() {
                    self.mem.undefined_port_output(&self.ctx, value.origin);
                }
            }
        }
        if what.reads() {
            advance(self.regs, RSI, u64::from(size));
        }
        if what.uses_rdi() {
            advance(self.regs, RDI, u64::from(size));
        }
    }

    pub(super) fn repeat(&mut self, what: Str) {
        let Some(rep) = self.log.take_rep(self.insn.index) else { return };
        let elem = self.insn.size;
        let mut io = false;
        while let Some(access) = self.log.take_any(self.insn.index) {
            io |= access.io;
        }
        self.check_count();
        if rep.count != 0 {
            let back = if self.regs.df { (rep.count - 1).wrapping_mul(u64::from(elem)) } else { 0 };
            let mut range = RepRange { dst: 0, src: 0, count: rep.count, elem, backward: self.regs.df, io };
            let access = |addr, store| Access { addr, size: elem, store, io: false, insn: self.insn.index };
            if what.reads() {
                range.src = rep.rsi.wrapping_sub(back);
                self.reach_range(RSI, rep.rsi, range.src, range.bytes(), false);
                self.check_address_register(access(rep.rsi, false), RSI);
            }
            if what.uses_rdi() {
                range.dst = rep.rdi.wrapping_sub(back);
                self.reach_range(RDI, rep.rdi, range.dst, range.bytes(), true);
                self.check_address_register(access(rep.rdi, true), RDI);
            }
            match what {
                Str::Movs => self.mem.rep_move(&self.ctx, range),
                Str::Stos => {
                    let bits = self.read(Opnd::Reg(RAX as u8), elem);
                    let value = Value { undef: bits.undef, origin: bits.origin };
                    self.mem.rep_set(&self.ctx, range, value);
                }
                Str::Ins => self.mem.rep_set(&self.ctx, range, Value::DEFINED),
                Str::Lods => {
                    let value = self.mem.rep_read(&self.ctx, range);
                    self.write(Opnd::Reg(0), elem, Bits::with_undef(value.undef, elem, value.origin));
                }
                Str::Outs => {
                    let value = self.mem.rep_read(&self.ctx, range);
                    if value.undef != 0 {
                        self.mem.undefined_port_output(&self.ctx, value.origin);
                    }
                }
                Str::Cmps | Str::Scas => {}
            }
        }
        let bytes = rep.count.wrapping_mul(u64::from(elem));
        let moved = |from: u64| {
            Bits::of(if self.regs.df { from.wrapping_sub(bytes) } else { from.wrapping_add(bytes) })
        };
        let (rsi, rdi) = (moved(rep.rsi), moved(rep.rdi));
        if what.reads() {
            self.regs.gpr[usize::from(RSI)] = rsi;
        }
        if what.uses_rdi() {
            self.regs.gpr[usize::from(RDI)] = rdi;
        }
        self.regs.gpr[RCX] = Bits::of(0);
    }

    /// cmps and scas with repe or repne: each comparison decides whether the next one is made.
    pub(super) fn repeat_compare(&mut self, what: Str) {
        self.check_count();
        let size = self.insn.size;
        let needle = if what == Str::Scas { self.read(Opnd::Reg(0), size) } else { Bits::DEFINED };
        let mut undefined = (!needle.is_defined()).then_some(needle.origin);
        let mut any = false;
        while let Some(access) = self.log.take_any(self.insn.index) {
            any = true;
            if what.reads() {
                self.check_address_register(access, RSI);
            }
            self.check_address_register(access, RDI);
            let value = self.mem.load(&self.ctx, access);
            if value.undef != 0 && undefined.is_none() {
                undefined = Some(value.origin);
            }
        }
        if any {
            if let Some(origin) = undefined {
                self.mem.undefined_branch(&self.ctx, origin);
            }
            self.set_flags(Flags::ALL, 0, 0);
        }
        self.regs.gpr[RCX] = Bits::DEFINED;
        for reg in [RSI, RDI] {
            if reg == RDI || what.reads() {
                let slot = &mut self.regs.gpr[usize::from(reg)];
                *slot = Bits { known: 0, value: 0, ..*slot };
            }
        }
    }

    fn check_count(&mut self) {
        let count = self.regs.gpr[RCX];
        if !count.is_defined() {
            self.mem.undefined_branch(&self.ctx, count.origin);
            self.set_defined(Opnd::Reg(1));
        }
    }
}
