//! Writes a symbol file for a kernel without one, from the tables in its image.

use object::elf::{self, FileHeader64, Ident, SectionHeader64, Sym64};
use object::{LittleEndian as LE, U16, U32, U64, pod};

/// A memory section that symbols belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name of the section, such as `.text`.
    pub name: String,
    /// Guest virtual address of its first byte.
    pub address: u64,
    /// Length of the section in bytes.
    pub size: u64,
    /// True where the section holds code.
    pub code: bool,
}

/// A symbol of the kernel or of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Name of the symbol.
    pub name: String,
    /// Guest virtual address of the symbol.
    pub address: u64,
    /// Bytes that it covers; zero where that is not known.
    pub size: u64,
    /// True where it names code.
    pub code: bool,
    /// True where only its own file sees it.
    pub local: bool,
}

/// Names, each ended by a zero byte.
struct Strings(Vec<u8>);

impl Strings {
    fn new() -> Strings {
        Strings(vec![0])
    }

    fn add(&mut self, name: &str) -> u32 {
        let at = self.0.len();
        // A zero byte would end the name early.
        self.0.extend(name.bytes().filter(|&byte| byte != 0));
        self.0.push(0);
        u32::try_from(at).unwrap_or(0)
    }
}

/// Writes an ELF file that has these symbols and no contents. A debugger finds the function of an
/// address through its section, so symbols outside all sections are left out. `frames` is the content of
/// `.debug_frame`.
pub fn write(sections: &[Section], symbols: &[Symbol], frames: &[u8]) -> Vec<u8> {
    let mut order: Vec<&Section> = sections.iter().filter(|section| section.size > 0).collect();
    // The file has 16 bits for the number of a section, and needs some of the numbers itself.
    order.truncate(1000);
    order.sort_by_key(|section| section.address);
    let mut names = Strings::new();
    let mut headers = vec![header(0, elf::SHT_NULL, 0, 0, 0)];
    for section in &order {
        let flags = elf::SHF_ALLOC | if section.code { elf::SHF_EXECINSTR } else { elf::SHF_WRITE };
        let name = names.add(&section.name);
        headers.push(header(name, elf::SHT_NOBITS, flags, section.address, section.size));
    }
    let mut texts = Strings::new();
    let mut table = [Vec::new(), Vec::new()];
    for symbol in symbols {
        let Some(index) = section_of(&order, symbol.address) else { continue };
        let binding = if symbol.local { elf::STB_LOCAL } else { elf::STB_GLOBAL };
        let kind = if symbol.code { elf::STT_FUNC } else { elf::STT_OBJECT };
        table[usize::from(!symbol.local)].push(Sym64 {
            st_name: U32::new(LE, texts.add(&symbol.name)),
            st_info: binding << 4 | kind,
            st_other: elf::STV_DEFAULT,
            st_shndx: U16::new(LE, index),
            st_value: U64::new(LE, symbol.address),
            st_size: U64::new(LE, symbol.size),
        });
    }
    let [locals, globals] = table;
    let first_global = locals.len() + 1;
    let mut table = vec![Sym64::<LE>::default()];
    table.extend(locals);
    table.extend(globals);

    let mut out = vec![0; size_of::<FileHeader64<LE>>()];
    let name = names.add(".debug_frame");
    let place = append(&mut out, frames);
    headers.push(SectionHeader64 {
        sh_offset: U64::new(LE, place),
        ..header(name, elf::SHT_PROGBITS, 0, 0, frames.len() as u64)
    });
    let (symtab, strtab, shstrtab) = (names.add(".symtab"), names.add(".strtab"), names.add(".shstrtab"));
    let bytes = pod::bytes_of_slice(&table);
    let place = append(&mut out, bytes);
    headers.push(SectionHeader64 {
        sh_offset: U64::new(LE, place),
        sh_link: U32::new(LE, headers.len() as u32 + 1),
        sh_info: U32::new(LE, u32::try_from(first_global).unwrap_or(u32::MAX)),
        sh_entsize: U64::new(LE, size_of::<Sym64<LE>>() as u64),
        ..header(symtab, elf::SHT_SYMTAB, 0, 0, bytes.len() as u64)
    });
    for (name, content) in [(strtab, &texts.0), (shstrtab, &names.0)] {
        let place = append(&mut out, content);
        headers.push(SectionHeader64 {
            sh_offset: U64::new(LE, place),
            ..header(name, elf::SHT_STRTAB, 0, 0, content.len() as u64)
        });
    }
    let place = append(&mut out, pod::bytes_of_slice(&headers));
    let file = file_header(place, headers.len() as u16);
    out[..size_of::<FileHeader64<LE>>()].copy_from_slice(pod::bytes_of(&file));
    out
}

/// Appends content at a multiple of 16, and returns its offset.
fn append(out: &mut Vec<u8>, content: &[u8]) -> u64 {
    out.resize(out.len().next_multiple_of(16), 0);
    let place = out.len() as u64;
    out.extend_from_slice(content);
    place
}

/// The number of the section that contains an address.
fn section_of(order: &[&Section], address: u64) -> Option<u16> {
    let after = order.partition_point(|section| section.address <= address);
    let section = order.get(after.checked_sub(1)?)?;
    // The end of a section may have a symbol too.
    (address - section.address <= section.size).then_some(after as u16)
}

fn header(name: u32, kind: u32, flags: u32, address: u64, size: u64) -> SectionHeader64<LE> {
    SectionHeader64 {
        sh_name: U32::new(LE, name),
        sh_type: U32::new(LE, kind),
        sh_flags: U64::new(LE, flags.into()),
        sh_addr: U64::new(LE, address),
        sh_offset: U64::new(LE, 0),
        sh_size: U64::new(LE, size),
        sh_link: U32::new(LE, 0),
        sh_info: U32::new(LE, 0),
        sh_addralign: U64::new(LE, 1),
        sh_entsize: U64::new(LE, 0),
    }
}

fn file_header(sections_at: u64, sections: u16) -> FileHeader64<LE> {
    FileHeader64 {
        e_ident: Ident {
            magic: elf::ELFMAG,
            class: elf::ELFCLASS64,
            data: elf::ELFDATA2LSB,
            version: elf::EV_CURRENT,
            os_abi: elf::ELFOSABI_NONE,
            abi_version: 0,
            padding: [0; 7],
        },
        e_type: U16::new(LE, elf::ET_EXEC),
        e_machine: U16::new(LE, elf::EM_X86_64),
        e_version: U32::new(LE, elf::EV_CURRENT.into()),
        e_entry: U64::new(LE, 0),
        e_phoff: U64::new(LE, 0),
        e_shoff: U64::new(LE, sections_at),
        e_flags: U32::new(LE, 0),
        e_ehsize: U16::new(LE, size_of::<FileHeader64<LE>>() as u16),
        e_phentsize: U16::new(LE, 0),
        e_phnum: U16::new(LE, 0),
        e_shentsize: U16::new(LE, size_of::<SectionHeader64<LE>>() as u16),
        e_shnum: U16::new(LE, sections),
        e_shstrndx: U16::new(LE, sections - 1),
    }
}
