//! Writes sound modules, kernels, symbol tables and types as seeds for the fuzzer: `cargo run --example binfmt_seed
//! CORPUS`. Each target has a folder of its name there.
//!
//! They are made by what the unit tests make them with.

use module::tests::sample;
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
        ("tables", image::module()),
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
