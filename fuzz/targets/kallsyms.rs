//! Any bytes as the read-only data of a kernel, with a symbol table in it.

#![no_main]

use guardrail_binfmt::kallsyms::Symbols;
use tables::{RODATA, TEXT};

/// The seeds are of these tables.
#[allow(dead_code)]
#[path = "../../crates/binfmt/src/kallsyms/tests/tables.rs"]
mod tables;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(symbols) = Symbols::decode(data, RODATA, TEXT) {
        std::hint::black_box(symbols.iter().count());
        std::hint::black_box(symbols.at(TEXT.0));
        std::hint::black_box(symbols.address_of("a"));
    }
    if let Ok(text) = std::str::from_utf8(data) {
        std::hint::black_box(Symbols::from_proc(text).len());
    }
});
