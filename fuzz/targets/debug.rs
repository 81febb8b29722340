//! A saved guest as `guardrail debug` reads it: its kernel is found, its list of modules is followed, and the symbols and
//! unwind tables of both are written for gdb.
//!
//! Input: words over the memory of a sound guest with one module, by page and index. A word may be an address in that
//! memory. Without any, the module is found whole.

#![no_main]

use guardrail_binfmt::orc::Frames;
use guardrail_binfmt::{KernelImage, ModuleImage};
use guardrail_snapshot::script::{self, Module};
use guardrail_snapshot::{Dump, Guest, module_symbols, placed, symbols};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use std::sync::OnceLock;
use tables::{BANNER, Layout, MODULES};

#[allow(dead_code)]
#[path = "../../crates/snapshot/src/tests/core.rs"]
mod guest;
#[allow(dead_code)]
#[path = "../../crates/binfmt/src/image/kernel.rs"]
mod image;
#[allow(dead_code)]
#[path = "../../crates/binfmt/src/module/tests/object.rs"]
mod object;
#[allow(dead_code)]
#[path = "../../crates/binfmt/src/kallsyms/tests/tables.rs"]
mod tables;

/// The names by which the files above know each other.
mod btf {
    pub(crate) use guardrail_binfmt::btf::testing;
}
mod kallsyms {
    pub(crate) mod tests {
        pub(crate) use crate::tables;
    }
}
mod module {
    pub(crate) mod tests {
        pub(crate) use crate::object::{Object, SHF_ALLOC, SHF_EXECINSTR, rela, symbol};
    }
}

/// The table of the pages from [`BANNER`] on, the first of these pages, and how many there are.
const TABLE: u64 = 0x4000;
const PAGE: u64 = 0x1000;
const FIRST: u64 = TABLE + PAGE;
const PAGES: u64 = 8;

/// The files that the guest runs.
struct Files {
    kernel: KernelImage,
    module: ModuleImage,
    memory: Vec<u8>,
}

fn files() -> Files {
    let kernel = KernelImage::parse("kernel", image::kernel(Layout::Last)).expect("it is a kernel");
    let module = ModuleImage::parse("module", image::module()).expect("it is a module");
    let memory = memory(&kernel, &module);
    Files { kernel, module, memory }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    static FILES: OnceLock<Files> = OnceLock::new();
    let files = FILES.get_or_init(files);
    let mut input = Unstructured::new(data);
    let mut memory = files.memory.clone();
    let whole = input.is_empty();
    while !input.is_empty() {
        if change(&mut input, &mut memory).is_err() {
            break;
        }
    }
    let path = std::env::temp_dir().join(format!("guardrail-fuzz-debug-{}", std::process::id()));
    std::fs::write(&path, guest::core(&memory, memory.len() as u64)).expect("room for a core");
    let dump = Dump::open(&path).expect("its headers are sound");
    let found = Guest::find(&dump, &files.kernel);
    assert!(found.is_ok() || !whole, "{found:?}");
    let Ok(found) = found else { return };
    let loaded = found.modules(&files.kernel);
    assert!(!whole || loaded.len() == 1 && loaded[0].sections.len() == 3, "{loaded:?}");
    assert!(loaded.len() <= 1024 && loaded.iter().all(|module| module.sections.len() <= 256));

    let (mut sections, mut names) = found.kernel(&files.kernel);
    let mut frames = Frames::new();
    found.kernel_frames(&files.kernel, &mut frames);
    let mut modules = Vec::new();
    for module in loaded.iter().take(4) {
        let (more_sections, more_names) = module_symbols(module, &files.module);
        sections.extend(more_sections);
        names.extend(more_names);
        found.module_frames(module, &files.module, &mut frames);
        modules.push(Module { file: "module.ko".into(), sections: placed(module, &files.module) });
    }
    std::hint::black_box(symbols::write(&sections, &names, &frames.finish()));
    let script = script::commands(None, &modules).expect("the file has a plain name");
    assert_eq!(script.lines().count(), modules.len(), "{script}");
});

/// The virtual address of a byte of a page.
fn at(page: u64, offset: u64) -> u64 {
    BANNER + page * PAGE + offset
}

fn put(memory: &mut [u8], virt: u64, bytes: &[u8]) {
    let from = (virt - BANNER + FIRST) as usize;
    memory[from..from + bytes.len()].copy_from_slice(bytes);
}

/// The memory of a guest with the banner, and one module with three sections.
fn memory(kernel: &KernelImage, file: &ModuleImage) -> Vec<u8> {
    let mut memory = vec![0; (FIRST + PAGES * PAGE) as usize];
    let index = |level: u32| (BANNER >> (12 + 9 * level) & 511) as usize;
    for (table, level, next) in [(guest::TABLES, 3, 0x2000), (0x2000, 2, 0x3000), (0x3000, 1, TABLE)] {
        guest::entry(&mut memory, table, index(level), next | 3);
    }
    (0..PAGES)
        .for_each(|page| guest::entry(&mut memory, TABLE, index(0) + page as usize, FIRST + page * PAGE | 3));
    let offset =
        |name: &str, member: &str| kernel.btf().member_offset(name, member).expect("it has that member");
    let mut word = |virt: u64, value: u64| put(&mut memory, virt, &value.to_le_bytes());
    let (module, attributes, pointers) = (at(2, 0), at(2, 0x100), at(2, 0x200));
    word(MODULES, module + offset("module", "list"));
    word(module + offset("module", "list"), MODULES);
    word(module + offset("module", "sect_attrs"), attributes);
    let group = offset("module_sect_attrs", "grp") + offset("attribute_group", "bin_attrs");
    word(attributes + group, pointers);
    let sections = [(".text", at(3, 0)), (".orc_unwind_ip", at(3, 0x100)), (".orc_unwind", at(3, 0x200))];
    for (number, (_, address)) in (0..).zip(sections) {
        let attribute = at(2, 0x300 + 0x40 * number);
        word(pointers + 8 * number, attribute);
        word(attribute + offset("bin_attribute", "attr.name"), at(4, 0x20 * number));
        word(attribute + offset("bin_attribute", "private"), address);
    }
    put(&mut memory, BANNER, &image::VERSION);
    put(&mut memory, module + offset("module", "name"), b"tables\0");
    for (number, (name, address)) in (0..).zip(sections) {
        put(&mut memory, at(4, 0x20 * number), name.as_bytes());
        let index = file.section_index(name).expect("the module has that section");
        put(&mut memory, address, file.section_bytes(index));
    }
    memory
}

/// Writes one word.
fn change(input: &mut Unstructured<'_>, memory: &mut [u8]) -> Result<()> {
    let [what, page, index] = input.arbitrary::<[u8; 3]>()?;
    // Most words are in the pages of the module, some in page tables.
    let page = if what & 7 == 0 {
        u64::from(page) % (FIRST / PAGE + PAGES)
    } else {
        FIRST / PAGE + u64::from(page) % PAGES
    };
    let value = match what >> 3 & 7 {
        0..=3 => {
            let [page, index] = input.arbitrary::<[u8; 2]>()?;
            at(u64::from(page) % PAGES, u64::from(index) * 8)
        }
        4 => u64::from(input.arbitrary::<u8>()?) << 12 | 3,
        5 => input.arbitrary::<u8>()?.into(),
        6 => MODULES,
        _ => input.arbitrary()?,
    };
    let from = (page * PAGE + u64::from(index) * 8) as usize;
    memory[from..from + 8].copy_from_slice(&value.to_le_bytes());
    Ok(())
}
