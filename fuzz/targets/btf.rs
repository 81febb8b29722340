//! Any bytes as BTF type information.

#![no_main]

use guardrail_binfmt::Btf;
use std::sync::Arc;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // Parses the bytes as a kernel's BTF, and then as a module's on top of it.
    let Ok(base) = Btf::parse(data, None) else { return };
    let base = Arc::new(base);
    let module = Btf::parse(data, Some(base.clone()));
    for btf in [Some(&*base), module.as_ref().ok()].into_iter().flatten() {
        std::hint::black_box(btf.end_id());
        for name in ["module", "a", ""] {
            std::hint::black_box(btf.member_offset(name, "a.b"));
            std::hint::black_box(btf.struct_named(name).and_then(|id| btf.size_of(id)));
            std::hint::black_box(btf.enum_value(name));
            std::hint::black_box(btf.func_proto(name));
        }
    }
});
