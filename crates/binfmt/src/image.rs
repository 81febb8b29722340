//! A kernel image: a bzImage (`vmlinuz`) or a plain ELF `vmlinux`.

use crate::btf::Btf;
use crate::bytes::{slice, u16_at, u32_at};
use crate::decompress::{self, decompress};
use crate::elf::{Elf, SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS};
use crate::error::KernelError;
use crate::kallsyms::{Located, Symbol, Symbols, has_table};
use crate::relocs::relocated_places;
use std::path::Path;
use std::sync::Arc;

/// Most bytes of an image file that are read.
pub const MAX_FILE: u64 = 1 << 30;

/// What an image holds about its kernel.
#[derive(Debug)]
pub struct KernelImage {
    release: String,
    build_id: Option<String>,
    align: u64,
    data: Vec<u8>,
    elf: Elf,
    symbols: Symbols,
    btf: Arc<Btf>,
}

impl KernelImage {
    /// Opens and decodes the image at `path`.
    pub fn open(path: &Path) -> Result<KernelImage, KernelError> {
        KernelImage::parse(&path.display().to_string(), read_file(path)?)
    }

    /// Decodes an image; `what` names it in errors.
    pub fn parse(what: &str, file: Vec<u8>) -> Result<KernelImage, KernelError> {
        let mut align = 0x20_0000;
        let data = if file.starts_with(b"\x7fELF") {
            file
        } else {
            let setup = BzImage::parse(what, &file)?;
            align = setup.align;
            let packed = decompress(what, setup.payload, decompress::LIMIT)?;
            packed.unwrap_or_else(|| setup.payload.to_vec())
        };
        let elf = Elf::parse(what, &data)?;
        let release = release(&elf, &data)
            .ok_or_else(|| KernelError::NotA { what: what.to_owned(), expected: "a Linux kernel" })?;
        let (_, text) =
            elf.section(".text").ok_or_else(|| KernelError::damaged(what, "it has no .text section"))?;
        let text = (text.addr, text.addr.saturating_add(text.size));
        let (_, rodata) =
            elf.section(".rodata").ok_or_else(|| KernelError::damaged(what, "it has no .rodata section"))?;
        let without =
            |option: &str| KernelError::Unconfigured { release: release.clone(), options: option.to_owned() };
        let tables = elf.bytes(&data, rodata);
        let symbols =
            Symbols::decode(tables, rodata.addr, text).map_err(|error| match has_table(tables) {
                true => error,
                false => without("symbols (CONFIG_KALLSYMS)"),
            })?;
        let btf = match elf.section(".BTF") {
            Some((_, section)) => Arc::new(Btf::parse(elf.bytes(&data, section), None)?),
            None => return Err(without("type information (CONFIG_DEBUG_INFO_BTF)")),
        };
        let build_id = elf.section(".notes").and_then(|(_, s)| build_id(elf.bytes(&data, s)));
        Ok(KernelImage { release, build_id, align, data, elf, symbols, btf })
    }

    /// The release, as `uname -r` prints it.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// The GNU build id in hexadecimal; `None` where the image has none.
    pub fn build_id(&self) -> Option<&str> {
        self.build_id.as_deref()
    }

    /// KASLR moves the image by a multiple of this many bytes.
    pub fn align(&self) -> u64 {
        self.align
    }

    /// The kernel's types.
    pub fn btf(&self) -> &Arc<Btf> {
        &self.btf
    }

    /// The kernel's symbols, from its kallsyms table.
    pub fn symbol_table(&self) -> &Symbols {
        &self.symbols
    }

    /// All symbols, in table order.
    pub fn symbols(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.symbols.iter()
    }

    /// Link-time address of a symbol.
    pub fn address_of(&self, name: &str) -> Option<u64> {
        self.symbols.address_of(name)
    }

    /// The symbol that covers a link-time address.
    pub fn symbol_at(&self, address: u64) -> Option<Located<'_>> {
        self.symbols.at(address)
    }

    /// `len` bytes of the image at a link-time address; `None` unless all are within one section that has
    /// bytes.
    pub fn bytes_at(&self, address: u64, len: u64) -> Option<&[u8]> {
        self.elf.sections.iter().filter(|s| s.flags & SHF_ALLOC != 0 && s.kind != SHT_NOBITS).find_map(|s| {
            let offset = address.checked_sub(s.addr)?;
            if offset.checked_add(len)? > s.size {
                return None;
            }
            slice(&self.data, s.offset.checked_add(offset)?, len)
        })
    }

    /// Whether a link-time address lies in an executable section.
    pub fn is_text(&self, address: u64) -> bool {
        self.elf
            .sections
            .iter()
            .any(|s| s.flags & SHF_EXECINSTR != 0 && address >= s.addr && address - s.addr < s.size)
    }

    /// Name, link-time address and size of each section that the kernel has in memory.
    pub fn sections(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.elf
            .sections
            .iter()
            .filter(|s| s.flags & SHF_ALLOC != 0)
            .map(|s| (s.name.as_str(), s.addr, s.size))
    }

    /// Sorted link-time addresses of the words that KASLR changes.
    pub fn relocated_places(&self) -> Vec<u64> {
        relocated_places(&self.data, self.elf.headers_end)
    }
}

/// Reads a whole file; fails if it is not a plain file of plausible size.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, KernelError> {
    let io = |source| KernelError::Io { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() {
        return Err(io(std::io::Error::other("it is not a regular file")));
    }
    if metadata.len() > MAX_FILE {
        return Err(io(std::io::Error::other("it is larger than 1 GiB")));
    }
    let mut data = Vec::with_capacity(metadata.len() as usize);
    std::io::Read::read_to_end(&mut std::io::Read::take(file, MAX_FILE), &mut data).map_err(io)?;
    Ok(data)
}

/// The parts of a bzImage's setup header that this crate needs.
pub(crate) struct BzImage<'a> {
    pub(crate) payload: &'a [u8],
    align: u64,
}

impl<'a> BzImage<'a> {
    pub(crate) fn parse(what: &str, file: &'a [u8]) -> Result<BzImage<'a>, KernelError> {
        let not = || KernelError::NotA { what: what.to_owned(), expected: "a kernel image (bzImage or ELF)" };
        if file.get(0x202..0x206) != Some(b"HdrS") {
            return Err(not());
        }
        let version = u16_at(file, 0x206).ok_or_else(not)?;
        if version < 0x208 {
            return Err(KernelError::damaged(
                what,
                "its boot protocol is older than 2.08 and names no payload",
            ));
        }
        let sectors = match file.get(0x1f1) {
            Some(0) | None => 4,
            Some(&n) => u64::from(n),
        };
        let header = |at| u32_at(file, at).map(u64::from).ok_or_else(not);
        let (offset, length, align) = (header(0x248)?, header(0x24c)?, header(0x230)?);
        let payload = slice(file, (sectors + 1) * 512 + offset, length)
            .ok_or_else(|| KernelError::truncated(what, "the compressed kernel lies beyond its end"))?;
        let align = if align.is_power_of_two() { align } else { 0x20_0000 };
        Ok(BzImage { payload, align })
    }
}

/// The word after "Linux version " in the banner.
fn release(elf: &Elf, data: &[u8]) -> Option<String> {
    const BANNER: &[u8] = b"Linux version ";
    let (_, rodata) = elf.section(".rodata")?;
    let bytes = elf.bytes(data, rodata);
    let mut from = 0;
    loop {
        let at = from + find(&bytes[from..], BANNER)? + BANNER.len();
        let word: Vec<u8> = bytes[at..]
            .iter()
            .copied()
            .take(128)
            .take_while(|&b| b.is_ascii_graphic() && b != b'%')
            .collect();
        // The format string of the banner matches as well; no digit follows in it.
        if word.first().is_some_and(u8::is_ascii_digit) {
            return String::from_utf8(word).ok();
        }
        from = at;
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let first = *needle.first()?;
    let mut from = 0;
    while let Some(at) = haystack[from..].iter().position(|&b| b == first).map(|p| from + p) {
        if haystack[at..].starts_with(needle) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// The GNU build id in a section of notes, in hexadecimal.
pub(crate) fn build_id(notes: &[u8]) -> Option<String> {
    let mut at = 0usize;
    loop {
        let name_len = u32_at(notes, at)? as usize;
        let desc_len = u32_at(notes, at + 4)? as usize;
        let kind = u32_at(notes, at + 8)?;
        let name_at = at + 12;
        let desc_at = name_at.checked_add(name_len.checked_next_multiple_of(4)?)?;
        let desc = slice(notes, desc_at as u64, desc_len as u64)?;
        if kind == 3 && slice(notes, name_at as u64, name_len as u64)? == b"GNU\0" && desc_len <= 64 {
            return Some(desc.iter().map(|b| format!("{b:02x}")).collect());
        }
        at = desc_at.checked_add(desc_len.checked_next_multiple_of(4)?)?;
    }
}

#[cfg(test)]
pub(crate) mod kernel;
#[cfg(test)]
mod tests;
