//! Any bytes as a format of the kernel's `printf`.

#![no_main]

use guardrail_knowledge::format::arguments;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let all = arguments(data, data.len());
    for argument in &all {
        assert!(argument.conversion.is_ascii() && argument.conversion.starts_with(b"%"));
        assert!(matches!(argument.bytes, 1 | 2 | 4 | 8));
    }
    let most = usize::from(data.first().copied().unwrap_or(0) % 17);
    assert_eq!(arguments(data, most), &all[..most.min(all.len())]);
});
