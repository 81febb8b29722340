//! Relocatable objects and modules made from scratch.
//!
//! The seeds of the fuzzer are made of these too (`examples/binfmt_seed`), so nothing here knows the crate.

use std::io::Write;

const SHT_SYMTAB: u32 = 2;
const SHT_RELA: u32 = 4;
const SHT_NOBITS: u32 = 8;
pub(crate) const SHF_WRITE: u64 = 1;
pub(crate) const SHF_ALLOC: u64 = 2;
pub(crate) const SHF_EXECINSTR: u64 = 4;
const SHF_COMPRESSED: u64 = 0x800;

/// A section to be written.
struct Section {
    name: String,
    kind: u32,
    flags: u64,
    bytes: Vec<u8>,
    /// Its size when it has no bytes in the file.
    nobits: u64,
    info: u32,
    align: u64,
    /// Its address, which sections of a relocatable object do not have.
    address: u64,
}

/// A symbol to be written: name, kind, section, value, size.
type NewSymbol = (&'static str, u8, u16, u64, u64);

pub(crate) fn symbol(name: &'static str, kind: u8, section: u16, value: u64, size: u64) -> NewSymbol {
    (name, kind, section, value, size)
}

/// The bytes of one relocation.
pub(crate) fn rela(offset: u64, kind: u32, symbol: u32, addend: i64) -> Vec<u8> {
    let mut out = offset.to_le_bytes().to_vec();
    out.extend((u64::from(symbol) << 32 | u64::from(kind)).to_le_bytes());
    out.extend(addend.to_le_bytes());
    out
}

/// Writes relocatable objects, and kernels.
pub(crate) struct Object {
    /// The type of the file: relocatable (1) or executable (2).
    pub(crate) file_type: u8,
    sections: Vec<Section>,
    symbols: Vec<NewSymbol>,
    /// How debug sections are compressed: not (0), zlib (1), zstd (2).
    pub(crate) compress: u32,
}

impl Object {
    pub(crate) fn empty() -> Object {
        Object { file_type: 1, sections: Vec::new(), symbols: vec![("", 0, 0, 0, 0)], compress: 0 }
    }

    pub(crate) fn module(name: &str) -> Object {
        let mut object = Object::empty();
        let info = format!(
            "license=GPL v2\0alias=pci:v1*\0alias=pci:v2*\0depends=a,b\0name={name}\0vermagic=6.1.0-9 SMP \0"
        );
        object.section(".modinfo", 1, SHF_ALLOC, info.as_bytes());
        let this = object.section(".gnu.linkonce.this_module", 1, SHF_ALLOC | SHF_WRITE, &[0; 64]);
        object.symbol(symbol("__this_module", 1, this, 0, 64));
        object
    }

    pub(crate) fn section(&mut self, name: &str, kind: u32, flags: u64, bytes: &[u8]) -> u16 {
        let (name, bytes) = (name.to_owned(), bytes.to_vec());
        self.sections.push(Section { name, kind, flags, bytes, nobits: 0, info: 0, align: 16, address: 0 });
        self.sections.len() as u16
    }

    /// Adds a section without bytes in the file.
    pub(crate) fn nobits(&mut self, name: &str, flags: u64, size: u64) -> u16 {
        let section = self.section(name, SHT_NOBITS, flags, &[]);
        self.last().nobits = size;
        section
    }

    /// Gives the last section an address.
    pub(crate) fn at(&mut self, address: u64) {
        self.last().address = address;
    }

    fn last(&mut self) -> &mut Section {
        self.sections.last_mut().expect("a section was added")
    }

    pub(crate) fn relocate(&mut self, section: u16, relas: &[u8]) {
        let name = format!(".rela{}", self.sections[usize::from(section) - 1].name);
        self.section(&name, SHT_RELA, 0, relas);
        self.last().info = section.into();
    }

    pub(crate) fn debug(&mut self, name: &str, bytes: &[u8], relas: &[u8]) {
        let packed = match self.compress {
            0 => None,
            1 => {
                let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                out.write_all(bytes).unwrap();
                Some(out.finish().unwrap())
            }
            _ => Some(zstd::encode_all(bytes, 3).unwrap()),
        };
        let section = if let Some(packed) = packed {
            let mut out = u64::from(self.compress).to_le_bytes().to_vec();
            out.extend((bytes.len() as u64).to_le_bytes());
            out.extend(1u64.to_le_bytes());
            out.extend(packed);
            self.section(name, 1, SHF_COMPRESSED, &out)
        } else {
            self.section(name, 1, 0, bytes)
        };
        if !relas.is_empty() {
            self.relocate(section, relas);
        }
    }

    pub(crate) fn symbol(&mut self, symbol: NewSymbol) -> u16 {
        self.symbols.push(symbol);
        self.symbols.len() as u16 - 1
    }

    pub(crate) fn build(mut self) -> Vec<u8> {
        let mut names = vec![0];
        let mut table = Vec::new();
        for (name, kind, section, value, size) in std::mem::take(&mut self.symbols) {
            table.extend((names.len() as u32).to_le_bytes());
            table.extend([kind, 0]);
            table.extend(section.to_le_bytes());
            table.extend(value.to_le_bytes());
            table.extend(size.to_le_bytes());
            names.extend(name.bytes().chain([0]));
        }
        let strings = self.section(".strtab", 3, 0, &names);
        self.section(".symtab", SHT_SYMTAB, 0, &table);
        self.section(".shstrtab", 3, 0, &[]);
        let mut section_names = vec![0];
        let mut name_offsets = Vec::new();
        for section in &self.sections {
            name_offsets.push(section_names.len() as u32);
            section_names.extend(section.name.bytes().chain([0]));
        }
        self.last().bytes = section_names;

        let mut body = vec![0; 64];
        let mut headers = vec![0; 64];
        for (section, name) in self.sections.iter().zip(name_offsets) {
            let size = if section.kind == SHT_NOBITS { section.nobits } else { section.bytes.len() as u64 };
            let link = if section.kind == SHT_SYMTAB { u32::from(strings) } else { 0 };
            headers.extend(name.to_le_bytes());
            headers.extend(section.kind.to_le_bytes());
            for word in [section.flags, section.address, body.len() as u64, size] {
                headers.extend(word.to_le_bytes());
            }
            headers.extend(link.to_le_bytes());
            headers.extend(section.info.to_le_bytes());
            headers.extend(section.align.to_le_bytes());
            headers.extend([0; 8]);
            body.extend_from_slice(&section.bytes);
        }
        let at = body.len() as u64;
        let count = (headers.len() / 64) as u16;
        body[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        body[16..20].copy_from_slice(&[self.file_type, 0, 62, 0]);
        body[0x28..0x30].copy_from_slice(&at.to_le_bytes());
        body[0x3a..0x3c].copy_from_slice(&64u16.to_le_bytes());
        body[0x3c..0x3e].copy_from_slice(&count.to_le_bytes());
        body[0x3e..0x40].copy_from_slice(&(count - 1).to_le_bytes());
        body.extend(headers);
        body
    }
}

/// A module with sections 1 `.modinfo`, 2 `this_module`, 3 `.text`, 4 `.bss`, 5 `__ex_table`, 7 `.rodata`, 8
/// `.init.text`.
pub(crate) fn sample() -> Vec<u8> {
    let mut object = Object::module("drv");
    let text = object.section(".text", 1, SHF_ALLOC | SHF_EXECINSTR, &[0x90; 0x40]);
    let bss = object.nobits(".bss", SHF_ALLOC | SHF_WRITE, 0x100);
    let table = object.section("__ex_table", 1, SHF_ALLOC, &[0; 24]);
    object.symbol(symbol("", 3, text, 0, 0)); // 2
    let mut relas = rela(0, 2, 2, 0x14);
    relas.extend(rela(4, 2, 2, 0x20));
    relas.extend(rela(12, 2, 2, 0x18));
    relas.extend(rela(12, 2, 2, 0x1000)); // outside the section
    relas.extend(rela(24, 2, 2, 0)); // outside the table
    object.relocate(table, &relas);
    let rodata = object.section(".rodata", 1, SHF_ALLOC, &[0; 16]);
    let init = object.section(".init.text", 1, SHF_ALLOC | SHF_EXECINSTR, &[0x90; 16]);
    object.symbol(symbol("probe.isra.0", 2, text, 0, 0x20)); // 3
    object.symbol(symbol("label", 0, text, 0x30, 0)); // 4
    object.symbol(symbol("state", 0x11, bss, 0x10, 8)); // 5
    object.symbol(symbol("table", 1, rodata, 0, 16)); // 6
    object.symbol(symbol("kmalloc", 0x10, 0, 0, 0)); // 7
    object.symbol(symbol("drv_init", 2, init, 0, 16)); // 8
    object.symbol(symbol("init_module", 0x12, init, 0, 16)); // 9
    object.symbol(symbol("absolute", 1, 0xfff1, 5, 0)); // 10
    object.build()
}
