//! Modules made from scratch, rewritten and looked at.

use crate::engine::object::{Object, Reloc, Section, SectionIndex, Symbol, reloc};
use crate::engine::pass::Pass;
use crate::passes::checks::Checks;
use crate::passes::spread::Spread;
use crate::{Result, Rewritten, rewrite};
use iced_x86::{Decoder, DecoderOptions, Formatter, NasmFormatter};
use object::elf;

/// A module with one function `f` of this code, in section 2.
pub(crate) struct Module(pub Object);

pub(crate) const TEXT: usize = 2;

impl Module {
    pub(crate) fn new(code: &[u8]) -> Module {
        let mut module = Module(Object { sections: Vec::new(), symbols: Vec::new() });
        module.symbol("", SectionIndex::Special(0), 0, 0, 0);
        module.section(".modinfo", 0, b"license=GPL\0name=made\0vermagic=6.1.0 \0");
        module.section(".gnu.linkonce.this_module", elf::SHF_WRITE, &[0; 64]);
        module.section(".text", elf::SHF_EXECINSTR, code);
        let section = module.section(".data", elf::SHF_WRITE, &[0; 64]);
        module.symbol("", SectionIndex::In(TEXT), 0, 0, elf::STT_SECTION);
        module.symbol("", SectionIndex::In(section), 0, 0, elf::STT_SECTION);
        let global = elf::STB_GLOBAL << 4;
        module.symbol("f", SectionIndex::In(TEXT), 0, code.len() as u64, global | elf::STT_FUNC);
        module.symbol("elsewhere", SectionIndex::Special(0), 0, 0, global);
        module
    }

    pub(crate) fn section(&mut self, name: &str, flags: u32, bytes: &[u8]) -> usize {
        self.0.sections.push(Section::new(name, elf::SHF_ALLOC | flags, bytes.to_vec(), Vec::new()));
        self.0.sections.len() - 1
    }

    pub(crate) fn symbol(&mut self, name: &str, index: SectionIndex, value: u64, size: u64, info: u8) {
        self.0.symbols.push(Symbol { name: name.into(), index, value, size, info, other: 0 });
    }

    /// Adds a table whose words are distances to places in the code.
    pub(crate) fn table(&mut self, name: &str, flags: u32, bytes: &[u8], words: &[(u64, i64)]) {
        let section = self.section(name, flags, bytes);
        for &(offset, addend) in words {
            self.reloc(section, offset, reloc::PC32, 1, addend);
        }
    }

    pub(crate) fn reloc(&mut self, section: usize, offset: u64, kind: u32, symbol: usize, addend: i64) {
        self.0.sections[section].relocs.push(Reloc { offset, kind, symbol, addend });
    }

    fn spread(&self) -> Result<Object> {
        let rewritten = self.rewrite(&mut Spread)?;
        Object::read("the result", &rewritten.file)
    }

    pub(crate) fn rewrite(&self, pass: &mut dyn Pass) -> Result<Rewritten> {
        rewrite("made.ko", self.0.write()?, &mut [pass])
    }
}

/// A section's instructions, one a line, with the names that relocations give.
pub(crate) fn listing(object: &Object, section: usize) -> String {
    let section = &object.sections[section];
    let mut formatter = NasmFormatter::new();
    let mut out = String::new();
    for insn in Decoder::with_ip(64, section.bytes(), 0, DecoderOptions::NONE) {
        let mut text = String::new();
        formatter.format(&insn, &mut text);
        let own = section.relocs.iter().filter(|reloc| (insn.ip()..insn.next_ip()).contains(&reloc.offset));
        for reloc in own {
            let symbol = &object.symbols[reloc.symbol];
            let name = match symbol.section() {
                Some(section) if symbol.name.is_empty() => &object.sections[section].name,
                _ => &symbol.name,
            };
            let bias = if reloc::relative(reloc.kind) { (insn.next_ip() - reloc.offset) as i64 } else { 0 };
            text += &format!("    ; {name}{:+}", reloc.addend + bias);
        }
        out += &format!("{:#06x}  {text}\n", insn.ip());
    }
    out
}

/// test rax,rax; jz end; mov [rdi+8],rsi; call elsewhere; end: ret
const STORE: [u8; 15] = [0x48, 0x85, 0xc0, 0x74, 0x09, 0x48, 0x89, 0x77, 0x08, 0xe8, 0, 0, 0, 0, 0xc3];

fn store() -> Module {
    let mut module = Module::new(&STORE);
    module.reloc(TEXT, 10, reloc::PLT32, 4, -4);
    module
}

#[test]
fn what_is_written_is_what_was_read() {
    let mut module = store();
    module.table(".orc_unwind_ip", 0, &[0; 8], &[(0, 0), (4, 14)]);
    module.section(".bss", elf::SHF_WRITE, &[]);
    let read = Object::read("made.ko", &module.0.write().unwrap()).unwrap();
    assert_eq!(read, module.0);
}

#[test]
fn nothing_changes_without_passes() {
    let module = store();
    let rewritten = rewrite("made.ko", module.0.write().unwrap(), &mut []).unwrap();
    let read = Object::read("result", &rewritten.file).unwrap();
    assert_eq!(read.sections[1..], module.0.sections[1..]);
    assert_eq!(read.symbols, module.0.symbols);
}

#[test]
fn code_is_spread_and_goes_the_same_ways() {
    insta::assert_snapshot!(listing(&store().spread().unwrap(), TEXT));
}

#[test]
fn a_store_is_checked() {
    let module = store();
    let rewritten = module.rewrite(&mut Checks::new(3)).unwrap();
    let object = Object::read("result", &rewritten.file).unwrap();
    insta::assert_snapshot!(listing(&object, TEXT));
    insta::assert_snapshot!(listing(&object, object.section(crate::passes::thunks::SECTION).unwrap()));
    let faults = &object.sections[object.section("__ex_table").unwrap()];
    insta::assert_snapshot!(format!("{:?} {:?}", faults.bytes(), faults.relocs));
}

#[test]
fn flags_and_registers_that_are_needed_are_kept() {
    // test rax,rax; mov [rdi+8],rsi; jz end; jmp [rip] (where everything may be needed); end: ret
    let code = [0x48, 0x85, 0xc0, 0x48, 0x89, 0x77, 0x08, 0x74, 0x02, 0xff, 0xe1, 0xc3];
    let module = Module::new(&code);
    let mut checks = Checks::new(1);
    let rewritten = module.rewrite(&mut checks).unwrap();
    let stores = checks.stores;
    // The jump is checked as well.
    assert_eq!((stores.checked, stores.calls, stores.saved, stores.flags), (1, 1, 2, 2));
    insta::assert_snapshot!(listing(&Object::read("result", &rewritten.file).unwrap(), TEXT));
}

#[test]
fn a_static_branch_keeps_what_its_target_needs() {
    // mov [rdi],rsi; nop (static branch to 0xb); xor eax,eax; ret; 0xb: mov rax,r11; ret
    let code = [0x48, 0x89, 0x37, 0x66, 0x90, 0x31, 0xc0, 0xc3, 0x0f, 0x1f, 0x00, 0x4c, 0x89, 0xd8, 0xc3];
    let mut module = Module::new(&code);
    module.table("__jump_table", elf::SHF_WRITE, &[0; 16], &[(0, 3), (4, 11)]);
    let rewritten = module.rewrite(&mut Checks::new(1)).unwrap();
    let object = Object::read("result", &rewritten.file).unwrap();
    // R11 is not taken. The branch has room for a long distance now, and the table names it and its target where they are.
    insta::assert_snapshot!(listing(&object, TEXT));
    let table = &object.sections[object.section("__jump_table").unwrap()];
    insta::assert_snapshot!(format!(
        "{:?}",
        table.relocs.iter().map(|reloc| reloc.addend).collect::<Vec<_>>()
    ));
}

#[test]
fn stack_frames_are_described_where_the_stack_is_deeper() {
    let mut module = Module::new(&[0x48, 0x85, 0xc0, 0x48, 0x89, 0x77, 0x08, 0x74, 0x02, 0xff, 0xe1, 0xc3]);
    module.table(".orc_unwind_ip", 0, &[0; 4], &[(0, 0)]);
    // SP + 8, by the number of the stack pointer in older kernels.
    module.section(".orc_unwind", 0, &[8, 0, 0, 0, 5, 0]);
    let rewritten = module.rewrite(&mut Checks::new(1)).unwrap();
    let object = Object::read("result", &rewritten.file).unwrap();
    let places = &object.sections[object.section(".orc_unwind_ip").unwrap()];
    let table = object.sections[object.section(".orc_unwind").unwrap()].bytes();
    let mut frames = String::new();
    for (reloc, entry) in places.relocs.iter().zip(table.chunks(6)) {
        let section = object.symbols[reloc.symbol].section().unwrap();
        frames += &format!("{}+{:#x}: {}\n", object.sections[section].name, reloc.addend, entry[0]);
    }
    insta::assert_snapshot!(frames);
}

fn refusal(module: &Module) -> String {
    module.spread().unwrap_err().to_string()
}

#[test]
fn what_is_not_understood_is_refused_with_its_place() {
    let mut said = Vec::new();
    // A jump into the middle of an instruction.
    said.push(refusal(&Module::new(&[0xeb, 0x01, 0x48, 0x85, 0xc0, 0xc3])));
    // No instruction.
    said.push(refusal(&Module::new(&[0x90, 0x06])));
    // An operand near the code that nothing places: mov eax,[rip+16].
    said.push(refusal(&Module::new(&[0x8b, 0x05, 16, 0, 0, 0, 0xc3])));
    let mut module = store();
    module.table(".unheard_of", 0, &[0; 4], &[(0, 3)]);
    said.push(refusal(&module));
    let mut module = Module::new(&[0x66, 0x90, 0xc3]);
    module.table("__jump_table", 0, &[0; 16], &[(0, 0), (4, 2)]);
    module.table("__bug_table", 0, &[0; 4], &[(0, 1)]);
    said.push(refusal(&module));
    let mut module = store();
    module.0.symbols.push(Symbol { name: "g".into(), value: 3, size: 8, ..module.0.symbols[3].clone() });
    said.push(refusal(&module));
    let mut module = store();
    module.table("__jump_table", 0, &[0; 16], &[(0, 1), (4, 14)]);
    said.push(refusal(&module));
    let mut module = store();
    module.section(".altinstructions", 0, &[0; 7]);
    said.push(refusal(&module));
    let guarded = store().rewrite(&mut Spread).unwrap().file;
    said.push(rewrite("made.ko", guarded, &mut []).unwrap_err().to_string());
    said.push(rewrite("made.ko", b"\x7fELF".to_vec(), &mut []).unwrap_err().to_string());
    insta::assert_snapshot!(said.join("\n"));
}

/// Sums of what a file says overflowed, which stops debug builds.
#[test]
fn distances_beyond_all_addresses_are_refused() {
    let refused = |module: &Module| {
        let refused = module.rewrite(&mut Checks::new(1)).map(|_| ()).unwrap_err();
        assert!(matches!(refused, crate::RewriteError::Object { .. }), "{refused}");
    };
    for addend in [i64::MIN, i64::MAX] {
        // Of a call, and of an operand in memory: mov eax, [rip+0].
        for code in [&STORE[9..], &[0x8b, 0x05, 0, 0, 0, 0, 0xc3]] {
            let mut module = Module::new(code);
            module.reloc(TEXT, if code[0] == 0xe8 { 1 } else { 2 }, reloc::PC32, 1, addend);
            refused(&module);
        }
        let mut module = store();
        module.table("__ex_table", 0, &[0; 12], &[(0, addend), (4, addend)]);
        refused(&module);
    }
    for (value, size) in [(u64::MAX, 1), (1, u64::MAX)] {
        let mut module = store();
        module.symbol("g", SectionIndex::In(TEXT), value, size, elf::STT_FUNC);
        refused(&module);
    }
}

/// Each symbol of many was given a copy of one name of megabytes.
#[test]
fn long_names_are_refused() {
    for (length, fits) in [(1024, true), (1025, false)] {
        let mut module = store();
        module.0.symbols[3].name = "x".repeat(length);
        assert_eq!(Object::read("made.ko", &module.0.write().unwrap()).is_ok(), fits, "{length}");
        assert_eq!(module.rewrite(&mut Spread).is_ok(), fits, "{length}");
    }
}

#[test]
fn code_that_the_kernel_patches_stays_together() {
    // stac (an alternative of three bytes, as for a store to user memory); mov [rdi],rsi; clac; ret
    let code = [0x90, 0x90, 0x90, 0x48, 0x89, 0x37, 0xc3];
    let mut module = Module::new(&code);
    let entry = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0];
    module.table(".altinstructions", 0, &entry, &[(0, 0), (4, 0)]);
    module.table(".orc_unwind_ip", 0, &[0; 4], &[(0, 1)]);
    module.section(".orc_unwind", 0, &[8, 0, 0, 0, 5, 0]);
    let object = module.spread().unwrap();
    insta::assert_snapshot!(listing(&object, TEXT));
}

#[test]
fn bytes_cut_short_or_changed_give_an_error() {
    let mut module = store();
    module.table("__jump_table", 0, &[0; 16], &[(0, 0), (4, 14)]);
    let file = module.0.write().unwrap();
    for at in 0..file.len() {
        let mut changed = file.clone();
        changed[at] ^= 0x5a;
        let _ = rewrite("made.ko", changed, &mut [&mut Checks::new(1)]);
        let _ = rewrite("made.ko", file[..at].to_vec(), &mut [&mut Spread]);
    }
}
