//! Adds rows for new code to the tables by which the kernel unwinds its stacks (ORC). A row equals that of
//! the instruction that the code belongs to, but for a deeper stack.

use crate::engine::layout::Stack;
use crate::engine::object::{Content, Object, Reloc, reloc};
use crate::error::{Result, refused};
use guardrail_binfmt::orc::stack_pointer;

/// Bytes of a row of `.orc_unwind` (`arch/x86/include/asm/orc_types.h`).
const ENTRY: usize = 6;
/// Bytes of a row of `.orc_unwind_ip`.
const PLACE: usize = 4;

/// The stack frames of one section of code: offset, and row.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    entries: Vec<(u64, [u8; ENTRY])>,
    /// The number that rows have for the stack pointer.
    sp: u8,
}

impl Frames {
    /// Reads the rows of a section, before anything has moved.
    pub fn read(object: &Object, code: usize) -> Result<Frames> {
        let Some((places, table)) = tables(object) else { return Ok(Frames::default()) };
        let bytes = object.sections[table].bytes();
        let places = &object.sections[places];
        let count = bytes.len() / ENTRY;
        if !bytes.len().is_multiple_of(ENTRY) || places.bytes().len() != count * PLACE {
            return refused(".orc_unwind", "it does not fit to .orc_unwind_ip");
        }
        let mut entries = Vec::new();
        for reloc in &places.relocs {
            let at = reloc.offset as usize / PLACE * ENTRY;
            if let Some((section, offset)) = object.target(reloc.symbol, reloc.addend)
                && section == code
                && let Some(entry) = bytes.get(at..at + ENTRY).and_then(|entry| entry.try_into().ok())
            {
                entries.push((offset, entry));
            }
        }
        entries.sort_by_key(|(offset, _)| *offset);
        Ok(Frames { entries, sp: stack_pointer(bytes) })
    }

    /// The row that holds at an offset, for a stack that is `deeper` there; `None` where none does.
    fn like(&self, offset: u64, deeper: i16) -> Option<[u8; ENTRY]> {
        let after = self.entries.partition_point(|(at, _)| *at <= offset);
        let mut entry = self.entries.get(after.checked_sub(1)?)?.1;
        if entry[4] & 15 == self.sp {
            let sp = i16::from_le_bytes([entry[0], entry[1]]).checked_add(deeper)?;
            entry[..2].copy_from_slice(&sp.to_le_bytes());
        }
        Some(entry)
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
        let Some(entry) = frames.like(stack.like, stack.deeper) else { continue };
        let section = &mut object.sections[places];
        let (Content::Bytes(bytes), kind) = (&mut section.content, reloc::PC32) else { continue };
        let offset = bytes.len() as u64;
        bytes.extend_from_slice(&[0; PLACE]);
        section.relocs.push(Reloc { offset, kind, symbol, addend: stack.at as i64 });
        if let Content::Bytes(bytes) = &mut object.sections[table].content {
            bytes.extend_from_slice(&entry);
        }
    }
}

/// Adds rows for a new section: at each offset, so many bytes more on the stack than when a function begins.
pub fn describe(object: &mut Object, code: usize, depths: &[(u64, i16)]) {
    let Some((_, table)) = tables(object) else { return };
    let bytes = object.sections[table].bytes();
    let sp = stack_pointer(bytes);
    // Functions begin with nothing but their return address on the stack: most of the table's rows of that
    // depth.
    let begins = |entry: &&[u8]| entry[4] & 15 == sp && entry[..4] == [8, 0, 0, 0];
    let Some(begin) = bytes.chunks_exact(ENTRY).find(begins).and_then(|entry| entry.try_into().ok()) else {
        return;
    };
    let frames = Frames { entries: vec![(0, begin)], sp };
    let stacks: Vec<Stack> = depths.iter().map(|&(at, deeper)| Stack { at, like: 0, deeper }).collect();
    add(object, code, &frames, &stacks);
}

fn tables(object: &Object) -> Option<(usize, usize)> {
    Some((object.section(".orc_unwind_ip")?, object.section(".orc_unwind")?))
}
