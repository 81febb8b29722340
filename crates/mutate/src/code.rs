//! A module's code as functions of instructions, and which of them stay as they are.

use crate::elf::{Elf, Relocation};
use iced_x86::{
    ConstantOffsets, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, InstructionInfoOptions,
    OpAccess, Register,
};
use std::ops::Range;

/// Sections with code that belongs to no function, or that the kernel handles in its own way.
const LEFT_ALONE: [&str; 4] =
    [".altinstr_replacement", ".altinstr_aux", ".static_call.text", ".noinstr.text"];
/// Tables that name code without any consequence for a change of it: how to unwind, and where calls are.
const HARMLESS: [&str; 3] = [".orc_unwind", ".orc_unwind_ip", ".call_sites"];
/// Bytes of the longest instruction.
const LONGEST: u64 = 15;

/// General registers, as bits by their number.
pub(crate) type Registers = u16;

/// What a call may change by the calling convention: all but rbx, rsp, rbp and r12 to r15.
const CLOBBERED: Registers = 0b0000_1111_1100_0111;

/// One instruction of a function.
#[derive(Clone, Debug)]
pub(crate) struct Insn {
    /// Decoded as if its section began at address zero.
    pub instr: Instruction,
    pub offsets: ConstantOffsets,
    /// Its relocations, by index in those of its section.
    pub relocations: Range<usize>,
    /// Whether it must stay as it is.
    pub locked: bool,
    /// Whether a branch of its function leads here.
    pub target: bool,
    /// Registers that it reads.
    pub reads: Registers,
    /// Registers that it changes.
    pub writes: Registers,
    /// Whether it writes the memory that its operand names.
    pub stores: bool,
}

impl Insn {
    /// Offset in its section.
    pub(crate) fn at(&self) -> u64 {
        self.instr.ip()
    }

    /// Offset in its section of what follows.
    pub(crate) fn end(&self) -> u64 {
        self.instr.next_ip()
    }

    /// Whether control never reaches what follows.
    pub(crate) fn ends_flow(&self) -> bool {
        use iced_x86::FlowControl::{Exception, IndirectBranch, Return, UnconditionalBranch};
        matches!(self.instr.flow_control(), UnconditionalBranch | IndirectBranch | Return | Exception)
    }
}

/// One function, with its instructions.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub name: String,
    pub section: usize,
    pub start: u64,
    pub end: u64,
    pub insns: Vec<Insn>,
}

impl Function {
    /// The instruction that begins at an offset of the section.
    pub(crate) fn index_at(&self, at: u64) -> Option<usize> {
        self.insns.binary_search_by_key(&at, Insn::at).ok()
    }
}

/// The number of a general register; all its parts have the same number.
pub(crate) fn number(register: Register) -> Option<u8> {
    let full = register.full_register();
    let number = (full as u32).checked_sub(Register::RAX as u32)?;
    (number < 16).then_some(number as u8)
}

/// A register as a bit; zero for other than general ones.
pub(crate) fn bit(register: Register) -> Registers {
    number(register).map_or(0, |number| 1 << number)
}

/// All functions that can be read, in the order of the file.
pub(crate) fn functions(elf: &Elf) -> Vec<Function> {
    let locked = locked(elf);
    let mut symbols: Vec<(usize, u64, u64, &str)> = elf
        .symbols
        .iter()
        .filter(|symbol| symbol.function && symbol.size > 0)
        .filter_map(|symbol| Some((symbol.section?, symbol.value, symbol.size, symbol.name.as_str())))
        .filter(|(section, ..)| {
            let section = elf.sections.get(*section);
            section.is_some_and(|s| s.alloc && s.exec && !LEFT_ALONE.contains(&s.name.as_str()))
        })
        .collect();
    symbols.sort();
    let mut functions: Vec<Function> = Vec::new();
    for (section, start, size, name) in symbols {
        let Some(end) = start.checked_add(size) else { continue };
        // Aliases name the same code again.
        if functions.last().is_some_and(|last| last.section == section && start < last.end) {
            continue;
        }
        if let Some(insns) = decode(elf, section, start..end, &locked[section]) {
            functions.push(Function { name: name.to_owned(), section, start, end, insns });
        }
    }
    functions
}

/// The instructions of a function; `None` where some bytes are no instruction.
fn decode(elf: &Elf, section: usize, range: Range<u64>, locked: &[Range<u64>]) -> Option<Vec<Insn>> {
    let bytes = elf.bytes(section).get(range.start as usize..range.end as usize)?;
    let relocations = &elf.sections[section].relocations;
    let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
    let mut factory = InstructionInfoFactory::new();
    let mut insns: Vec<Insn> = Vec::new();
    while decoder.can_decode() {
        let instr = decoder.decode();
        if instr.is_invalid() {
            return None;
        }
        let info = factory.info_options(&instr, InstructionInfoOptions::NONE);
        let changes = |access| {
            use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
            matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
        };
        let mut writes: Registers = info
            .used_registers()
            .iter()
            .filter(|used| changes(used.access()))
            .fold(0, |all, used| all | bit(used.register()));
        let reads: Registers = info
            .used_registers()
            .iter()
            .filter(|used| !matches!(used.access(), OpAccess::Write | OpAccess::None))
            .fold(0, |all, used| all | bit(used.register()));
        let stores = info.used_memory().iter().any(|used| changes(used.access()));
        if instr.is_call_near() || instr.is_call_near_indirect() {
            writes |= CLOBBERED;
        }
        let first = relocations.partition_point(|one| one.offset < instr.ip());
        let last = relocations.partition_point(|one| one.offset < instr.next_ip());
        let overlaps = |range: &Range<u64>| range.start < instr.next_ip() && instr.ip() < range.end;
        // Ranges are sorted by where they begin, and none is long.
        let near = locked.partition_point(|range| range.start < instr.next_ip());
        let before = near.saturating_sub(64);
        insns.push(Insn {
            offsets: decoder.get_constant_offsets(&instr),
            relocations: first..last,
            locked: locked[before..near].iter().any(overlaps),
            target: false,
            reads,
            writes,
            stores,
            instr,
        });
    }
    // A relocation of another section, or one that straddles instructions, is not understood, so its
    // instruction is locked.
    let straddles = |insn: &Insn| {
        let size = |one: &Relocation| if matches!(one.kind, object::elf::R_X86_64_64) { 8 } else { 4 };
        relocations[insn.relocations.clone()].iter().any(|one| one.offset + size(one) > insn.end())
    };
    let straddling: Vec<usize> = (0..insns.len()).filter(|&i| straddles(&insns[i])).collect();
    straddling.into_iter().for_each(|i| insns[i].locked = true);
    mark_targets(elf, section, &mut insns);
    Some(insns)
}

fn mark_targets(elf: &Elf, section: usize, insns: &mut [Insn]) {
    let targets: Vec<u64> = insns.iter().filter_map(|insn| branch_target(elf, section, insn)).collect();
    for target in targets {
        if let Ok(index) = insns.binary_search_by_key(&target, Insn::at) {
            insns[index].target = true;
        }
    }
}

/// The target of a direct branch within its section; `None` for all branches that leave it.
pub(crate) fn branch_target(elf: &Elf, section: usize, insn: &Insn) -> Option<u64> {
    use iced_x86::OpKind::{NearBranch16, NearBranch32, NearBranch64};
    if insn.instr.is_call_near()
        || !matches!(insn.instr.op0_kind(), NearBranch16 | NearBranch32 | NearBranch64)
    {
        return None;
    }
    match elf.sections[section].relocations.get(insn.relocations.clone())? {
        [] => Some(insn.instr.near_branch_target()),
        // The addend makes up for the four bytes up to the next instruction.
        [one] => elf
            .place(one.symbol, one.addend.wrapping_add(4))
            .filter(|(of, _)| *of == section)
            .map(|(_, at)| at),
        _ => None,
    }
}

/// Ranges of each section that the kernel's tables name.
fn locked(elf: &Elf) -> Vec<Vec<Range<u64>>> {
    let mut locked = vec![Vec::new(); elf.sections.len()];
    for (index, section) in elf.sections.iter().enumerate() {
        if !section.alloc || section.exec || HARMLESS.contains(&section.name.as_str()) {
            continue;
        }
        let lengths = Lengths::of(elf, index);
        for one in &section.relocations {
            let Some((target, at)) = elf.place(one.symbol, one.addend) else { continue };
            if elf.sections.get(target).is_some_and(|target| target.exec) {
                let end = at.saturating_add(lengths.at(elf.bytes(index), one.offset));
                locked[target].push(at..end);
            }
        }
    }
    locked.iter_mut().for_each(|ranges| ranges.sort_by_key(|range| range.start));
    locked
}

/// How many bytes of code a row of a table is about.
enum Lengths {
    /// The instruction that it names.
    One,
    /// Rows have this size; the byte at this offset holds the length.
    Told { entry: u64, length: u64 },
}

impl Lengths {
    fn of(elf: &Elf, index: usize) -> Lengths {
        let section = &elf.sections[index];
        let entry = || {
            // A row names two places: the original and its replacement.
            let [first, _, third, ..] = section.relocations.as_slice() else {
                return Some(section.file.len() as u64);
            };
            third.offset.checked_sub(first.offset)
        };
        match section.name.as_str() {
            // The last bytes are the length of the original and that of the replacement.
            ".altinstructions" => match entry().filter(|entry| (10..64).contains(entry)) {
                Some(entry) => Lengths::Told { entry, length: entry - 2 },
                None => Lengths::One,
            },
            // A row holds an address, a kind, a length.
            ".parainstructions" => Lengths::Told { entry: 16, length: 9 },
            _ => Lengths::One,
        }
    }

    fn at(&self, table: &[u8], offset: u64) -> u64 {
        match *self {
            Lengths::One => 1,
            Lengths::Told { entry, length } => {
                let at = (offset - offset % entry).saturating_add(length);
                table.get(at as usize).map_or(LONGEST, |&length| u64::from(length).max(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Function as Code, PC32, TABLE};

    fn locked_instructions(name: &str, table: &[u8], named: &[(u64, i64)]) -> Vec<bool> {
        let mut object = Code::new().code(&[0x90, 0x31, 0xc0, 0x90, 0x90, 0xc3]).object();
        let section = object.section(name, TABLE, table);
        for &(offset, addend) in named {
            object.relocate(section, offset, PC32, 1, addend);
        }
        let elf = Elf::parse("x", &object.build()).unwrap();
        let functions = functions(&elf);
        assert_eq!(functions.len(), 1);
        functions[0].insns.iter().map(|insn| insn.locked).collect()
    }

    #[test]
    fn whatever_a_table_names_is_locked() {
        for name in ["__jump_table", "__ex_table", "__mcount_loc", ".static_call_sites", ".smp_locks"] {
            let locked = locked_instructions(name, &[0; 16], &[(0, 1)]);
            assert_eq!(locked, [false, true, false, false, false], "{name}");
        }
        // A place in the middle of an instruction locks it, too.
        assert!(locked_instructions("__jump_table", &[0; 16], &[(0, 2)])[1]);
        for name in HARMLESS {
            assert!(!locked_instructions(name, &[0; 16], &[(0, 1)]).contains(&true), "{name}");
        }
    }

    #[test]
    fn alternatives_are_as_long_as_they_say() {
        for entry in [12, 14] {
            let mut table = vec![0; 2 * entry];
            table[entry - 2] = 3;
            table[2 * entry - 2] = 1;
            let named = [(0, 1), (4, 0x100), (entry as u64, 5), (entry as u64 + 4, 0x100)];
            let locked = locked_instructions(".altinstructions", &table, &named);
            assert_eq!(locked, [false, true, true, false, true], "{entry}");
        }
        let mut table = vec![0; 16];
        table[9] = 4;
        assert_eq!(
            locked_instructions(".parainstructions", &table, &[(0, 1)]),
            [false, true, true, true, false]
        );
    }

    #[test]
    fn functions_know_their_targets_and_what_calls_change() {
        // test edi,edi; je +5; call x; ret
        let file = Code::new().code(&[0x85, 0xff, 0x74, 0x05]).call("x").code(&[0xc3]).module();
        let elf = Elf::parse("x", &file).unwrap();
        let functions = functions(&elf);
        let insns = &functions[0].insns;
        assert_eq!(insns.iter().map(|insn| insn.target).collect::<Vec<_>>(), [false, false, false, true]);
        assert_eq!(insns[2].relocations.len(), 1);
        assert!(insns[2].writes & bit(Register::EDI) != 0 && insns[2].writes & bit(Register::RBX) == 0);
        assert_eq!(functions[0].index_at(4), Some(2));
    }

    #[test]
    fn functions_that_cannot_be_read_are_left_out() {
        let file = Code::new().code(&[0x06, 0xc3]).module();
        assert!(functions(&Elf::parse("x", &file).unwrap()).is_empty());
    }
}
