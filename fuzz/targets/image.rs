//! Any bytes as a kernel image: boot header, compression, ELF, and the lists that move it.

#![no_main]

use guardrail_binfmt::KernelImage;
use guardrail_binfmt::direct::{DirectImage, STEP};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(image) = KernelImage::parse("input", data.to_vec()) {
        std::hint::black_box(image.sections().count());
        let text = 0xffff_ffff_8100_0000;
        std::hint::black_box(image.symbol_at(text));
        std::hint::black_box((image.is_text(text), image.bytes_at(text + 0x100_0000, 64).is_some()));
        std::hint::black_box((image.build_id(), image.address_of("_text"), image.relocated_places()));
        std::hint::black_box(image.btf().member_offset("module", "a.b"));
    }
    if let Ok(image) = DirectImage::parse("input", data.to_vec()) {
        std::hint::black_box(image.places(1 << 30));
        std::hint::black_box(image.shifted(STEP));
    }
});
