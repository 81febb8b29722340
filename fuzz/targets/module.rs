//! Any bytes as a module: ELF, compression, placement, constants, source lines, prototypes.

#![no_main]

use guardrail_binfmt::{Lines, ModuleImage, prototypes};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(module) = ModuleImage::parse("input", data.to_vec()) else { return };
    let values: Vec<u64> =
        (0..module.symbols().len() as u64).map(|i| 0xffff_ffff_c000_0000 + i * 16).collect();
    if let Some(placed) = module.place(&values) {
        std::hint::black_box(placed.function_at(0xffff_ffff_c000_0040));
    }
    if let Some(lines) = Lines::of_module(&module) {
        std::hint::black_box(lines.line(1, 0));
    }
    std::hint::black_box(
        module.constant_sections().map(|index| module.section_bytes(index).len()).sum::<usize>(),
    );
    std::hint::black_box(prototypes::of_module(&module));
});
