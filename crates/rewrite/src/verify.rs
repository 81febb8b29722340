//! Reads what was written, and compares it with what it was made from. It trusts nothing that placing and
//! moving have computed but the list of places itself.

use crate::border;
use crate::border::guard;
use crate::engine::code::{Code, Insn};
use crate::engine::layout::Placed;
use crate::engine::object::{Object, Reloc, Section, reloc};
use crate::engine::tables::{self, ENDBR, Means, RETURN_THUNK, THIS};
use crate::error::{Result, RewriteError};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Compares a module with its rewritten file. `codes` are the old module's sections of code, and `placed` is
/// their new layout.
pub fn verify(old: &Object, codes: &[Code], placed: &BTreeMap<usize, Placed>, new: &Object) -> Result<()> {
    let (led, kept) = (BTreeSet::new(), BTreeMap::new());
    let mut comparison = Comparison { old, codes, placed, new, functions: old.functions(), led, kept };
    for code in codes {
        comparison.instructions(code)?;
    }
    // New sections have no counterpart.
    for index in 0..old.sections.len() {
        comparison.references(index)?;
    }
    comparison.whole()
}

/// The instructions of a section by offset; they must fill it.
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
    // Either is the placeholder of a branch that is off.
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

/// Most instructions of a thunk.
const MAX_THUNK: usize = 4096;

/// A relocation of the old module, with its instruction if it is in code that was rewritten.
struct Reference<'a> {
    section: &'a Section,
    reloc: &'a Reloc,
    insn: Option<&'a Insn>,
}

impl Reference<'_> {
    fn at(&self) -> String {
        format!("{}+{:#x}", self.section.name, self.reloc.offset)
    }

    /// Section and offset that a relocation in its place names.
    fn target(&self, object: &Object, reloc: &Reloc) -> Option<(usize, u64)> {
        let bias = self.insn.map_or(0, |insn| insn.bias(self.reloc));
        object.target(reloc.symbol, reloc.addend.wrapping_add(bias))
    }
}

/// What is wrong with a reference.
type Verdict = std::result::Result<(), &'static str>;

/// What a thunk is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Crossing {
    /// Calls of a function of the kernel, by name.
    Out(String),
    /// Calls by pointer of a function of the module, at an offset of a section.
    In(usize, u64),
}

/// A module before and after, and references that may lead through thunks.
struct Comparison<'a> {
    old: &'a Object,
    codes: &'a [Code],
    placed: &'a BTreeMap<usize, Placed>,
    new: &'a Object,
    /// Where functions of the old module begin: section and offset.
    functions: HashSet<(usize, u64)>,
    /// What leads through thunks.
    led: BTreeSet<Crossing>,
    /// What does not, with one place that names it.
    kept: BTreeMap<Crossing, String>,
}

impl<'a> Comparison<'a> {
    /// Verifies that each instruction of a section is in its new place.
    fn instructions(&self, code: &Code) -> Result<()> {
        let section = self.new.sections.get(code.section);
        let insns = sweep(section.ok_or_else(|| wrong("the file", "a section is missing"))?)?;
        let places = &self.placed[&code.section];
        let name = &self.old.sections[code.section].name;
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
        Ok(())
    }

    /// Verifies every relocation of an old section.
    fn references(&mut self, index: usize) -> Result<()> {
        let section = &self.old.sections[index];
        let now = self.new.sections.get(index).filter(|now| now.name == section.name);
        let now = now.ok_or_else(|| wrong(&section.name, "the section is missing"))?;
        let moved: HashMap<u64, &Reloc> = now.relocs.iter().map(|reloc| (reloc.offset, reloc)).collect();
        for reloc in &section.relocs {
            let mut reference = Reference { section, reloc, insn: None };
            let mut offset = reloc.offset;
            if let Some(code) = Code::find(self.codes, index) {
                let number = code.holding(offset);
                let number = number.ok_or_else(|| wrong(reference.at(), "it belongs to no instruction"))?;
                let insn = &code.insns[number as usize];
                reference.insn = Some(insn);
                offset = self.placed[&index].insn[number as usize] + (offset - u64::from(insn.at));
            }
            let names = |object: &'a Object, reloc: &Reloc| {
                object.symbols.get(reloc.symbol).map(|symbol| (symbol.name.as_str(), symbol.index))
            };
            let verdict = match moved.get(&offset) {
                None => Err("a relocation is missing"),
                Some(found) if found.kind != reloc.kind => Err("a relocation has become another"),
                Some(found) if names(self.old, reloc) == names(self.new, found) => {
                    self.kept(&reference, found)
                }
                Some(found) => self.redirected(&reference, found),
            };
            verdict.map_err(|detail| wrong(reference.at(), detail))?;
        }
        Ok(())
    }

    /// What a reference means that may lead through a thunk; `None` for all others.
    fn crossing(&self, reference: &Reference<'_>) -> Option<Crossing> {
        let Reference { section, reloc, insn } = reference;
        let symbol = self.old.symbols.get(reloc.symbol)?;
        let branches = insn.is_some_and(|insn| insn.insn.flow_control() != FlowControl::Next);
        if branches {
            return (symbol.undefined() && insn.is_some_and(|insn| !insn.fixed))
                .then(|| Crossing::Out(symbol.name.clone()));
        }
        let pointer = match insn {
            Some(_) => true,
            None if section.exec() || tables::is_table(section) => false,
            None => reloc.kind == reloc::ABS64 || section.name.starts_with("__ksymtab"),
        };
        let place = reference.target(self.old, reloc)?;
        (pointer && self.functions.contains(&place)).then_some(Crossing::In(place.0, place.1))
    }

    /// Verifies a reference that names the same symbol as before: it names the same instruction, if it names
    /// code.
    fn kept(&mut self, reference: &Reference<'_>, found: &Reloc) -> Verdict {
        if let Some(crossing) = self.crossing(reference) {
            self.kept.entry(crossing).or_insert_with(|| reference.at());
        }
        let Reference { section, reloc, insn } = *reference;
        let Some((target, was)) = reference.target(self.old, reloc) else {
            let moved = found.addend != reloc.addend;
            return if moved { Err("a relocation of something elsewhere has moved") } else { Ok(()) };
        };
        // Code that stays as it is was decoded for this when it was moved; tables count from themselves.
        let code = Code::find(self.codes, target).filter(|_| insn.is_some() || !section.exec());
        let Some(number) = code.and_then(|code| code.starting(was)) else { return Ok(()) };
        let placed = &self.placed[&target];
        let wanted = match tables::means(section, reloc.offset) {
            Some(Means::Insn) => placed.insn[number as usize],
            _ => placed.entry[number as usize],
        };
        let now = reference.target(self.new, found);
        if now == Some((target, wanted)) { Ok(()) } else { Err("it names another instruction than before") }
    }

    /// Verifies a reference that names something else than before: that has to be a thunk to what it named.
    fn redirected(&mut self, reference: &Reference<'_>, found: &Reloc) -> Verdict {
        let crossing = self.crossing(reference).ok_or("a relocation has become another")?;
        let thunk = reference.target(self.new, found);
        let thunk = thunk.ok_or("a relocation has become one of something elsewhere")?;
        let kind = self.new.sections[thunk.0].name.as_str();
        match &crossing {
            Crossing::Out(name) if kind == border::CALLS => {
                let target = self.behind(thunk).ok_or("the thunk of a call is not understood")?;
                let target = &self.new.symbols[target.symbol];
                if !target.undefined() || target.name != *name {
                    return Err("a call goes to the thunk of another function");
                }
            }
            Crossing::In(section, offset) if [border::ENTRIES, border::INIT_ENTRIES].contains(&kind) => {
                let code = self.new.sections[thunk.0].bytes().get(thunk.1 as usize..);
                if !code.is_some_and(|code| code.starts_with(&ENDBR)) {
                    return Err("the thunk of a function cannot be called by pointer");
                }
                let target = self.behind(thunk).ok_or("the thunk of a function is not understood")?;
                if self.new.target(target.symbol, target.addend) != Some(self.now(*section, *offset)) {
                    return Err("a pointer leads to the thunk of another function");
                }
            }
            // This is the kernel's own way in, which passes the module to the runtime.
            Crossing::In(section, offset) if kind == guard::LIFE && reference.section.name == THIS => {
                let now = self.now(*section, *offset);
                let described = self.new.section(guard::SECTION).is_some_and(|index| {
                    let mut relocs = self.new.sections[index].relocs.iter();
                    relocs.any(|reloc| self.new.target(reloc.symbol, reloc.addend) == Some(now))
                });
                return if described { Ok(()) } else { Err("the runtime has no description of it") };
            }
            _ => return Err("a relocation has become another"),
        }
        self.led.insert(crossing);
        Ok(())
    }

    /// Where a function lies now.
    fn now(&self, section: usize, offset: u64) -> (usize, u64) {
        let code = Code::find(self.codes, section);
        let number = code.and_then(|code| code.starting(offset));
        (section, number.map_or(offset, |number| self.placed[&section].entry[number as usize]))
    }

    /// The one function that a thunk calls beside those of the runtime: a relocation whose addend counts from
    /// the function itself.
    fn behind(&self, (section, offset): (usize, u64)) -> Option<Reloc> {
        let section = &self.new.sections[section];
        let code = section.bytes().get(offset as usize..)?;
        let mut found = None;
        for insn in Decoder::with_ip(64, code, offset, DecoderOptions::NONE).into_iter().take(MAX_THUNK) {
            let mut inside =
                section.relocs.iter().filter(|reloc| (insn.ip()..insn.next_ip()).contains(&reloc.offset));
            let branch = inside.next().filter(|_| insn.flow_control() != FlowControl::Next);
            let Some(reloc) = branch else {
                // Branches within the thunk have no relocation.
                match insn.flow_control() {
                    FlowControl::Next | FlowControl::ConditionalBranch => continue,
                    FlowControl::Return => return found,
                    _ => return None,
                }
            };
            let name = &self.new.symbols.get(reloc.symbol)?.name;
            let leaves = insn.flow_control() == FlowControl::UnconditionalBranch;
            if name == RETURN_THUNK && leaves {
                return found;
            }
            if !name.starts_with(guardrail_abi::PREFIX) {
                let bias = (insn.next_ip() - reloc.offset) as i64;
                let target = Reloc { addend: reloc.addend.wrapping_add(bias), ..*reloc };
                if found.replace(target).is_some() {
                    return None;
                }
            }
            if leaves {
                return found;
            }
        }
        None
    }

    /// Verifies that what leads through a thunk at one place does so at all places.
    fn whole(&self) -> Result<()> {
        match self.led.iter().find_map(|crossing| Some((crossing, self.kept.get(crossing)?))) {
            Some((crossing, place)) => Err(wrong(place, format!("{crossing:?} goes past its thunk"))),
            None => Ok(()),
        }
    }
}

fn wrong(place: impl Into<String>, detail: impl Into<String>) -> RewriteError {
    RewriteError::Check { place: place.into(), detail: detail.into() }
}
