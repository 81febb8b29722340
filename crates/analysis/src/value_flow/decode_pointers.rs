//! What an instruction does with pointers, from its decoded form.

use super::insn::{Insn, NO_REG, Op, Opnd};
use super::pointer::{Flow, Uses};
use iced_x86::{Instruction, InstructionInfo, OpAccess, OpKind};

fn bit(reg: u8) -> u16 {
    if reg == NO_REG { 0 } else { 1 << (reg & 15) }
}

impl Uses {
    pub(super) fn of(insn: &Insn, instr: &Instruction, info: &InstructionInfo) -> Uses {
        let reads = |access| {
            matches!(
                access,
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        let has_memory = (0..instr.op_count()).any(|i| instr.op_kind(i) == OpKind::Memory);
        let mut uses = Uses { flow: flow(insn), ..Uses::default() };
        for used in info.used_registers().iter().filter(|used| used.register().is_gpr()) {
            let this = bit(used.register().full_register().number() as u8);
            if !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None) {
                uses.written |= this;
            }
            // The registers of an address do not go into the result.
            if !has_memory && reads(used.access()) {
                uses.mixed |= this;
            }
        }
        for i in (0..instr.op_count()).filter(|&i| instr.op_kind(i) == OpKind::Register) {
            let reg = instr.op_register(i);
            if reg.is_gpr() && reads(info.op_access(i)) {
                uses.mixed |= bit(reg.full_register().number() as u8);
            }
        }
        if matches!(insn.op, Op::Zero) {
            uses.mixed = 0;
        }
        if !insn.mem.segment && !matches!(insn.op, Op::Lea) {
            uses.based = bit(insn.mem.base) | bit(insn.mem.index);
        }
        uses
    }
}

fn flow(insn: &Insn) -> Flow {
    let whole = insn.size == 8;
    match (&insn.op, insn.dst, insn.src) {
        (Op::Mov, Opnd::Reg(_), Opnd::Reg(_)) if whole => Flow::Copy,
        (Op::Mov, Opnd::Reg(_), Opnd::Mem) if whole && insn.src_size == 8 && !insn.mem.segment => Flow::Load,
        (Op::Pop, Opnd::Reg(_), _) if whole => Flow::Load,
        (Op::Mov, Opnd::Mem, Opnd::Reg(_)) if whole && !insn.mem.segment => Flow::Store,
        (Op::Push, Opnd::Reg(_), _) if whole => Flow::Store,
        (Op::Lea, Opnd::Reg(_), _) if whole => Flow::Lea,
        (Op::Add | Op::Inc, Opnd::Reg(_), _) if whole => Flow::Add,
        (Op::Sub | Op::Dec, Opnd::Reg(_), _) if whole => Flow::Sub,
        (Op::Xchg, Opnd::Reg(_), Opnd::Reg(_)) if whole => Flow::Swap,
        (Op::Cmp, Opnd::Reg(_) | Opnd::Mem, Opnd::Reg(_) | Opnd::Mem) if whole => Flow::Compare,
        _ => Flow::Other,
    }
}
