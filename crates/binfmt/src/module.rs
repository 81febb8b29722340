//! Kernel modules as files: sections, symbols, what `modinfo` shows, and where faults are expected.

mod place;
#[cfg(test)]
pub(crate) mod tests;

pub use place::{Placed, PlacedSection, PlacedSymbol};

use crate::bytes::{slice, u16_at, u32_at, u64_at};
use crate::decompress::{LIMIT, decompress};
use crate::elf::{
    ET_REL, Elf, MAX_NAME, SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHT_NOBITS, SHT_RELA, SHT_SYMTAB,
    SectionHeader,
};
use crate::error::KernelError;
use rustc_hash::FxHashMap;
use std::path::Path;

/// Most symbols that are read; the largest modules have about a hundred thousand.
const MAX_SYMBOLS: usize = 1 << 20;
/// The kernel's own limit on names of modules, in bytes (`MODULE_NAME_LEN`, without the terminator).
const MAX_MODULE_NAME: usize = 55;
const SYMBOL_SIZE: u64 = 24;
const RELA_SIZE: usize = 24;

/// Section indices from here on mean something else than a section.
const SHN_LORESERVE: u16 = 0xff00;

const R_X86_64_PC32: u32 = 2;
/// Bytes of a row of `__ex_table`: instruction, fixup and kind, each 32 bits wide.
const EX_ENTRY: u64 = 12;

/// What a symbol names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SymbolKind {
    /// A function: `STT_FUNC`.
    Function,
    /// A variable: `STT_OBJECT`.
    Object,
    /// A section: `STT_SECTION`.
    Section,
    /// A label, or a symbol of another file: `STT_NOTYPE`.
    NoType,
    /// Anything else, such as the name of a source file.
    Other,
}

/// A symbol as the file has it.
#[derive(Clone, Copy, Debug)]
pub struct ModuleSymbol {
    name: (u32, u16),
    /// Index of its section; `None` when undefined, absolute or common.
    pub section: Option<u16>,
    /// Whether another module or the kernel defines it.
    pub undefined: bool,
    /// Offset in its section.
    pub value: u64,
    /// Bytes that it covers; zero when the file does not say.
    pub size: u64,
    /// What it names, by its ELF type.
    pub kind: SymbolKind,
    /// Whether it is visible only in its source file.
    pub local: bool,
}

/// A section as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleSection<'a> {
    /// The name, such as `.text`.
    pub name: &'a str,
    /// The ELF flags, `SHF_…`.
    pub flags: u64,
    /// Bytes that it has in memory.
    pub size: u64,
    /// Alignment in memory, in bytes.
    pub align: u64,
    /// Whether it has a place in a loaded module.
    pub alloc: bool,
    /// Whether it can be written.
    pub write: bool,
    /// Whether it holds code.
    pub exec: bool,
}

/// One relocation with addend.
#[derive(Clone, Copy, Debug)]
pub struct Rela {
    /// Where it applies, as an offset in its section.
    pub offset: u64,
    /// Its ELF type, `R_X86_64_…`.
    pub kind: u32,
    /// Index of the symbol that it refers to; the file may name one that does not exist.
    pub symbol: usize,
    /// What is added to the symbol's value.
    pub addend: i64,
}

/// Whether a module can have this name. Files are named by it, so that it must not lead to other folders.
pub fn is_name(name: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    name.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
        && name.len() <= MAX_MODULE_NAME
        && name.bytes().all(inside)
}

/// A kernel module's file.
#[derive(Debug)]
pub struct ModuleImage {
    what: String,
    data: Vec<u8>,
    elf: Elf,
    /// Indices of the sections with relocations, by the section that they are for.
    relas: FxHashMap<usize, Vec<usize>>,
    symbols: Vec<ModuleSymbol>,
    /// Offset and size in `data` of the symbols' names.
    names: (u64, u64),
    info: Vec<(String, String)>,
}

impl ModuleImage {
    /// Reads a module, compressed or not.
    pub fn open(path: &Path) -> Result<ModuleImage, KernelError> {
        ModuleImage::parse(&path.display().to_string(), crate::image::read_file(path)?)
    }

    /// Reads a module from memory, compressed or not; `what` names it in errors.
    pub fn parse(what: &str, file: Vec<u8>) -> Result<ModuleImage, KernelError> {
        let mut image = ModuleImage::parse_object(what, file)?;
        let not_a_module = || KernelError::NotA { what: what.to_owned(), expected: "a kernel module" };
        if image.elf.section(".gnu.linkonce.this_module").is_none() {
            return Err(not_a_module());
        }
        let (_, info) = image.elf.section(".modinfo").ok_or_else(not_a_module)?;
        let bytes = image.elf.bytes(&image.data, info);
        image.info = bytes
            .split(|&b| b == 0)
            .filter_map(|field| {
                let field = String::from_utf8_lossy(field);
                let (key, value) = field.split_once('=')?;
                Some((key.to_owned(), value.to_owned()))
            })
            .collect();
        if let Some(name) = image.info("name").filter(|name| !name.is_empty() && !is_name(name)) {
            let detail = format!("its name '{}' is no name of a module", name.escape_debug());
            return Err(KernelError::Damaged { what: what.to_owned(), detail });
        }
        Ok(image)
    }

    /// Reads any relocatable object: a module, or a file with a module's debug information.
    pub(crate) fn parse_object(what: &str, file: Vec<u8>) -> Result<ModuleImage, KernelError> {
        let data = unpack(what, file)?;
        let elf = Elf::parse(what, &data)?;
        if elf.file_type != ET_REL {
            return Err(KernelError::NotA { what: what.to_owned(), expected: "a kernel module" });
        }
        let (symbols, names) = read_symbols(what, &data, &elf)?;
        let mut relas: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for (index, section) in elf.sections.iter().enumerate().filter(|(_, s)| s.kind == SHT_RELA) {
            relas.entry(section.info as usize).or_default().push(index);
        }
        Ok(ModuleImage { what: what.to_owned(), data, elf, relas, symbols, names, info: Vec::new() })
    }

    /// The name that errors use for the file.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The first value of a field of `.modinfo`.
    pub fn info(&self, key: &str) -> Option<&str> {
        self.info.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// All values of a field of `.modinfo` that can repeat, such as `alias`.
    pub fn info_all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.info.iter().filter(move |(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// The module's name as the kernel shows it; the name of the file when the module has none.
    pub fn name(&self) -> String {
        if let Some(name) = self.info("name").filter(|name| !name.is_empty()) {
            return name.to_owned();
        }
        let file = self.what.rsplit('/').next().unwrap_or_default();
        file.split(".ko").next().unwrap_or_default().replace('-', "_")
    }

    /// The kernel and options that it is built for.
    pub fn vermagic(&self) -> Option<&str> {
        self.info("vermagic")
    }

    /// The release of the kernel that it is built for.
    pub fn release(&self) -> Option<&str> {
        self.vermagic()?.split(' ').next()
    }

    /// Names of the modules that it needs.
    pub fn depends(&self) -> impl Iterator<Item = &str> {
        self.info("depends").unwrap_or_default().split(',').filter(|name| !name.is_empty())
    }

    /// Patterns of the devices that it drives, such as `pci:v00008086d...`.
    pub fn aliases(&self) -> impl Iterator<Item = &str> {
        self.info_all("alias")
    }

    /// The license, as `.modinfo` states it.
    pub fn license(&self) -> Option<&str> {
        self.info("license")
    }

    /// The GNU build id in hexadecimal; `None` where the linker gave none.
    pub fn build_id(&self) -> Option<String> {
        let (_, section) = self.elf.section(".note.gnu.build-id")?;
        crate::image::build_id(self.elf.bytes(&self.data, section))
    }

    /// All sections, in the file's order; the first is the empty one that every ELF file has.
    pub fn sections(&self) -> impl ExactSizeIterator<Item = ModuleSection<'_>> {
        self.elf.sections.iter().map(|s| ModuleSection {
            name: &s.name,
            flags: s.flags,
            size: s.size,
            align: s.align,
            alloc: s.flags & SHF_ALLOC != 0,
            write: s.flags & SHF_WRITE != 0,
            exec: s.flags & SHF_EXECINSTR != 0,
        })
    }

    /// Index of the first section with this name.
    pub fn section_index(&self, name: &str) -> Option<usize> {
        self.elf.section(name).map(|(index, _)| index)
    }

    /// The bytes of a section in the file, before relocation; empty for sections that have none.
    pub fn section_bytes(&self, section: usize) -> &[u8] {
        self.elf.sections.get(section).map(|s| self.elf.bytes(&self.data, s)).unwrap_or_default()
    }

    /// Indices of the sections with constants that are in memory as in the file: the loader relocates nothing there.
    pub fn constant_sections(&self) -> impl Iterator<Item = usize> {
        let is_constant = |section: &ModuleSection<'_>| {
            section.alloc && !section.write && !section.exec && section.name.starts_with(".rodata")
        };
        let constants = self.sections().enumerate().filter(move |(_, section)| is_constant(section));
        constants.map(|(index, _)| index).filter(|&index| self.relocations(index).next().is_none())
    }

    /// The bytes of its BTF; `None` where it has none.
    pub fn btf_bytes(&self) -> Option<&[u8]> {
        self.section_index(".BTF").map(|index| self.section_bytes(index))
    }

    /// All symbols, in the file's order; the first is the empty one that every ELF file has.
    pub fn symbols(&self) -> &[ModuleSymbol] {
        &self.symbols
    }

    /// A symbol's name; for the symbol of a section, the section's name.
    pub fn symbol_name(&self, symbol: &ModuleSymbol) -> &str {
        if symbol.kind == SymbolKind::Section {
            return symbol
                .section
                .and_then(|s| self.elf.sections.get(usize::from(s)))
                .map_or("", |s| &s.name);
        }
        let at = self.names.0 + u64::from(symbol.name.0);
        slice(&self.data, at, u64::from(symbol.name.1))
            .and_then(|n| std::str::from_utf8(n).ok())
            .unwrap_or_default()
    }

    /// The instructions that may fault because the kernel handles it (`__ex_table`), as section and offset.
    pub fn ex_table(&self) -> Vec<(usize, u64)> {
        let mut found = Vec::new();
        for (index, section) in self.elf.sections.iter().enumerate().filter(|(_, s)| s.name == "__ex_table") {
            for rela in self.relocations(index) {
                let at_instruction = rela.kind == R_X86_64_PC32
                    && rela.offset % EX_ENTRY == 0
                    && section.size.checked_sub(EX_ENTRY).is_some_and(|last| rela.offset <= last);
                let target = at_instruction.then(|| self.symbols.get(rela.symbol)).flatten();
                let Some((symbol, target)) = target.and_then(|s| Some((s, usize::from(s.section?)))) else {
                    continue;
                };
                let offset = symbol.value.wrapping_add_signed(rela.addend);
                if self.elf.sections.get(target).is_some_and(|s| offset < s.size) {
                    found.push((target, offset));
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Works out where the sections and symbols of the loaded module are in the guest.
    ///
    /// `symbol_values` has the value of every ELF symbol, in the file's order, after the guest's loader has
    /// resolved them. `None` when the values are not this module's.
    pub fn place(&self, symbol_values: &[u64]) -> Option<Placed> {
        Placed::new(self, symbol_values)
    }

    pub(crate) fn headers(&self) -> &[SectionHeader] {
        &self.elf.sections
    }

    /// The relocations of a section, by its index.
    pub fn relocations(&self, section: usize) -> impl Iterator<Item = Rela> {
        let headers = self.relas.get(&section).into_iter().flatten().map(|&index| &self.elf.sections[index]);
        headers.flat_map(|s| self.elf.bytes(&self.data, s).chunks_exact(RELA_SIZE)).map(|raw| {
            let info = u64_at(raw, 8).unwrap_or(0);
            Rela {
                offset: u64_at(raw, 0).unwrap_or(0),
                kind: info as u32,
                symbol: (info >> 32) as usize,
                addend: u64_at(raw, 16).unwrap_or(0) as i64,
            }
        })
    }
}

/// The bytes of a module's file, compressed or not; `what` names it in errors.
pub fn unpack(what: &str, file: Vec<u8>) -> Result<Vec<u8>, KernelError> {
    Ok(decompress(what, &file, LIMIT)?.unwrap_or(file))
}

/// A function's name without what the compiler appends for clones and cold parts.
pub fn plain_name(name: &str) -> &str {
    let mut name = name;
    loop {
        let Some((head, tail)) = name.rsplit_once('.') else { return name };
        let numbered = !tail.is_empty() && tail.bytes().all(|b| b.is_ascii_digit());
        let (head, word) = if numbered { head.rsplit_once('.').unwrap_or((head, "")) } else { (head, tail) };
        if head.is_empty() || !matches!(word, "isra" | "constprop" | "part" | "cold") {
            return name;
        }
        name = head;
    }
}

type SymbolTable = (Vec<ModuleSymbol>, (u64, u64));

fn read_symbols(what: &str, data: &[u8], elf: &Elf) -> Result<SymbolTable, KernelError> {
    let Some(table) = elf.sections.iter().find(|s| s.kind == SHT_SYMTAB) else {
        return Err(KernelError::damaged(what, "it has no symbol table"));
    };
    let strings = elf
        .sections
        .get(table.link as usize)
        .filter(|s| s.kind != SHT_NOBITS)
        .ok_or_else(|| KernelError::damaged(what, "its symbols have no names"))?;
    let name_bytes = elf.bytes(data, strings);
    let raw = elf.bytes(data, table);
    if raw.len() as u64 / SYMBOL_SIZE > MAX_SYMBOLS as u64 {
        return Err(KernelError::damaged(what, "it has more than a million symbols"));
    }
    let symbols = raw.chunks_exact(SYMBOL_SIZE as usize).map(|raw| {
        let name = u32_at(raw, 0).unwrap_or(0);
        let index = u16_at(raw, 6).unwrap_or(0);
        let rest = name_bytes.get(name as usize..).unwrap_or_default();
        let len = rest.iter().take(MAX_NAME + 1).take_while(|&&b| b != 0).count();
        if len > MAX_NAME {
            return Err(KernelError::damaged(what, "the name of a symbol is too long"));
        }
        Ok(ModuleSymbol {
            name: (name, len as u16),
            section: (index != 0 && index < SHN_LORESERVE && usize::from(index) < elf.sections.len())
                .then_some(index),
            undefined: index == 0,
            value: u64_at(raw, 8).unwrap_or(0),
            size: u64_at(raw, 16).unwrap_or(0),
            kind: match raw[4] & 15 {
                0 => SymbolKind::NoType,
                1 => SymbolKind::Object,
                2 => SymbolKind::Function,
                3 => SymbolKind::Section,
                _ => SymbolKind::Other,
            },
            local: raw[4] >> 4 == 0,
        })
    });
    Ok((symbols.collect::<Result<_, _>>()?, (strings.offset, strings.size)))
}
