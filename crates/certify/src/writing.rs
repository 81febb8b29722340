//! Which instructions write to memory.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess};

/// Whether an access writes.
pub fn writes(access: OpAccess) -> bool {
    !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess | OpAccess::None)
}

/// Whether an instruction writes to memory, other than by moving the stack pointer alone.
pub fn stores(insn: &Instruction, info: &mut InstructionInfoFactory) -> bool {
    odd(insn) || info.info(insn).used_memory().iter().any(|memory| writes(memory.access()))
}

/// Whether the instruction writes to memory although no operand says so.
pub fn odd(insn: &Instruction) -> bool {
    use Mnemonic::{Clzero, Enclu, Maskmovdqu, Maskmovq, Montmul, Vmaskmovdqu, Xsha1, Xsha256, Xstore};
    let named = matches!(insn.mnemonic(), Maskmovdqu | Maskmovq | Vmaskmovdqu | Xstore | Xsha1 | Xsha256);
    named || encrypts(insn) || matches!(insn.mnemonic(), Clzero | Enclu | Montmul)
}

/// Whether the instruction encrypts blocks of 16 bytes.
pub fn encrypts(insn: &Instruction) -> bool {
    use Mnemonic::{Xcryptcbc, Xcryptcfb, Xcryptctr, Xcryptecb, Xcryptofb};
    matches!(insn.mnemonic(), Xcryptcbc | Xcryptcfb | Xcryptctr | Xcryptecb | Xcryptofb)
}

/// The engines of some processors write this many bytes to RDI.
pub fn padlock_size(insn: &Instruction) -> Option<i64> {
    match insn.mnemonic() {
        Mnemonic::Xsha1 | Mnemonic::Xsha256 => Some(32),
        Mnemonic::Xstore => Some(8),
        _ => None,
    }
}
