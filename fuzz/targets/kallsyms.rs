//! Any bytes as the read-only data of a kernel, with a symbol table in it.

#![no_main]

use guardrail_binfmt::kallsyms::Symbols;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let text = (0xffff_ffff_8100_0000, 0xffff_ffff_8200_0000);
    if let Ok(symbols) = Symbols::decode(data, 0xffff_ffff_8220_0000, text) {
        std::hint::black_box(symbols.iter().count());
        std::hint::black_box(symbols.at(text.0));
        std::hint::black_box(symbols.address_of("a"));
    }
    if let Ok(text) = std::str::from_utf8(data) {
        std::hint::black_box(Symbols::from_proc(text).len());
    }
});
