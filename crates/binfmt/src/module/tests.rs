//! Modules made from scratch.

use super::*;
use std::io::Write;

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

/// Writes relocatable objects.
pub(crate) struct Object {
    sections: Vec<Section>,
    symbols: Vec<NewSymbol>,
    /// How debug sections are compressed: not (0), zlib (1), zstd (2).
    pub(crate) compress: u32,
}

impl Object {
    pub(crate) fn empty() -> Object {
        Object { sections: Vec::new(), symbols: vec![("", 0, 0, 0, 0)], compress: 0 }
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
        self.sections.push(Section { name, kind, flags, bytes, nobits: 0, info: 0, align: 16 });
        self.sections.len() as u16
    }

    pub(crate) fn relocate(&mut self, section: u16, relas: &[u8]) {
        let name = format!(".rela{}", self.sections[usize::from(section) - 1].name);
        self.section(&name, SHT_RELA, 0, relas);
        self.sections.last_mut().unwrap().info = section.into();
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
            self.section(name, 1, crate::elf::SHF_COMPRESSED, &out)
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
        self.sections.last_mut().unwrap().bytes = section_names;

        let mut body = vec![0; 64];
        let mut headers = vec![0; 64];
        for (section, name) in self.sections.iter().zip(name_offsets) {
            let size = if section.kind == SHT_NOBITS { section.nobits } else { section.bytes.len() as u64 };
            let link = if section.kind == SHT_SYMTAB { u32::from(strings) } else { 0 };
            headers.extend(name.to_le_bytes());
            headers.extend(section.kind.to_le_bytes());
            for word in [section.flags, 0, body.len() as u64, size] {
                headers.extend(word.to_le_bytes());
            }
            headers.extend(link.to_le_bytes());
            headers.extend(section.info.to_le_bytes());
            headers.extend(section.align.to_le_bytes());
            headers.extend([0; 8]);
            body.extend_from_slice(&section.bytes);
        }
        let at = body.len() as u64;
        let count = headers.len() as u16 / 64;
        body[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        body[16..20].copy_from_slice(&[1, 0, 62, 0]);
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
fn sample() -> Vec<u8> {
    let mut object = Object::module("drv");
    let text = object.section(".text", 1, SHF_ALLOC | SHF_EXECINSTR, &[0x90; 0x40]);
    let bss = object.section(".bss", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, &[]);
    object.sections.last_mut().unwrap().nobits = 0x100;
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

const TEXT: u64 = 0xffff_ffff_c000_0000;

fn values() -> Vec<u64> {
    let kmalloc = 0xffff_ffff_8123_4560;
    [
        0,
        TEXT + 0x3000,
        TEXT,
        TEXT,
        TEXT + 0x30,
        TEXT + 0x2010,
        TEXT + 0x1000,
        kmalloc,
        TEXT + 0x8000,
        TEXT + 0x8000,
        5,
    ]
    .to_vec()
}

#[test]
fn a_module_tells_what_modinfo_shows() {
    let image = ModuleImage::parse("x/drv.ko", sample()).unwrap();
    assert_eq!(
        (image.name().as_str(), image.license(), image.release()),
        ("drv", Some("GPL v2"), Some("6.1.0-9"))
    );
    assert_eq!(image.vermagic(), Some("6.1.0-9 SMP "));
    assert_eq!(image.depends().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(image.aliases().collect::<Vec<_>>(), ["pci:v1*", "pci:v2*"]);
    let names: Vec<_> = image.symbols().iter().map(|s| image.symbol_name(s)).collect();
    assert_eq!(names[..4], ["", "__this_module", ".text", "probe.isra.0"]);
    assert!(image.symbols()[7].undefined && image.symbols()[10].section.is_none());
    assert_eq!(image.ex_table(), [(3, 0x14), (3, 0x18)]);
    let text = image.sections().nth(3).unwrap();
    assert_eq!((text.name, text.size, text.align, text.exec, text.write), (".text", 0x40, 16, true, false));
}

#[test]
fn compressed_modules_are_unpacked() {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&sample()).unwrap();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(&sample()).unwrap();
    let zst = zstd::encode_all(&sample()[..], 3).unwrap();
    for packed in [gz.finish().unwrap(), xz.finish().unwrap(), zst] {
        assert_eq!(ModuleImage::parse("drv.ko.z", packed.clone()).unwrap().name(), "drv");
        let half = packed[..packed.len() / 2].to_vec();
        assert!(matches!(ModuleImage::parse("drv.ko.z", half), Err(KernelError::Decompress { .. })));
    }
}

#[test]
fn other_files_are_refused() {
    let error = |bytes: Vec<u8>| ModuleImage::parse("drv.ko", bytes).unwrap_err().to_string();
    assert_eq!(error(b"hello".to_vec()), "drv.ko is not an ELF file");
    assert_eq!(error(Object::empty().build()), "drv.ko is not a kernel module");
    let mut bytes = sample();
    bytes[18] = 183;
    assert_eq!(error(bytes), "drv.ko is built for 64-bit ARM (aarch64), but only x86-64 is supported");
    let mut bytes = sample();
    bytes[16] = 3;
    assert_eq!(error(bytes), "drv.ko is not a kernel module");
    let elsewhere = error(Object::module("../../\u{1b}x").build());
    assert_eq!(elsewhere, "drv.ko is damaged: its name '../../\\u{1b}x' is no name of a module");
    let bytes = sample();
    for len in [10, 63, 64, bytes.len() / 2, bytes.len() - 1] {
        assert!(ModuleImage::parse("drv.ko", bytes[..len].to_vec()).is_err(), "{len}");
    }
}

#[test]
fn symbol_values_place_the_sections() {
    let image = ModuleImage::parse("drv.ko", sample()).unwrap();
    let placed = image.place(&values()).unwrap();
    let sections: Vec<_> =
        placed.sections().iter().map(|s| (s.name.as_str(), s.start - TEXT, s.size)).collect();
    let expected = [
        (".text", 0, 0x40),
        (".rodata", 0x1000, 16),
        (".bss", 0x2000, 0x100),
        (".gnu.linkonce.this_module", 0x3000, 64),
        (".init.text", 0x8000, 16),
    ];
    assert_eq!(sections, expected);
    assert!(placed.sections()[4].init && placed.sections()[4].exec);
    assert_eq!(placed.function_at(TEXT + 5), Some(("probe.isra.0", 5)));
    assert_eq!(placed.function_at(TEXT + 0x20), None);
    assert_eq!(placed.function_at(TEXT + 0x3f), Some(("label", 15)));
    assert_eq!(placed.function_at(TEXT + 0x40), None);
    assert_eq!(placed.function_at(TEXT + 0x8001), Some(("drv_init", 1)));
    assert_eq!(placed.section_of(TEXT + 0x2010), Some((4, 0x10)));
    assert_eq!(placed.section_of(TEXT - 1), None);
    assert_eq!(placed.ex_table(), [TEXT + 0x14, TEXT + 0x18]);
    let data: Vec<_> = placed.data().iter().map(|d| (d.name.as_str(), d.end - d.start, d.writable)).collect();
    assert_eq!(data, [("table", 16, false), ("state", 8, true), ("__this_module", 64, true)]);
    assert_eq!(placed.imports(), [("kmalloc".to_owned(), 0xffff_ffff_8123_4560)]);
}

#[test]
fn constants_are_what_nobody_writes_and_the_loader_leaves_alone() {
    let mut object = Object::module("drv");
    object.section(".rodata.str1.1", 1, SHF_ALLOC, b"%d\0");
    let table = object.section(".rodata", 1, SHF_ALLOC, &[0; 16]);
    object.relocate(table, &rela(8, 1, 1, 0));
    object.section(".rodata.late", 1, SHF_ALLOC | SHF_WRITE, &[0; 16]);
    object.section(".data", 1, SHF_ALLOC | SHF_WRITE, &[0; 16]);
    object.section(".rodata.str1.8", 1, SHF_ALLOC, b"%s\0");
    let image = ModuleImage::parse("drv.ko", object.build()).unwrap();
    let constants: Vec<_> = image.constant_sections().map(|index| image.section_bytes(index)).collect();
    assert_eq!(constants, [b"%d\0", b"%s\0"]);
}

#[test]
fn outliers_do_not_move_a_section_and_foreign_values_place_nothing() {
    let image = ModuleImage::parse("drv.ko", sample()).unwrap();
    let mut outlier = values();
    outlier[3] += 0x100;
    assert_eq!(image.place(&outlier).unwrap().section_of(TEXT), Some((3, 0)));
    assert!(image.place(&values()[1..]).is_none());
    assert!(image.place(&[]).is_none());
    assert!(image.place(&vec![0; values().len()]).is_none());
    assert!(image.place(&vec![7; values().len()]).is_none());
    let _ = image.place(&vec![u64::MAX; values().len()]);
}

#[test]
fn damaged_bytes_never_panic() {
    let bytes = sample();
    for at in 0..bytes.len() {
        for bits in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= bits;
            if let Ok(image) = ModuleImage::parse("drv.ko", damaged) {
                let placed = image.place(&values());
                let _ = placed.map(|p| (p.function_at(TEXT + 0x30).is_some(), p.section_of(TEXT + 1)));
            }
        }
        assert!(ModuleImage::parse("drv.ko", bytes[..at].to_vec()).is_err());
    }
}

#[test]
fn plain_names_lose_what_the_compiler_appends() {
    for (name, plain) in [
        ("probe.isra.0", "probe"),
        ("probe.constprop.12.cold", "probe"),
        ("probe.part.0.isra.3", "probe"),
        ("probe.cold", "probe"),
        ("probe.cold.7", "probe"),
        ("probe", "probe"),
        ("__func__.12", "__func__.12"),
        (".cold", ".cold"),
        ("a.b", "a.b"),
        ("", ""),
    ] {
        assert_eq!(plain_name(name), plain, "{name}");
    }
}
