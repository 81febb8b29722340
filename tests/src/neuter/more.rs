//! Ways past guards that are not in the code of checks and thunks: relocations, stores that changed behind their
//! checks, the description, and the kernel's tables.

use super::{CALLS, ENTRIES, Found, Insn, Neutering, Reloc, Text, sweep, writes};
use guardrail_abi::{layout, symbol};
use iced_x86::{Code, InstructionInfoFactory, Mnemonic, OpKind, Register};
use std::collections::BTreeMap;

/// The description for the runtime, and the rows of actions and entries.
const DESCRIPTION: &str = ".guardrail";
const ROWS: &str = ".rodata.guardrail";
const STUBS: &str = ".text.guardrail.life";
/// `R_X86_64_PC32`, `R_X86_64_PLT32` and `R_X86_64_32S`.
const RELATIVE: [u32; 2] = [2, 4];
const ABSOLUTE: u32 = 11;
/// `EX_TYPE_POP_REG`.
const POP: u8 = 16;

/// A row that a thunk uses: where the thunk begins, what names the row, and the place.
type Row = (u64, Reloc, String);

impl Found<'_> {
    /// Takes out all of these.
    pub(super) fn more(&mut self) {
        let module = self.module;
        for code in &module.codes {
            let own = !code.name.contains("guardrail");
            for ((home, start), (_, end)) in &module.functions {
                if *home == code.name && *end as usize <= code.bytes.len() {
                    let insns = sweep(code, *start, *end);
                    match own {
                        true => self.changed(code, &insns),
                        false => self.described(code, &insns),
                    }
                }
            }
        }
        self.swapped();
        self.description();
        self.tables();
    }

    fn kind_of(&self, reloc: &Reloc) -> u32 {
        u32::from_le_bytes(self.file[reloc.row + 8..reloc.row + 12].try_into().unwrap_or_default())
    }

    fn moved(&self, reloc: &Reloc, by: i64) -> (usize, Vec<u8>) {
        (reloc.row + 16, (reloc.addend + by).to_le_bytes().to_vec())
    }

    /// Changes the module's own code behind its checks.
    fn changed(&mut self, code: &Text, insns: &[Insn<'_>]) {
        let mut info = InstructionInfoFactory::new();
        for (number, insn) in insns.iter().enumerate() {
            let decoded = &insn.insn;
            let direct = matches!(decoded.code(), Code::Call_rel32_64 | Code::Jmp_rel32_64);
            if let Some(reloc) = insn.reloc.filter(|_| direct) {
                let home = self.module.home(reloc.symbol);
                if home.is_empty() || home == CALLS {
                    self.add("6 a call behind the begin", code, insn, vec![self.moved(reloc, 8)]);
                }
                if RELATIVE.contains(&self.kind_of(reloc)) {
                    let edits = vec![self.renamed(reloc, reloc.symbol, Some(ABSOLUTE))];
                    self.add("6 a relocation of another type", code, insn, edits);
                }
            }
            if decoded.code() == Code::Call_rel32_64 && insn.reloc.is_none() {
                let far = 0x4000_0000_u32.to_le_bytes().to_vec();
                self.add("6 a call of what is elsewhere", code, insn, vec![(insn.at + 1, far)]);
            }
            self.past(code, insns, number);
            let memory = decoded.op_count() > 0 && decoded.op0_kind() == OpKind::Memory;
            let wrote = memory && writes(info.info(decoded).op0_access());
            if wrote && decoded.segment_prefix() == Register::None {
                self.store(code, insn);
            }
        }
    }

    /// Changes a store: where it writes, and how much.
    fn store(&mut self, code: &Text, insn: &Insn<'_>) {
        let decoded = &insn.insn;
        if let Some(reloc) = insn.reloc {
            if RELATIVE.contains(&self.kind_of(reloc)) && decoded.is_ip_rel_memory_operand() {
                let edits = vec![self.renamed(reloc, reloc.symbol, Some(ABSOLUTE))];
                self.add("6 a relocation of another type", code, insn, edits);
            }
            return;
        }
        let base = decoded.memory_base();
        if !base.is_gpr64() || base == Register::RSP {
            return;
        }
        let sib = usize::from(decoded.memory_index() != Register::None || base == Register::R12);
        if decoded.memory_displ_size() > 0 {
            let at = insn.modrm - insn.at + 1 + sib;
            self.add("7 a store elsewhere", code, insn, self.one(insn, at, 0x40));
        }
        let first = self.file[insn.at];
        let bytes = matches!(decoded.code(), Code::Mov_rm8_r8 | Code::Mov_rm8_imm8);
        if (0x40..0x48).contains(&first) && decoded.mnemonic() == Mnemonic::Mov && !bytes {
            self.add("7 a larger store", code, insn, self.one(insn, 0, 8));
        }
        if matches!(decoded.code(), Code::Mov_rm8_r8) {
            let opcode = insn.modrm - insn.at - 1;
            self.add("7 a larger store", code, insn, self.one(insn, opcode, 1));
        }
    }

    /// Lets a jump that leads to a check lead past it.
    fn past(&mut self, code: &Text, insns: &[Insn<'_>], number: usize) {
        let jump = &insns[number];
        let near = matches!(jump.insn.op0_kind(), OpKind::NearBranch64) && jump.insn.op_count() == 1;
        let call = matches!(jump.insn.mnemonic(), Mnemonic::Call);
        if !near || call || jump.reloc.is_some() {
            return;
        }
        let target = insns.binary_search_by_key(&jump.insn.near_branch64(), |insn| insn.insn.ip());
        let Ok(target) = target else { return };
        let looks = insns[target].insn.mnemonic() == Mnemonic::Lea
            && insns[target..].iter().take(6).any(|add| {
                add.insn.mnemonic() == Mnemonic::Add
                    && add.reloc.is_some_and(|reloc| reloc.name == symbol::TABLE)
                    && add.insn.op0_register() == insns[target].insn.op0_register()
            });
        if !looks {
            return;
        }
        // Behind the last jump of the look.
        let mut last = None;
        for (at, insn) in insns.iter().enumerate().skip(target).take(16) {
            match insn.insn.mnemonic() {
                Mnemonic::Jne => last = Some(at + 1),
                Mnemonic::Lea if at > target => break,
                Mnemonic::Lea
                | Mnemonic::Test
                | Mnemonic::Shr
                | Mnemonic::Ror
                | Mnemonic::Add
                | Mnemonic::Cmp => {}
                _ => break,
            }
        }
        let Some(behind) = last.and_then(|last| insns.get(last)) else { return };
        let more = behind.insn.ip() - insns[target].insn.ip();
        let (width, len) = match jump.insn.len() {
            2 => (1, 2),
            len => (4, len),
        };
        let at = jump.at + len - width;
        let old = match width {
            1 => i64::from(self.file[at] as i8),
            _ => i64::from(i32::from_le_bytes(self.file[at..at + 4].try_into().unwrap_or_default())),
        };
        let far = old + more as i64;
        if width == 4 || i8::try_from(far).is_ok() {
            self.add("7 a jump past a check", code, jump, vec![(at, far.to_le_bytes()[..width].to_vec())]);
        }
    }

    /// Gives thunks of entries and stubs something else to describe.
    fn described(&mut self, code: &Text, insns: &[Insn<'_>]) {
        for insn in insns {
            let Some(reloc) = insn.reloc else { continue };
            let lea = insn.insn.mnemonic() == Mnemonic::Lea;
            if lea && ENTRIES.contains(&code.name.as_str()) {
                self.add("4 another description", code, insn, vec![self.moved(reloc, 8)]);
            }
            if lea && code.name == STUBS {
                self.add("8 another description of the module", code, insn, vec![self.moved(reloc, 8)]);
            }
            let other = self.module.symbols.get(symbol::MODULE_LEAVE);
            if let Some(other) = other.filter(|_| reloc.name == symbol::MODULE_ENTER) {
                let edits = vec![self.renamed(reloc, *other, None)];
                self.add("8 a module that is not made known", code, insn, edits);
            }
        }
    }

    /// Swaps rows between thunks whose rows are performed by the same function.
    fn swapped(&mut self) {
        let mut rows: BTreeMap<(bool, String), Vec<Row>> = BTreeMap::new();
        for ((home, start), (_, end)) in &self.module.functions {
            let entries = ENTRIES.contains(&home.as_str());
            let code = self.module.codes.iter().find(|code| code.name == *home);
            let Some(code) = code.filter(|_| entries || home == CALLS) else { continue };
            let mut row = None;
            for insn in sweep(code, *start, *end) {
                let Some(reloc) = insn.reloc else { continue };
                if insn.insn.mnemonic() == Mnemonic::Lea {
                    row = Some((*start, reloc.clone(), format!("{}+{:#x}", code.name, insn.insn.ip())));
                } else if let Some(row) = row.take() {
                    let all = rows.entry((entries, reloc.name.clone())).or_default();
                    if insn.insn.code() == Code::Call_rel32_64 {
                        all.push(row);
                    }
                }
            }
        }
        for all in rows.values() {
            // A thunk performs all of its own.
            for pair in all.windows(2).filter(|pair| pair[0].0 != pair[1].0) {
                let (first, second) = (&pair[0].1, &pair[1].1);
                let edits = vec![
                    self.moved(first, second.addend - first.addend),
                    self.moved(second, first.addend - second.addend),
                ];
                let place = format!("{} and {}", pair[0].2, pair[1].2);
                self.out.push(Neutering { kind: "4 rows swapped", place, code: None, edits });
            }
        }
    }

    fn put(&mut self, kind: &'static str, place: String, edits: Vec<(usize, Vec<u8>)>) {
        self.out.push(Neutering { kind, place, code: None, edits });
    }

    /// Changes the description for the runtime.
    fn description(&mut self) {
        use layout::module as row;
        let module = self.module;
        let Some((_, relocs)) = module.data.iter().find(|one| one.0 == DESCRIPTION) else { return };
        let Some(file) = module.files.get(DESCRIPTION).copied() else { return };
        let long = |at: usize| {
            u64::from_le_bytes(self.file[file + at..file + at + 8].try_into().unwrap_or_default())
        };
        let other = (self.file[file + row::DOMAIN] ^ 3, file + row::DOMAIN);
        let table = |at: usize, count: usize, size: usize| -> Vec<u64> {
            let start = relocs.get(&(at as u64)).map_or(0, |reloc| reloc.addend as u64);
            (0..long(count)).map(|number| start + number * size as u64).collect()
        };
        let own = module.functions.iter().find(|one| one.0.0 == ".text").map(|one| one.1.0);
        let writable = [(row::WRITABLE, row::N_WRITABLE), (row::INIT_ONLY, row::N_INIT_ONLY)];
        let thunks = [(row::CALLS, row::N_CALLS), (row::ENTRIES, row::N_ENTRIES)];
        let of = |tables: &[(usize, usize)]| -> Vec<u64> {
            tables.iter().flat_map(|(at, count)| table(*at, *count, layout::range::BYTES)).collect()
        };
        let (ranges, code) = (of(&writable), of(&thunks));
        let targets = table(row::TARGETS, row::N_TARGETS, 8);
        let imports = table(row::IMPORTS, row::N_IMPORTS, layout::import::BYTES);
        self.put("8 another domain", "its description".into(), vec![(other.1, vec![other.0])]);
        for at in ranges.iter().chain(&code) {
            let place = format!("{DESCRIPTION}+{at:#x}");
            let len = at + layout::range::LEN as u64;
            let more = (long(len as usize) + 0x1000).to_le_bytes().to_vec();
            self.put("8 a larger range", place.clone(), vec![(file + len as usize, more)]);
            let Some(reloc) = relocs.get(at) else { continue };
            let none = vec![self.renamed(reloc, 0, Some(0))];
            self.put("8 a range without a begin", place.clone(), none);
            if let Some(own) = own {
                self.put("8 a range of code", place, vec![self.renamed(reloc, own, None)]);
            }
        }
        for at in [row::WRITABLE, row::TARGETS, row::IMPORTS, row::CALLS, row::ENTRIES] {
            let Some(reloc) = relocs.get(&(at as u64)) else { continue };
            self.put("8 a table elsewhere", format!("{DESCRIPTION}+{at:#x}"), vec![self.moved(reloc, 8)]);
        }
        for at in targets {
            let (Some(reloc), Some(own)) = (relocs.get(&at), own) else { continue };
            let edits = vec![self.renamed(reloc, own, None)];
            self.put("8 a target that is no thunk", format!("{DESCRIPTION}+{at:#x}"), edits);
        }
        for at in imports {
            let call = relocs.get(&(at + layout::import::CALL as u64));
            let (Some(function), Some(call)) = (relocs.get(&at), call) else { continue };
            if module.home(call.symbol) == CALLS {
                let edits = vec![self.renamed(call, function.symbol, None)];
                self.put("8 an import past its thunk", format!("{DESCRIPTION}+{at:#x}"), edits);
            }
        }
    }

    /// Changes the kernel's tables of code.
    fn tables(&mut self) {
        for (section, relocs) in &self.module.data {
            let file = self.module.files.get(section).copied().unwrap_or_default();
            let patched =
                [".smp_locks", "__mcount_loc", ".return_sites", ".retpoline_sites", ".altinstructions"];
            for (at, reloc) in relocs {
                let place = format!("{section}+{at:#x}");
                if patched.contains(&section.as_str()) && reloc.name != ".altinstr_replacement" {
                    self.put("9 the kernel patches elsewhere", place, vec![self.moved(reloc, 1)]);
                } else if section == "__ex_table" && at.is_multiple_of(12) {
                    let kind = vec![(file + *at as usize + 8, vec![POP])];
                    self.put("9 a handler that moves the stack", place, kind);
                } else if section == ROWS && at.is_multiple_of(8) {
                    // A pointer that fills the numbers before it.
                    let begin = (at - 8).to_le_bytes().to_vec();
                    self.put("9 a relocation of numbers", place, vec![(reloc.row, begin)]);
                }
            }
        }
    }
}
