//! Bugs in the sizes of copies and fills.

use super::{Plan, Site, grow::Grow};
use crate::code::{Function, bit};
use crate::edit::callee;
use crate::elf::Elf;
use crate::flow::definition;
use guardrail_knowledge::role::Role;
use iced_x86::{Mnemonic, OpKind, Register};

/// The registers of a function's parameters.
const PARAMS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];

/// Finds every size that is a number in the code, or a sum with one.
pub(super) fn sizes(elf: &Elf, function: &Function, index: usize, sites: &mut Vec<Site>) {
    for (i, insn) in function.insns.iter().enumerate() {
        let (register, per) = match callee(elf, function, insn) {
            Some(name) => match Role::Sized.param(name).and_then(|param| PARAMS.get(param)) {
                Some(register) => (*register, 1),
                None => continue,
            },
            None => match unit(insn.instr.mnemonic()) {
                Some(unit) if insn.instr.has_rep_prefix() => (Register::RCX, unit),
                _ => continue,
            },
        };
        let grow = count(function, i, register, per);
        let grow = grow
            .filter(|grow| grow.is_count(elf, function) && function.insns[grow.insn].relocations.is_empty());
        sites.extend(grow.map(|grow| Site { function: index, insn: i, plan: Plan::Grow(grow) }));
    }
}

/// Bytes that a string instruction moves at a time.
fn unit(mnemonic: Mnemonic) -> Option<u64> {
    match mnemonic {
        Mnemonic::Movsb | Mnemonic::Stosb => Some(1),
        Mnemonic::Movsw | Mnemonic::Stosw => Some(2),
        Mnemonic::Movsd | Mnemonic::Stosd => Some(4),
        Mnemonic::Movsq | Mnemonic::Stosq => Some(8),
        _ => None,
    }
}

/// The number that a copy's count is computed from.
fn count(function: &Function, copy: usize, register: Register, mut per: u64) -> Option<Grow> {
    let mut set = definition(function, copy, register)?;
    let instr = &function.insns[set].instr;
    // The size is in bytes; a shift computes the units.
    if instr.mnemonic() == Mnemonic::Shr
        && function.insns[set].offsets.has_immediate()
        && 1u64.checked_shl(instr.immediate8().into()) == Some(per)
    {
        per = 1;
        set = definition(function, set, register)?;
    }
    number(function, set, register, per)
}

/// The number that an instruction sets a register to, or adds.
fn number(function: &Function, set: usize, register: Register, per: u64) -> Option<Grow> {
    let insn = &function.insns[set];
    let instr = &insn.instr;
    if instr.op0_kind() != OpKind::Register || bit(instr.op0_register()) != bit(register) {
        return None;
    }
    let what = if per == 1 { "the size of the copy" } else { "the size of the copy, in its units," };
    let offsets = &insn.offsets;
    let (at, size) = match instr.mnemonic() {
        Mnemonic::Mov | Mnemonic::Add if offsets.has_immediate() => {
            (offsets.immediate_offset(), offsets.immediate_size())
        }
        Mnemonic::Lea if offsets.has_displacement() && !instr.is_ip_rel_memory_operand() => {
            (offsets.displacement_offset(), offsets.displacement_size())
        }
        _ => return None,
    };
    Some(Grow { insn: set, at, size, each: 1, per, what })
}
