//! A kernel made from scratch, and a bzImage around it.
//!
//! The seeds of the fuzzer are made of them too (`examples/binfmt_seed`), so nothing here knows more of the crate.

use crate::btf::testing::Builder;
use crate::kallsyms::tests::tables::{BANNER, Layout, RODATA, TEXT, build};
use crate::module::tests::{Object, SHF_ALLOC, SHF_EXECINSTR, rela, symbol};
use std::io::Write;

/// Bytes of a bzImage before the payload: the boot sector and one more.
pub(crate) const HEAD: usize = 1024;

/// What the kernel says that it is.
pub(crate) const VERSION: [u8; 64] = *b"Linux version 6.1.0-9 (made by hand) #1 SMP PREEMPT_DYNAMIC xxx\n";

/// Types by the names that the fuzzer asks for, and those of a list of modules.
pub(crate) fn types() -> Vec<u8> {
    let mut types = Builder::new(0);
    let (a, b, low) = (types.name("a"), types.name("b"), types.name("LOW"));
    let (list, name, sections) = (types.name("list"), types.name("name"), types.name("sect_attrs"));
    types.add("int", 1, 0, 4, &[1 << 24 | 32]); // 1
    types.add("", 3, 0, 0, &[1, 1, 3]); // 2: int[3]
    types.add("", 5, 2, 12, &[b, 1, 0, low, 2, 0]); // 3: union { int b; int LOW[3]; }
    types.add("a", 4, 1, 12, &[b, 3, 0]); // 4: struct a
    let members = [a, 4, 0, b, 2, 96, list, 1, 192, name, 1, 320, sections, 1, 448];
    types.add("module", 4, 5, 64, &members); // 5: struct module
    types.add("", 10, 0, 5, &[]); // 6: const struct module
    types.add("", 2, 0, 6, &[]); // 7: const struct module *
    types.add("", 13, 2, 1, &[a, 7, b, 1]); // 8
    types.add("module", 12, 1, 8, &[]); // 9: int module(const struct module *a, int b)
    types.add("range", 6, 2, 4, &[low, 3, a, 9]); // 10: an enumeration
    types.add("wide", 19, 1, 8, &[a, 1, 2]); // 11: one of 64 bits
    types.add("self", 8, 0, 12, &[]); // 12: a typedef of itself
    let (group, attributes) = (types.name("grp"), types.name("bin_attrs"));
    types.add("attribute_group", 4, 1, 16, &[attributes, 1, 64]); // 13
    types.add("module_sect_attrs", 4, 1, 24, &[group, 13, 64]); // 14
    let (attribute, private) = (types.name("attr"), types.name("private"));
    types.add("attribute", 4, 1, 8, &[name, 1, 0]); // 15
    types.add("bin_attribute", 4, 2, 24, &[attribute, 15, 0, private, 1, 128]); // 16
    types.build()
}

/// An unpacked kernel with these symbols, and a word that KASLR changes. Its text has no bytes in the file.
pub(crate) fn kernel(layout: Layout) -> Vec<u8> {
    let mut object = Object::empty();
    object.file_type = 2;
    object.nobits(".text", SHF_ALLOC | SHF_EXECINSTR, TEXT.1 - TEXT.0);
    object.at(TEXT.0);
    let mut constants = build(layout);
    constants.extend(b"Linux version %s\0");
    constants.extend(VERSION);
    object.section(".rodata", 1, SHF_ALLOC, &constants);
    object.at(RODATA);
    object.section(".BTF", 1, SHF_ALLOC, &types());
    object.at(RODATA + 0x10_0000);
    object.section(".data", 1, SHF_ALLOC, &VERSION);
    object.at(BANNER);
    let mut notes = [4u32, 4, 1, u32::from_le_bytes(*b"GNU\0"), 0].map(u32::to_le_bytes).concat();
    notes.extend([4u32, 20, 3].map(u32::to_le_bytes).concat());
    notes.extend(b"GNU\0");
    notes.extend([0xab; 20]);
    object.section(".notes", 7, SHF_ALLOC, &notes);
    object.at(RODATA + 0x20_0000);
    let mut file = object.build();
    file.extend([0, RODATA as u32 + 8, 0].map(u32::to_le_bytes).concat());
    file
}

/// A module with types, unwind tables, a build id, and a table of addresses that the loader relocates.
pub(crate) fn module() -> Vec<u8> {
    const PC32: u32 = 2;
    const ABS64: u32 = 1;
    let mut object = Object::module("tables");
    let text = object.section(".text", 1, SHF_ALLOC | SHF_EXECINSTR, &[0x90; 0x40]);
    let start = object.symbol(symbol("", 3, text, 0, 0)).into();
    object.symbol(symbol("probe", 0x12, text, 0, 0x20));
    let import = object.symbol(symbol("printk", 0x10, 0, 0, 0)).into();
    object.relocate(text, &rela(0x10, 4, import, -4));
    let places = object.section(".orc_unwind_ip", 1, SHF_ALLOC, &[0; 8]);
    object.relocate(places, &[rela(0, PC32, start, 0), rela(4, PC32, start, 0x20)].concat());
    object.section(".orc_unwind", 1, SHF_ALLOC, &[8, 0, 0, 0, 5, 0, 16, 0, 0, 0, 5, 0]);
    let rows = object.section("__ex_table", 1, SHF_ALLOC, &[0; 12]);
    object.relocate(rows, &[rela(0, PC32, start, 4), rela(4, PC32, start, 8)].concat());
    object.section(".rodata.str1.1", 1, SHF_ALLOC, b"%s: %d\n\0");
    let constants = object.section(".rodata", 1, SHF_ALLOC, &[0; 16]);
    object.relocate(constants, &rela(8, ABS64, start, 0));
    object.section(".BTF", 1, 0, &types());
    let note = [4u32, 20, 3].map(u32::to_le_bytes).concat();
    object.section(".note.gnu.build-id", 7, SHF_ALLOC, &[&note[..], b"GNU\0", &[0xab; 20]].concat());
    object.build()
}

/// A bzImage with this payload.
pub(crate) fn bz_image(payload: &[u8]) -> Vec<u8> {
    let mut file = vec![0; HEAD];
    file[0x1f1] = 1;
    file[0x202..0x206].copy_from_slice(b"HdrS");
    file[0x206..0x208].copy_from_slice(&0x20fu16.to_le_bytes());
    file[0x230..0x234].copy_from_slice(&0x40_0000u32.to_le_bytes());
    file[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    file.extend_from_slice(payload);
    file
}

/// Bytes in each of the compressions, by name.
pub(crate) fn packed(bytes: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let gz = || {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes)?;
        out.finish()
    };
    let lzma = |stream| {
        let mut out = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
        out.write_all(bytes)?;
        out.finish()
    };
    let options = liblzma::stream::LzmaOptions::new_preset(1).expect("there is level 1");
    let alone = liblzma::stream::Stream::new_lzma_encoder(&options).expect("there is an encoder");
    let checked = liblzma::stream::Stream::new_easy_encoder(1, liblzma::stream::Check::Crc32);
    let written = "memory takes all bytes";
    vec![
        ("gz", gz().expect(written)),
        ("xz", lzma(checked.expect("there is an encoder")).expect(written)),
        ("lzma", lzma(alone).expect(written)),
        ("zst", zstd::encode_all(bytes, 3).expect(written)),
        ("lz4", lz4(bytes)),
    ]
}

/// The kernel's lz4, one block of literals.
fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    match bytes.len().checked_sub(15) {
        None => block.push((bytes.len() as u8) << 4),
        Some(rest) => {
            block.push(0xf0);
            block.resize(1 + rest / 255, 0xff);
            block.push((rest % 255) as u8);
        }
    }
    block.extend_from_slice(bytes);
    let mut out = vec![0x02, 0x21, 0x4c, 0x18];
    out.extend((block.len() as u32).to_le_bytes());
    out.extend(block);
    out
}
