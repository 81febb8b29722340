//! A relocatable object in memory: sections with their relocations, and symbols. The `object` crate reads and
//! writes ELF.

use crate::error::{Result, RewriteError};
use object::build::elf::{Builder, Relocation as ElfReloc, SectionData, SectionId, SymbolId};
use object::build::{ByteString, Id};
use object::elf;
use object::endian::Endianness;
use std::collections::HashSet;

/// Alignment and size beyond those of any module's section.
const MAX_ALIGN: u64 = 1 << 21;
const MAX_ZEROS: u64 = 1 << 32;
/// Distance beyond all that a module's addresses span, in bytes. Places, sizes and addends are added to one another;
/// no such sum of values below it overflows.
const MAX_DISTANCE: u64 = 1 << 48;

/// Most bytes of a name: a million symbols may have one long name.
const MAX_NAME: usize = 1024;

/// Absolute and relative relocations that modules have (`arch/x86/kernel/module.c`).
pub mod reloc {
    use object::elf;
    /// No relocation: the kernel skips it.
    pub const NONE: u32 = elf::R_X86_64_NONE;
    /// A 64-bit address.
    pub const ABS64: u32 = elf::R_X86_64_64;
    /// A 32-bit distance.
    pub const PC32: u32 = elf::R_X86_64_PC32;
    /// A 32-bit distance to a function.
    pub const PLT32: u32 = elf::R_X86_64_PLT32;
    /// A 32-bit address, zero-extended.
    pub const ABS32: u32 = elf::R_X86_64_32;
    /// A 32-bit address, sign-extended.
    pub const ABS32S: u32 = elf::R_X86_64_32S;
    /// A 64-bit distance.
    pub const PC64: u32 = elf::R_X86_64_PC64;

    /// Bytes that a relocation fills; `None` for kinds that the kernel's loader does not know.
    pub fn width(kind: u32) -> Option<u32> {
        match kind {
            NONE => Some(0),
            PC32 | PLT32 | ABS32 | ABS32S => Some(4),
            ABS64 | PC64 => Some(8),
            _ => None,
        }
    }

    /// Whether the kind counts from its own place.
    pub fn relative(kind: u32) -> bool {
        matches!(kind, PC32 | PLT32 | PC64)
    }
}

/// A relocation with addend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reloc {
    /// Offset in the section.
    pub offset: u64,
    /// One of the constants in [`reloc`].
    pub kind: u32,
    /// Index of its symbol in [`Object::symbols`]; 0 for none.
    pub symbol: usize,
    /// What is added to the symbol's value.
    pub addend: i64,
}

/// What a section holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes of the file.
    Bytes(Vec<u8>),
    /// So many zeros, which the file does not hold.
    Zeros(u64),
}

/// A section other than those that describe the file itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The name, such as `.text`.
    pub name: String,
    /// The ELF type, `SHT_…`.
    pub kind: u32,
    /// The ELF flags, `SHF_…`.
    pub flags: u64,
    /// Alignment in memory, a power of two.
    pub align: u64,
    /// Bytes of one row, where it is a table.
    pub entry_size: u64,
    /// The section that it is sorted with (`SHF_LINK_ORDER`), by index in [`Object::sections`].
    pub link: Option<usize>,
    /// Its bytes or zeros.
    pub content: Content,
    /// Its relocations, by offset.
    pub relocs: Vec<Reloc>,
}

impl Section {
    /// A section of code or data that the kernel loads.
    pub fn new(name: &str, flags: u32, bytes: Vec<u8>, relocs: Vec<Reloc>) -> Section {
        Section {
            name: name.into(),
            kind: elf::SHT_PROGBITS,
            flags: u64::from(flags),
            align: 16,
            entry_size: 0,
            link: None,
            content: Content::Bytes(bytes),
            relocs,
        }
    }

    /// Its bytes; empty for zeros.
    pub fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Bytes(bytes) => bytes,
            Content::Zeros(_) => &[],
        }
    }

    /// Appends bytes; does nothing for zeros.
    pub fn extend(&mut self, more: &[u8]) {
        if let Content::Bytes(bytes) = &mut self.content {
            bytes.extend_from_slice(more);
        }
    }

    /// Bytes that it takes in memory.
    pub fn size(&self) -> u64 {
        match &self.content {
            Content::Zeros(size) => *size,
            _ => self.bytes().len() as u64,
        }
    }

    /// Whether it has a place in the loaded module.
    pub fn alloc(&self) -> bool {
        self.flags & u64::from(elf::SHF_ALLOC) != 0
    }

    /// Whether it holds code.
    pub fn exec(&self) -> bool {
        self.flags & u64::from(elf::SHF_EXECINSTR) != 0
    }

    /// Whether it can be written.
    pub fn write(&self) -> bool {
        self.flags & u64::from(elf::SHF_WRITE) != 0
    }

    /// Whether it holds the module's own variables. The module must not write other data, such as per-CPU
    /// templates, tables of the kernel, and its `struct module`.
    pub fn variables(&self) -> bool {
        let name = self.name.as_str();
        self.data() && (name.starts_with(".data") || name.starts_with(".bss")) && !name.contains("percpu")
    }

    /// Whether it holds variables that last until the module's init function has returned.
    pub fn init_variables(&self) -> bool {
        self.data() && self.name.starts_with(".init.data")
    }

    fn data(&self) -> bool {
        self.alloc() && self.write() && !self.exec() && self.size() > 0
    }
}

/// The section of a symbol, as its `st_shndx` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionIndex {
    /// In a section, by index in [`Object::sections`].
    In(usize),
    /// Elsewhere: undefined, absolute and so on (`SHN_…`).
    Special(u16),
}

/// A symbol as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name; empty for sections.
    pub name: String,
    /// The section that defines it, if one does.
    pub index: SectionIndex,
    /// Offset in its section.
    pub value: u64,
    /// Bytes that it covers.
    pub size: u64,
    /// Binding and type, as in `st_info`.
    pub info: u8,
    /// Visibility, as in `st_other`.
    pub other: u8,
}

impl Symbol {
    /// The ELF type, `STT_…`.
    pub fn kind(&self) -> u8 {
        self.info & 15
    }

    /// Whether it names a function.
    pub fn function(&self) -> bool {
        self.kind() == elf::STT_FUNC
    }

    /// Whether another module or the kernel defines it.
    pub fn undefined(&self) -> bool {
        self.index == SectionIndex::Special(elf::SHN_UNDEF)
    }

    /// The section that it is in; `None` when undefined, absolute and so on.
    pub fn section(&self) -> Option<usize> {
        match self.index {
            SectionIndex::In(section) => Some(section),
            SectionIndex::Special(_) => None,
        }
    }
}

/// A relocatable object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// All sections with content.
    pub sections: Vec<Section>,
    /// All symbols; the first is the empty one.
    pub symbols: Vec<Symbol>,
}

impl Object {
    /// Takes an object apart. Drops trailing bytes, such as a signature. `what` names the file in errors.
    pub fn read(what: &str, data: &[u8]) -> Result<Object> {
        let builder = Builder::read64(data).map_err(|error| error.to_string());
        let object = builder.and_then(|builder| {
            let (mut sections, numbers) = read_sections(&builder)?;
            let symbols = read_symbols(&builder, &numbers)?;
            read_relocs(&builder, &numbers, symbols.len(), &mut sections)?;
            Ok(Object { sections, symbols })
        });
        object.map_err(|detail| RewriteError::Object { what: what.to_owned(), detail })
    }

    /// The bytes of the file: the sections in their order, then relocations and symbols.
    pub fn write(&self) -> Result<Vec<u8>> {
        let mut builder = Builder::new(Endianness::Little, true);
        builder.header.e_type = elf::ET_REL;
        builder.header.e_machine = elf::EM_X86_64;
        let ids = self.write_sections(&mut builder);
        let symbols = self.write_symbols(&mut builder, &ids);
        let table = add(&mut builder, ".symtab", elf::SHT_SYMTAB, SectionData::Symbol);
        builder.sections.get_mut(table).sh_addralign = 8;
        let strings = add(&mut builder, ".strtab", elf::SHT_STRTAB, SectionData::String);
        builder.sections.get_mut(table).sh_link_section = Some(strings);
        for (id, section) in ids.iter().zip(&self.sections).filter(|(_, section)| !section.relocs.is_empty())
        {
            let relocs = section.relocs.iter().map(|reloc| ElfReloc {
                r_offset: reloc.offset,
                symbol: reloc.symbol.checked_sub(1).and_then(|at| symbols.get(at).copied()),
                r_type: reloc.kind,
                r_addend: reloc.addend,
            });
            let data = SectionData::Relocation(relocs.collect());
            let added = add(&mut builder, &format!(".rela{}", section.name), elf::SHT_RELA, data);
            let added = builder.sections.get_mut(added);
            added.sh_flags = u64::from(elf::SHF_INFO_LINK);
            added.sh_addralign = 8;
            added.sh_entsize = 24;
            added.sh_link_section = Some(table);
            added.sh_info_section = Some(*id);
        }
        add(&mut builder, ".shstrtab", elf::SHT_STRTAB, SectionData::SectionString);
        let mut file = Vec::new();
        builder
            .write(&mut file)
            .map_err(|error| RewriteError::Check { place: "the file".into(), detail: error.to_string() })?;
        Ok(file)
    }

    fn write_sections<'a>(&'a self, builder: &mut Builder<'a>) -> Vec<SectionId> {
        let mut ids: Vec<SectionId> = Vec::new();
        for section in &self.sections {
            let data = match &section.content {
                Content::Bytes(bytes) => SectionData::Data(bytes.as_slice().into()),
                Content::Zeros(size) => SectionData::UninitializedData(*size),
            };
            ids.push(add(builder, &section.name, section.kind, data));
            let added = builder.sections.get_mut(ids[ids.len() - 1]);
            added.sh_flags = section.flags;
            added.sh_addralign = section.align;
            added.sh_entsize = section.entry_size;
        }
        for (id, section) in ids.iter().zip(&self.sections) {
            let link = section.link.and_then(|link| ids.get(link).copied());
            builder.sections.get_mut(*id).sh_link_section = link;
        }
        ids
    }

    fn write_symbols(&self, builder: &mut Builder<'_>, sections: &[SectionId]) -> Vec<SymbolId> {
        let written = self.symbols.iter().skip(1).map(|symbol| {
            let added = builder.symbols.add();
            added.name = symbol.name.clone().into_bytes().into();
            match symbol.index {
                SectionIndex::In(section) => added.section = sections.get(section).copied(),
                SectionIndex::Special(index) => added.st_shndx = index,
            }
            added.st_value = symbol.value;
            added.st_size = symbol.size;
            added.st_info = symbol.info;
            added.st_other = symbol.other;
            added.id()
        });
        written.collect()
    }

    /// Adds a field to `.modinfo`.
    pub fn note(&mut self, field: &str, value: &str) {
        if let Some(info) = self.section(".modinfo") {
            self.sections[info].extend(format!("{field}={value}\0").as_bytes());
        }
    }

    /// Index of the section with this name.
    pub fn section(&self, name: &str) -> Option<usize> {
        self.sections.iter().position(|section| section.name == name)
    }

    /// Index of an undefined symbol of this name; adds it where it is missing.
    pub fn import(&mut self, name: &str) -> usize {
        let found = self.symbols.iter().position(|symbol| symbol.name == name && symbol.undefined());
        found.unwrap_or_else(|| {
            let info = elf::STB_GLOBAL << 4 | elf::STT_NOTYPE;
            self.symbols.push(Symbol { name: name.to_owned(), info, ..empty() });
            self.symbols.len() - 1
        })
    }

    /// Index of a section's own symbol; adds it where it is missing.
    pub fn symbol_of_section(&mut self, section: usize) -> usize {
        let wanted =
            |symbol: &Symbol| symbol.kind() == elf::STT_SECTION && symbol.index == SectionIndex::In(section);
        let found = self.symbols.iter().position(wanted);
        found.unwrap_or_else(|| {
            self.symbols.push(Symbol { index: SectionIndex::In(section), info: elf::STT_SECTION, ..empty() });
            self.symbols.len() - 1
        })
    }

    /// Removes sections, what names them, and their symbols.
    pub fn remove_sections(&mut self, unwanted: impl Fn(&Section) -> bool) {
        let mut kept = 0..;
        let numbers: Vec<Option<usize>> =
            self.sections.iter().map(|section| if unwanted(section) { None } else { kept.next() }).collect();
        self.sections.retain(|section| !unwanted(section));
        let gone = |symbol: &Symbol| symbol.section().is_some_and(|section| numbers[section].is_none());
        let mut kept = 0..;
        let symbols: Vec<Option<usize>> =
            self.symbols.iter().map(|symbol| if gone(symbol) { None } else { kept.next() }).collect();
        self.symbols.retain(|symbol| !gone(symbol));
        for symbol in &mut self.symbols {
            if let SectionIndex::In(section) = &mut symbol.index {
                *section = numbers[*section].unwrap_or(*section);
            }
        }
        for section in &mut self.sections {
            section.link = section.link.and_then(|link| numbers[link]);
            section.relocs.retain(|reloc| symbols[reloc.symbol].is_some());
            for reloc in &mut section.relocs {
                reloc.symbol = symbols[reloc.symbol].unwrap_or(0);
            }
        }
    }

    /// Where functions begin: section and offset.
    pub fn functions(&self) -> HashSet<(usize, u64)> {
        let functions = self.symbols.iter().filter(|symbol| symbol.function());
        functions.filter_map(|symbol| Some((symbol.section()?, symbol.value))).collect()
    }

    /// The name of the symbol that a relocation names.
    pub fn name(&self, reloc: &Reloc) -> &str {
        &self.symbols[reloc.symbol].name
    }

    /// Section and offset that a symbol plus `addend` names; `None` for symbols that are in no section.
    pub fn target(&self, symbol: usize, addend: i64) -> Option<(usize, u64)> {
        let symbol = self.symbols.get(symbol)?;
        Some((symbol.section()?, symbol.value.wrapping_add_signed(addend)))
    }
}

fn empty() -> Symbol {
    Symbol {
        name: String::new(),
        index: SectionIndex::Special(elf::SHN_UNDEF),
        value: 0,
        size: 0,
        info: 0,
        other: 0,
    }
}

/// Adds a section of the file.
fn add<'a>(builder: &mut Builder<'a>, name: &str, kind: u32, data: SectionData<'a>) -> SectionId {
    let added = builder.sections.add();
    added.name = name.as_bytes().to_vec().into();
    added.sh_type = kind;
    added.sh_addralign = 1;
    added.data = data;
    added.id()
}

/// What was read, or what is wrong with it.
type Read<T> = std::result::Result<T, String>;

/// The new numbers of sections, by their number in the file; `None` for those that only describe the file.
struct Numbers(Vec<Option<usize>>);

impl Numbers {
    fn of(&self, section: SectionId) -> Option<usize> {
        self.0.get(section.index()).copied().flatten()
    }
}

fn read_sections(builder: &Builder<'_>) -> Read<(Vec<Section>, Numbers)> {
    if builder.header.e_type != elf::ET_REL || builder.header.e_machine != elf::EM_X86_64 {
        return Err("it is not a relocatable object for x86-64".into());
    }
    let mut numbers = Numbers(vec![None; builder.sections.iter().count()]);
    let (mut sections, mut links) = (Vec::new(), Vec::new());
    for section in &builder.sections {
        let content = match &section.data {
            SectionData::Data(bytes) | SectionData::Note(bytes) => Content::Bytes(bytes.to_vec()),
            SectionData::UninitializedData(size) => Content::Zeros(*size),
            _ => continue,
        };
        let odd = !section.sh_addralign.max(1).is_power_of_two() || section.sh_addralign > MAX_ALIGN;
        if odd || matches!(content, Content::Zeros(size) if size > MAX_ZEROS) {
            return Err("a section has an impossible size or alignment".into());
        }
        numbers.0[section.id().index()] = Some(sections.len());
        links.push(section.sh_link_section);
        sections.push(Section {
            name: text(&section.name).ok_or("the name of a section is too long, or not text")?,
            kind: section.sh_type,
            flags: section.sh_flags,
            align: section.sh_addralign.max(1),
            entry_size: section.sh_entsize,
            link: None,
            content,
            relocs: Vec::new(),
        });
    }
    for (section, link) in sections.iter_mut().zip(links) {
        section.link = link.and_then(|link| numbers.of(link));
    }
    Ok((sections, numbers))
}

fn read_symbols(builder: &Builder<'_>, numbers: &Numbers) -> Read<Vec<Symbol>> {
    let mut symbols = vec![empty()];
    for symbol in &builder.symbols {
        let index = match symbol.section.map(|id| numbers.of(id)) {
            None => SectionIndex::Special(symbol.st_shndx),
            Some(Some(section)) => SectionIndex::In(section),
            Some(None) => return Err("a symbol lies in a section that describes the file".into()),
        };
        let far = symbol.st_value > MAX_DISTANCE || symbol.st_size > MAX_DISTANCE;
        if far && matches!(index, SectionIndex::In(_)) {
            return Err("a symbol lies beyond the end of any section".into());
        }
        symbols.push(Symbol {
            name: text(&symbol.name).ok_or("the name of a symbol is too long, or not text")?,
            index,
            value: symbol.st_value,
            size: symbol.st_size,
            info: symbol.st_info,
            other: symbol.st_other,
        });
    }
    Ok(symbols)
}

/// Reads the relocations of all sections; `symbols` is how many symbols there are.
fn read_relocs(
    builder: &Builder<'_>,
    numbers: &Numbers,
    symbols: usize,
    sections: &mut [Section],
) -> Read<()> {
    for section in &builder.sections {
        let SectionData::Relocation(relocs) = &section.data else { continue };
        let target = section.sh_info_section.and_then(|id| numbers.of(id));
        let target = &mut sections[target.ok_or("relocations belong to no section")?];
        if section.sh_type != elf::SHT_RELA {
            return Err("its relocations have no addends".into());
        }
        for reloc in relocs {
            let (offset, kind, addend) = (reloc.r_offset, reloc.r_type, reloc.r_addend);
            // The crate counts symbols from 0, without the first empty one.
            let symbol = reloc.symbol.map_or(0, |id| id.index() + 1);
            if symbol >= symbols {
                return Err("a relocation has a symbol that does not exist".into());
            }
            let width =
                reloc::width(kind).ok_or_else(|| format!("relocations of type {kind} are not known"))?;
            if addend.unsigned_abs() > MAX_DISTANCE {
                return Err("a relocation leads beyond all addresses".into());
            }
            let end = offset.checked_add(u64::from(width));
            if end.is_none_or(|end| end > target.bytes().len() as u64) {
                return Err("a relocation lies beyond the end of its section".into());
            }
            if kind != reloc::NONE {
                target.relocs.push(Reloc { offset, kind, symbol, addend });
            }
        }
    }
    for section in sections {
        section.relocs.sort_by_key(|reloc| reloc.offset);
        let end = |reloc: &Reloc| reloc.offset + u64::from(reloc::width(reloc.kind).unwrap_or(0));
        if section.relocs.windows(2).any(|pair| pair[1].offset < end(&pair[0])) {
            return Err("relocations overlap".into());
        }
    }
    Ok(())
}

fn text(name: &ByteString<'_>) -> Option<String> {
    let name = Some(name.as_slice()).filter(|name| name.len() <= MAX_NAME)?;
    String::from_utf8(name.to_vec()).ok()
}
