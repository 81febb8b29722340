//! The kernel's tables of a module's code: what the kernel patches there, and where it goes on after faults.

use crate::elf::{Elf, Place, Section};
use crate::state::REGISTERS;
use rustc_hash::{FxHashMap, FxHashSet};

/// A row of `__ex_table`: where to go on after a fault, and how (`EX_TYPE_…` with its data).
#[derive(Clone, Copy, Debug)]
pub struct Fixup {
    pub to: Place,
    pub kind: u32,
}

/// Code that the kernel may put in place of other code.
#[derive(Clone, Copy, Debug)]
pub struct Replacement {
    /// Where the code begins, if there is any.
    pub code: Option<Place>,
    /// Where to go on behind what it replaces.
    pub behind: Place,
}

/// `EX_TYPE_DEFAULT`: the kernel goes on elsewhere and changes nothing.
pub const EX_DEFAULT: u32 = 1;

/// Types of rows whose handlers change at most RAX, RCX, RDX and the register that they name
/// (`arch/x86/include/asm/extable_fixup_types.h`): those of faults, of user memory, and of registers with a
/// number (`EX_TYPE_DEFAULT` to `EX_TYPE_COPY`, `EX_TYPE_WRMSR` to `EX_TYPE_FAULT_MCE_SAFE`,
/// `EX_TYPE_IMM_REG`, `EX_TYPE_FAULT_SGX`, `EX_TYPE_UCOPY_LEN`, `EX_TYPE_ZEROPAD`).
pub const HANDLERS: [u32; 16] = [1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20];

/// Whether a row's handler fills the register that the row names.
pub fn fills(kind: u32) -> bool {
    matches!(kind & 255, 17 | 20)
}

/// The code of replacements, of trampolines, and code that the kernel runs elsewhere.
pub const REPLACEMENTS: &str = ".altinstr_replacement";
const EX_ROW: usize = 12;
const JUMP_ROW: usize = 16;
const PARAVIRT_ROW: usize = 16;

/// Tables whose relocations are no pointers for anyone to call.
const TABLES: [&str; 17] = [
    "__ex_table",
    "__jump_table",
    ".altinstructions",
    ".parainstructions",
    "__mcount_loc",
    ".return_sites",
    ".retpoline_sites",
    ".static_call_sites",
    "__bug_table",
    ".smp_locks",
    ".call_sites",
    ".ibt_endbr_seal",
    ".cfi_sites",
    ".orc_unwind_ip",
    ".orc_unwind",
    ".orc_header",
    "__patchable_function_entries",
];

/// Whether a section is one of the kernel's tables of code.
pub fn is_table(section: &Section) -> bool {
    TABLES.contains(&section.name.as_str())
}

/// A place that the kernel patches by itself, with what must stand there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patched {
    /// A call of the tracer, five bytes.
    Tracer,
    /// A jump to the kernel's thunk for returns.
    Return,
    /// A call or jump through a thunk for indirect calls.
    Indirect,
    /// A direct call or jump.
    StaticCall,
    /// A lock prefix.
    Lock,
    /// The `endbr64` at the begin of a function.
    Endbr,
    /// A jump or its placeholder.
    Branch,
}

/// All tables of a module.
#[derive(Debug, Default)]
pub struct Tables {
    pub fixups: FxHashMap<Place, Vec<Fixup>>,
    pub branches: FxHashMap<Place, Place>,
    pub replacements: FxHashMap<Place, Vec<Replacement>>,
    /// Where replacements end, and where the code goes on behind them.
    pub ends: FxHashMap<Place, Vec<Place>>,
    /// `ud2` instructions at which the kernel warns and goes on.
    pub warnings: FxHashSet<Place>,
    /// Ranges that the kernel replaces as a whole, in order.
    pub replaced: Vec<(Place, Place)>,
    pub patched: Vec<(Place, Patched)>,
    /// Paravirtual calls, with the number of the function in the kernel's table.
    pub paravirtual: Vec<(Place, u8)>,
    /// What is wrong with a table.
    pub faults: Vec<String>,
}

impl Tables {
    /// Reads all tables.
    pub fn read(elf: &Elf) -> Tables {
        let mut tables = Tables::default();
        for section in &elf.sections {
            let single = match section.name.as_str() {
                "__ex_table" => {
                    tables.fixups(section);
                    continue;
                }
                "__jump_table" => {
                    tables.branches(section);
                    continue;
                }
                ".altinstructions" => {
                    tables.alternatives(section);
                    continue;
                }
                "__bug_table" => {
                    tables.warnings(elf, section);
                    continue;
                }
                ".parainstructions" => {
                    tables.paravirtual(section);
                    continue;
                }
                "__mcount_loc" | "__patchable_function_entries" => Patched::Tracer,
                ".return_sites" => Patched::Return,
                ".retpoline_sites" => Patched::Indirect,
                ".smp_locks" => Patched::Lock,
                ".ibt_endbr_seal" => Patched::Endbr,
                ".static_call_sites" => Patched::StaticCall,
                _ => continue,
            };
            // A row of `.static_call_sites` has the place first and a key behind it.
            let row = if single == Patched::StaticCall { 8 } else { 1 };
            for reloc in section.relocs.iter().filter(|reloc| reloc.offset.is_multiple_of(row)) {
                match reloc.place() {
                    Some(place) => tables.patched.push((place, single)),
                    None => tables.wrong(section),
                }
            }
        }
        tables.replaced.sort_unstable();
        tables
    }

    fn wrong(&mut self, section: &Section) {
        let fault = format!("{} has a row that cannot be read", section.name);
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    fn fixups(&mut self, section: &Section) {
        for row in (0..section.size as usize).step_by(EX_ROW) {
            match (section.place_at(row as u64), section.place_at(row as u64 + 4)) {
                (Some(from), Some(to)) => {
                    let fixup = Fixup { to, kind: section.word(row + 8) };
                    self.fixups.entry(from).or_default().push(fixup);
                }
                _ => self.wrong(section),
            }
        }
    }

    fn branches(&mut self, section: &Section) {
        for row in (0..section.size as usize).step_by(JUMP_ROW) {
            match (section.place_at(row as u64), section.place_at(row as u64 + 4)) {
                (Some(from), Some(to)) => {
                    self.branches.insert(from, to);
                    self.patched.push((from, Patched::Branch));
                }
                _ => self.wrong(section),
            }
        }
    }

    /// Rows begin with the distances to the code and to its replacement, and end with their lengths.
    fn alternatives(&mut self, section: &Section) {
        let (mut rows, mut size) = (section.relocs.as_chunks::<2>().0.iter().peekable(), section.size);
        while let Some([first, second]) = rows.next() {
            if let Some([next, _]) = rows.peek() {
                size = next.offset.wrapping_sub(first.offset);
            } else if section.relocs.len() > 2 {
                size = section.size.saturating_sub(first.offset).min(size);
            }
            let end = first.offset.wrapping_add(size) as usize;
            let lengths = section.data.get(end.wrapping_sub(2)..end);
            let (Some((at, start)), Some(code), Some(&[long, short]), true) =
                (first.place(), second.place(), lengths, second.offset == first.offset + 4)
            else {
                return self.wrong(section);
            };
            let behind = (at, start + u64::from(long));
            let code = (short > 0).then_some(code);
            if let Some((section, from)) = code {
                self.ends.entry((section, from + u64::from(short))).or_default().push(behind);
            }
            self.replacements.entry((at, start)).or_default().push(Replacement { code, behind });
            self.replaced.push(((at, start), behind));
        }
    }

    /// Rows begin with the distance to the instruction, and end with flags, of which the first means a warning.
    fn warnings(&mut self, elf: &Elf, section: &Section) {
        let code = |place: &Place| elf.sections[place.0 as usize].exec();
        let rows: Vec<(u64, Place)> = section
            .relocs
            .iter()
            .filter_map(|reloc| Some((reloc.offset, reloc.place().filter(code)?)))
            .collect();
        let size = section.size.checked_div(rows.len() as u64).unwrap_or(0);
        for (at, place) in rows {
            if !(12..=32).contains(&size) || !at.is_multiple_of(size) {
                return self.wrong(section);
            }
            if section.word((at + size) as usize - 4) >> 16 & 1 != 0 {
                self.warnings.insert(place);
            }
        }
    }

    fn paravirtual(&mut self, section: &Section) {
        for reloc in &section.relocs {
            let at = reloc.offset as usize;
            let (row, len) = (section.data.get(at + 8), section.data.get(at + 9));
            match (reloc.place(), row.zip(len), reloc.offset % PARAVIRT_ROW as u64) {
                (Some((at, start)), Some((row, len)), 0) => {
                    self.paravirtual.push(((at, start), *row));
                    self.replaced.push(((at, start), (at, start + u64::from(*len))));
                }
                _ => self.wrong(section),
            }
        }
    }

    /// Whether the kernel may replace what stands at a place.
    pub fn replaces(&self, place: Place) -> bool {
        let after = self.replaced.partition_point(|range| range.0 <= place);
        self.replaced[..after].iter().rev().take(8).any(|range| place < range.1)
    }
}

/// Whether a pointer may lead to this section of code although it is no function of the module's: the kernel
/// copies or patches it.
pub fn kernels(section: &Section) -> bool {
    [".static_call.text", REPLACEMENTS, ".altinstr_aux"].contains(&section.name.as_str())
}

/// The register of a thunk for indirect calls, such as `__x86_indirect_thunk_rax`, by its number.
pub fn indirect(name: &str) -> Option<u8> {
    let name = name.strip_prefix("__x86_indirect_")?.rsplit('_').next()?;
    REGISTERS.iter().position(|own| *own == name).map(|number| number as u8)
}

/// The kernel's thunk for returns.
pub const RETURN_THUNK: &str = "__x86_return_thunk";
/// What functions call first so that they can be traced.
pub const TRACER: &str = "__fentry__";
/// Functions of the kernel that never return.
const NO_RETURN: [&str; 22] = [
    "__stack_chk_fail",
    "__fortify_panic",
    "fortify_panic",
    "__kunit_abort",
    "__module_put_and_kthread_exit",
    "__reiserfs_panic",
    "__tdx_hypercall_failed",
    "__ubsan_handle_builtin_unreachable",
    "__x64_sys_exit",
    "do_exit",
    "do_group_exit",
    "kthread_complete_and_exit",
    "kthread_exit",
    "kunit_try_catch_throw",
    "machine_real_restart",
    "make_task_dead",
    "panic",
    "vpanic",
    "nmi_panic_self_stop",
    "snp_abort",
    "usercopy_abort",
    "kernel_halt_forever",
];

/// Whether a function of the kernel never returns.
pub fn no_return(name: &str) -> bool {
    // Those of Rust's core library that panic.
    NO_RETURN.contains(&name) || (name.starts_with("_RN") && name.contains("4core9panicking"))
}
