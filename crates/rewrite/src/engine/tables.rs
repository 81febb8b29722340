//! What the sections of a module are, beside code: tables that name instructions, and how the kernel uses
//! them.

use crate::engine::object::{Object, Reloc, Section};
use crate::error::{Result, refused};
use iced_x86::Register;
use std::ops::Range;

/// The section with `struct module`, which names the module's init and exit functions.
pub const THIS: &str = ".gnu.linkonce.this_module";
/// The init function, which the kernel calls when it has loaded the module.
pub const INIT: &str = "init_module";
/// The exit function, which the kernel calls before it unloads the module.
pub const EXIT: &str = "cleanup_module";
/// What functions call first so that they can be traced.
pub const TRACER: &str = "__fentry__";
/// The function that code returns by where a plain `ret` would be open to attacks on predictions.
pub const RETURN_THUNK: &str = "__x86_return_thunk";
/// `endbr64`, which a function that is called by pointer may have to begin with.
pub const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// `nopl 0(%rax,%rax,1)`, the one that the kernel puts at a branch that is off.
pub const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// What a reference to code means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// The instruction itself, which the kernel patches or compares with.
    Insn,
    /// Where to go on: before the code that is inserted in front of the instruction.
    Entry,
}

/// Tables of which the first word of each row, or each word, names an instruction itself.
/// They are those of `arch/x86/kernel/alternative.c`, `kernel/jump_label.c` and `lib/bug.c`.
const INSNS: [&str; 11] = [
    "__mcount_loc",
    ".return_sites",
    ".retpoline_sites",
    ".static_call_sites",
    "__bug_table",
    ".smp_locks",
    ".parainstructions",
    ".call_sites",
    ".ibt_endbr_seal",
    ".cfi_sites",
    ".altinstructions",
];

/// Tables of places to go on at, or of data that holds such places.
const ENTRIES: [&str; 6] = [
    ".orc_unwind_ip",
    "__patchable_function_entries",
    ".altinstr_replacement",
    ".altinstr_aux",
    ".static_call.text",
    ".noinstr.text",
];

/// Code that stays as it is: the kernel copies it elsewhere, or runs it where nothing else may.
const LEFT: [&str; 4] = [".altinstr_replacement", ".altinstr_aux", ".static_call.text", ".noinstr.text"];

/// Bytes of a row of `__ex_table`: instruction, where to go on, kind.
pub const EX_ROW: u64 = 12;
/// Bytes of a row of `__jump_table`: site, target, and a key of 8 bytes.
pub const JUMP_ROW: u64 = 16;

/// Data, which may hold the address of any label.
const DATA: [&str; 8] =
    [".data", ".rodata", ".init.data", ".init.rodata", ".exit.data", ".ref.data", "__param", "__dyndbg"];

/// Bytes of a call of a tracer.
const MCOUNT: u64 = 5;
/// Prefixes of the symbols that stand for the room before a function.
const ROOMS: [&str; 2] = ["__pfx_", "__cfi_"];

/// Whether a section holds code that is rewritten.
pub fn rewritten(section: &Section) -> bool {
    section.exec() && section.alloc() && !LEFT.contains(&section.name.as_str())
}

/// Whether a section holds debug information, which would be wrong in the rewritten module.
pub fn debug(section: &Section) -> bool {
    !section.alloc() && (section.name.starts_with(".debug_") || section.name.starts_with(".gdb_index"))
}

/// Whether a section is one of the tables by which the kernel finds code.
pub fn is_table(section: &Section) -> bool {
    let name = section.name.as_str();
    INSNS.contains(&name) || ENTRIES.contains(&name) || ["__ex_table", "__jump_table"].contains(&name)
}

/// What a reference to code at this offset of a section means; `None` where that is not known.
pub fn means(section: &Section, offset: u64) -> Option<Means> {
    let name = section.name.as_str();
    match name {
        "__ex_table" => Some(if offset.is_multiple_of(EX_ROW) { Means::Insn } else { Means::Entry }),
        "__jump_table" => Some(if offset.is_multiple_of(JUMP_ROW) { Means::Insn } else { Means::Entry }),
        _ if INSNS.contains(&name) => Some(Means::Insn),
        _ if ENTRIES.contains(&name) || rewritten(section) || !section.alloc() => Some(Means::Entry),
        _ => {
            let part = |data: &str| {
                name.strip_prefix(data).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            DATA.iter().any(|data| part(data)).then_some(Means::Entry)
        }
    }
}

/// Offsets of code in a section that a table's relocations name, each with its offset in the table.
pub fn named(object: &Object, table: &str, code: usize) -> Vec<(u64, u64)> {
    let sections = object.sections.iter().filter(|section| section.name == table);
    let relocs = sections.flat_map(|section| &section.relocs);
    relocs
        .filter_map(|reloc| {
            let (section, offset) = object.target(reloc.symbol, reloc.addend)?;
            (section == code).then_some((reloc.offset, offset))
        })
        .collect()
}

/// Places of a section at which the kernel warns and goes on. Rows begin with the distance to the instruction, and end
/// with flags, of which the first means a warning.
pub fn warnings(object: &Object, code: usize) -> Vec<u64> {
    let named = named(object, "__bug_table", code);
    let Some(table) = object.section("__bug_table").map(|table| object.sections[table].bytes()) else {
        return Vec::new();
    };
    let all = object
        .sections
        .iter()
        .filter(|section| section.name == "__bug_table")
        .flat_map(|section| &section.relocs);
    let to_code = |reloc: &&Reloc| {
        let target = object.target(reloc.symbol, reloc.addend);
        target.is_some_and(|(section, _)| object.sections[section].exec())
    };
    let Some(size) = table.len().checked_div(all.filter(to_code).count()).filter(|size| *size >= 4) else {
        return Vec::new();
    };
    let warns = |at: u64| {
        let flags = at as usize + size - 4;
        table.get(flags + 2).is_some_and(|byte| byte & 1 != 0)
    };
    named
        .into_iter()
        .filter(|(at, _)| at.is_multiple_of(size as u64) && warns(*at))
        .map(|(_, place)| place)
        .collect()
}

/// Ranges of a section that the kernel overwrites as a whole.
/// They are alternatives, paravirtual calls, calls of tracers, and the room before functions for calls that
/// count their depth.
pub fn fixed(object: &Object, code: usize) -> Result<Vec<Range<u64>>> {
    let mut ranges = Vec::new();
    ranges
        .extend(named(object, "__mcount_loc", code).into_iter().map(|(_, at)| at..at.saturating_add(MCOUNT)));
    let rooms = object.symbols.iter().filter(|symbol| ROOMS.iter().any(|room| symbol.name.starts_with(room)));
    let rooms = rooms.filter(|symbol| symbol.function() && symbol.section() == Some(code));
    ranges.extend(rooms.map(|symbol| symbol.value..symbol.value.saturating_add(symbol.size)));
    for section in &object.sections {
        match section.name.as_str() {
            ".altinstructions" => alternatives(object, section, code, &mut ranges)?,
            ".parainstructions" => paravirtual(object, section, code, &mut ranges)?,
            _ => {}
        }
    }
    ranges.sort_by_key(|range: &Range<u64>| (range.start, range.end));
    Ok(ranges)
}

/// Rows begin with the distance to the instructions and to their replacement. The last two bytes are the
/// lengths of both.
fn alternatives(object: &Object, section: &Section, code: usize, ranges: &mut Vec<Range<u64>>) -> Result<()> {
    let bytes = section.bytes();
    if bytes.is_empty() {
        return Ok(());
    }
    // Nothing states how long a row is, but each has two relocations at its begin.
    let size = match section.relocs.as_slice() {
        [first, second] if first.offset == 0 && second.offset == 4 => bytes.len() as u64,
        [first, second, third, ..] if first.offset == 0 && second.offset == 4 => third.offset,
        _ => return refused(".altinstructions", "its entries are of an unknown form"),
    };
    let len = bytes.len() as u64;
    let whole = len.is_multiple_of(size) && section.relocs.len() as u64 * size == 2 * len;
    if !(12..=32).contains(&size) || !whole {
        return refused(".altinstructions", "its entries are of an unknown form");
    }
    for (number, entry) in bytes.chunks_exact(size as usize).enumerate() {
        let reloc = section.relocs[2 * number];
        if reloc.offset != number as u64 * size {
            return refused(".altinstructions", "its entries are of an unknown form");
        }
        if let Some((at, start)) = object.target(reloc.symbol, reloc.addend)
            && at == code
        {
            ranges.push(start..start.saturating_add(u64::from(entry[size as usize - 2])));
        }
    }
    Ok(())
}

/// Rows are an address, a type and a length, at multiples of 8 bytes (`struct paravirt_patch_site`).
fn paravirtual(object: &Object, section: &Section, code: usize, ranges: &mut Vec<Range<u64>>) -> Result<()> {
    for reloc in &section.relocs {
        let Some(&len) = section.bytes().get(reloc.offset as usize + 9) else {
            return refused(".parainstructions", "its last entry is cut short");
        };
        if let Some((at, start)) = object.target(reloc.symbol, reloc.addend)
            && at == code
        {
            ranges.push(start..start.saturating_add(u64::from(len)));
        }
    }
    Ok(())
}

/// The register of a thunk for indirect calls, such as `__x86_indirect_thunk_rax`.
pub fn thunk_register(name: &str) -> Option<Register> {
    let name = name.strip_prefix("__x86_indirect_")?.rsplit('_').next()?;
    let number = |number: &str| number.parse::<u32>().ok().filter(|number| (8..16).contains(number));
    Some(match name {
        "rax" => Register::RAX,
        "rbx" => Register::RBX,
        "rcx" => Register::RCX,
        "rdx" => Register::RDX,
        "rsi" => Register::RSI,
        "rdi" => Register::RDI,
        "rbp" => Register::RBP,
        _ => Register::RAX + number(name.strip_prefix('r')?)?,
    })
}
