//! Any words as segments, in any rings: the invariant checker and the statistics take them.
//!
//! Input: for each segment one byte for the ring and the continuation, one for the number of words, then the
//! words.
//! A word whose top byte is even is taken as it is. In all others, bits are folded so that known kinds, low
//! block numbers and plausible lengths are frequent.

#![no_main]

use guardrail_trace::Segment;
use guardrail_trace::event::{Access, Head};
use guardrail_trace::invariants::Checker;

fn fold(word: u64) -> u64 {
    match word >> 56 & 3 {
        0 | 2 => word,
        1 => (word >> 57 & 15) << 56 | (word & 0xf) << 48 | word & 0xff,
        _ => word & 0x1fff,
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    let mut checker = Checker::new();
    let mut ticket = 0;
    while let [shape, count, tail @ ..] = rest {
        let bytes = (usize::from(*count) * 8).min(tail.len());
        let (body, tail) = tail.split_at(bytes);
        rest = tail;
        let words: Vec<u64> =
            body.chunks_exact(8).map(|b| fold(b.try_into().map_or(0, u64::from_le_bytes))).collect();
        for &word in &words {
            if let Some(access) = Access::decode(word) {
                assert_eq!(Access::decode(access.encode()), Some(access));
            }
            if let Some(head) = Head::decode(word) {
                assert_eq!(Head::encode(head.kind, head.small, head.large), word);
            }
        }
        let ring = u32::from(shape & 7);
        checker.segment(&Segment { ring, ticket, continuation: shape & 8 != 0, words: &words });
        ticket += 1 + u64::from(shape >> 7);
    }
    let stats = checker.stats();
    assert!(checker.violations().len() <= 100);
    assert!(stats.violations >= checker.violations().len() as u64);
});
