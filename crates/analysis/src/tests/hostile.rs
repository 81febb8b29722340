//! Words that no tracer wrote.

use super::guest::*;
use super::rng::Rng;
use guardrail_trace::event::{Head, Kind};

impl Rng {
    /// A word from a small set of awkward ones, or a random one.
    fn word(&mut self) -> u64 {
        const AWKWARD: [u64; 16] = [
            0,
            1,
            u64::MAX,
            u64::MAX - 4096,
            1 << 63,
            1 << 47,
            HEAP,
            HEAP + 4090,
            STACK,
            STACK - 8,
            F,
            SLOTS,
            TASK,
            VMALLOC,
            MMIO,
            4096,
        ];
        match self.next() % 8 {
            0..=4 => AWKWARD[self.next() as usize % AWKWARD.len()],
            5 => self.next() % 512,
            6 => HEAP + self.next() % 0x4000,
            _ => self.next(),
        }
    }
}

/// Words that look somewhat like a segment.
pub fn segment(rng: &mut Rng) -> Vec<u64> {
    let mut words = Vec::new();
    for _ in 0..rng.next() % 6 {
        if rng.next().is_multiple_of(3) {
            words.push(rng.word() | 1 << 63);
            continue;
        }
        let Some(kind) = Kind::from_bits((rng.next() % 23) as u8) else { continue };
        let large = if rng.next().is_multiple_of(2) { rng.next() % 20 } else { rng.word() };
        let head = Head::encode(kind, (rng.next() % 16) as u8, large);
        words.push(head);
        let mut operands: Vec<u64> = (0..40).map(|_| rng.word()).collect();
        match kind {
            Kind::BlockDef => operands[1] = 1 + rng.next() % 60,
            Kind::ModuleLoad | Kind::OtherModule => operands[0] = rng.next() % 10,
            _ => {}
        }
        let n = Head::decode(head).and_then(|h| h.operands(&operands)).unwrap_or(0).min(operands.len());
        words.extend(&operands[..n]);
    }
    if rng.next().is_multiple_of(50) {
        words.push(rng.next() >> 1);
    }
    words
}

#[test]
fn any_words_are_survived() {
    for seed in 1..40u64 {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut guest = Guest::new();
        for _ in 0..300 {
            let words = segment(&mut rng);
            guest.raw((rng.next() % 3) as u32, &words);
        }
        let report = guest.finish();
        assert!(report.statistics.segments > 0);
    }
}

#[test]
fn equal_words_give_equal_reports() {
    let run = || {
        let mut rng = Rng(77);
        let mut guest = Guest::new();
        for _ in 0..500 {
            let words = segment(&mut rng);
            guest.raw((rng.next() % 3) as u32, &words);
        }
        guest.finish()
    };
    assert_eq!(run(), run());
}
