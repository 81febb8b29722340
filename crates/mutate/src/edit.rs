//! Changes to single instructions, and their text.

use crate::code::{Function, Insn, bit};
use crate::elf::Elf;
use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, NasmFormatter, Register};

/// What an edit does to an instruction's relocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The relocation stays.
    Keep,
    /// The relocation is dropped: the loader writes nothing there.
    Drop,
    /// The relocation leads to another symbol.
    To { symbol: usize, addend: i64 },
}

/// One instruction becomes others of the same length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    /// The instruction, by index in its function.
    pub insn: usize,
    pub bytes: Vec<u8>,
    pub place: Place,
}

/// The bytes of an instruction in the file.
pub(crate) fn bytes<'a>(elf: &'a Elf, function: &Function, insn: &Insn) -> &'a [u8] {
    elf.bytes(function.section).get(insn.at() as usize..insn.end() as usize).unwrap_or_default()
}

/// An instruction's relocation; `None` unless it has exactly one.
pub(crate) fn relocation(elf: &Elf, function: &Function, insn: &Insn) -> Option<crate::elf::Relocation> {
    match elf.sections[function.section].relocations.get(insn.relocations.clone())? {
        [one] => Some(*one),
        _ => None,
    }
}

/// Instructions that do nothing, with this length together.
pub(crate) fn nops(length: usize) -> Vec<u8> {
    const NOPS: [&[u8]; 9] = [
        &[0x90],
        &[0x66, 0x90],
        &[0x0f, 0x1f, 0x00],
        &[0x0f, 0x1f, 0x40, 0x00],
        &[0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
        &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
        &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
    ];
    let mut all = Vec::with_capacity(length);
    while all.len() < length {
        let next = (length - all.len()).min(NOPS.len());
        all.extend_from_slice(NOPS[next - 1]);
    }
    all
}

/// Replaces an instruction by ones that do nothing.
pub(crate) fn remove(function: &Function, insn: usize) -> Edit {
    Edit { insn, bytes: nops(function.insns[insn].instr.len()), place: Place::Drop }
}

/// Changes some bytes of an instruction.
pub(crate) fn change(elf: &Elf, function: &Function, insn: usize, at: usize, new: &[u8]) -> Option<Edit> {
    let mut bytes = bytes(elf, function, &function.insns[insn]).to_vec();
    bytes.get_mut(at..at + new.len())?.copy_from_slice(new);
    Some(Edit { insn, bytes, place: Place::Keep })
}

/// The instructions in some bytes; `None` where they are not whole instructions.
pub(crate) fn decode(bytes: &[u8], at: u64) -> Option<Vec<Instruction>> {
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    let mut all = Vec::new();
    while decoder.can_decode() {
        let instr = decoder.decode();
        if instr.is_invalid() {
            return None;
        }
        all.push(instr);
    }
    Some(all)
}

/// The text of an instruction, with names where relocations give them.
pub(crate) fn text(elf: &Elf, function: &Function, insn: &Insn) -> String {
    let place = relocation(elf, function, insn).map(|one| (one.symbol, one.addend));
    one_text(elf, function, &insn.instr, place)
}

/// The text of the instructions that an edit makes.
pub(crate) fn new_text(elf: &Elf, function: &Function, edit: &Edit) -> String {
    let insn = &function.insns[edit.insn];
    let place = match edit.place {
        Place::Keep => relocation(elf, function, insn).map(|one| (one.symbol, one.addend)),
        Place::Drop => None,
        Place::To { symbol, addend } => Some((symbol, addend)),
    };
    let all = decode(&edit.bytes, insn.at()).unwrap_or_default();
    if all.iter().all(|instr| instr.mnemonic() == iced_x86::Mnemonic::Nop) {
        return "nothing".to_owned();
    }
    let texts = all.iter().filter(|instr| instr.mnemonic() != iced_x86::Mnemonic::Nop);
    texts.map(|instr| one_text(elf, function, instr, place)).collect::<Vec<_>>().join("; ")
}

fn one_text(elf: &Elf, function: &Function, instr: &Instruction, place: Option<(usize, i64)>) -> String {
    use iced_x86::OpKind::{NearBranch16, NearBranch32, NearBranch64};
    let mut formatter = NasmFormatter::new();
    let mut text = String::new();
    let branch = matches!(instr.op0_kind(), NearBranch16 | NearBranch32 | NearBranch64);
    if branch {
        formatter.format_mnemonic(instr, &mut text);
        let mut words = text.split_whitespace();
        let word = words.next().unwrap_or_default().to_owned();
        let to = match place {
            Some((symbol, addend)) => name(elf, symbol, addend.wrapping_add(4)),
            None => {
                let to = instr.near_branch_target();
                match to.checked_sub(function.start) {
                    Some(offset) if to < function.end => format!("{}+{offset:#x}", function.name),
                    _ => format!("{}+{to:#x}", elf.sections[function.section].name),
                }
            }
        };
        return format!("{word} {to}");
    }
    formatter.format(instr, &mut text);
    match place {
        Some((symbol, addend)) => format!("{text} ({})", name(elf, symbol, addend)),
        None => text,
    }
}

/// A symbol with an offset; for the symbol of a section, the section's name.
fn name(elf: &Elf, symbol: usize, addend: i64) -> String {
    let Some(one) = elf.symbols.get(symbol) else { return "?".to_owned() };
    let name = match one.section.and_then(|section| elf.sections.get(section)) {
        Some(section) if one.name.is_empty() => &section.name,
        _ => &one.name,
    };
    match addend {
        0 => name.clone(),
        1.. => format!("{name}+{addend:#x}"),
        _ => format!("{name}-{:#x}", addend.unsigned_abs()),
    }
}

/// The name of the symbol that a call or a tail jump leads to, where the loader resolves it.
pub(crate) fn callee<'a>(elf: &'a Elf, function: &Function, insn: &Insn) -> Option<&'a str> {
    if !insn.instr.is_call_near() {
        return None;
    }
    let one = relocation(elf, function, insn)?;
    let symbol = elf.symbols.get(one.symbol).filter(|symbol| !symbol.name.is_empty())?;
    (one.addend == -4).then_some(symbol.name.as_str())
}

/// What a register holds at instruction `at`, as text that is the same for the same value. Returned with it
/// are the registers that the value is computed from.
pub(crate) fn value(elf: &Elf, function: &Function, at: usize, register: Register) -> Option<(String, u16)> {
    use iced_x86::{Mnemonic, OpKind};
    let index = crate::flow::definition(function, at, register)?;
    let insn = &function.insns[index];
    let instr = &insn.instr;
    if !matches!(instr.mnemonic(), Mnemonic::Mov | Mnemonic::Lea) || instr.op_count() != 2 {
        return None;
    }
    let parts = match instr.op1_kind() {
        OpKind::Register => bit(instr.op1_register()),
        OpKind::Memory => bit(instr.memory_base()) | bit(instr.memory_index()),
        _ => 0,
    };
    let all = text(elf, function, insn);
    let (_, value) = all.split_once(',')?;
    let how = if instr.mnemonic() == Mnemonic::Lea { "address of " } else { "" };
    // Each such instruction makes a new value of the register itself.
    (parts & bit(register) == 0).then(|| (format!("{how}{value}"), parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nops_of_every_length_are_nops() {
        for length in 1..16 {
            let bytes = nops(length);
            assert_eq!(bytes.len(), length);
            let all = decode(&bytes, 0).unwrap();
            assert!(all.iter().all(|instr| instr.mnemonic() == iced_x86::Mnemonic::Nop), "{length}");
        }
    }
}
