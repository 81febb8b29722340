//! Any bytes as a module: ELF, compression, placement, constants, source lines, prototypes, types.

#![no_main]

use guardrail_binfmt::{Btf, Lines, ModuleImage, prototypes};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(module) = ModuleImage::parse("input", data.to_vec()) else { return };
    let values: Vec<u64> =
        (0..module.symbols().len() as u64).map(|i| 0xffff_ffff_c000_0000 + i * 16).collect();
    if let Some(placed) = module.place(&values) {
        std::hint::black_box(placed.function_at(0xffff_ffff_c000_0040));
    }
    if let Some(lines) = Lines::of_module(&module) {
        // The seeds have code in these sections.
        for section in 1..6 {
            std::hint::black_box((lines.line(section, 0), lines.frames(section, 5)));
        }
    }
    std::hint::black_box(
        module.constant_sections().map(|index| module.section_bytes(index).len()).sum::<usize>(),
    );
    std::hint::black_box(prototypes::of_module(&module));
    std::hint::black_box(prototypes::enumeration(&module, "box"));
    std::hint::black_box((module.name(), module.release(), module.build_id(), module.ex_table()));
    std::hint::black_box((module.depends().count(), module.aliases().count()));
    let names = module.symbols().iter().map(|symbol| module.symbol_name(symbol).len());
    std::hint::black_box(names.sum::<usize>());
    if let Some(Ok(types)) = module.btf_bytes().map(|bytes| Btf::parse(bytes, None)) {
        std::hint::black_box((types.func_proto("module"), types.member_offset("module", "a.b")));
    }
});
