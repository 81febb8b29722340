//! A module made from scratch, and guarded with an action before and after each call of an import.

use guardrail_rewrite::object::{Reloc, Section, SectionIndex, Symbol, reloc};
use guardrail_rewrite::passes::checks::Checks;
use guardrail_rewrite::{Object, rewrite};

#[path = "../../../rewrite/examples/guarded/mod.rs"]
mod guarded;

/// A relocation in a function: offset, kind, symbol, and what is added.
type Field = (u64, u32, usize, i64);

/// The module's code: functions, each with its relocations.
const CODE: [(&[u8], &[Field]); FUNCTIONS] = [
    // f: push rbx; mov rbx, rdi; mov [rdi], rsi; call import; mov [rbx+8], rax; pop rbx; ret
    (
        &[0x53, 0x48, 0x89, 0xfb, 0x48, 0x89, 0x37, 0xe8, 0, 0, 0, 0, 0x48, 0x89, 0x43, 0x08, 0x5b, 0xc3],
        &[(8, reloc::PLT32, IMPORT, -4)],
    ),
    // g: test rdi, rdi; jz +3; mov byte [rdi], 1; ret
    (&[0x48, 0x85, 0xff, 0x74, 0x03, 0xc6, 0x07, 0x01, 0xc3], &[]),
    // h: sub rsp, 24; mov [rsp+8], rdi; call g; mov rdi, [rsp+8]; call other import; add rsp, 24; ret
    (
        &[
            0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0x7c, 0x24, 0x08, 0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x7c, 0x24,
            0x08, 0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 0x18, 0xc3,
        ],
        &[(10, reloc::PLT32, FIRST + 1, -4), (20, reloc::PLT32, IMPORT + 1, -4)],
    ),
    // i: mov ecx, 16; rep stosb; mov [rip+data], eax; lock xadd [rdi], eax; jmp h
    (
        &[0xb9, 0x10, 0, 0, 0, 0xf3, 0xaa, 0x89, 0x05, 0, 0, 0, 0, 0xf0, 0x0f, 0xc1, 0x07, 0xe9, 0, 0, 0, 0],
        &[(9, reloc::PC32, DATA, -4), (18, reloc::PLT32, FIRST + 2, -4)],
    ),
    // init_module: dec edi; jnz j; xor eax, eax; ret
    (&[0xff, 0xcf, 0x75, 0xfc, 0x31, 0xc0, 0xc3], &[]),
];

/// Symbols: of the code's section, of the data's, the functions, two imports, and `__this_module`.
const TEXT: usize = 1;
const DATA: usize = 2;
const FIRST: usize = 3;
const IMPORT: usize = FIRST + FUNCTIONS;
const FUNCTIONS: usize = 5;

/// Guards a module; `None` where it cannot be guarded.
pub fn guard(object: &Object) -> Option<Vec<u8>> {
    let (runtime, mut border) = (guarded::runtime(), guarded::border(object));
    border.default_entry.stack_words = 16;
    let mut checks = Checks::new(1).guarded("module", &runtime).interposing(border);
    rewrite("made", object.write().ok()?, &mut [&mut checks]).ok().map(|rewritten| rewritten.file)
}

/// A module with [`CODE`], data with a pointer to a function, and the tables that modules have.
pub fn module() -> Object {
    let symbol = |name: &str, index, value, size, info| Symbol {
        name: name.into(),
        index,
        value,
        size,
        info,
        other: 0,
    };
    let (undefined, text, data) = (SectionIndex::Special(0), 2, 3);
    let mut symbols = vec![
        symbol("", undefined, 0, 0, 0),
        symbol("", SectionIndex::In(text), 0, 0, 3),
        symbol("", SectionIndex::In(data), 0, 0, 3),
    ];
    let (mut code, mut relocs) = (Vec::new(), Vec::new());
    for (name, (bytes, fields)) in ["f", "g", "h", "i", "init_module"].into_iter().zip(CODE) {
        let at = code.len() as u64;
        symbols.push(symbol(name, SectionIndex::In(text), at, bytes.len() as u64, 0x12));
        relocs.extend(fields.iter().map(|&(offset, kind, symbol, addend)| Reloc {
            offset: at + offset,
            kind,
            symbol,
            addend,
        }));
        code.extend_from_slice(bytes);
        code.resize(code.len().next_multiple_of(16), 0xcc);
    }
    symbols.extend(["first", "second"].map(|name| symbol(name, undefined, 0, 0, 0x10)));
    symbols.push(symbol("__this_module", SectionIndex::In(1), 0, 64, 0x11));
    let pointer = |offset, symbol| Reloc { offset, kind: reloc::ABS64, symbol, addend: 0 };
    let row = |offset, addend| Reloc { offset, kind: reloc::PC32, symbol: TEXT, addend };
    let sections = vec![
        Section::new(".modinfo", 2, b"license=GPL\0name=made\0vermagic=6.1.0 \0".to_vec(), Vec::new()),
        Section::new(".gnu.linkonce.this_module", 3, vec![0; 64], vec![pointer(16, FIRST + 4)]),
        Section::new(".text", 6, code, relocs),
        Section::new(".data", 3, vec![0; 64], vec![pointer(0, FIRST), pointer(8, FIRST + 3)]),
        Section::new("__ex_table", 2, vec![0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], vec![row(0, 4), row(4, 16)]),
        Section::new(".orc_unwind_ip", 2, vec![0; 8], vec![row(0, 0), row(4, 1)]),
        Section::new(".orc_unwind", 2, vec![8, 0, 0, 0, 5, 0, 16, 0, 0, 0, 5, 0], Vec::new()),
    ];
    Object { sections, symbols }
}
