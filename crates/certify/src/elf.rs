//! Reads a module file: sections, symbols and relocations, as far as certifying needs them.

use crate::CertifyError;
use object::read::elf::ElfFile64;
use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget, SectionFlags,
    SymbolKind, elf,
};
use std::collections::BTreeMap;

/// Distance beyond all that a module's addresses span, in bytes. Places and sizes are added to one another, and no such sum
/// of values below it overflows.
const MAX_DISTANCE: u64 = 1 << 48;

/// Most bytes of a name: a million symbols may have one long name.
const MAX_NAME: usize = 1024;

/// A place in the module: the number of a section in [`Elf::sections`], and an offset.
pub type Place = (u32, u64);

/// A section of the file.
#[derive(Debug, Default)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Its flags in the file (`SHF_…`).
    pub flags: u64,
    /// Its bytes; empty for one without content in the file.
    pub data: Vec<u8>,
    /// Bytes that it has in memory.
    pub size: u64,
    /// Its relocations by offset.
    pub relocs: Vec<Reloc>,
}

impl Section {
    /// Whether it is in memory when the module is loaded.
    pub fn alloc(&self) -> bool {
        self.flags & u64::from(elf::SHF_ALLOC) != 0
    }

    /// Whether it is code.
    pub fn exec(&self) -> bool {
        self.alloc() && self.flags & u64::from(elf::SHF_EXECINSTR) != 0
    }

    /// Whether it is writable.
    pub fn write(&self) -> bool {
        self.flags & u64::from(elf::SHF_WRITE) != 0
    }

    /// The relocations within a range of offsets.
    pub fn relocs_in(&self, from: u64, to: u64) -> &[Reloc] {
        let first = self.relocs.partition_point(|reloc| reloc.offset < from);
        let last = self.relocs.partition_point(|reloc| reloc.offset < to);
        &self.relocs[first..last.max(first)]
    }

    /// The relocation at an offset.
    pub fn reloc_at(&self, at: u64) -> Option<&Reloc> {
        self.relocs_in(at, at.saturating_add(1)).first()
    }

    /// The place that the relocation at an offset names.
    pub fn place_at(&self, at: u64) -> Option<Place> {
        self.reloc_at(at)?.place()
    }

    /// A number of four bytes, little-endian; 0 beyond the end.
    pub fn word(&self, at: usize) -> u32 {
        self.bytes(at).map_or(0, u32::from_le_bytes)
    }

    /// A number of eight bytes, little-endian; 0 beyond the end.
    pub fn long(&self, at: usize) -> u64 {
        self.bytes(at).map_or(0, u64::from_le_bytes)
    }

    fn bytes<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.data.get(at..at.checked_add(N)?)?.try_into().ok()
    }
}

/// What a relocation adds an offset to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// A section of the module.
    In(u32),
    /// A symbol that the kernel or another module has, by its number in [`Elf::imports`].
    Import(u32),
}

/// A relocation.
#[derive(Clone, Copy, Debug)]
pub struct Reloc {
    /// Its place in the section.
    pub offset: u64,
    /// Its type (`R_X86_64_…`).
    pub kind: u32,
    /// What it names.
    pub target: Target,
    /// The offset there, as the file has it: relative types count from the field.
    pub addend: i64,
}

impl Reloc {
    /// Whether the field holds a distance from itself.
    pub fn relative(&self) -> bool {
        matches!(self.kind, elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 | elf::R_X86_64_PC64)
    }

    /// Bytes of the field; 0 for unknown types.
    pub fn width(&self) -> u64 {
        match self.kind {
            elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 | elf::R_X86_64_32 | elf::R_X86_64_32S => 4,
            elf::R_X86_64_64 | elf::R_X86_64_PC64 => 8,
            _ => 0,
        }
    }

    /// The place in the module that a field outside of instructions names.
    pub fn place(&self) -> Option<Place> {
        match self.target {
            Target::In(section) => Some((section, self.addend as u64)),
            Target::Import(_) => None,
        }
    }
}

/// A function that a symbol names.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Where it begins.
    pub place: Place,
    /// Bytes that it has.
    pub size: u64,
}

/// A module file.
#[derive(Debug, Default)]
pub struct Elf {
    /// All sections, in the order of the file; the first is empty.
    pub sections: Vec<Section>,
    /// Names of symbols that the module wants from elsewhere.
    pub imports: Vec<String>,
    /// Functions by place.
    pub functions: Vec<Function>,
    /// The fields of `.modinfo`.
    pub info: Vec<(String, String)>,
}

impl Elf {
    /// Reads a module that is not compressed. `what` names it in errors.
    pub fn read(what: &str, data: &[u8]) -> Result<Elf, CertifyError> {
        let fault = |detail: String| CertifyError::File { what: what.to_owned(), detail };
        let file = ElfFile64::<object::Endianness>::parse(data).map_err(|error| fault(error.to_string()))?;
        if file.elf_header().e_type.get(object::Endianness::Little) != elf::ET_REL {
            return Err(fault("it is no module: it cannot be relocated".into()));
        }
        let known = |name: &str| match name.len() > MAX_NAME {
            true => Err(fault("a name is too long".into())),
            false => Ok(name.to_owned()),
        };
        let mut out = Elf::default();
        out.sections.push(Section::default());
        for section in file.sections() {
            let index = section.index().0;
            if out.sections.len() <= index {
                out.sections.resize_with(index + 1, Section::default);
            }
            let SectionFlags::Elf { sh_flags } = section.flags() else { continue };
            if section.size() > MAX_DISTANCE {
                return Err(fault("a section has an impossible size".into()));
            }
            let content = section.data().map_err(|error| fault(error.to_string()))?;
            out.sections[index] = Section {
                name: known(section.name().unwrap_or_default())?,
                flags: sh_flags,
                data: content.to_vec(),
                size: section.size(),
                relocs: Vec::new(),
            };
        }
        let mut imports: BTreeMap<usize, u32> = BTreeMap::new();
        let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
        for symbol in file.symbols() {
            if symbol.section_index().is_some_and(|section| section.0 >= out.sections.len()) {
                return Err(fault(format!(
                    "symbol {} lies in a section that the file lacks",
                    symbol.index().0
                )));
            }
            let far = symbol.address() > MAX_DISTANCE || symbol.size() > MAX_DISTANCE;
            if far && symbol.section_index().is_some() {
                return Err(fault(format!("symbol {} lies beyond the end of any section", symbol.index().0)));
            }
            let name = known(symbol.name().unwrap_or_default())?;
            if symbol.is_undefined() && !name.is_empty() {
                // Two symbols of one name are one import.
                let next = out.imports.len() as u32;
                let number = *numbers.entry(name.clone()).or_insert(next);
                if number == next {
                    out.imports.push(name.clone());
                }
                imports.insert(symbol.index().0, number);
            }
            let Some(section) = symbol.section_index() else { continue };
            if symbol.kind() == SymbolKind::Text && !name.is_empty() {
                let place = (section.0 as u32, symbol.address());
                out.functions.push(Function { name, place, size: symbol.size() });
            }
        }
        out.functions.sort_by_key(|function| function.place);
        for section in file.sections() {
            let mut relocs = Vec::new();
            for (offset, reloc) in section.relocations() {
                let RelocationTarget::Symbol(index) = reloc.target() else { continue };
                let RelocationFlags::Elf { r_type } = reloc.flags() else { continue };
                if r_type == elf::R_X86_64_NONE {
                    continue;
                }
                let symbol = file.symbol_by_index(index).map_err(|error| fault(error.to_string()))?;
                let (target, value) = match (symbol.section_index(), imports.get(&index.0)) {
                    (Some(section), _) => (Target::In(section.0 as u32), symbol.address() as i64),
                    (None, Some(import)) => (Target::Import(*import), 0),
                    (None, None) => (Target::In(0), symbol.address() as i64),
                };
                let addend = reloc.addend().wrapping_add(value);
                if addend.unsigned_abs() > MAX_DISTANCE || offset > MAX_DISTANCE {
                    return Err(fault("a relocation leads beyond all addresses".into()));
                }
                relocs.push(Reloc { offset, kind: r_type, target, addend });
            }
            relocs.sort_by_key(|reloc| reloc.offset);
            out.sections[section.index().0].relocs = relocs;
        }
        let info = out.sections.iter().find(|section| section.name == ".modinfo");
        let fields = info.map(|section| section.data.split(|&byte| byte == 0)).into_iter().flatten();
        let pairs = fields.filter_map(|field| {
            let (key, value) = std::str::from_utf8(field).ok()?.split_once('=')?;
            Some((key.to_owned(), value.to_owned()))
        });
        out.info = pairs.collect();
        Ok(out)
    }

    /// The number of a section by its name.
    pub fn section(&self, name: &str) -> Option<u32> {
        self.sections.iter().position(|section| section.name == name).map(|index| index as u32)
    }

    /// The name of an import.
    pub fn import(&self, number: u32) -> &str {
        self.imports.get(number as usize).map_or("", String::as_str)
    }

    /// The first value of a field of `.modinfo`.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.info.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether a function begins at a place.
    pub fn begins(&self, place: Place) -> bool {
        self.functions.binary_search_by_key(&place, |function| function.place).is_ok()
    }

    /// The function that holds a place, if a symbol covers it.
    pub fn function(&self, place: Place) -> Option<&Function> {
        let after = self.functions.partition_point(|function| function.place <= place);
        let before = self.functions[..after].iter().rev().take(16);
        let inside = |function: &&Function| {
            function.place.0 == place.0 && place.1 < function.place.1 + function.size.max(1)
        };
        before.filter(|function| function.place.0 == place.0).find(inside)
    }

    /// A place for a reader: the function or section, and the offset in it.
    pub fn name(&self, place: Place) -> String {
        let section = &self.sections[place.0 as usize].name;
        match self.function(place) {
            Some(function) => {
                format!("{section}+{:#x} ({}+{:#x})", place.1, function.name, place.1 - function.place.1)
            }
            None => format!("{section}+{:#x}", place.1),
        }
    }
}
