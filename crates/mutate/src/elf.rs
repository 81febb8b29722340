//! A module's ELF file: where sections, symbols and relocations are in it.

use crate::error::Error;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{LittleEndian, elf};
use std::ops::Range;

/// What the kernel's build appends behind a signature.
const SIGNATURE: &[u8] = b"~Module signature appended~\n";
/// Bytes of what stands before it: kinds, lengths, and at the end the length of the signature.
const SIGNATURE_INFO: usize = 12;

/// Bytes of a relocation in the file: offset, kind and symbol, addend.
pub(crate) const RELOCATION: usize = 24;

/// A place where the loader writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relocation {
    /// Offset in the section that it is for.
    pub offset: u64,
    pub kind: u32,
    pub symbol: usize,
    pub addend: i64,
    /// Where its row begins in the file.
    pub entry: usize,
}

/// A section, with its range in the file.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub name: String,
    pub alloc: bool,
    pub exec: bool,
    /// Its bytes in the file; empty where it has none.
    pub file: Range<usize>,
    /// Its relocations, by offset.
    pub relocations: Vec<Relocation>,
}

/// A symbol as the file has it.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub name: String,
    /// Its section; `None` where it is an import, absolute or common.
    pub section: Option<usize>,
    pub value: u64,
    pub size: u64,
    pub function: bool,
}

/// A relocatable file.
#[derive(Clone, Debug)]
pub(crate) struct Elf {
    pub data: Vec<u8>,
    pub sections: Vec<Section>,
    pub symbols: Vec<Symbol>,
}

impl Elf {
    /// Reads a file, without its signature; `what` names it in errors.
    pub(crate) fn parse(what: &str, data: &[u8]) -> Result<Elf, Error> {
        let data = without_signature(data).to_vec();
        let read = read(&data);
        let (sections, symbols) =
            read.map_err(|error| Error::Damaged { what: what.to_owned(), detail: error.to_string() })?;
        Ok(Elf { data, sections, symbols })
    }

    /// The bytes of a section in the file; empty where it has none.
    pub(crate) fn bytes(&self, section: usize) -> &[u8] {
        let range = self.sections.get(section).map_or(0..0, |section| section.file.clone());
        self.data.get(range).unwrap_or_default()
    }

    /// Section and offset that a symbol with an addend leads to.
    pub(crate) fn place(&self, symbol: usize, addend: i64) -> Option<(usize, u64)> {
        let symbol = self.symbols.get(symbol)?;
        Some((symbol.section?, symbol.value.wrapping_add_signed(addend)))
    }
}

/// The file up to the appended signature, which a changed module must not have.
fn without_signature(data: &[u8]) -> &[u8] {
    let cut = || {
        let before = data.strip_suffix(SIGNATURE)?;
        let info = before.len().checked_sub(SIGNATURE_INFO)?;
        let length = u32::from_be_bytes(before.get(info + 8..)?.try_into().ok()?);
        before.get(..info.checked_sub(length as usize)?)
    };
    cut().unwrap_or(data)
}

fn read(data: &[u8]) -> object::read::Result<(Vec<Section>, Vec<Symbol>)> {
    let header = elf::FileHeader64::<LittleEndian>::parse(data)?;
    let endian = header.endian()?;
    let table = header.sections(endian, data)?;
    let mut sections = Vec::with_capacity(table.len());
    for section in table.iter() {
        let flags = section.sh_flags(endian);
        let (start, size) = section.file_range(endian).unwrap_or((0, 0));
        section.data(endian, data)?;
        sections.push(Section {
            name: String::from_utf8_lossy(table.section_name(endian, section)?).into_owned(),
            alloc: flags & u64::from(elf::SHF_ALLOC) != 0,
            exec: flags & u64::from(elf::SHF_EXECINSTR) != 0,
            file: start as usize..(start + size) as usize,
            relocations: Vec::new(),
        });
    }
    for section in table.iter() {
        let Some((entries, _)) = section.rela(endian, data)? else { continue };
        let start = section.sh_offset(endian) as usize;
        let Some(target) = sections.get_mut(section.sh_info(endian) as usize) else { continue };
        target.relocations.extend(entries.iter().enumerate().map(|(i, entry)| Relocation {
            offset: entry.r_offset.get(endian),
            kind: entry.r_type(endian, false),
            symbol: entry.r_sym(endian, false) as usize,
            addend: entry.r_addend.get(endian),
            entry: start + i * RELOCATION,
        }));
    }
    sections.iter_mut().for_each(|section| section.relocations.sort_by_key(|one| one.offset));
    let table = table.symbols(endian, data, elf::SHT_SYMTAB)?;
    let symbols = table.iter().map(|symbol| {
        let section = symbol.st_shndx(endian);
        let name = symbol.name(endian, table.strings()).unwrap_or_default();
        Symbol {
            name: String::from_utf8_lossy(name).into_owned(),
            section: (section != elf::SHN_UNDEF && section < elf::SHN_LORESERVE).then_some(section.into()),
            value: symbol.st_value(endian),
            size: symbol.st_size(endian),
            function: symbol.st_type() == elf::STT_FUNC,
        }
    });
    Ok((sections, symbols.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Object;

    #[test]
    fn a_signature_is_cut_off_and_a_damaged_one_stays() {
        let file = Object::module("drv").build();
        let mut signed = file.clone();
        signed.extend(b"0123456789");
        signed.extend([0, 0, 2, 0, 0, 0, 0, 0]);
        signed.extend(10u32.to_be_bytes());
        signed.extend(SIGNATURE);
        assert_eq!(without_signature(&signed), file);
        assert_eq!(without_signature(&file), file);
        let at = signed.len() - SIGNATURE.len() - 4;
        signed[at] = 0xff;
        assert_eq!(without_signature(&signed), signed);
    }

    #[test]
    fn any_bytes_give_a_file_or_an_error() {
        let file = Object::module("drv").build();
        for cut in 0..file.len() {
            let _ = Elf::parse("x", &file[..cut]);
            let mut other = file.clone();
            other[cut] ^= 0xff;
            let _ = Elf::parse("x", &other);
        }
        assert_eq!(Elf::parse("x", &file).unwrap().data, file);
    }
}
