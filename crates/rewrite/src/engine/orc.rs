//! Adds rows for new code to the tables by which the kernel unwinds its stacks (ORC). A row equals that of
//! the instruction that the code belongs to, but for a deeper stack.

use crate::engine::layout::Stack;
use crate::engine::object::{Object, Reloc, reloc};
use crate::error::{Result, refused};
use guardrail_binfmt::orc::stack_pointer;

/// Bytes of a row of `.orc_unwind` (`arch/x86/include/asm/orc_types.h`).
const ROW: usize = 6;
/// Bytes of a row of `.orc_unwind_ip`.
const IP_ROW: usize = 4;

/// The stack frames of one section of code: offset, and row.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    rows: Vec<(u64, [u8; ROW])>,
    /// The number that rows have for the stack pointer.
    sp: u8,
}

impl Frames {
    /// Reads the rows of a section, before anything has moved.
    pub fn read(object: &Object, code: usize) -> Result<Frames> {
        let Some((places, table)) = tables(object) else { return Ok(Frames::default()) };
        let bytes = object.sections[table].bytes();
        let places = &object.sections[places];
        let count = bytes.len() / ROW;
        if !bytes.len().is_multiple_of(ROW) || places.bytes().len() != count * IP_ROW {
            return refused(".orc_unwind", "it does not fit to .orc_unwind_ip");
        }
        let mut rows = Vec::new();
        for reloc in &places.relocs {
            let at = reloc.offset as usize / IP_ROW * ROW;
            if let Some((section, offset)) = object.target(reloc.symbol, reloc.addend)
                && section == code
                && let Some(row) = bytes.get(at..at + ROW).and_then(|row| row.try_into().ok())
            {
                rows.push((offset, row));
            }
        }
        rows.sort_by_key(|(offset, _)| *offset);
        Ok(Frames { rows, sp: stack_pointer(bytes) })
    }

    /// The row that holds at an offset, for a stack that is `deeper` there; `None` where none does.
    fn like(&self, offset: u64, deeper: i16) -> Option<[u8; ROW]> {
        let after = self.rows.partition_point(|(at, _)| *at <= offset);
        let mut row = self.rows.get(after.checked_sub(1)?)?.1;
        if row[4] & 15 == self.sp {
            let sp = i16::from_le_bytes([row[0], row[1]]).checked_add(deeper)?;
            row[..2].copy_from_slice(&sp.to_le_bytes());
        }
        Some(row)
    }
}

/// Adds rows for new code of a section that has been moved.
pub fn add(object: &mut Object, code: usize, frames: &Frames, stacks: &[Stack]) {
    let Some((places, table)) = tables(object) else { return };
    let symbol = object.symbol_of_section(code);
    // The kernel sorts the table. Two rows for one place are then in no order, so only the last is added.
    let last = |pair: &[Stack]| pair.len() < 2 || pair[0].at != pair[1].at;
    let kept = (0..stacks.len()).filter(|&i| last(&stacks[i..(i + 2).min(stacks.len())]));
    for stack in kept.map(|i| &stacks[i]) {
        let Some(row) = frames.like(stack.like, stack.deeper) else { continue };
        let section = &mut object.sections[places];
        let offset = section.size();
        section.extend(&[0; IP_ROW]);
        section.relocs.push(Reloc { offset, kind: reloc::PC32, symbol, addend: stack.at as i64 });
        object.sections[table].extend(&row);
    }
}

/// Adds rows for a new section: at each offset, so many bytes more on the stack than when a function begins.
pub fn describe(object: &mut Object, code: usize, depths: &[(u64, i16)]) {
    let Some((_, table)) = tables(object) else { return };
    let bytes = object.sections[table].bytes();
    let sp = stack_pointer(bytes);
    // Functions begin with nothing but their return address on the stack: most of the table's rows of that
    // depth.
    let begins = |row: &&[u8]| row[4] & 15 == sp && row[..4] == [8, 0, 0, 0];
    let Some(begin) = bytes.chunks_exact(ROW).find(begins).and_then(|row| row.try_into().ok()) else {
        return;
    };
    let frames = Frames { rows: vec![(0, begin)], sp };
    let stacks: Vec<Stack> = depths.iter().map(|&(at, deeper)| Stack { at, like: 0, deeper }).collect();
    add(object, code, &frames, &stacks);
}

fn tables(object: &Object) -> Option<(usize, usize)> {
    Some((object.section(".orc_unwind_ip")?, object.section(".orc_unwind")?))
}
