//! A section of code, taken apart into instructions.

use crate::engine::object::{Object, Reloc, Section, reloc};
use crate::engine::tables;
use crate::error::{Result, refused};
use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpAccess, OpKind, Register,
};
use std::ops::Range;

/// An instruction of a module: its section, and its number there.
pub type At = (usize, u32);

/// One instruction of a section.
#[derive(Clone, Debug)]
pub struct Insn {
    /// Offset in the section.
    pub at: u32,
    /// The decoded instruction, with the offset as its address.
    pub insn: Instruction,
    /// Its relocations, by index in the section's.
    pub relocs: Range<u32>,
    /// Where its displacement stands in it, if it has one.
    pub displacement: Option<u8>,
    /// The number of the instruction in the section that it branches to; `None` if a relocation names the
    /// target.
    pub target: Option<u32>,
    /// Whether nothing may stand in front of it and its bytes stay as they are.
    /// The kernel writes over such instructions, or the processor wants them where a function begins.
    pub fixed: bool,
    /// Whether it is the first of the instructions that the kernel writes over at once: something may stand in
    /// front of all of these.
    pub first: bool,
}

impl Insn {
    /// Offset of the first byte behind it.
    pub fn end(&self) -> u32 {
        self.at + self.insn.len() as u32
    }

    /// Its relocations, out of those of its section.
    pub fn relocs<'a>(&self, section: &'a Section) -> &'a [Reloc] {
        &section.relocs[self.relocs.start as usize..self.relocs.end as usize]
    }

    /// The relocation of its displacement; the offset counts from the instruction's begin. An immediate may
    /// have one as well.
    pub fn displacement_reloc(&self, section: &Section) -> Option<Reloc> {
        let from = |reloc: &Reloc| Reloc { offset: reloc.offset - u64::from(self.at), ..*reloc };
        self.relocs(section)
            .iter()
            .map(from)
            .find(|reloc| Some(reloc.offset) == self.displacement.map(u64::from))
    }

    /// The name of the symbol that its first relocation names; empty if it has none.
    pub fn names<'a>(&self, object: &'a Object, section: &Section) -> &'a str {
        self.relocs(section).first().map_or("", |reloc| object.name(reloc))
    }

    /// Bytes from where a relocation's own distance counts to the end of the instruction; 0 for addresses.
    pub fn bias(&self, reloc: &Reloc) -> i64 {
        if reloc::relative(reloc.kind) { i64::from(self.end()) - reloc.offset as i64 } else { 0 }
    }

    /// Whether what stands behind it can run next.
    pub fn falls_through(&self) -> bool {
        use FlowControl::{IndirectBranch, Return, UnconditionalBranch};
        !matches!(self.insn.flow_control(), Return | UnconditionalBranch | IndirectBranch)
            && !matches!(self.insn.mnemonic(), Mnemonic::Ud2 | Mnemonic::Int3)
    }
}

/// A function: what a symbol of that type covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Index of its symbol; the first of several at the same place.
    pub symbol: usize,
    /// Its instructions, by number in the section.
    pub insns: Range<u32>,
}

/// A section of code, without gaps.
#[derive(Clone, Debug)]
pub struct Code {
    /// Index of the section in the object.
    pub section: usize,
    /// All instructions, without gaps.
    pub insns: Vec<Insn>,
    /// Functions by offset; they do not overlap.
    pub functions: Vec<Function>,
}

impl Code {
    /// Takes a section apart, from function to function, so that nothing between them can put the sweep out
    /// of step. `fixed`: see [`Insn::fixed`].
    pub fn read(object: &Object, index: usize, fixed: &[Range<u64>]) -> Result<Code> {
        let section = &object.sections[index];
        let bytes = section.bytes();
        if u32::try_from(bytes.len()).is_err() {
            return refused(&section.name, "it has more than 4 GiB of code");
        }
        let spans = spans(object, index)?;
        let mut insns: Vec<Insn> = Vec::with_capacity(bytes.len() / 4);
        let mut functions = Vec::with_capacity(spans.len());
        let mut at = 0;
        for (symbol, span) in &spans {
            sweep(section, at..span.start, &mut insns)?;
            let first = insns.len() as u32;
            sweep(section, span.clone(), &mut insns)?;
            functions.push(Function { symbol: *symbol, insns: first..insns.len() as u32 });
            at = span.end;
        }
        sweep(section, at..bytes.len(), &mut insns)?;
        let mut code = Code { section: index, insns, functions };
        code.mark(section, fixed)?;
        code.link(section)?;
        Ok(code)
    }

    /// All sections that are rewritten, taken apart.
    pub fn all(object: &Object) -> Result<Vec<Code>> {
        let sections = object.sections.iter().enumerate().filter(|(_, section)| tables::rewritten(section));
        sections.map(|(index, _)| Code::read(object, index, &tables::fixed(object, index)?)).collect()
    }

    /// The code of a section; `None` if it is not rewritten.
    pub fn find(codes: &[Code], section: usize) -> Option<&Code> {
        codes.iter().find(|code| code.section == section)
    }

    /// The instruction that holds the byte at this offset.
    pub fn holding(&self, offset: u64) -> Option<u32> {
        let after = self.insns.partition_point(|insn| u64::from(insn.at) <= offset);
        let found = after.checked_sub(1)?;
        (offset < u64::from(self.insns[found].end())).then_some(found as u32)
    }

    /// The instruction that begins at this offset.
    pub fn starting(&self, offset: u64) -> Option<u32> {
        self.holding(offset).filter(|&found| u64::from(self.insns[found as usize].at) == offset)
    }

    /// The function that an instruction belongs to; `None` between functions.
    pub fn function_of(&self, insn: u32) -> Option<&Function> {
        let after = self.functions.partition_point(|function| function.insns.start <= insn);
        self.functions.get(after.checked_sub(1)?).filter(|function| function.insns.contains(&insn))
    }

    fn mark(&mut self, section: &Section, fixed: &[Range<u64>]) -> Result<()> {
        for range in fixed {
            let inside = |insn: &Insn| u64::from(insn.at) < range.end && u64::from(insn.end()) > range.start;
            let first = self.insns.partition_point(|insn| u64::from(insn.end()) <= range.start);
            for insn in self.insns[first..].iter_mut().take_while(|insn| inside(insn)) {
                if u64::from(insn.at) < range.start || u64::from(insn.end()) > range.end {
                    let place = format!("{}+{:#x}", section.name, insn.at);
                    return refused(place, "the kernel would patch a part of this instruction");
                }
                insn.first = u64::from(insn.at) == range.start && (!insn.fixed || insn.first);
                insn.fixed = true;
            }
        }
        Ok(())
    }

    /// Finds the relocations of each instruction, and the target of each branch.
    fn link(&mut self, section: &Section) -> Result<()> {
        let mut next = 0usize;
        for number in 0..self.insns.len() {
            let (at, end, decoded) = {
                let insn = &self.insns[number];
                (u64::from(insn.at), u64::from(insn.end()), insn.insn)
            };
            let first = next;
            while section.relocs.get(next).is_some_and(|reloc| reloc.offset < end) {
                let reloc = section.relocs[next];
                let width = u64::from(reloc::width(reloc.kind).unwrap_or(0));
                if reloc.offset < at || reloc.offset + width > end {
                    let place = format!("{}+{:#x}", section.name, reloc.offset);
                    return refused(place, "a relocation reaches over the end of its instruction");
                }
                next += 1;
            }
            let relocated = first != next;
            let target = if relocated { None } else { self.local_target(section, &decoded)? };
            let insn = &mut self.insns[number];
            insn.relocs = first as u32..next as u32;
            insn.target = target;
        }
        Ok(())
    }

    fn local_target(&self, section: &Section, insn: &Instruction) -> Result<Option<u32>> {
        let place = || format!("{}+{:#x}", section.name, insn.ip());
        if insn.is_ip_rel_memory_operand() {
            // This is the address of the next instruction, which messages use to name the place that they are
            // from.
            if insn.code() == Opcode::Lea_r64_m && insn.ip_rel_memory_address() == insn.next_ip() {
                return Ok(None);
            }
            return refused(place(), "an operand is relative to the code, but has no relocation");
        }
        let narrow = |operand| matches!(insn.op_kind(operand), OpKind::NearBranch16 | OpKind::NearBranch32);
        if (0..insn.op_count()).any(narrow) {
            return refused(place(), "it branches by 16 bits");
        }
        let branches = (0..insn.op_count()).any(|operand| insn.op_kind(operand) == OpKind::NearBranch64);
        if !branches {
            return Ok(None);
        }
        let target = insn.near_branch64();
        match self.starting(target) {
            Some(found) => Ok(Some(found)),
            None => refused(place(), format!("it branches to {target:#x}, where no instruction begins")),
        }
    }
}

/// Symbols of functions and the bytes that they cover, by offset.
fn spans(object: &Object, index: usize) -> Result<Vec<(usize, Range<usize>)>> {
    let section = &object.sections[index];
    let mut spans: Vec<(usize, Range<usize>)> = Vec::new();
    let symbols = object.symbols.iter().enumerate();
    for (number, symbol) in symbols.filter(|(_, symbol)| symbol.function() && symbol.size > 0) {
        if symbol.section() != Some(index) {
            continue;
        }
        let end = symbol.value.checked_add(symbol.size).filter(|&end| end <= section.size());
        match end {
            Some(end) => spans.push((number, symbol.value as usize..end as usize)),
            None => return refused(&symbol.name, "the function reaches over the end of its section"),
        }
    }
    spans.sort_by_key(|(number, span)| (span.start, span.end, *number));
    spans.dedup_by(|next, before| next.1 == before.1);
    if let Some(pair) = spans.windows(2).find(|pair| pair[1].1.start < pair[0].1.end) {
        let names = [&pair[0], &pair[1]].map(|(number, _)| object.symbols[*number].name.clone());
        return refused(&names[1], format!("the function overlaps {}", names[0]));
    }
    Ok(spans)
}

/// Decodes a range that begins and ends with whole instructions.
fn sweep(section: &Section, range: Range<usize>, insns: &mut Vec<Insn>) -> Result<()> {
    let bytes = &section.bytes()[range.clone()];
    let mut decoder = Decoder::with_ip(64, bytes, range.start as u64, DecoderOptions::NONE);
    while decoder.can_decode() {
        let insn = decoder.decode();
        if insn.is_invalid() {
            return refused(format!("{}+{:#x}", section.name, insn.ip()), "there is no instruction here");
        }
        let fixed = insn.code() == Opcode::Endbr64;
        let offsets = decoder.get_constant_offsets(&insn);
        let displacement = offsets.has_displacement().then_some(offsets.displacement_offset() as u8);
        insns.push(Insn {
            at: insn.ip() as u32,
            insn,
            relocs: 0..0,
            displacement,
            target: None,
            fixed,
            first: false,
        });
    }
    Ok(())
}

/// The register with the number of a bit, and its bytes.
pub fn bit(insn: &Instruction) -> Option<(Register, u32)> {
    let width = match insn.code() {
        Opcode::Bts_rm64_r64 | Opcode::Btr_rm64_r64 | Opcode::Btc_rm64_r64 => 8,
        Opcode::Bts_rm32_r32 | Opcode::Btr_rm32_r32 | Opcode::Btc_rm32_r32 => 4,
        Opcode::Bts_rm16_r16 | Opcode::Btr_rm16_r16 | Opcode::Btc_rm16_r16 => 2,
        _ => return None,
    };
    Some((insn.op1_register(), width))
}

/// Whether an access writes.
pub fn writes(access: OpAccess) -> bool {
    !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess | OpAccess::None)
}
