//! Stores that are left out, and stores that write to another address.

use super::{Plan, Planted, Site};
use crate::code::{Function, Insn};
use crate::edit::{bytes, change, decode, remove};
use crate::elf::Elf;
use crate::flow::flags_live_after;
use crate::random::Random;
use iced_x86::{Mnemonic, OpKind, Register};

/// Whether the instruction is a plain assignment: it changes nothing but memory, and flags that nobody reads.
fn assigns(elf: &Elf, function: &Function, index: usize) -> bool {
    let insn = &function.insns[index];
    let instr = &insn.instr;
    insn.stores
        && insn.writes == 0
        && instr.op0_kind() == OpKind::Memory
        && !instr.has_lock_prefix()
        && !instr.is_string_instruction()
        && !instr.is_call_near_indirect()
        && !matches!(instr.mnemonic(), Mnemonic::Xchg | Mnemonic::Pop | Mnemonic::Push)
        && (instr.rflags_modified() == 0 || !flags_live_after(elf, function, index))
}

/// Finds every assignment to memory.
pub(super) fn deletions(elf: &Elf, function: &Function, index: usize, sites: &mut Vec<Site>) {
    let places = (0..function.insns.len()).filter(|&i| assigns(elf, function, i));
    sites.extend(
        places.map(|i| Site::fixed(index, i, vec![remove(function, i)], "the assignment is left out")),
    );
}

/// Finds every assignment through a pointer.
pub(super) fn pointers(elf: &Elf, function: &Function, index: usize, sites: &mut Vec<Site>) {
    let places = (0..function.insns.len()).filter(|&i| {
        let instr = &function.insns[i].instr;
        assigns(elf, function, i)
            && instr.memory_base().is_gpr64()
            && instr.memory_base() != Register::RSP
            && instr.segment_prefix() == Register::None
            && ModRm::of(bytes(elf, function, &function.insns[i])).is_some()
    });
    sites.extend(places.map(|i| Site { function: index, insn: i, plan: Plan::Pointer }));
}

/// Gives a store another displacement or another base register.
pub(super) fn redirect(elf: &Elf, function: &Function, index: usize, random: &mut Random) -> Option<Planted> {
    let insn = &function.insns[index];
    let moved = |random: &mut Random| shift(elf, function, index, insn, random);
    let edit = match random.below(2) {
        0 => moved(random).or_else(|| other_base(elf, function, index, random)),
        _ => other_base(elf, function, index, random).or_else(|| moved(random)),
    }?;
    Some(Planted { edits: vec![edit], what: "the store goes elsewhere".to_owned() })
}

/// The same store some fields before or behind.
fn shift(
    elf: &Elf,
    function: &Function,
    index: usize,
    insn: &Insn,
    random: &mut Random,
) -> Option<crate::edit::Edit> {
    let (at, size) = (insn.offsets.displacement_offset(), insn.offsets.displacement_size());
    if !insn.relocations.is_empty() {
        return None;
    }
    let old = bytes(elf, function, insn).get(at..at + size)?;
    let old = match *old {
        [a] => i64::from(a as i8),
        [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
        _ => return None,
    };
    let (most, low, high) = match size {
        1 => (14, i64::from(i8::MIN), i64::from(i8::MAX)),
        _ => (512, i64::from(i32::MIN), i64::from(i32::MAX)),
    };
    let by = 8 * random.between(1, most) as i64;
    let by = if random.below(2) == 0 { by } else { -by };
    let fits = |new: &i64| (low..=high).contains(new);
    let new = Some(old + by).filter(fits).or(Some(old - by).filter(fits))?;
    change(elf, function, index, at, &new.to_le_bytes()[..size])
}

/// The same store through another register.
fn other_base(
    elf: &Elf,
    function: &Function,
    index: usize,
    random: &mut Random,
) -> Option<crate::edit::Edit> {
    let insn = &function.insns[index];
    let bytes = bytes(elf, function, insn);
    let mut others = ModRm::of(bytes)?.others(bytes);
    random.shuffle(&mut others);
    others.into_iter().find_map(|(at, byte)| {
        let edit = change(elf, function, index, at, &[byte])?;
        let [new] = decode(&edit.bytes, insn.at())?[..] else { return None };
        let base = new.memory_base();
        let same = new.code() == insn.instr.code()
            && new.memory_index() == insn.instr.memory_index()
            && new.memory_displacement64() == insn.instr.memory_displacement64();
        (same && base.is_gpr64() && base != Register::RSP && base != insn.instr.memory_base()).then_some(edit)
    })
}

/// Offset in an instruction of the byte that selects the memory operand.
struct ModRm(usize);

impl ModRm {
    /// Finds the byte in instructions with the usual encodings; `None` in all others.
    fn of(bytes: &[u8]) -> Option<ModRm> {
        let mut at = bytes.iter().take_while(|byte| matches!(byte, 0x66 | 0xf2 | 0xf3)).count();
        if matches!(bytes.get(at), Some(0x40..=0x4f)) {
            at += 1;
        }
        at += match bytes.get(at..)? {
            [0x0f, 0x38 | 0x3a, ..] => 3,
            [0x0f, ..] => 2,
            // These are other prefixes, among them those of vector instructions.
            [0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x67 | 0xf0 | 0xc4 | 0xc5 | 0x62, ..] => return None,
            [_, ..] => 1,
            [] => return None,
        };
        // The operand is a register, or an address that is relative to the instruction.
        let modrm = *bytes.get(at)?;
        (modrm < 0xc0 && modrm & 0xc7 != 5).then_some(ModRm(at))
    }

    /// The bytes that would name other base registers, and where they belong.
    fn others(&self, bytes: &[u8]) -> Vec<(usize, u8)> {
        let modrm = bytes[self.0];
        let sib = modrm & 7 == 4;
        let at = self.0 + usize::from(sib);
        let Some(&old) = bytes.get(at) else { return Vec::new() };
        (0..8).map(|base| (at, old & !7 | base)).filter(|(_, new)| *new != old).collect()
    }
}
