//! Takes guards out of guarded modules, one at a time and each in several ways, to test whether certifying
//! finds it.

mod idle;
mod more;

pub use idle::idle;

use guardrail_abi::{self as abi, symbol};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpAccess, OpKind, Register};
use libtest_mimic::Failed;
use object::LittleEndian;
use object::read::elf::{FileHeader, Rela, SectionHeader, Sym};
use std::collections::{BTreeMap, BTreeSet};

/// A place where a guard is taken out.
#[derive(Clone, Debug)]
pub struct Neutering {
    /// What is done, without the place.
    pub kind: &'static str,
    /// The section, and the offset in it.
    pub place: String,
    /// The section and the offset of the function's instruction that changes, for those of stores and checks.
    pub code: Option<(String, u64)>,
    /// The bytes that change: where in the file, and to what.
    edits: Vec<(usize, Vec<u8>)>,
}

impl Neutering {
    /// The module without this guard.
    pub fn apply(&self, module: &[u8]) -> Vec<u8> {
        let mut changed = module.to_vec();
        for (at, bytes) in &self.edits {
            changed[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        changed
    }
}

/// A relocation: where its row is in the file, and what it names.
#[derive(Clone, Debug)]
struct Reloc {
    row: usize,
    symbol: u32,
    addend: i64,
    name: String,
}

/// A section of code.
struct Text {
    name: String,
    file: usize,
    bytes: Vec<u8>,
    relocs: BTreeMap<u64, Reloc>,
}

/// A guarded module.
struct Module {
    codes: Vec<Text>,
    data: Vec<(String, BTreeMap<u64, Reloc>)>,
    /// Where sections begin in the file.
    files: BTreeMap<String, usize>,
    /// Functions by section and offset: symbol, and end.
    functions: BTreeMap<(String, u64), (u32, u64)>,
    /// Symbols by name.
    symbols: BTreeMap<String, u32>,
    /// Sections of symbols.
    homes: Vec<(String, u64)>,
}

/// The thunks that ask the runtime, and those at the border.
const ASK: &str = ".text.guardrail";
const CALLS: &str = ".text.guardrail.calls";
const ENTRIES: [&str; 2] = [".text.guardrail.entries", ".init.text.guardrail"];
const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];
const NOP6: [u8; 6] = [0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00];

impl Module {
    fn read(file: &[u8]) -> Result<Module, Failed> {
        let header = object::elf::FileHeader64::<LittleEndian>::parse(file)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, file)?;
        let table = sections.symbols(endian, file, object::elf::SHT_SYMTAB)?;
        let name_of = |index: usize| -> String {
            let section = sections.section(object::SectionIndex(index));
            let name = section.and_then(|section| sections.section_name(endian, section));
            name.map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default()
        };
        let (mut functions, mut symbols, mut homes) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for (number, one) in table.iter().enumerate() {
            let name = String::from_utf8_lossy(one.name(endian, table.strings())?).into_owned();
            let home = usize::from(one.st_shndx(endian));
            let home = if home == 0 || home > 0xff00 { String::new() } else { name_of(home) };
            homes.push((home.clone(), one.st_value(endian)));
            if one.st_type() == object::elf::STT_FUNC && !home.is_empty() {
                let end = one.st_value(endian) + one.st_size(endian);
                functions.insert((home, one.st_value(endian)), (number as u32, end));
            }
            symbols.insert(name, number as u32);
        }
        let mut all: BTreeMap<String, BTreeMap<u64, Reloc>> = BTreeMap::new();
        for one in sections.iter() {
            let Some((rows, _)) = one.rela(endian, file)? else { continue };
            let target = name_of(one.sh_info(endian) as usize);
            for (number, row) in rows.iter().enumerate() {
                if row.r_type(endian, false) == object::elf::R_X86_64_NONE {
                    continue;
                }
                let symbol = row.r_sym(endian, false);
                let entry = table.symbol(object::SymbolIndex(symbol as usize))?;
                let name = String::from_utf8_lossy(entry.name(endian, table.strings())?).into_owned();
                let at = one.sh_offset(endian) as usize + 24 * number;
                let reloc = Reloc { row: at, symbol, addend: row.r_addend(endian), name };
                all.entry(target.clone()).or_default().insert(row.r_offset(endian), reloc);
            }
        }
        let (mut codes, mut data, mut files) = (Vec::new(), Vec::new(), BTreeMap::new());
        for one in sections.iter() {
            let name = String::from_utf8_lossy(sections.section_name(endian, one)?).into_owned();
            let flags = one.sh_flags(endian);
            let relocs = all.get(&name).cloned().unwrap_or_default();
            files.insert(name.clone(), one.sh_offset(endian) as usize);
            if flags & u64::from(object::elf::SHF_EXECINSTR) != 0 {
                let (file_at, bytes) = (one.sh_offset(endian) as usize, one.data(endian, file)?.to_vec());
                codes.push(Text { name, file: file_at, bytes, relocs });
            } else if flags & u64::from(object::elf::SHF_ALLOC) != 0 {
                data.push((name, relocs));
            }
        }
        Ok(Module { codes, data, files, functions, symbols, homes })
    }

    /// The section that a symbol lies in; empty for an import.
    fn home(&self, symbol: u32) -> &str {
        self.homes.get(symbol as usize).map_or("", |home| home.0.as_str())
    }
}

/// One instruction, with its relocation.
struct Insn<'a> {
    insn: Instruction,
    reloc: Option<&'a Reloc>,
    at: usize,
    /// Where its modrm byte is in the file.
    modrm: usize,
}

/// All ways to take a guard out of a module.
pub fn all(file: &[u8]) -> Result<Vec<Neutering>, Failed> {
    let module = Module::read(file)?;
    let mut found = Found { module: &module, file, out: Vec::new() };
    for code in &module.codes {
        let ours = code.name.contains("guardrail");
        for ((home, start), (_, end)) in &module.functions {
            if *home == code.name && *end as usize <= code.bytes.len() {
                let insns = sweep(code, *start, *end);
                match ours {
                    false => found.own(code, &insns),
                    true => found.thunk(code, &insns),
                }
            }
        }
    }
    found.pointers();
    found.more();
    Ok(found.out)
}

fn sweep<'a>(code: &'a Text, start: u64, end: u64) -> Vec<Insn<'a>> {
    let bytes = &code.bytes[start as usize..end as usize];
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut insns = Vec::new();
    while decoder.can_decode() {
        let insn = decoder.decode();
        let offsets = decoder.get_constant_offsets(&insn);
        let at = code.file + insn.ip() as usize;
        let sib = usize::from(
            insn.memory_index() != Register::None
                || insn.memory_base().full_register() == Register::RSP
                || insn.memory_base() == Register::R12,
        );
        let tail = if offsets.has_displacement() {
            offsets.displacement_offset()
        } else if offsets.has_immediate() {
            offsets.immediate_offset()
        } else {
            insn.len()
        };
        let modrm = (at + tail).saturating_sub(1 + sib);
        let reloc = code.relocs.range(insn.ip()..insn.next_ip()).next().map(|(_, reloc)| reloc);
        insns.push(Insn { insn, reloc, at, modrm });
    }
    insns
}

struct Found<'a> {
    module: &'a Module,
    file: &'a [u8],
    out: Vec<Neutering>,
}

impl Found<'_> {
    fn add(&mut self, kind: &'static str, code: &Text, insn: &Insn<'_>, edits: Vec<(usize, Vec<u8>)>) {
        let place = format!("{}+{:#x} `{}`", code.name, insn.insn.ip(), insn.insn);
        let own = !code.name.contains("guardrail");
        let code = own.then(|| (code.name.clone(), insn.insn.ip()));
        self.out.push(Neutering { kind, place, code, edits });
    }

    /// A relocation that names something else, or nothing for the type 0.
    fn renamed(&self, reloc: &Reloc, symbol: u32, kind: Option<u32>) -> (usize, Vec<u8>) {
        let old = u32::from_le_bytes(self.file[reloc.row + 8..reloc.row + 12].try_into().unwrap_or_default());
        let info = u64::from(symbol) << 32 | u64::from(kind.unwrap_or(old));
        (reloc.row + 8, info.to_le_bytes().to_vec())
    }

    /// Replaces an instruction of five bytes with a relocation by nothing.
    fn without(&self, insn: &Insn<'_>) -> Option<Vec<(usize, Vec<u8>)>> {
        let reloc = insn.reloc?;
        (insn.insn.len() == 5).then(|| vec![self.renamed(reloc, 0, Some(0)), (insn.at, NOP5.to_vec())])
    }

    fn one(&self, insn: &Insn<'_>, byte: usize, change: u8) -> Vec<(usize, Vec<u8>)> {
        vec![(insn.at + byte, vec![self.file[insn.at + byte] ^ change])]
    }

    /// Takes out the guards of the module's own functions.
    fn own(&mut self, code: &Text, insns: &[Insn<'_>]) {
        for (number, insn) in insns.iter().enumerate() {
            let decoded = &insn.insn;
            let name = insn.reloc.map_or("", |reloc| reloc.name.as_str());
            if decoded.mnemonic() == Mnemonic::Add && name == symbol::TABLE {
                self.check(code, insns, number);
            }
            let calls = matches!(decoded.code(), Code::Call_rel32_64 | Code::Jmp_rel32_64);
            let home = insn.reloc.map_or("", |reloc| self.module.home(reloc.symbol));
            if decoded.code() == Code::Call_rel32_64 && home == ASK && !self.idle(insn) {
                if let Some(edits) = self.without(insn) {
                    self.add("1 slow path patched away", code, insn, edits);
                }
                let note = insns.get(number + 1).filter(|note| note.insn.code() == Code::Test_EAX_imm32);
                if let Some(note) = note {
                    let before = insns.get(number.wrapping_sub(1));
                    let base = before.map_or(Register::None, |lea| lea.insn.memory_base());
                    if base.is_gpr64() && base != Register::RSP {
                        // add $1, %base; nop
                        let rex = if base.number() >= 8 { 0x49 } else { 0x48 };
                        let add = vec![rex, 0x83, 0xc0 | (base.number() & 7) as u8, 1, 0x90];
                        self.add("2 base modified after the check", code, note, vec![(note.at, add)]);
                    }
                }
            }
            if calls
                && home == CALLS
                && let Some(reloc) = insn.reloc
            {
                let raw =
                    reloc.name.strip_prefix("guardrail_call_").and_then(|raw| self.module.symbols.get(raw));
                if let Some(raw) = raw {
                    self.add(
                        "4 call of the import itself",
                        code,
                        insn,
                        vec![self.renamed(reloc, *raw, None)],
                    );
                }
            }
            self.stack(code, insn);
        }
    }

    /// Whether a call asks what no store depends on: loops, and frames.
    fn idle(&self, insn: &Insn<'_>) -> bool {
        let Some(reloc) = insn.reloc else { return true };
        let at = (reloc.addend + 4) as u64 + self.module.homes[reloc.symbol as usize].1;
        let Some((symbol, _)) = self.module.functions.get(&(ASK.to_owned(), at)) else { return true };
        let name = self.module.symbols.iter().find(|(_, own)| *own == symbol).map_or("", |(name, _)| name);
        name.contains("loop") || name.contains("frame")
    }

    /// Takes out one look at the rights table: `number` is that of the addition of the table's address.
    fn check(&mut self, code: &Text, insns: &[Insn<'_>], number: usize) {
        let add = &insns[number];
        if let (Some(reloc), Some(other)) = (add.reloc, self.module.symbols.get(symbol::LOOPS)) {
            self.add("3 another table", code, add, vec![self.renamed(reloc, *other, None)]);
        }
        for shift in insns[number.saturating_sub(3)..number].iter() {
            let by = matches!(shift.insn.mnemonic(), Mnemonic::Ror | Mnemonic::Shr)
                && shift.insn.len() == 4
                && shift.insn.op0_register() == add.insn.op0_register();
            if by {
                self.add("3 another shift", code, shift, self.one(shift, 3, 1));
            }
        }
        let lea = insns[number.saturating_sub(5)..number].iter().rev().find(|lea| {
            matches!(lea.insn.mnemonic(), Mnemonic::Lea | Mnemonic::Mov)
                && lea.insn.op0_register() == add.insn.op0_register()
        });
        if let Some(lea) = lea.filter(|lea| lea.insn.op1_kind() == OpKind::Memory && lea.reloc.is_none()) {
            if lea.insn.memory_displ_size() > 0 && lea.insn.memory_displ_size() < 8 {
                let width = if lea.insn.memory_displ_size() == 1 { 1 } else { 4 };
                let at = lea.insn.len() - width;
                self.add("2 check of another address", code, lea, self.one(lea, at, 0x40));
            }
            let simple = lea.insn.memory_index() == Register::None
                && lea.insn.memory_base().full_register() != Register::RSP
                && lea.insn.memory_base() != Register::R12
                && lea.insn.memory_base() != Register::R13
                && lea.insn.memory_base() != Register::RBP;
            if simple {
                // RSP and R12 have another form; of the others the first bit of the number is changed.
                let byte = lea.modrm - lea.at;
                let change = if lea.insn.memory_base().number() & 6 == 4 { 2 } else { 1 };
                self.add("2 check of another register", code, lea, self.one(lea, byte, change));
            }
        }
        for (number, compare) in insns.iter().enumerate().skip(number + 1).take(8) {
            let Some(jump) = insns.get(number + 1) else { return };
            if compare.insn.mnemonic() != Mnemonic::Cmp || jump.insn.code() != Code::Jne_rel32_64 {
                break;
            }
            let width = match compare.insn.code() {
                Code::Cmp_rm8_imm8 => 1,
                Code::Cmp_rm16_imm16 => 2,
                Code::Cmp_rm32_imm32 => 4,
                _ => break,
            };
            let imm = compare.insn.len() - width;
            self.add("1 jump to the slow path patched away", code, jump, vec![(jump.at, NOP6.to_vec())]);
            let nops = vec![0x90; compare.insn.len()];
            self.add("1 comparison patched away", code, compare, vec![(compare.at, nops)]);
            self.add("3 the jump inverted", code, jump, self.one(jump, 1, 1));
            self.add("3 the right of another domain", code, compare, self.one(compare, imm, 0x30));
            self.add("3 another right", code, compare, self.one(compare, imm, 0x02));
        }
    }

    /// Takes out what keeps the stack in order.
    fn stack(&mut self, code: &Text, insn: &Insn<'_>) {
        match insn.insn.code() {
            Code::Pop_r64
                if [
                    Register::RBX,
                    Register::RBP,
                    Register::R12,
                    Register::R13,
                    Register::R14,
                    Register::R15,
                ]
                .contains(&insn.insn.op0_register()) =>
            {
                let nops = vec![0x90; insn.insn.len()];
                self.add("5 a register not restored", code, insn, vec![(insn.at, nops)]);
            }
            Code::Add_rm64_imm8 if insn.insn.op0_register() == Register::RSP => {
                let at = insn.insn.len() - 1;
                self.add("5 the stack pointer moved elsewhere", code, insn, self.one(insn, at, 8));
            }
            _ => {}
        }
    }

    /// Takes out what thunks do.
    fn thunk(&mut self, code: &Text, insns: &[Insn<'_>]) {
        for (number, insn) in insns.iter().enumerate() {
            let name = insn.reloc.map_or("", |reloc| reloc.name.as_str());
            if insn.insn.code() == Code::Call_rel32_64
                && name.starts_with(abi::PREFIX)
                && let Some(edits) = self.without(insn)
            {
                self.add("4 a call of the runtime dropped from a thunk", code, insn, edits);
            }
            if insn.insn.code() == Code::Call_rel32_64
                && ENTRIES.contains(&code.name.as_str())
                && insn.reloc.is_some()
            {
                let tested = insns.get(number + 2).filter(|jump| jump.insn.code() == Code::Jne_rel32_64);
                if let Some(jump) = tested {
                    self.add("4 an entry's refusal ignored", code, jump, vec![(jump.at, NOP6.to_vec())]);
                }
            }
            // Of a size half is left; a domain becomes another.
            let size = insn.insn.op0_register() == Register::ESI
                && insns.iter().any(|call| {
                    let asks = [symbol::WRITE_SLOW, symbol::PERCPU_SLOW];
                    call.reloc.is_some_and(|reloc| asks.contains(&reloc.name.as_str()))
                });
            if code.name == ASK && insn.insn.code() == Code::Mov_r32_imm32 && size {
                let less = (insn.insn.immediate32() / 2).to_le_bytes().to_vec();
                let edits = vec![(insn.at + insn.insn.len() - 4, less)];
                self.add("3 a thunk asks for fewer bytes", code, insn, edits);
            } else if code.name == ASK && insn.insn.code() == Code::Mov_r32_imm32 {
                self.add(
                    "3 a thunk asks for another domain",
                    code,
                    insn,
                    self.one(insn, insn.insn.len() - 4, 2),
                );
            }
            let lea = insn.insn.mnemonic() == Mnemonic::Lea && insn.insn.op0_register() == Register::RDI;
            if lea
                && code.name == CALLS
                && let Some(reloc) = insn.reloc
            {
                let other = (reloc.addend + 8).to_le_bytes().to_vec();
                self.add("4 another action", code, insn, vec![(reloc.row + 16, other)]);
            }
        }
    }

    /// Lets pointers lead past the thunks of entries.
    fn pointers(&mut self) {
        let mut past: BTreeMap<u32, u32> = BTreeMap::new();
        for ((home, start), (symbol, end)) in &self.module.functions {
            let Some(code) = self.module.codes.iter().find(|code| code.name == *home) else { continue };
            if !ENTRIES.contains(&home.as_str()) {
                continue;
            }
            let target = sweep(code, *start, *end).into_iter().find_map(|insn| {
                let reloc = insn.reloc.filter(|_| insn.insn.code() == Code::Call_rel32_64)?;
                (!self.module.home(reloc.symbol).is_empty()).then_some(reloc.symbol)
            });
            past.extend(target.map(|target| (*symbol, target)));
        }
        let tables: BTreeSet<&str> = [".orc_unwind_ip", "__mcount_loc", "__ex_table"].into();
        for (section, relocs) in &self.module.data {
            for (at, reloc) in relocs.iter().filter(|_| !tables.contains(section.as_str())) {
                let Some(target) = past.get(&reloc.symbol) else { continue };
                let place = format!("{section}+{at:#x}");
                let edits = vec![self.renamed(reloc, *target, None)];
                self.out.push(Neutering {
                    kind: "4 a pointer to the function itself",
                    place,
                    code: None,
                    edits,
                });
            }
        }
    }
}

/// Whether an access writes.
fn writes(access: OpAccess) -> bool {
    !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess | OpAccess::None)
}
