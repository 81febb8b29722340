//! Any bytes as a kernel image: boot header, compression, ELF, and the lists that move it.

#![no_main]

use guardrail_binfmt::KernelImage;
use guardrail_binfmt::direct::{DirectImage, STEP};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(image) = KernelImage::parse("input", data.to_vec()) {
        std::hint::black_box(image.sections().count());
        std::hint::black_box(image.symbol_at(0xffff_ffff_8100_0000));
    }
    if let Ok(image) = DirectImage::parse("input", data.to_vec()) {
        std::hint::black_box(image.places(1 << 30));
        std::hint::black_box(image.shifted(STEP));
    }
});
