//! Finds where a function frees a stack frame in which something has its address taken.
//! The kernel must hold nothing of the frame then, such as queued work or an entry of a wait queue.

use crate::engine::emit::Operand;
use crate::engine::pass::FunctionView;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// Bytes of the smallest object that the kernel may hold: the two pointers of a list entry.
const SMALLEST: i64 = 16;

/// Instructions of a function that free a part of the stack, and where that part ends.
/// Empty if the function takes no address of anything on its stack.
/// Left out are those where flags are needed, which is rare, and those that the kernel patches.
pub(super) fn ends(view: &FunctionView<'_>) -> Vec<(u32, Operand)> {
    let insns = || view.function.insns.clone().map(|number| (number, view.insn(number)));
    let pointer = insns().any(|(_, insn)| copies(&insn.insn, Register::RBP));
    if !insns().any(|(_, insn)| takes_address(&insn.insn, pointer)) {
        return Vec::new();
    }
    let asked = |number| !view.needed(number).has_flags();
    insns()
        .filter(|(number, insn)| !insn.fixed && asked(*number))
        .filter_map(|(number, insn)| Some((number, end(&insn.insn)?)))
        .collect()
}

/// Whether the instruction copies the stack pointer to a register.
fn copies(insn: &Instruction, register: Register) -> bool {
    insn.mnemonic() == Mnemonic::Mov
        && insn.op0_register() == register
        && insn.op1_kind() == OpKind::Register
        && insn.op1_register() == Register::RSP
}

/// Whether the instruction puts an address on the stack into a register. `pointer`: RBP points into the stack
/// frame.
fn takes_address(insn: &Instruction, pointer: bool) -> bool {
    let to = insn.op0_register();
    match insn.mnemonic() {
        Mnemonic::Lea if to != Register::RSP => {
            insn.memory_base() == Register::RSP || (pointer && insn.memory_base() == Register::RBP)
        }
        Mnemonic::Mov => to.is_gpr64() && to != Register::RBP && copies(insn, to),
        _ => false,
    }
}

/// Where the part of the stack ends that an instruction frees at once. A `pop` frees no more than one
/// register.
fn end(insn: &Instruction) -> Option<Operand> {
    let above = |bytes: i64| {
        (bytes >= SMALLEST).then(|| Operand { displacement: bytes, ..Operand::at(Register::RSP) })
    };
    if insn.mnemonic() == Mnemonic::Leave {
        return Some(Operand::at(Register::RBP));
    }
    if insn.op_count() != 2 || insn.op0_kind() != OpKind::Register || insn.op0_register() != Register::RSP {
        return None;
    }
    match (insn.mnemonic(), insn.op1_kind()) {
        (Mnemonic::Add, OpKind::Immediate8to64 | OpKind::Immediate32to64) => above(insn.immediate(1) as i64),
        (Mnemonic::Sub, OpKind::Immediate8to64 | OpKind::Immediate32to64) => {
            above(-(insn.immediate(1) as i64))
        }
        (Mnemonic::Mov, OpKind::Register) if insn.op1_register() == Register::RBP => {
            Some(Operand::at(Register::RBP))
        }
        (Mnemonic::Lea, _) if insn.memory_index() == Register::None => {
            let displacement = insn.memory_displacement64() as i64;
            match insn.memory_base() {
                Register::RSP => above(displacement),
                base => Some(Operand { displacement, ..Operand::at(base) }),
            }
        }
        _ => None,
    }
}
