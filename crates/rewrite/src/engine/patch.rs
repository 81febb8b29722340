//! What a pass puts in front of an instruction.

use crate::engine::object::Reloc;

/// Where a jump of a patch leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// To what stands behind the patch: the next patch, or the instruction that it stands before.
    Next,
    /// To the patch's own part behind the function.
    Out,
    /// To an instruction of the section itself, by number: to the instruction, not to what stands in front of
    /// it.
    Site(u32),
}

/// A piece of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// The bytes of an instruction; the relocation counts from the first byte.
    Code(Vec<u8>, Option<Reloc>),
    /// These bytes and a 32-bit distance from behind it: a jump, or another instruction that is to hold the
    /// distance.
    Jump(Vec<u8>, Label),
    /// From here on the stack is so many bytes deeper than at the instruction that the patch stands before.
    Deeper(i16),
    /// If the next instruction faults, the processor goes on at the part behind the function.
    MayFault,
}

impl Op {
    fn len(&self) -> usize {
        match self {
            Op::Code(bytes, _) => bytes.len(),
            Op::Jump(opcode, _) => opcode.len() + 4,
            Op::Deeper(_) | Op::MayFault => 0,
        }
    }
}

/// Code in front of one instruction, and its part behind the function, which normal runs do not enter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// The code in front of the instruction.
    pub before: Vec<Op>,
    /// The code behind the function; its last operation leaves it.
    pub out: Vec<Op>,
}

/// Bytes of a list of operations.
pub fn size(ops: &[Op]) -> usize {
    ops.iter().map(Op::len).sum()
}
