//! Reads what was written, and compares it with what it came from: nothing here trusts what placing and moving have computed but the
//! list of places itself.

use crate::code::{Code, Insn};
use crate::error::{Result, RewriteError};
use crate::object::{Object, Place, Reloc, Section, reloc};
use crate::place::Placed;
use crate::tables::{self, Means};
use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};
use std::collections::{BTreeMap, HashMap};

/// Compares a module with its rewritten file. `codes` are the old one's sections of code, `placed` where they have come to lie.
pub fn verify(old: &Object, codes: &[Code], placed: &BTreeMap<usize, Placed>, new: &Object) -> Result<()> {
    let mut decoded = HashMap::new();
    for code in codes {
        let section =
            new.sections.get(code.section).ok_or_else(|| wrong("the file", "a section is missing"))?;
        decoded.insert(code.section, sweep(section)?);
    }
    for code in codes {
        let places = &placed[&code.section];
        let insns = &decoded[&code.section];
        let name = &old.sections[code.section].name;
        for (number, insn) in code.insns.iter().enumerate() {
            let at = || format!("{name}+{:#x}", insn.at);
            let found =
                insns.get(&places.insn[number]).ok_or_else(|| wrong(at(), "it is not where it should be"))?;
            if !insns.contains_key(&places.entry[number]) {
                return Err(wrong(at(), "what stands in front of it does not begin with an instruction"));
            }
            if !same(insn, found, &places.entry) {
                return Err(wrong(at(), format!("`{}` has become `{found}`", insn.insn)));
            }
        }
    }
    // Sections that are new have no counterpart.
    for (index, section) in old.sections.iter().enumerate() {
        references(old, codes, placed, new, index, section)?;
    }
    Ok(())
}

/// The instructions of a section, which must fill it.
fn sweep(section: &Section) -> Result<HashMap<u64, Instruction>> {
    let mut found = HashMap::new();
    let mut decoder = Decoder::with_ip(64, section.bytes(), 0, DecoderOptions::NONE);
    while decoder.can_decode() {
        let insn = decoder.decode();
        if insn.is_invalid() {
            return Err(wrong(format!("{}+{:#x}", section.name, insn.ip()), "there is no instruction here"));
        }
        found.insert(insn.ip(), insn);
    }
    Ok(found)
}

/// Whether an instruction does what it did, from its new place.
fn same(old: &Insn, new: &Instruction, entry: &[u64]) -> bool {
    let was = &old.insn;
    if let Some(target) = old.target {
        let target = entry[target as usize];
        let to = new.near_branch64() == target;
        // A branch by a counter may have become one over a jump.
        let around = was.is_jcx_short() || was.is_loop() || was.is_loopcc();
        return was.mnemonic() == new.mnemonic()
            && (to || (around && new.near_branch64() == new.next_ip() + 2));
    }
    // A place for a branch that is off.
    if was.mnemonic() == iced_x86::Mnemonic::Nop && new.mnemonic() == iced_x86::Mnemonic::Nop {
        return true;
    }
    let operand = |i| match was.op_kind(i) {
        OpKind::Register => was.op_register(i) == new.op_register(i),
        OpKind::Memory => {
            let own = |insn: &Instruction| {
                let base = if insn.is_ip_rel_memory_operand() { insn.next_ip() } else { 0 };
                insn.memory_displacement64().wrapping_sub(base)
            };
            was.memory_base() == new.memory_base()
                && was.memory_index() == new.memory_index()
                && was.memory_index_scale() == new.memory_index_scale()
                && was.memory_segment() == new.memory_segment()
                && own(was) == own(new)
        }
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
            was.near_branch_target().wrapping_sub(was.next_ip())
                == new.near_branch_target().wrapping_sub(new.next_ip())
        }
        kind if kind == new.op_kind(i) => match kind {
            OpKind::Immediate8
            | OpKind::Immediate8_2nd
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64 => was.immediate(i) == new.immediate(i),
            _ => true,
        },
        _ => false,
    };
    was.code() == new.code()
        && was.has_lock_prefix() == new.has_lock_prefix()
        && was.has_rep_prefix() == new.has_rep_prefix()
        && was.has_repne_prefix() == new.has_repne_prefix()
        && (0..was.op_count()).all(operand)
}

/// Every relocation of an old section is still there, for the same symbol, and names the same instruction if it names code.
fn references(
    old: &Object,
    codes: &[Code],
    placed: &BTreeMap<usize, Placed>,
    new: &Object,
    index: usize,
    section: &Section,
) -> Result<()> {
    let now = new.sections.get(index).filter(|now| now.name == section.name);
    let now = now.ok_or_else(|| wrong(&section.name, "the section is missing"))?;
    let moved: HashMap<u64, &Reloc> = now.relocs.iter().map(|reloc| (reloc.offset, reloc)).collect();
    let own = codes.iter().find(|code| code.section == index);
    for reloc in &section.relocs {
        let at = || format!("{}+{:#x}", section.name, reloc.offset);
        let (offset, bias) = match own {
            None => (reloc.offset, None),
            Some(code) => {
                let number =
                    code.holding(reloc.offset).ok_or_else(|| wrong(at(), "it belongs to no instruction"))?;
                let insn = &code.insns[number as usize];
                let inside = reloc.offset - u64::from(insn.at);
                (placed[&index].insn[number as usize] + inside, Some(u64::from(insn.end()) - reloc.offset))
            }
        };
        let found = moved.get(&offset).ok_or_else(|| wrong(at(), "a relocation is missing"))?;
        let names = [(old, reloc), (new, *found)].map(|(object, reloc)| {
            object.symbols.get(reloc.symbol).map(|symbol| (symbol.name.as_str(), symbol.place))
        });
        if found.kind != reloc.kind || names[0] != names[1] {
            return Err(wrong(at(), "a relocation has become another"));
        }
        let Some((_, Place::In(target))) = names[0] else {
            if found.addend != reloc.addend {
                return Err(wrong(at(), "a relocation of something elsewhere has moved"));
            }
            continue;
        };
        let Some(code) = codes.iter().find(|code| code.section == target) else { continue };
        // Code that stays as it is was decoded for this when it was moved; tables count from themselves.
        let bias = match (bias, section.exec()) {
            (Some(bias), _) => bias,
            (None, false) => 0,
            (None, true) => continue,
        };
        let bias = if reloc::relative(reloc.kind) { bias } else { 0 };
        let places = [(old, reloc), (new, *found)].map(|(object, reloc)| {
            object.symbols[reloc.symbol].value.wrapping_add_signed(reloc.addend).wrapping_add(bias)
        });
        let Some(number) = code.starting(places[0]) else { continue };
        let means = tables::means(section, reloc.offset).unwrap_or(Means::Entry);
        let placed = &placed[&target];
        let wanted = if means == Means::Insn { &placed.insn } else { &placed.entry };
        if wanted[number as usize] != places[1] {
            return Err(wrong(at(), "it names another instruction than before"));
        }
    }
    Ok(())
}

fn wrong(place: impl Into<String>, detail: impl Into<String>) -> RewriteError {
    RewriteError::Check { place: place.into(), detail: detail.into() }
}
