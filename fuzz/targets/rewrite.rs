//! Any bytes as a module to rewrite, with every store checked. Then the bytes as the code of a module that is
//! otherwise sound.

#![no_main]

use guardrail_rewrite::object::{Content, Reloc, Section, SectionIndex, Symbol, reloc};
use guardrail_rewrite::passes::checks::Checks;
use guardrail_rewrite::{Object, RewriteError, rewrite};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    run(data.to_vec());
    if let Some(file) = around(data).and_then(|object| object.write().ok()) {
        run(file);
    }
});

fn run(file: Vec<u8>) {
    // The rewriter verifies its result; it is a bug if that fails.
    if let Err(error @ RewriteError::Check { .. }) = rewrite("input", file, &mut [&mut Checks::new(1)]) {
        panic!("{error}");
    }
}

/// A module with this code. The first bytes choose the offsets that its tables name, and where relocations
/// are.
fn around(data: &[u8]) -> Option<Object> {
    let (head, code) = data.split_at_checked(16)?;
    let text = 2;
    let symbol =
        |name: &str, index, size, info| Symbol { name: name.into(), index, value: 0, size, info, other: 0 };
    let mut object = Object {
        sections: Vec::new(),
        symbols: vec![
            symbol("", SectionIndex::Special(0), 0, 0),
            symbol("", SectionIndex::In(text), 0, 3),
            symbol("f", SectionIndex::In(text), code.len() as u64, 0x12),
            symbol("elsewhere", SectionIndex::Special(0), 0, 0x10),
        ],
    };
    let mut section = |name: &str, flags, bytes: &[u8], relocs: &[(u64, u32, usize, i64)]| {
        let relocs =
            relocs.iter().map(|&(offset, kind, symbol, addend)| Reloc { offset, kind, symbol, addend });
        object.sections.push(Section {
            name: name.into(),
            kind: 1,
            flags,
            align: 16,
            entry_size: 0,
            link: None,
            content: Content::Bytes(bytes.to_vec()),
            relocs: relocs.collect(),
        });
    };
    section(".modinfo", 2, b"name=made\0vermagic=6.1.0 \0", &[]);
    section(".gnu.linkonce.this_module", 3, &[0; 64], &[]);
    let at = |i: usize| i64::from(head[i]);
    let field = |i: usize| head[i] as u64 % (code.len().max(5) as u64 - 4);
    let mut fields = [
        (field(0), reloc::PLT32, 3, -4),
        (field(1), reloc::PC32, 1, at(2)),
        (field(3), reloc::ABS32S, 1, at(4)),
    ];
    fields.sort();
    section(".text", 6, code, if head[5] & 1 == 0 { &[] } else { &fields });
    let (pc, code) = (reloc::PC32, 1);
    section("__jump_table", 3, &[0; 16], &[(0, pc, code, at(6)), (4, pc, code, at(7))]);
    section("__ex_table", 2, &[0; 12], &[(0, pc, code, at(8)), (4, pc, code, at(9))]);
    let alternative = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, head[10] % 16, 0];
    section(".altinstructions", 2, &alternative, &[(0, pc, code, at(11)), (4, pc, code, 0)]);
    section(".orc_unwind_ip", 2, &[0; 8], &[(0, pc, code, 0), (4, pc, code, at(12))]);
    section(".orc_unwind", 2, &[8, 0, 0, 0, 5, 0, 16, 0, 0, 0, 5, 0], &[]);
    Some(object)
}
