//! Writes sound modules, kernels, symbol tables and types as seeds for the fuzzer: `cargo run --example binfmt_seed
//! CORPUS`. Each target has a folder of its name there.
//!
//! They are made by what the unit tests make them with.

use module::tests::{Object, SHF_ALLOC, SHF_EXECINSTR, rela, sample, symbol};
use std::error::Error;
use std::path::Path;
use tables::{LAYOUTS, Layout};

#[path = "../src/direct/kernel.rs"]
mod direct;
#[path = "../src/image/kernel.rs"]
mod image;
#[path = "../src/lines/dwarf.rs"]
mod lines;
#[path = "../src/module/tests/object.rs"]
mod object;
#[path = "../src/prototypes/dwarf.rs"]
mod prototypes;
#[path = "../src/kallsyms/tests/tables.rs"]
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
        pub(crate) use crate::object::{Object, SHF_ALLOC, SHF_EXECINSTR, rela, sample, symbol};
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let corpus = std::env::args_os().nth(1).ok_or("name a folder")?;
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let folder = Path::new(&corpus).join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)
    };
    let modules = [
        ("plain", sample()),
        ("tables", with_tables()),
        ("lines", lines::module(0).0),
        ("lines-zlib", lines::module(1).0),
        ("lines-zstd", lines::module(2).0),
        ("prototypes", prototypes::functions()),
    ];
    for (name, bytes) in &modules {
        write("module", name, bytes)?;
        write("rewrite", name, bytes)?;
    }
    let kernel = image::kernel(Layout::Last);
    for (name, bytes) in image::packed(&modules[0].1) {
        write("module", name, &bytes)?;
    }
    for (name, bytes) in image::packed(&kernel) {
        write("image", name, &image::bz_image(&bytes))?;
    }
    write("image", "bz-image", &image::bz_image(&kernel))?;
    for (number, layout) in LAYOUTS.into_iter().enumerate() {
        write("image", &format!("elf-{number}"), &image::kernel(layout))?;
        write("kallsyms", &format!("tables-{number}"), &tables::build(layout))?;
    }
    let at = direct::at;
    for (name, lists) in
        [("direct", &[0, at(0), 0, at(8), 0, at(16)][..]), ("direct-2", &[0, at(0x30), 0, at(16)])]
    {
        write("image", name, &direct::kernel(lists))?;
    }
    write("btf", "types", &image::types())?;
    Ok(())
}

/// A module with types, unwind tables, a build id, and a table of addresses that the loader relocates.
fn with_tables() -> Vec<u8> {
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
    object.section(".BTF", 1, 0, &image::types());
    let note = [4u32, 20, 3].map(u32::to_le_bytes).concat();
    object.section(".note.gnu.build-id", 7, SHF_ALLOC, &[&note[..], b"GNU\0", &[0xab; 20]].concat());
    object.build()
}
