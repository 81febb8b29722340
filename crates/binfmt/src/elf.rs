//! Reads the few parts of an ELF file that this crate needs, with bounds checks.

use crate::bytes::{c_str, slice, u16_at, u32_at, u64_at};
use crate::error::KernelError;
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::fs::File;
use std::os::unix::fs::FileExt;

const SHT_NULL: u32 = 0;
/// Type of a section without bytes in the file.
pub(crate) const SHT_NOBITS: u32 = 8;
pub(crate) const SHT_SYMTAB: u32 = 2;
pub(crate) const SHT_RELA: u32 = 4;
pub(crate) const SHF_WRITE: u64 = 1;
pub(crate) const SHF_ALLOC: u64 = 2;
pub(crate) const SHF_EXECINSTR: u64 = 4;
pub(crate) const SHF_COMPRESSED: u64 = 0x800;
pub(crate) const ET_REL: u16 = 1;

/// Most bytes of a name. Tens of thousands of sections and a million symbols may have one long name.
pub(crate) const MAX_NAME: usize = 1024;
/// Most bytes of the names of all sections.
const MAX_NAMES: u64 = 16 << 20;

/// The bytes of a file, in memory or on the disk.
pub(crate) trait Ranges {
    /// How many there are.
    fn size(&self) -> u64;
    /// `len` bytes at `at`; `None` beyond the end, or where they cannot be read.
    fn range(&self, at: u64, len: u64) -> Option<Cow<'_, [u8]>>;
}

impl Ranges for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn range(&self, at: u64, len: u64) -> Option<Cow<'_, [u8]>> {
        slice(self, at, len).map(Cow::Borrowed)
    }
}

/// A file on the disk that is read only where it is needed.
#[derive(Debug)]
pub(crate) struct OnDisk {
    pub file: File,
    pub size: u64,
}

impl Ranges for OnDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn range(&self, at: u64, len: u64) -> Option<Cow<'_, [u8]>> {
        at.checked_add(len).filter(|&end| end <= self.size)?;
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        Some(Cow::Owned(bytes))
    }
}

/// One section header, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SectionHeader {
    pub name: String,
    pub kind: u32,
    pub flags: u64,
    pub addr: u64,
    pub offset: u64,
    pub size: u64,
    pub link: u32,
    pub info: u32,
    pub align: u64,
}

impl SectionHeader {
    /// Reads one of 64 bytes, without its name.
    fn parse(raw: &[u8]) -> SectionHeader {
        let word = |at| u64_at(raw, at).unwrap_or(0);
        let half = |at| u32_at(raw, at).unwrap_or(0);
        let kind = half(4);
        // A section of no type has no bytes, whatever its header says.
        let place = |at| if kind == SHT_NULL { 0 } else { word(at) };
        SectionHeader {
            name: String::new(),
            kind,
            flags: word(8),
            addr: word(16),
            offset: place(24),
            size: place(32),
            link: half(40),
            info: half(44),
            align: word(48),
        }
    }
}

/// The parsed headers of an ELF file.
#[derive(Clone, Debug)]
pub(crate) struct Elf {
    pub file_type: u16,
    pub sections: Vec<SectionHeader>,
    /// The first section of each name.
    by_name: FxHashMap<String, usize>,
    /// Offset behind the section header table.
    pub headers_end: u64,
}

impl Elf {
    /// Reads the headers of an x86-64 ELF file; `what` names it in errors.
    pub fn parse(what: &str, data: &[u8]) -> Result<Elf, KernelError> {
        Elf::read(what, data)
    }

    /// Reads the headers, and no more, of an x86-64 ELF file; `what` names it in errors.
    pub fn read<R: Ranges + ?Sized>(what: &str, data: &R) -> Result<Elf, KernelError> {
        if data.range(0, 4).as_deref() != Some(b"\x7fELF") {
            return Err(KernelError::NotA { what: what.to_owned(), expected: "an ELF file" });
        }
        let header =
            data.range(0, 64).ok_or_else(|| KernelError::truncated(what, "the ELF header is not whole"))?;
        refuse_others(what, &header)?;
        let file_type = u16_at(&header, 16).unwrap_or(0);
        let table = u64_at(&header, 0x28).unwrap_or(0);
        let entry_size = u64::from(u16_at(&header, 0x3a).unwrap_or(0));
        let count = u64::from(u16_at(&header, 0x3c).unwrap_or(0));
        let names = usize::from(u16_at(&header, 0x3e).unwrap_or(0));
        if table == 0 || count == 0 {
            return Err(KernelError::damaged(what, "it has no section headers"));
        }
        if entry_size != 64 {
            return Err(KernelError::damaged(
                what,
                format!("its section headers have {entry_size} bytes, not 64"),
            ));
        }
        let headers = data
            .range(table, count * 64)
            .ok_or_else(|| KernelError::truncated(what, "the section headers lie beyond its end"))?;
        let mut sections = Vec::with_capacity(count as usize);
        let mut name_offsets = Vec::with_capacity(count as usize);
        for raw in headers.chunks_exact(64) {
            name_offsets.push(u32_at(raw, 0).unwrap_or(0) as usize);
            sections.push(SectionHeader::parse(raw));
        }
        for section in &sections {
            let end = section.offset.checked_add(section.size);
            if section.kind != SHT_NOBITS && end.is_none_or(|end| end > data.size()) {
                return Err(KernelError::truncated(what, "a section lies beyond its end"));
            }
        }
        let strings = sections
            .get(names)
            .filter(|s| s.size <= MAX_NAMES)
            .and_then(|s: &SectionHeader| data.range(s.offset, s.size))
            .ok_or_else(|| KernelError::damaged(what, "it has no section names"))?;
        for (section, at) in sections.iter_mut().zip(name_offsets) {
            let name = strings.get(at..).unwrap_or_default();
            let name = &name[..name.len().min(MAX_NAME + 1)];
            if name.len() > MAX_NAME && !name.contains(&0) {
                return Err(KernelError::damaged(what, "the name of a section is too long"));
            }
            section.name =
                c_str(name, 0).map(|n| String::from_utf8_lossy(n).into_owned()).unwrap_or_default();
        }
        let mut by_name = FxHashMap::default();
        for (index, section) in sections.iter().enumerate() {
            by_name.entry(section.name.clone()).or_insert(index);
        }
        Ok(Elf { file_type, sections, by_name, headers_end: table + count * 64 })
    }

    /// Index and header of the first section with this name.
    pub fn section(&self, name: &str) -> Option<(usize, &SectionHeader)> {
        let index = *self.by_name.get(name)?;
        Some((index, self.sections.get(index)?))
    }

    /// The bytes of a section in the file; empty for sections that have none.
    pub fn bytes<'a>(&self, data: &'a [u8], section: &SectionHeader) -> &'a [u8] {
        if section.kind == SHT_NOBITS {
            &[]
        } else {
            slice(data, section.offset, section.size).unwrap_or(&[])
        }
    }
}

/// Refuses a file for another processor, by its first 64 bytes.
fn refuse_others(what: &str, header: &[u8]) -> Result<(), KernelError> {
    let wide = header[4] == 2;
    let big_endian = header[5] == 2;
    let machine = u16_at(header, 18).unwrap_or(0);
    let machine = if big_endian { machine.swap_bytes() } else { machine };
    if machine != 62 || !wide || big_endian {
        let found = architecture(machine, wide, big_endian);
        return Err(KernelError::Architecture { what: what.to_owned(), found });
    }
    Ok(())
}

fn architecture(machine: u16, wide: bool, big_endian: bool) -> String {
    let name = match machine {
        3 => "32-bit x86 (i386)",
        8 => "MIPS",
        20 => "32-bit PowerPC",
        21 if big_endian => "64-bit PowerPC",
        21 => "64-bit PowerPC, little endian",
        22 => "S/390",
        40 => "32-bit ARM",
        62 if !wide => "x32",
        183 => "64-bit ARM (aarch64)",
        243 => "RISC-V",
        258 => "LoongArch",
        _ => return format!("the ELF machine {machine}"),
    };
    name.to_owned()
}
