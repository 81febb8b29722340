//! Any unwind tables of a kernel and a module: for all of them, stack frames are written.
//!
//! Input: two bytes for how many rows the first table has, then the tables of the kernel and of a module:
//! distances, rows.

#![no_main]

use guardrail_binfmt::orc::Frames;

/// Bytes of a row, and of its place.
const ENTRY: usize = 6;
const PLACE: usize = 4;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((count, mut rest)) = data.split_first_chunk::<2>() else { return };
    let mut frames = Frames::new();
    for start in [0xffff_ffff_8100_0000u64, 0xffff_ffff_ffff_f000] {
        let count = usize::from(u16::from_le_bytes(*count)).min(rest.len() / (ENTRY + PLACE));
        let (places, more) = rest.split_at(count * PLACE);
        let (entries, more) = more.split_at(count * ENTRY);
        frames.add(Some(start..start.saturating_add(0x10_0000)), start, places, entries);
        rest = more;
    }
    std::hint::black_box(frames.finish());
});
