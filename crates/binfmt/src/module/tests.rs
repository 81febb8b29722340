//! Modules made from scratch.

mod object;

pub(crate) use object::{Object, SHF_ALLOC, SHF_EXECINSTR, rela, sample, symbol};

use super::*;
use std::io::Write;

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

/// The names of symbols may be said to be in the empty section, whose place nobody checked.
#[test]
fn the_empty_section_has_no_bytes() {
    let mut bytes = sample();
    let table = u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap()) as usize;
    bytes[table + 24..table + 32].fill(0xff);
    bytes[table + 32..table + 40].fill(0xff);
    let symbols = (table..bytes.len()).step_by(64).find(|at| bytes[at + 4] == 2).unwrap();
    bytes[symbols + 40..symbols + 44].fill(0);
    let image = ModuleImage::parse("drv.ko", bytes).unwrap();
    let names = image.symbols().iter().filter(|s| s.kind != SymbolKind::Section);
    assert!(names.map(|s| image.symbol_name(s)).all(str::is_empty));
    assert_eq!(image.sections().next().map(|section| section.size), Some(0));
}

/// Each of tens of thousands of headers was given a copy of one name of megabytes.
#[test]
fn names_are_bounded() {
    let long = "x".repeat(1025);
    let mut object = Object::module("drv");
    object.section(&long[1..], 1, 0, &[]);
    assert_eq!(
        ModuleImage::parse("drv.ko", object.build()).unwrap().sections().nth(3).unwrap().name.len(),
        1024
    );
    let mut object = Object::module("drv");
    object.section(&long, 1, 0, &[]);
    let error = ModuleImage::parse("drv.ko", object.build()).unwrap_err().to_string();
    assert_eq!(error, "drv.ko is damaged: the name of a section is too long");
    let mut object = Object::module("drv");
    object.symbol(symbol(long.leak(), 1, 1, 0, 0));
    let error = ModuleImage::parse("drv.ko", object.build()).unwrap_err().to_string();
    assert_eq!(error, "drv.ko is damaged: the name of a symbol is too long");
}

/// For each table and each section with code, all headers were looked at.
#[test]
fn tens_of_thousands_of_sections_are_read_at_once() {
    let mut object = Object::module("drv");
    for _ in 0..20_000 {
        object.section("__ex_table", 1, SHF_ALLOC, &[]);
        object.section(".rodata", 1, SHF_ALLOC, &[]);
    }
    (0..20_000).for_each(|number| _ = object.section(&format!(".text.{number}"), 1, 6, &[]));
    let begun = std::time::Instant::now();
    crate::lines::dwarf::dwarf(&mut object, [1, 2], Some([0, 0x100]));
    let image = ModuleImage::parse("drv.ko", object.build()).unwrap();
    assert_eq!((image.ex_table(), image.constant_sections().count()), (Vec::new(), 20_000));
    assert!(crate::Lines::of_module(&image).is_some());
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
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
