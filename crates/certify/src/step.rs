//! What one instruction does to what is known.

use crate::elf::Target;
use crate::graph::{Node, Number, bias};
use crate::state::{Flags, RSP, State};
use crate::value::{Atom, Val};
use crate::walk::Walk;
use crate::writing::writes;
use guardrail_abi::symbol;
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// What relocations of an instruction name: by its displacement, and by its immediate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names {
    pub displacement: Option<(Target, i64)>,
    pub immediate: Option<(Target, i64)>,
}

/// The number of a general register of any width.
pub fn number(register: Register) -> Option<u8> {
    register.is_gpr().then(|| register.full_register().number() as u8)
}

/// What stands for the flags, and for other values that are pushed, among the numbers of registers.
const FLAGS: u8 = 16;
/// The largest frame: the kernel guards a stack with a page, so the next frame cannot lie behind it.
const DEEPEST: i64 = 4096;

impl Walk<'_, '_> {
    /// What an instruction's relocations name.
    pub fn names(&self, node: &Node) -> Names {
        let section = &self.module.elf.sections[node.place.0 as usize];
        let relocs = section.relocs_in(node.place.1, node.behind().1);
        if relocs.is_empty() {
            return Names::default();
        }
        let offsets = &node.offsets;
        let find = |has: bool, at: usize| {
            let reloc = relocs.iter().find(|reloc| has && reloc.offset == node.place.1 + at as u64)?;
            Some((reloc.target, reloc.addend.wrapping_add(bias(reloc, node.behind().1))))
        };
        Names {
            displacement: find(offsets.has_displacement(), offsets.displacement_offset()),
            immediate: find(offsets.has_immediate(), offsets.immediate_offset()),
        }
    }

    /// The address of an instruction's operand in memory, without its segment; `None` where it cannot be
    /// followed.
    pub fn address(&mut self, node: &Node, state: &State) -> Option<Val> {
        let insn = &node.insn;
        if insn.memory_base() == Register::EIP {
            return None;
        }
        let named = self.names(node).displacement;
        let mut address = match named {
            Some((target, addend)) => self.values.atom(Atom::Address(target)).plus(addend),
            None if insn.is_ip_rel_memory_operand() => {
                let own = self.values.atom(Atom::Address(Target::In(node.place.0)));
                return Some(own.plus(insn.ip_rel_memory_address() as i64));
            }
            None => Val::number(insn.memory_displacement64() as i64),
        };
        if insn.is_ip_rel_memory_operand() {
            return Some(address);
        }
        for (register, scale) in [(insn.memory_base(), 1), (insn.memory_index(), insn.memory_index_scale())] {
            if register == Register::None {
                continue;
            }
            if !register.is_gpr64() {
                return None;
            }
            let own = state.regs[register.number()];
            let own = self.values.times(own, i64::from(scale));
            address = self.values.add(address, own)?;
        }
        Some(address)
    }

    /// Follows one instruction, and looks at what must be proven there.
    pub fn step(&mut self, at: Number, state: &mut State) {
        let node = self.node(at);
        self.privileges(at, node, state);
        self.stores(at, node, state);
        let insn = &node.insn;
        let flags = self.flags(at, node, state);
        if insn.rflags_modified() != 0 || flags != Flags::Unknown {
            state.flags = flags;
        }
        match insn.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => self.call(at, node, state),
            FlowControl::Next if self.moves(at, node, state) => {}
            FlowControl::Next | FlowControl::XbeginXabortXend => self.lose(at, node, state),
            _ => {}
        }
    }

    /// Whatever is not followed leaves unknown values.
    fn lose(&mut self, at: Number, node: &Node, state: &mut State) {
        let written: Vec<u8> = self
            .info
            .info(&node.insn)
            .used_registers()
            .iter()
            .filter(|used| writes(used.access()))
            .filter_map(|used| number(used.register()))
            .collect();
        for register in written {
            let value = self.values.atom(Atom::Fresh(at, register));
            self.set(at, register, value, state);
        }
    }

    /// Gives a register a value. The stack pointer may only be moved.
    fn set(&mut self, at: Number, register: u8, value: Val, state: &mut State) {
        state.regs[usize::from(register)] = value;
        if register == RSP {
            if self.values.single(value).is_none() || !self.of_stack(value) {
                self.fault(at, "the stack pointer gets a value that is not of its stack");
            }
            // Below the stack pointer nothing stays.
            let above = self.above(value);
            state.slots.retain(|(slot, _)| match slot.base == value.base {
                true => slot.off >= value.off,
                false => above.is_some_and(|above| slot.base == above.base && slot.off >= above.off),
            });
            if self.low(value).is_none_or(|low| low < -DEEPEST) {
                self.fault(at, "its frame is larger than the page that guards a stack");
            }
        }
    }

    /// Whether a value is an address on the function's own stack, as far as it is known.
    pub fn of_stack(&self, value: Val) -> bool {
        match self.values.single(value) {
            Some(Atom::Init(RSP)) => true,
            Some(Atom::Down(inner, _)) => self.of_stack(inner),
            Some(_) => false,
            None => {
                let stack = |term: &(u32, i64)| term.1 == 1 && self.of_stack(Val { base: term.0, off: 0 });
                self.values.terms(value).iter().filter(|term| stack(term)).count() == 1
            }
        }
    }

    /// The address on the stack that an aligned one was made of, if the latter is not above it.
    fn above(&self, value: Val) -> Option<Val> {
        match self.values.single(value)? {
            Atom::Down(inner, _) if value.off <= 0 => Some(inner),
            _ => None,
        }
    }

    /// The lowest distance from the return address at which an address of the stack may be.
    fn low(&self, value: Val) -> Option<i64> {
        match self.values.single(value)? {
            Atom::Init(RSP) => Some(value.off),
            Atom::Down(inner, bits) if bits < 12 => {
                self.low(inner)?.saturating_sub((1 << bits) - 1).checked_add(value.off)
            }
            _ => None,
        }
    }

    /// Follows an instruction that moves or computes a value; false for others.
    fn moves(&mut self, at: Number, node: &Node, state: &mut State) -> bool {
        let insn = &node.insn;
        let (to, from) = (insn.op0_register(), insn.op1_register());
        let wide = insn.op_count() > 0 && insn.op0_kind() == OpKind::Register && to.is_gpr64();
        let own = number(to).unwrap_or_default();
        let old = state.regs[usize::from(own)];
        let value = match (insn.mnemonic(), insn.op_count()) {
            (Mnemonic::Nop | Mnemonic::Endbr64 | Mnemonic::Pause | Mnemonic::Prefetcht0, _) => return true,
            (Mnemonic::Mov, 2) => self.moved(at, node, state),
            (Mnemonic::Lea, 2) if wide => self.address(node, state),
            (Mnemonic::Add, 2) if wide => {
                self.second(node, state).and_then(|more| self.values.add(old, more))
            }
            (Mnemonic::Sub, 2) if wide && insn.op1_kind() == OpKind::Register && from == to => {
                Some(Val::number(0))
            }
            (Mnemonic::Sub, 2) if wide => self.second(node, state).and_then(|less| {
                let less = self.values.times(less, -1);
                self.values.add(old, less)
            }),
            (Mnemonic::Inc, 1) if wide => Some(old.plus(1)),
            (Mnemonic::Dec, 1) if wide => Some(old.plus(-1)),
            (Mnemonic::Xor, 2)
                if insn.op1_kind() == OpKind::Register && from == to && to.size() >= 4 && to.is_gpr() =>
            {
                Some(Val::number(0))
            }
            (Mnemonic::And, 2)
                if wide && insn.op1_kind() != OpKind::Register && insn.op1_kind() != OpKind::Memory =>
            {
                let mask = (insn.immediate(1) as i64).wrapping_neg();
                (mask > 0 && mask & (mask - 1) == 0)
                    .then(|| self.values.atom(Atom::Down(old, mask.trailing_zeros() as u8)))
            }
            (Mnemonic::Shl, 2) if wide && insn.op1_kind() == OpKind::Immediate8 && insn.immediate8() < 32 => {
                Some(self.values.times(old, 1 << insn.immediate8()))
            }
            (Mnemonic::Ror, 2) if wide && insn.op1_kind() == OpKind::Immediate8 => {
                Some(self.values.atom(Atom::Ror(old, insn.immediate8())))
            }
            (Mnemonic::Shr, 2) if wide && insn.op1_kind() == OpKind::Immediate8 => {
                Some(self.values.atom(Atom::Shr(old, insn.immediate8())))
            }
            (Mnemonic::Sar, 2) if wide && insn.op1_kind() == OpKind::Immediate8 => {
                Some(self.values.atom(Atom::Sar(old, insn.immediate8())))
            }
            (Mnemonic::Movsxd | Mnemonic::Movsx, 2) if wide && insn.op1_kind() == OpKind::Register => {
                let low = !matches!(from, Register::AH | Register::BH | Register::CH | Register::DH);
                number(from).filter(|_| low).map(|from_number| {
                    let own = state.regs[usize::from(from_number)];
                    self.values.atom(Atom::Extended(own, from.size() as u8))
                })
            }
            (Mnemonic::Movsxd, 2) if wide => self.address(node, state).and_then(|place| {
                let back = self.values.atom(Atom::Return);
                (place.base == back.base).then(|| self.values.atom(Atom::Distance(place)))
            }),
            (Mnemonic::Xchg, 2) if wide && insn.op1_kind() == OpKind::Register && from.is_gpr64() => {
                let other = number(from).unwrap_or_default();
                let value = state.regs[usize::from(other)];
                self.set(at, other, old, state);
                Some(value)
            }
            (Mnemonic::Push | Mnemonic::Pushfq | Mnemonic::Pop | Mnemonic::Popfq | Mnemonic::Leave, _) => {
                return self.stack(at, node, state);
            }
            _ => return false,
        };
        let Some(value) = value else { return false };
        self.set(at, own, value, state);
        true
    }

    /// The value that `mov` gives a register; `None` for others, and where it is not followed.
    fn moved(&mut self, at: Number, node: &Node, state: &State) -> Option<Val> {
        let insn = &node.insn;
        let to = insn.op0_register();
        if insn.op0_kind() != OpKind::Register || !(to.is_gpr64() || to.is_gpr32()) {
            return None;
        }
        match insn.op1_kind() {
            OpKind::Register if insn.op1_register().is_gpr64() => {
                Some(state.regs[insn.op1_register().number()])
            }
            OpKind::Register if insn.op1_register().is_gpr32() => {
                let whole = state.regs[usize::from(number(insn.op1_register())?)];
                Some(match whole.known() {
                    Some(known) => Val::number(i64::from(known as u32)),
                    None => self.values.atom(Atom::Low(whole)),
                })
            }
            OpKind::Memory if to.is_gpr64() && insn.segment_prefix() == Register::None => {
                let address = self.address(node, state)?;
                match state.slot(address) {
                    Some(value) => Some(value),
                    None if self.of_stack(address) => Some(self.values.atom(Atom::Loaded(address, at))),
                    None => None,
                }
            }
            OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64 => {
                Some(match self.names(node).immediate {
                    // Only the lower half of the address.
                    Some(_) if to.is_gpr32() => return None,
                    Some((target, addend)) => self.values.atom(Atom::Address(target)).plus(addend),
                    None if to.is_gpr32() => Val::number(i64::from(insn.immediate32())),
                    None => Val::number(insn.immediate(1) as i64),
                })
            }
            _ => None,
        }
    }

    fn is_table(&mut self, address: Val) -> bool {
        let table = match self.values.single(address) {
            Some(Atom::Address(Target::Import(import))) => self.module.elf.import(import) == symbol::TABLE,
            _ => false,
        };
        table && address.off == 0
    }

    /// The second operand of a computation of 8 bytes.
    fn second(&mut self, node: &Node, state: &State) -> Option<Val> {
        let insn = &node.insn;
        match insn.op1_kind() {
            OpKind::Register if insn.op1_register().is_gpr64() => {
                Some(state.regs[insn.op1_register().number()])
            }
            OpKind::Memory if insn.segment_prefix() == Register::GS => {
                let address = self.address(node, state)?;
                self.is_table(address).then(|| self.values.atom(Atom::Table))
            }
            OpKind::Immediate8to64 | OpKind::Immediate32to64 => match self.names(node).immediate {
                Some((target, addend)) => Some(self.values.atom(Atom::Address(target)).plus(addend)),
                None => Some(Val::number(insn.immediate(1) as i64)),
            },
            _ => None,
        }
    }

    /// Follows what moves the stack pointer by itself.
    fn stack(&mut self, at: Number, node: &Node, state: &mut State) -> bool {
        let insn = &node.insn;
        match insn.mnemonic() {
            Mnemonic::Push | Mnemonic::Pushfq => {
                let value = match insn.code() {
                    Code::Push_r64 => {
                        state.regs[usize::from(number(insn.op0_register()).unwrap_or_default())]
                    }
                    Code::Push_rm64 => {
                        let address = self.address(node, state).filter(|address| self.of_stack(*address));
                        let there = address.and_then(|address| state.slot(address));
                        match (there, address) {
                            (Some(value), _) => value,
                            (None, Some(address)) => self.values.atom(Atom::Loaded(address, at)),
                            (None, None) => self.values.atom(Atom::Fresh(at, FLAGS)),
                        }
                    }
                    _ => self.values.atom(Atom::Fresh(at, FLAGS)),
                };
                let down = -insn_stack(insn);
                let sp = state.sp().plus(-down);
                if self.low(sp).is_none_or(|low| low < -DEEPEST) {
                    self.fault(at, "its frame is larger than the page that guards a stack");
                }
                state.overwrite(sp, down);
                state.regs[usize::from(RSP)] = sp;
                if down == 8 {
                    state.slots.push((sp, value));
                    state.slots.sort_unstable();
                }
            }
            Mnemonic::Leave => {
                let frame = state.regs[5];
                self.set(at, RSP, frame, state);
                self.popped(at, 5, state);
            }
            Mnemonic::Pop if insn.code() == Code::Pop_r64 => {
                self.popped(at, number(insn.op0_register()).unwrap_or_default(), state);
            }
            _ => {
                let sp = state.sp().plus(insn_stack(insn));
                if insn.op_count() > 0 && insn.op0_kind() == OpKind::Register {
                    self.lose(at, node, state);
                }
                self.set(at, RSP, sp, state);
            }
        }
        true
    }

    fn popped(&mut self, at: Number, register: u8, state: &mut State) {
        let sp = state.sp();
        let value = state.slot(sp).unwrap_or_else(|| self.values.atom(Atom::Fresh(at, register)));
        self.set(at, RSP, sp.plus(8), state);
        self.set(at, register, value, state);
    }

    /// What the flags say behind an instruction.
    fn flags(&mut self, at: Number, node: &Node, state: &State) -> Flags {
        let insn = &node.insn;
        let byte = |register: Register| {
            !matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
        };
        match insn.mnemonic() {
            Mnemonic::Test if insn.op0_kind() == OpKind::Register => {
                let register = insn.op0_register();
                let Some(value) = number(register).map(|own| state.regs[usize::from(own)]) else {
                    return Flags::Unknown;
                };
                match insn.op1_kind() {
                    OpKind::Register if insn.op1_register() != register => Flags::Unknown,
                    OpKind::Register if register.is_gpr64() => Flags::Sign(value),
                    OpKind::Register if register.is_gpr32() => Flags::Half(value),
                    OpKind::Immediate8 if register.is_gpr8() && byte(register) && insn.immediate8() == 7 => {
                        Flags::Low(value)
                    }
                    _ => Flags::Unknown,
                }
            }
            Mnemonic::Cmp if insn.op0_kind() == OpKind::Memory => {
                let (count, wanted) = match insn.code() {
                    Code::Cmp_rm8_imm8 => (1, u32::from(insn.immediate8())),
                    Code::Cmp_rm16_imm16 => (2, u32::from(insn.immediate16())),
                    Code::Cmp_rm32_imm32 => (4, insn.immediate32()),
                    // That of frames.
                    Code::Cmp_rm32_imm8 => (0, 0),
                    _ => return Flags::Unknown,
                };
                if insn.segment_prefix() != Register::None || self.names(node).immediate.is_some() {
                    return Flags::Unknown;
                }
                let Some(address) = self.address(node, state) else { return Flags::Unknown };
                if let Some(Atom::Address(Target::Import(import))) = self.values.single(address)
                    && self.module.elf.import(import) == symbol::FRAMES
                {
                    return Flags::Frames;
                }
                if count == 0 || self.values.without(address, Atom::Table).is_none() {
                    return Flags::Unknown;
                }
                let rows = self.module.tables.fixups.get(&node.place);
                if rows.is_none_or(|rows| rows.iter().any(|row| row.kind != crate::tables::EX_DEFAULT)) {
                    self.fault(at, "a look at the rights table has no row for faults");
                }
                Flags::Tags(address, count, wanted)
            }
            _ => Flags::Unknown,
        }
    }

    /// Looks for instructions that a driver must not have.
    fn privileges(&mut self, at: Number, node: &Node, state: &State) {
        let hypervisor = matches!(node.insn.mnemonic(), Mnemonic::Vmcall | Mnemonic::Vmmcall);
        if self.last && node.insn.is_privileged() && !hypervisor {
            self.found.privileged.push(at);
        }
        if node.insn.mnemonic() == Mnemonic::Std {
            self.fault(at, "it turns the direction of string instructions");
        }
        let saved = match (node.insn.mnemonic(), state.slot(state.sp())) {
            (Mnemonic::Popf | Mnemonic::Popfd, _) => false,
            (Mnemonic::Popfq, None) => false,
            (Mnemonic::Popfq, Some(flags)) => match self.values.single(flags) {
                Some(Atom::Fresh(saved, FLAGS)) if flags.off == 0 => {
                    self.node(saved).insn.mnemonic() == Mnemonic::Pushfq
                }
                _ => false,
            },
            _ => true,
        };
        if !saved {
            self.fault(at, format!("`{}` sets flags that the function has not saved", node.insn));
        }
        let loads = (0..node.insn.op_count()).any(|operand| {
            node.insn.op_kind(operand) == OpKind::Register
                && node.insn.op_register(operand).is_segment_register()
        });
        let base = matches!(
            node.insn.mnemonic(),
            Mnemonic::Wrfsbase | Mnemonic::Wrgsbase | Mnemonic::Lfs | Mnemonic::Lgs | Mnemonic::Lss
        );
        if base
            || (loads
                && (node.insn.mnemonic() == Mnemonic::Pop || node.insn.op0_register().is_segment_register()))
        {
            self.fault(at, format!("`{}` changes a segment", node.insn));
        }
    }
}

/// Bytes by which a push or pop moves the stack pointer.
fn insn_stack(insn: &Instruction) -> i64 {
    i64::from(insn.stack_pointer_increment())
}
