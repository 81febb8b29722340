//! Numbers in instructions that grow.

use super::Planted;
use crate::code::Function;
use crate::edit::{Edit, Place, bytes};
use crate::elf::Elf;

/// A number in an instruction that can be made larger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grow {
    /// The instruction, by index in its function.
    pub insn: usize,
    /// Offset of the number in the instruction.
    pub at: usize,
    /// Its bytes: 1, 2 or 4; it is signed.
    pub size: usize,
    /// By how much it grows for each unit of the increment.
    pub each: u64,
    /// How many units of the increment make one step. A copy of quadwords moves eight bytes with each.
    pub per: u64,
    /// What the number is, in words for the description.
    pub what: &'static str,
}

impl Grow {
    /// The number as it is.
    fn old(&self, bytes: &[u8]) -> Option<i64> {
        let raw = bytes.get(self.at..self.at + self.size)?;
        Some(match *raw {
            [a] => i64::from(a as i8),
            [a, b] => i64::from(i16::from_le_bytes([a, b])),
            [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
            _ => return None,
        })
    }

    /// The change for an increment; `None` where the number has no room for it.
    pub(super) fn plant(&self, elf: &Elf, function: &Function, increment: u64) -> Option<Planted> {
        let mut bytes = bytes(elf, function, &function.insns[self.insn]).to_vec();
        let old = self.old(&bytes)?;
        let grown = increment.div_ceil(self.per).checked_mul(self.each)?;
        let new = old.checked_add(i64::try_from(grown).ok()?)?;
        let most = (1_i64 << (8 * self.size - 1)) - 1;
        if new > most {
            return None;
        }
        bytes.get_mut(self.at..self.at + self.size)?.copy_from_slice(&new.to_le_bytes()[..self.size]);
        let edit = Edit { insn: self.insn, bytes, place: Place::Keep };
        Some(Planted { edits: vec![edit], what: format!("{} grows by {increment}", self.what) })
    }

    /// Whether the number is a count; a negative one means something else.
    pub(super) fn is_count(&self, elf: &Elf, function: &Function) -> bool {
        self.old(bytes(elf, function, &function.insns[self.insn])).is_some_and(|old| old >= 0)
    }
}
