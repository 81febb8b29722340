//! What one instruction does.

use super::{Flow, State, code, number};
use crate::summary::{Deep, Site};
use crate::value::{Kind, Val};
use iced_x86::{ConditionCode, FlowControl, Instruction, Mnemonic, OpAccess, OpKind, Register};

/// Constants in addresses from here on are addresses themselves.
const ADDRESS: u64 = 1 << 30;

impl Flow<'_> {
    /// Changes the state as an instruction does, and notes what that means for arguments.
    pub(super) fn step(&mut self, state: &mut State, insn: &Instruction) {
        match insn.flow_control() {
            FlowControl::Next => {}
            FlowControl::Return => return self.returns(state.regs[0], state.freed),
            FlowControl::Call | FlowControl::IndirectCall => return self.call(state, insn, false),
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => {
                return self.leave(state, insn);
            }
            FlowControl::ConditionalBranch => {
                if let Some(code::Callee::Local(other)) = code::callee(self.around.unit(), insn)
                    && !self.is_own(other)
                {
                    self.call(&mut state.clone(), insn, true);
                }
                return;
            }
            _ => return,
        }
        use Mnemonic as M;
        match insn.mnemonic() {
            M::Nop | M::Endbr64 | M::Endbr32 | M::Pause | M::Lfence | M::Mfence | M::Sfence => {}
            M::Prefetcht0 | M::Prefetchnta | M::Prefetchw => {}
            M::Mov | M::Movzx | M::Movsx | M::Movsxd => self.moves(state, insn),
            M::Lea => {
                let (address, _) = self.address(state, insn);
                self.set(state, insn.op0_register(), address);
            }
            M::Push => {
                let value = self.operand(state, insn, 0);
                self.push(state, value);
            }
            M::Pop => {
                let value = self.pop(state);
                match insn.op0_kind() {
                    OpKind::Register => self.set(state, insn.op0_register(), value),
                    _ => self.assign(state, insn, value),
                }
            }
            M::Leave => {
                state.regs[4] = state.regs[5];
                let value = self.pop(state);
                state.regs[5] = value;
            }
            M::Add | M::Sub | M::Inc | M::Dec | M::And | M::Or | M::Xor => self.arithmetic(state, insn),
            M::Cmp | M::Test | M::Bt => {
                for at in 0..insn.op_count() {
                    self.operand(state, insn, at);
                }
            }
            M::Xchg | M::Xadd | M::Cmpxchg => self.exchange(state, insn),
            M::Stosb | M::Stosw | M::Stosd | M::Stosq => self.string(state, insn, false),
            M::Movsb | M::Movsw | M::Movsd | M::Movsq => self.string(state, insn, true),
            // A conditional move; what sets one byte is no move.
            _ if insn.condition_code() != ConditionCode::None && insn.op0_register().size() > 1 => {
                let (old, new) = (self.operand(state, insn, 0), self.operand(state, insn, 1));
                self.set(state, insn.op0_register(), old.join(new));
            }
            _ => self.other(state, insn),
        }
    }

    fn is_own(&self, other: usize) -> bool {
        let other = &self.around.unit().functions()[other];
        other.is_part() || other.start == self.function.1
    }

    /// A jump: within the function, to another one, or back to the caller.
    fn leave(&mut self, state: &mut State, insn: &Instruction) {
        let Some(callee) = code::callee(self.around.unit(), insn) else { return };
        if self.around.is_return(&callee) {
            return self.returns(state.regs[0], state.freed);
        }
        match callee {
            code::Callee::Local(other) if self.is_own(other) => {}
            // Within the function, or between its parts.
            code::Callee::Nowhere => {
                let target = self.around.unit().function_at(insn.near_branch_target());
                if target.is_none_or(|other| !self.is_own(other)) && !self.comes_from_part(insn) {
                    self.summary.unknown = Some(crate::summary::Unknown::Odd);
                }
            }
            _ => {
                self.call(state, insn, true);
                self.returns(state.regs[0], state.freed);
            }
        }
    }

    /// Whether an instruction stands in a part of the function, or leads to the function by a relocation.
    fn comes_from_part(&self, insn: &Instruction) -> bool {
        let unit = self.around.unit();
        let target = match unit.relocation(insn.next_ip().wrapping_sub(4)) {
            Some(crate::unit::Target::Local(address)) => *address,
            _ => insn.near_branch_target(),
        };
        unit.function_at(target).is_some_and(|other| self.is_own(other))
    }

    /// The address of an instruction's memory operand, and whether it lies in per-CPU memory.
    fn address(&self, state: &State, insn: &Instruction) -> (Val, bool) {
        let per_cpu =
            insn.mnemonic() != Mnemonic::Lea && matches!(insn.memory_segment(), Register::GS | Register::FS);
        let displacement = insn.memory_displacement64() as i64;
        let (base, index) = (insn.memory_base(), insn.memory_index());
        if insn.is_ip_rel_memory_operand() {
            return (Val::TOP, per_cpu);
        }
        let mut value = number(base).map_or(Val::number(0), |base| state.regs[base]);
        if let Some(index) = number(index) {
            let index = state.regs[index];
            value = match (index.kind, insn.memory_index_scale()) {
                (_, 1) => value.sum(index),
                (Kind::Const(index), scale) => value.plus(index.wrapping_mul(i64::from(scale))),
                // What is multiplied is a number.
                _ => value.sum(Val::TOP),
            };
        }
        // A kernel's address as displacement: the registers are numbers.
        if !per_cpu && displacement.unsigned_abs() >= ADDRESS {
            return (Val::TOP, per_cpu);
        }
        (value.plus(displacement), per_cpu)
    }

    /// Reads memory.
    pub(super) fn load(&mut self, state: &State, insn: &Instruction) -> Val {
        let (address, per_cpu) = self.address(state, insn);
        let site = self.site(insn);
        let size = insn.memory_size().size();
        self.reads(address, per_cpu, site);
        if size < 8 {
            return Val::TOP;
        }
        if let Kind::Frame(offset) = address.kind {
            return state.load(offset);
        }
        let mut deep = self.pointers(&address) | address.deep;
        if address.frame {
            deep |= state.values_from(i32::MIN).fold(0, |all, value| all | value.deep | value.pointers());
        }
        let ty = match address.kind {
            Kind::Offset(offset) => self.around.types().member(address.ty, offset),
            _ => 0,
        };
        Val::loaded(deep, ty)
    }

    /// Notes that memory is read.
    pub(super) fn reads(&mut self, address: Val, per_cpu: bool, site: Site) {
        let direct = self.pointers(&address);
        self.note(direct, |effects, sites| {
            effects.read = true;
            effects.per_cpu |= per_cpu;
            sites.other.get_or_insert(site);
        });
        self.note_deep(address.deep, Deep::READ, site);
    }

    /// Writes memory.
    fn write(&mut self, state: &mut State, insn: &Instruction, size: usize, value: Val) {
        let (address, per_cpu) = self.address(state, insn);
        let site = self.site(insn);
        let size = size.max(1) as i32;
        match address.kind {
            Kind::Frame(offset) => return state.store(offset, size, value),
            _ if address.frame => state.blur_range(i32::MIN, 0, value.deep | value.pointers()),
            _ => {}
        }
        let direct = self.pointers(&address);
        let place = address.place().filter(|_| direct != 0);
        self.note(direct, |effects, sites| {
            match place {
                Some((_, offset)) => effects.write.add(offset, offset.saturating_add(size)),
                None => effects.write.unbounded = true,
            }
            effects.per_cpu |= per_cpu;
            sites.write.get_or_insert(site);
        });
        self.note_deep(address.deep, Deep::WRITE, site);
        if size == 8 {
            self.keep(value, site);
        }
    }

    /// The value of an operand; what it reads is noted.
    fn operand(&mut self, state: &State, insn: &Instruction, at: u32) -> Val {
        match insn.op_kind(at) {
            OpKind::Register => {
                let register = insn.op_register(at);
                match number(register).map(|number| (state.regs[number], register.size())) {
                    Some((value, 8)) => value,
                    Some((value, 4)) => value.low(),
                    _ => Val::TOP,
                }
            }
            OpKind::Memory => self.load(state, insn),
            OpKind::NearBranch64 => Val::TOP,
            _ => insn.try_immediate(at).map_or(Val::TOP, |value| Val::number(value as i64)),
        }
    }

    /// Puts a value into a register, or into the part of it that the instruction names.
    fn set(&self, state: &mut State, register: Register, value: Val) {
        let Some(number) = number(register) else { return };
        state.regs[number] = match register.size() {
            8 => value,
            4 => value.low(),
            // The rest stays; what changes is no pointer.
            _ => match state.regs[number].kind {
                Kind::Frame(_) => Val::TOP,
                _ => state.regs[number].mixed(),
            },
        };
    }

    /// Puts a value into the first operand.
    fn assign(&mut self, state: &mut State, insn: &Instruction, value: Val) {
        match insn.op0_kind() {
            OpKind::Register => self.set(state, insn.op0_register(), value),
            OpKind::Memory => self.write(state, insn, insn.memory_size().size(), value),
            _ => {}
        }
    }

    fn moves(&mut self, state: &mut State, insn: &Instruction) {
        let mut value = self.operand(state, insn, 1);
        let widened = insn.mnemonic() != Mnemonic::Mov;
        let narrow = value.kind == Kind::Narrow
            && insn.op1_kind() == OpKind::Register
            && insn.op1_register().size() == 4;
        if widened && !narrow {
            value = Val::TOP;
        }
        self.assign(state, insn, value);
    }

    fn push(&mut self, state: &mut State, value: Val) {
        state.regs[4] = state.regs[4].plus(-8);
        if let Kind::Frame(offset) = state.regs[4].kind {
            state.store(offset, 8, value);
        }
    }

    fn pop(&mut self, state: &mut State) -> Val {
        let value = match state.regs[4].kind {
            Kind::Frame(offset) => state.load(offset),
            _ => Val::TOP,
        };
        state.regs[4] = state.regs[4].plus(8);
        value
    }

    fn arithmetic(&mut self, state: &mut State, insn: &Instruction) {
        use Mnemonic as M;
        let old = self.operand(state, insn, 0);
        let same = insn.op_count() == 2
            && insn.op0_kind() == OpKind::Register
            && insn.op1_kind() == OpKind::Register
            && insn.op0_register() == insn.op1_register();
        let other = match insn.mnemonic() {
            M::Inc | M::Dec => Val::number(1),
            _ => self.operand(state, insn, 1),
        };
        let value = match (insn.mnemonic(), other.kind) {
            (M::Xor | M::Sub, _) if same => Val::number(0),
            (M::Add | M::Inc, _) => old.sum(other),
            (M::Sub | M::Dec, Kind::Const(number)) => old.plus(number.wrapping_neg()),
            // A difference of two pointers is a number.
            (M::Sub, _) if other.pointers() | other.deep != 0 => {
                Val { kind: Kind::Top, ty: 0, maybe: true, ..old }
            }
            (M::Sub, _) => old.sum(Val::TOP),
            (M::And, Kind::Const(mask)) => match old.kind {
                Kind::Frame(offset) => Val::frame(offset & mask as i32),
                Kind::Const(number) => Val::number(number & mask),
                // An address that is rounded down stays one; a few bits of it are a number.
                _ if mask < 0 => old.sum(Val::TOP),
                _ => Val::TOP,
            },
            (M::Or, Kind::Const(-1)) => Val::number(-1),
            (M::Or, Kind::Const(_)) => old.sum(Val::TOP),
            _ => Val { deep: old.deep | other.deep | old.pointers() | other.pointers(), ..Val::TOP },
        };
        self.assign(state, insn, value);
    }

    fn exchange(&mut self, state: &mut State, insn: &Instruction) {
        let memory = insn.op0_kind() == OpKind::Memory || insn.op1_kind() == OpKind::Memory;
        let (a, b) = (self.operand(state, insn, 0), self.operand(state, insn, 1));
        let size = insn.memory_size().size();
        match (insn.mnemonic(), memory) {
            (Mnemonic::Xchg, false) => {
                self.set(state, insn.op0_register(), b);
                self.set(state, insn.op1_register(), a);
            }
            (Mnemonic::Xchg, true) => {
                let (register, new, old) = match insn.op0_kind() {
                    OpKind::Memory => (insn.op1_register(), b, a),
                    _ => (insn.op0_register(), a, b),
                };
                self.write(state, insn, size, new);
                self.set(state, register, old);
            }
            (Mnemonic::Cmpxchg, _) => {
                if memory {
                    self.write(state, insn, size, b);
                }
                state.regs[0] = state.regs[0].join(a);
            }
            _ => {
                self.assign(state, insn, Val::TOP);
                self.set(state, insn.op1_register(), a);
            }
        }
    }

    /// `stos` and `movs`, repeated or not.
    fn string(&mut self, state: &mut State, insn: &Instruction, copies: bool) {
        let site = self.site(insn);
        let unit = insn.memory_size().size().max(1) as u32;
        let repeats = insn.has_rep_prefix() || insn.has_repne_prefix();
        let (to, from, count) = (state.regs[7], state.regs[6], state.regs[1]);
        let mut masks = 0;
        if copies {
            self.reads(from, false, site);
            masks = self.pointers(&from) | from.deep;
            if from.frame {
                masks |=
                    state.values_from(i32::MIN).fold(0, |all, value| all | value.deep | value.pointers());
            }
        }
        if to.frame {
            state.blur_range(i32::MIN, 0, masks);
        }
        let bytes = match count.kind {
            _ if !repeats => Some(i32::try_from(unit).unwrap_or(8)),
            Kind::Const(count) => i32::try_from(count.wrapping_mul(i64::from(unit))).ok(),
            _ => None,
        };
        let counted = count.exact().filter(|_| repeats);
        let place = to.place();
        self.note(self.pointers(&to), |effects, sites| {
            match (place, bytes, counted) {
                (Some((_, at)), Some(bytes), _) => effects.write.add(at, at.saturating_add(bytes)),
                (Some((_, 0)), None, Some(count)) => effects.write.add_counted(count as u8, unit),
                _ => effects.write.unbounded = true,
            }
            sites.write.get_or_insert(site);
        });
        self.note_deep(to.deep, Deep::WRITE, site);
        state.regs[7] = to.sum(Val::TOP);
        if copies {
            state.regs[6] = from.sum(Val::TOP);
        }
        if repeats {
            state.regs[1] = Val::number(0);
        }
    }

    /// Any other instruction: what it writes are numbers.
    fn other(&mut self, state: &mut State, insn: &Instruction) {
        let shifts = matches!(
            insn.mnemonic(),
            Mnemonic::Shl
                | Mnemonic::Shr
                | Mnemonic::Sar
                | Mnemonic::Imul
                | Mnemonic::Shld
                | Mnemonic::Shrd
                | Mnemonic::Bswap
                | Mnemonic::Rol
                | Mnemonic::Ror
        );
        // Pages are computed from addresses, and addresses from pages.
        let mixed = match shifts && insn.op0_kind() == OpKind::Register && insn.op0_register().size() == 8 {
            true => number(insn.op0_register()).map_or(Val::TOP, |number| state.regs[number].mixed()),
            false => Val::TOP,
        };
        let info = self.info.info(insn).clone();
        for used in info.used_memory() {
            if used.access() == OpAccess::NoMemAccess || insn.op_count() == 0 {
                continue;
            }
            if !(0..insn.op_count()).any(|at| insn.op_kind(at) == OpKind::Memory) {
                continue;
            }
            match writes(used.access()) {
                true => self.write(state, insn, used.memory_size().size(), Val::TOP),
                false => {
                    self.load(state, insn);
                }
            }
        }
        for used in info.used_registers() {
            let Some(number) = number(used.register()).filter(|number| *number != 4 && writes(used.access()))
            else {
                continue;
            };
            state.regs[number] = mixed;
        }
    }
}

/// Whether an access changes what it is to.
fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite)
}
