//! Execution of an instruction on shadow registers: operands, memory, and the dispatch to the rules.

use super::bits::{Bits, mask};
use super::insn::{Insn, NO_REG, Op, Opnd};
use super::regs::RSP;
use super::{AccessCursor, Flags, InsnCtx, Memory, Origin, Regs, Status, Value};
use guardrail_trace::event::Access;

/// Everything that a rule acts upon.
pub(super) struct Machine<'a, 'l, M> {
    pub insn: &'a Insn,
    pub regs: &'a mut Regs,
    pub mem: &'a mut M,
    pub log: &'a mut AccessCursor<'l>,
    pub ctx: InsnCtx,
    /// The last access of a load or store.
    pub last: Option<Access>,
    /// An access through a pointer was compared; further ones may be pieces of it.
    pub pieces: bool,
}

impl Insn {
    /// The instruction for callbacks, before it changes the registers.
    #[inline]
    pub(super) fn ctx(&self, regs: &Regs) -> InsnCtx {
        InsnCtx { addr: self.addr, index: self.index, len: self.len, rsp: regs.rsp(), access: self.access }
    }

    /// Executes the instruction on the shadow state, with its accesses from `accesses`.
    pub fn execute<M: Memory>(
        &self,
        regs: &mut Regs,
        mem: &mut M,
        accesses: &mut AccessCursor<'_>,
    ) -> Status {
        accesses.skip_before(self.index);
        if self.needs_access && accesses.peek(self.index).is_none() {
            return Status::NoAccess;
        }
        if self.is_rep() && !accesses.has_rep(self.index) {
            return Status::NoAccess;
        }
        let ctx = self.ctx(regs);
        let mut machine =
            Machine { insn: self, regs, mem: &mut *mem, log: accesses, ctx, last: None, pieces: false };
        let pointer = machine.pointer_made();
        machine.dispatch();
        machine.move_pointers(pointer);
        machine.drain();
        if let Some(control) = self.control {
            mem.control(&ctx, control);
        }
        Status::Done
    }
}

impl<M: Memory> Machine<'_, '_, M> {
    fn dispatch(&mut self) {
        let insn = self.insn;
        let (size, dst, src) = (insn.size, insn.dst, insn.src);
        match &insn.op {
            Op::Nop => {}
            Op::Mov => {
                let value = self.read(src, insn.src_size);
                self.write(dst, size, value);
            }
            Op::MovSx => {
                let value = self.read(src, insn.src_size).sign_extend(insn.src_size).zero_extend(size);
                self.write(dst, size, value);
            }
            Op::Lea => self.lea(),
            Op::Xchg => {
                let (a, b) = (self.read(dst, size), self.read(src, size));
                self.write(dst, size, b);
                self.write(src, size, a);
            }
            Op::CmpXchg => self.cmpxchg(),
            Op::CmpXchgPair(half) => self.cmpxchg_pair(*half),
            Op::Xadd => {
                let (a, b) = (self.read(dst, size), self.read(src, size));
                let sum = self.add_flags(a, b, super::bits::Carry::Zero, Flags::ALL);
                self.write(src, size, a);
                self.write(dst, size, sum);
            }
            Op::Bswap => {
                let value = self.read(src, size).swap_bytes(size);
                self.write(dst, size, value);
            }
            Op::Push => {
                let value = self.read(dst, size);
                self.push(value, size);
            }
            Op::Room => {
                self.push(Bits::DEFINED, size);
                if let Some(rsp) = self.regs.rsp() {
                    self.mem.stack_adjusted(&self.ctx, rsp.wrapping_add(u64::from(size)), rsp);
                }
            }
            Op::Pop => {
                if let Some(value) = self.pop(size, 0) {
                    self.write(dst, size, value);
                }
            }
            Op::PushFlags | Op::PopFlags | Op::Lahf | Op::Sahf => self.move_flags(),
            Op::Leave => self.leave(),
            Op::Ret => {
                self.pop(8, insn.imm);
            }
            Op::CallDirect => self.push(Bits::DEFINED, 8),
            Op::CallIndirect => {
                let target = self.read(dst, 8);
                self.branch_on(dst, target);
                self.push(Bits::DEFINED, 8);
            }
            Op::JmpIndirect => {
                let target = self.read(dst, 8);
                self.branch_on(dst, target);
            }
            Op::Jcc(flags) => self.branch_on_flags(*flags),
            Op::Jcxz(flags, counts) => {
                let count = self.regs.gpr[1];
                self.branch_on(Opnd::Reg(1), count);
                self.branch_on_flags(*flags);
                if *counts {
                    self.regs.gpr[1] = Bits::DEFINED;
                }
            }
            Op::Setcc(flags) => {
                let undef = u64::from(self.regs.flags & flags != 0);
                let mut value = Bits::with_undef(undef, 8, self.regs.flags_origin);
                value.known = !1;
                self.write(dst, 1, value);
            }
            Op::Cmov(flags) => {
                let (a, b) = (self.read(dst, size), self.read(src, size));
                let value = if self.regs.flags & flags != 0 {
                    Bits::select_undefined(a, b, size, self.regs.flags_origin)
                } else {
                    Bits::select_either(a, b)
                };
                self.write(dst, size, value);
            }
            Op::Define(registers) => self.define(*registers),
            Op::FlagDefine(flags) => self.set_flags(*flags, 0, 0),
            Op::SetDf(df) => self.regs.df = *df,
            Op::SetAc(ac) => self.regs.ac = *ac,
            Op::In | Op::Out => self.port(),
            Op::Str(what) => self.string(*what),
            Op::Rep(what) => self.repeat(*what),
            Op::RepCompare(what) => self.repeat_compare(*what),
            Op::VecMov(bytes, zero) => self.vector_move(*bytes, *zero),
            Op::Generic(generic) => self.generic(generic),
            _ => self.arithmetic(),
        }
    }

    /// Moves the flags to or from the stack or ah.
    fn move_flags(&mut self) {
        let most = Flags::ALL & !Flags::OF;
        match self.insn.op {
            Op::PushFlags => {
                let undef = spread_flags(self.regs.flags);
                self.push(Bits::with_undef(undef, 8, self.regs.flags_origin), 8);
            }
            Op::PopFlags => {
                if let Some(value) = self.pop(8, 0) {
                    self.set_flags(Flags::ALL, gather_flags(value.undef), value.origin);
                }
            }
            Op::Lahf => {
                let undef = spread_flags(self.regs.flags & most);
                self.write(Opnd::High(0), 1, Bits::with_undef(undef, 1, self.regs.flags_origin));
            }
            _ => {
                let value = self.read(Opnd::High(0), 1);
                self.set_flags(most, gather_flags(value.undef), value.origin);
            }
        }
    }

    /// The instruction sets these registers to values that the guest's memory and registers do not decide.
    fn define(&mut self, registers: u16) {
        for reg in (0..16).filter(|reg| registers >> reg & 1 != 0) {
            self.regs.gpr[reg] = Bits::DEFINED;
        }
        if matches!(self.insn.mnemonic, iced_x86::Mnemonic::Rdrand | iced_x86::Mnemonic::Rdseed) {
            self.set_flags(Flags::ALL, 0, 0);
        }
    }

    /// Reads or writes a port: the first operand is the value, the second one the port.
    fn port(&mut self) {
        let (size, dst, src) = (self.insn.size, self.insn.dst, self.insn.src);
        let output = matches!(self.insn.op, Op::Out);
        let value = if output { self.read(dst, size) } else { Bits::DEFINED.zero_extend(size) };
        let port = self.read(src, 2);
        if !(value.is_defined() && port.is_defined()) {
            let origin = if value.is_defined() { port.origin } else { value.origin };
            self.mem.undefined_port_output(&self.ctx, origin);
            self.set_defined(src);
        }
        if !output {
            self.write(dst, size, value);
        }
    }

    /// The value of an operand, zero-extended from `size` bytes.
    #[inline]
    pub(super) fn read(&mut self, opnd: Opnd, size: u8) -> Bits {
        match opnd {
            Opnd::Reg(n) => self.regs.gpr[usize::from(n & 15)].zero_extend(size),
            Opnd::High(n) => self.regs.gpr[usize::from(n & 15)].high_byte(),
            Opnd::Imm => Bits::of(self.insn.imm & mask(size)),
            Opnd::Mem => self.load(size),
            Opnd::Vec(n) => self.read_vector(n, size),
            Opnd::None => Bits::DEFINED.zero_extend(size),
        }
    }

    /// Writes a zero-extended value; 32-bit writes clear the upper half of a register, smaller ones keep the rest.
    #[inline]
    pub(super) fn write(&mut self, opnd: Opnd, size: u8, bits: Bits) {
        match opnd {
            Opnd::Reg(n) => {
                let reg = &mut self.regs.gpr[usize::from(n & 15)];
                let old = *reg;
                *reg = if size >= 4 { bits.zero_extend(size) } else { old.merge(bits, mask(size)) };
                if n == RSP {
                    self.rsp_written(old);
                }
            }
            Opnd::High(n) => {
                let reg = &mut self.regs.gpr[usize::from(n & 15)];
                *reg = reg.merge(bits.each(|bits| bits << 8), 0xff00);
            }
            Opnd::Mem => self.store(bits, size),
            Opnd::Vec(n) => self.write_vector(n, size, bits),
            Opnd::Imm | Opnd::None => {}
        }
    }

    fn rsp_written(&mut self, old: Bits) {
        if let (Some(old), Some(new)) = (old.constant(), self.regs.rsp())
            && old != new
        {
            self.mem.stack_adjusted(&self.ctx, old, new);
        }
    }

    /// Loads an operand of up to 8 bytes, which the log may hold in pieces.
    #[inline]
    pub(super) fn load(&mut self, size: u8) -> Bits {
        let mut undef = 0;
        let mut origin = 0;
        let mut at = 0;
        while at < size {
            let Some(access) = self.log.take(self.insn.index, false) else { break };
            let value = self.load_access(access);
            if value.undef != 0 {
                undef |= value.undef.checked_shl(u32::from(at) * 8).unwrap_or(0);
                origin = value.origin;
            }
            at = at.saturating_add(access.size.max(1));
        }
        Bits::with_undef(undef, size, origin)
    }

    #[inline]
    pub(super) fn load_access(&mut self, access: Access) -> Value {
        self.check_address(access);
        self.last = Some(access);
        self.mem.load(&self.ctx, access)
    }

    /// Stores an operand of up to 8 bytes, which the log may hold in pieces.
    #[inline]
    pub(super) fn store(&mut self, bits: Bits, size: u8) {
        let mut at = 0;
        while at < size {
            let Some(access) = self.log.take(self.insn.index, true) else { break };
            self.check_address(access);
            self.last = Some(access);
            let undef = bits.undef.checked_shr(u32::from(at) * 8).unwrap_or(0) & mask(access.size);
            let origin = if undef != 0 { bits.origin } else { 0 };
            self.mem.store(&self.ctx, access, Value { undef, origin });
            at = at.saturating_add(access.size.max(1));
        }
    }

    /// Reports undefined registers in the address, and learns the stack pointer from it.
    #[inline]
    pub(super) fn check_address(&mut self, access: Access) {
        let mem = self.insn.mem;
        if mem.base == RSP && mem.index == NO_REG && self.regs.rsp().is_none() {
            self.regs.set_rsp(Some(access.addr.wrapping_sub(mem.disp)));
        }
        for reg in [mem.base, mem.index] {
            if reg != NO_REG {
                self.check_address_register(access, reg);
            }
        }
        self.reach(access);
    }

    #[inline]
    pub(super) fn check_address_register(&mut self, access: Access, reg: u8) {
        let bits = self.regs.gpr[usize::from(reg & 15)];
        if !bits.is_defined() {
            self.mem.undefined_address(&self.ctx, access, reg, bits.origin);
            self.set_defined(Opnd::Reg(reg));
        }
    }

    /// Marks a register as defined after a report.
    pub(super) fn set_defined(&mut self, opnd: Opnd) {
        if let Opnd::Reg(n) | Opnd::High(n) = opnd {
            let reg = &mut self.regs.gpr[usize::from(n & 15)];
            reg.undef = 0;
            reg.origin = 0;
        }
    }

    fn branch_on(&mut self, opnd: Opnd, value: Bits) {
        if !value.is_defined() {
            self.mem.undefined_branch(&self.ctx, value.origin);
            self.set_defined(opnd);
        }
    }

    #[inline]
    fn branch_on_flags(&mut self, flags: u8) {
        if self.regs.flags & flags != 0 {
            self.mem.undefined_branch(&self.ctx, self.regs.flags_origin);
            self.regs.flags = 0;
            self.regs.flags_origin = 0;
        }
    }

    /// Sets which of the flags in `written` are undefined.
    #[inline]
    pub(super) fn set_flags(&mut self, written: u8, undef: u8, origin: Origin) {
        self.regs.flags = self.regs.flags & !written | undef & written;
        if undef & written != 0 {
            self.regs.flags_origin = origin;
        } else if self.regs.flags == 0 {
            self.regs.flags_origin = 0;
        }
    }

    fn push(&mut self, value: Bits, size: u8) {
        let Some(access) = self.log.take(self.insn.index, true) else { return };
        self.last = Some(access);
        self.regs.set_rsp(Some(access.addr));
        let undef = value.undef & mask(size);
        let origin = if undef != 0 { value.origin } else { 0 };
        self.mem.store(&self.ctx, access, Value { undef, origin });
    }

    /// Pops `size` bytes, and drops `more`.
    fn pop(&mut self, size: u8, more: u64) -> Option<Bits> {
        let access = self.log.take(self.insn.index, false)?;
        self.last = Some(access);
        let value = self.mem.load(&self.ctx, access);
        self.regs.set_rsp(Some(access.addr.wrapping_add(u64::from(size)).wrapping_add(more)));
        Some(Bits::with_undef(value.undef, size, value.origin))
    }

    fn leave(&mut self) {
        let Some(access) = self.log.take(self.insn.index, false) else { return };
        let new = access.addr.wrapping_add(8);
        let value = self.mem.load(&self.ctx, access);
        self.regs.gpr[5] = Bits::with_undef(value.undef, 8, value.origin);
        self.regs.set_rsp(Some(new));
        if let Some(old) = self.ctx.rsp
            && old != new
        {
            self.mem.stack_adjusted(&self.ctx, old, new);
        }
    }

    /// Processes accesses that the rule left over: checks them, and their stores are defined.
    #[inline]
    fn drain(&mut self) {
        while let Some(access) = self.log.take_any(self.insn.index) {
            if matches!(self.insn.op, Op::Nop) {
                // A fence's access has no effect.
            } else if access.store {
                self.mem.store(&self.ctx, access, Value::DEFINED);
            } else {
                self.mem.load(&self.ctx, access);
            }
        }
    }
}

/// Positions of the flags in RFLAGS.
const POSITIONS: [(u8, u32); 6] =
    [(Flags::CF, 0), (Flags::PF, 2), (Flags::AF, 4), (Flags::ZF, 6), (Flags::SF, 7), (Flags::OF, 11)];

/// Converts a mask of [`Flags`] into RFLAGS.
pub(super) fn spread_flags(flags: u8) -> u64 {
    POSITIONS.iter().filter(|(f, _)| flags & f != 0).fold(0, |bits, (_, at)| bits | 1 << at)
}

/// Converts RFLAGS into a mask of [`Flags`].
pub(super) fn gather_flags(rflags: u64) -> u8 {
    POSITIONS.iter().filter(|(_, at)| rflags >> at & 1 != 0).fold(0, |bits, (f, _)| bits | f)
}
