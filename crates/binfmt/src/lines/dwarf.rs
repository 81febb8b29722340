//! Line information made from scratch.
//!
//! The seeds of the fuzzer are made of it too (`examples/binfmt_seed`), so nothing here knows more of the crate.

use crate::module::tests::{Object, rela, symbol};

/// Adds DWARF: `.text` has `work` (16 bytes, the middle 4 inlined from a header), `.init.text` has
/// `setup`. With `bases`, the two are linked there; else relocations refer to the sections' symbols.
pub(crate) fn dwarf(object: &mut Object, [text, init]: [u16; 2], bases: Option<[u64; 2]>) {
    let abbrev: &[u8] = &[
        1, 0x11, 1, 0x03, 0x08, 0x1b, 0x08, 0x10, 0x17, 0x11, 0x01, 0x12, 0x06, 0, 0, // unit
        2, 0x2e, 1, 0x03, 0x08, 0x11, 0x01, 0x12, 0x06, 0, 0, // function with children
        3, 0x2e, 0, 0x03, 0x08, 0x20, 0x0b, 0, 0, // inline function
        4, 0x1d, 0, 0x31, 0x13, 0x11, 0x01, 0x12, 0x06, 0x58, 0x0b, 0x59, 0x0b, 0, 0, // its copy
        0,
    ];
    let mut line = Vec::new();
    let mut line_rela = Vec::new();
    let mut info = Vec::new();
    let mut info_rela = Vec::new();
    let [text_base, init_base] = bases.unwrap_or_default();
    for (section, base, name) in [(text, text_base, &b"work\0"[..]), (init, init_base, b"setup\0")] {
        let table = line.len() as u64;
        let mut rest = vec![1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
        rest.extend_from_slice(b"include\0\0drv.c\0\0\0\0inc.h\0\x01\0\0\0");
        let header_len = rest.len() as u32;
        rest.extend_from_slice(&[0, 9, 2]);
        let at = table + 10 + rest.len() as u64;
        line_rela.extend(rela(at, 1, u32::from(section), 0));
        rest.extend_from_slice(&base.to_le_bytes());
        let first = if section == text { 9 } else { 49 };
        rest.extend_from_slice(&[3, first, 1]); // a row at 0
        rest.extend_from_slice(&[4, 2, 3, 20, 2, 4, 1]); // in the header from 4
        rest.extend_from_slice(&[4, 1, 3, 0x6d, 2, 4, 1]); // back, one line on, from 8
        rest.extend_from_slice(&[2, 8, 0, 1, 1]); // the end at 16
        line.extend((rest.len() as u32 + 6).to_le_bytes());
        line.extend([4, 0]);
        line.extend(header_len.to_le_bytes());
        line.extend(rest);

        let unit = info.len();
        info.extend([0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8, 1]);
        info.extend(b"drv.c\0/build/tree\0");
        info.extend((table as u32).to_le_bytes());
        let address = |info: &mut Vec<u8>, relas: &mut Vec<u8>, addend: u32| {
            relas.extend(rela(info.len() as u64, 1, u32::from(section), addend.into()));
            info.extend((base + u64::from(addend)).to_le_bytes());
        };
        address(&mut info, &mut info_rela, 0);
        info.extend(16u32.to_le_bytes());
        let helper = (info.len() - unit) as u32;
        info.extend(b"\x03helper\0\x01");
        info.push(2);
        info.extend(name);
        address(&mut info, &mut info_rela, 0);
        info.extend(16u32.to_le_bytes());
        info.push(4);
        info.extend(helper.to_le_bytes());
        address(&mut info, &mut info_rela, 4);
        info.extend(4u32.to_le_bytes());
        info.extend([1, first + 2, 0, 0]);
        let len = (info.len() - unit - 4) as u32;
        info[unit..unit + 4].copy_from_slice(&len.to_le_bytes());
    }
    if bases.is_some() {
        info_rela.clear();
        line_rela.clear();
    }
    object.debug(".debug_abbrev", abbrev, &[]);
    object.debug(".debug_info", &info, &info_rela);
    object.debug(".debug_line", &line, &line_rela);
}

/// A module with these lines, and the numbers of its two sections. Debug sections are not compressed (0), by zlib (1),
/// or by zstd (2).
pub(crate) fn module(compress: u32) -> (Vec<u8>, usize, usize) {
    let mut object = Object::module("drv");
    object.compress = compress;
    let text = object.section(".text", 1, 6, &[0x90; 16]);
    let init = object.section(".init.text", 1, 6, &[0x90; 16]);
    let text_symbol = object.symbol(symbol("", 3, text, 0, 0));
    let init_symbol = object.symbol(symbol("", 3, init, 0, 0));
    dwarf(&mut object, [text_symbol, init_symbol], None);
    (object.build(), text.into(), init.into())
}
