//! Instructions that passes put in.

use crate::error::{Result, refused};
use crate::object::{Reloc, reloc};
use crate::patch::Op;
use iced_x86::{Code, Encoder, Instruction, MemoryOperand, OpKind, Register};

/// Encodes an instruction.
pub fn encode(insn: &Instruction) -> Result<Vec<u8>> {
    let mut encoder = Encoder::new(64);
    match encoder.encode(insn, insn.ip()) {
        Ok(_) => Ok(encoder.take_buffer()),
        Err(error) => refused(format!("{:#x}", insn.ip()), format!("cannot encode `{insn}`: {error}")),
    }
}

/// An instruction without relocation.
pub fn plain(insn: std::result::Result<Instruction, iced_x86::IcedError>) -> Result<Op> {
    match insn {
        Ok(insn) => Ok(Op::Code(encode(&insn)?, None)),
        Err(error) => refused("a patch", error.to_string()),
    }
}

/// `push` of a register.
pub fn push(register: Register) -> Result<Op> {
    plain(Instruction::with1(Code::Push_r64, register))
}

/// `pop` of a register.
pub fn pop(register: Register) -> Result<Op> {
    plain(Instruction::with1(Code::Pop_r64, register))
}

/// An instruction with a memory operand relative to itself, of which a relocation tells the place: `symbol` + `addend`.
pub fn relative(
    insn: std::result::Result<Instruction, iced_x86::IcedError>,
    symbol: usize,
    addend: i64,
) -> Result<Op> {
    let Op::Code(mut bytes, _) = plain(insn)? else { return refused("a patch", "it is no instruction") };
    let at = displacement(&bytes)?;
    bytes[at..at + 4].fill(0);
    let behind = (bytes.len() - at) as i64;
    Ok(Op::Code(bytes, Some(Reloc { offset: at as u64, kind: reloc::PC32, symbol, addend: addend - behind })))
}

/// A memory operand relative to the instruction.
pub fn relative_operand() -> MemoryOperand {
    // Any address near by; a relocation fills it in.
    MemoryOperand::with_base_displ(Register::RIP, 0)
}

/// `call`, or `jmp` with `tail`, of a symbol.
pub fn go(symbol: usize, tail: bool) -> Op {
    let bytes = vec![if tail { 0xe9 } else { 0xe8 }, 0, 0, 0, 0];
    Op::Code(bytes, Some(Reloc { offset: 1, kind: reloc::PLT32, symbol, addend: -4 }))
}

/// `lea` of the memory operand of `insn`, whose own relocations are `relocs` (counted from its begin); the stack is `deeper` than there.
pub fn address(register: Register, insn: &Instruction, relocs: &[Reloc], deeper: i16) -> Result<Op> {
    let mut lea = Instruction::default();
    lea.set_code(Code::Lea_r64_m);
    lea.set_op0_register(register);
    lea.set_op1_kind(OpKind::Memory);
    lea.set_memory_base(insn.memory_base());
    lea.set_memory_index(insn.memory_index());
    lea.set_memory_index_scale(insn.memory_index_scale());
    lea.set_memory_displ_size(insn.memory_displ_size());
    lea.set_memory_displacement64(insn.memory_displacement64());
    if insn.memory_base() == Register::RSP && deeper != 0 {
        lea.set_memory_displ_size(8);
        lea.set_memory_displacement64(insn.memory_displacement64().wrapping_add(deeper as u64));
    }
    lea.set_ip(insn.ip());
    let mut bytes = encode(&lea)?;
    let Some(old) = relocs.first() else {
        return match insn.is_ip_rel_memory_operand() {
            true => refused(
                format!("{:#x}", insn.ip()),
                "an operand is relative to the code, but has no relocation",
            ),
            false => Ok(Op::Code(bytes, None)),
        };
    };
    let at = displacement(&bytes)?;
    bytes[at..at + 4].fill(0);
    let mut moved = Reloc { offset: at as u64, ..*old };
    if reloc::relative(old.kind) {
        // Both count from the end of the instruction to what is meant.
        let (was, is) = (insn.len() as i64 - old.offset as i64, (bytes.len() - at) as i64);
        moved.addend += was - is;
    }
    Ok(Op::Code(bytes, Some(moved)))
}

/// Where the 32-bit displacement of an instruction is.
fn displacement(bytes: &[u8]) -> Result<usize> {
    let mut decoder = iced_x86::Decoder::new(64, bytes, iced_x86::DecoderOptions::NONE);
    let insn = decoder.decode();
    let offsets = decoder.get_constant_offsets(&insn);
    if offsets.displacement_size() != 4 {
        return refused("a patch", format!("`{insn}` has no room for an address"));
    }
    Ok(offsets.displacement_offset())
}
