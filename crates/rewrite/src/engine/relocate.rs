//! Moves references to code to where that code now lies.

use crate::engine::code::Code;
use crate::engine::layout::Placed;
use crate::engine::object::{Content, Object, Reloc, Section, SectionIndex, reloc};
use crate::engine::tables::{self, Means};
use crate::error::{Result, refused};
use iced_x86::{Decoder, DecoderOptions};
use std::collections::HashMap;

/// A section before and after, by its index.
pub type Moves<'a> = HashMap<usize, (&'a Code, &'a Placed)>;

/// Where code lies now.
struct Map<'a>(&'a Moves<'a>);

impl Map<'_> {
    /// The new offset of a place in a section; `None` where it is not known what is meant.
    fn place(&self, section: usize, offset: u64, means: Means) -> Option<u64> {
        let Some((code, placed)) = self.0.get(&section) else { return Some(offset) };
        let end = code.insns.last().map_or(0, |insn| u64::from(insn.end()));
        if offset == end {
            return placed.entry.last().copied();
        }
        let number = code.holding(offset)? as usize;
        let inside = offset - u64::from(code.insns[number].at);
        match (inside, means) {
            (0, Means::Insn) => Some(placed.insn[number]),
            (0, Means::Entry) => Some(placed.entry[number]),
            // Prefixes and stack frames within replaced code name the inside of an instruction. That holds
            // only while it is as long as it was.
            (_, _) if !placed.wide[number] => Some(placed.insn[number] + inside),
            _ => None,
        }
    }

    /// The new offset of a function's end.
    fn end(&self, section: usize, offset: u64) -> Option<u64> {
        let Some((code, placed)) = self.0.get(&section) else { return Some(offset) };
        match offset.checked_sub(1) {
            None => Some(0),
            Some(last) => Some(placed.after[code.holding(last)? as usize]),
        }
    }
}

/// Moves symbols, and all relocations that name code.
pub fn move_all(object: &mut Object, moves: &Moves<'_>) -> Result<()> {
    let old: Vec<_> = object.symbols.iter().map(|symbol| (symbol.index, symbol.value)).collect();
    let map = Map(moves);
    let functions = object.functions();
    move_symbols(object, &map)?;
    for index in 0..object.sections.len() {
        let section = &object.sections[index];
        let (mut relocs, biases) = match moves.get(&index) {
            Some((_, placed)) => (placed.relocs.clone(), placed.biases.clone()),
            None => (section.relocs.clone(), biases(section, &old, moves)?),
        };
        for (reloc, bias) in relocs.iter_mut().zip(biases) {
            let Some(&(SectionIndex::In(target), value)) = old.get(reloc.symbol) else { continue };
            if !moves.contains_key(&target) {
                continue;
            }
            let Some(bias) = bias else {
                return refused(
                    format!("{}+{:#x}", section.name, reloc.offset),
                    "a patch names code that moves",
                );
            };
            let offset = value.wrapping_add_signed(reloc.addend.wrapping_add(bias));
            let at = || format!("{}+{:#x}", section.name, reloc.offset);
            let entry = functions.contains(&(target, offset)).then_some(Means::Entry);
            let Some(means) = tables::means(section, reloc.offset).or(entry) else {
                let detail = "this section is not known, and names code inside of a function";
                return refused(at(), detail);
            };
            let Some(new) = map.place(target, offset, means) else {
                let name = &object.sections[target].name;
                let detail =
                    format!("it names {name}+{offset:#x}, which is inside of an instruction that changes");
                return refused(at(), detail);
            };
            // The symbol itself has moved to the first patch of its place.
            let base = object.symbols[reloc.symbol].value;
            reloc.addend = (new.wrapping_sub(base) as i64).wrapping_sub(bias);
        }
        object.sections[index].relocs = relocs;
    }
    for (index, (_, placed)) in moves {
        object.sections[*index].content = Content::Bytes(placed.bytes.clone());
    }
    Ok(())
}

fn move_symbols(object: &mut Object, map: &Map<'_>) -> Result<()> {
    for symbol in &mut object.symbols {
        let SectionIndex::In(section) = symbol.index else { continue };
        let (start, end) = (symbol.value, symbol.value.saturating_add(symbol.size));
        let moved = map.place(section, start, Means::Entry).zip(map.end(section, end));
        let Some((start, end)) = moved else {
            return refused(&symbol.name, "the symbol lies beyond the end of its section");
        };
        symbol.value = start;
        if symbol.size > 0 {
            symbol.size = end.saturating_sub(start);
        }
    }
    Ok(())
}

/// The distance from each relocation to the end of its instruction, in code that stays as it is. Tables count
/// from the field itself.
fn biases(section: &Section, old: &[(SectionIndex, u64)], moves: &Moves<'_>) -> Result<Vec<Option<i64>>> {
    let names_code = |reloc: &Reloc| matches!(old.get(reloc.symbol), Some((SectionIndex::In(target), _)) if moves.contains_key(target));
    let mut biases = vec![Some(0); section.relocs.len()];
    if !section.exec() || !section.relocs.iter().any(names_code) {
        return Ok(biases);
    }
    let mut decoder = Decoder::with_ip(64, section.bytes(), 0, DecoderOptions::NONE);
    let mut relocs = section.relocs.iter().zip(&mut biases).peekable();
    while decoder.can_decode() {
        let insn = decoder.decode();
        while let Some((reloc, bias)) = relocs.next_if(|(reloc, _)| reloc.offset < insn.next_ip()) {
            if insn.is_invalid() {
                return refused(format!("{}+{:#x}", section.name, insn.ip()), "there is no instruction here");
            }
            if reloc::relative(reloc.kind) {
                *bias = Some((insn.next_ip() - reloc.offset) as i64);
            }
        }
    }
    Ok(biases)
}
