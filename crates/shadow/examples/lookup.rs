//! Measures a lookup in nanoseconds:
//! - of the same few addresses;
//! - of addresses spread over the shadow of 1 GB of memory;
//! - of memory without marks.
//!
//! Usage: `cargo run --release -p guardrail-shadow --example lookup`

use guardrail_shadow::{Limits, Shadow};
use std::hint::black_box;
use std::time::Instant;

const BASE: u64 = 0xffff_8880_0000_0000;
const LOOKUPS: u64 = 50_000_000;
const MEMORY: u64 = 1 << 30;

fn main() {
    println!("bits  where                                ns a lookup");
    measure::<1>();
    measure::<2>();
    measure::<8>();
}

fn measure<const BITS: u32>() {
    let shadow = Shadow::<BITS>::new(Limits::bytes(2 << 30)).expect("the host gives address space");
    // Every eighth byte is marked, as if all memory were objects of 64 bytes with a gap.
    let begin = Instant::now();
    for i in 0..MEMORY / 64 {
        shadow.fill(BASE + 64 * i + 56, 8, 1);
    }
    let mark = begin.elapsed().as_secs_f64() / (MEMORY / 64) as f64;
    let hot = |i: u64| BASE + (i % 64) * 64;
    let random = |i: u64| BASE + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) % (MEMORY / 8) * 8;
    let absent = |i: u64| random(i).wrapping_add(1 << 36);
    print::<BITS>("the same 64 places", time(&shadow, hot));
    print::<BITS>("anywhere in 1 GB", time(&shadow, random));
    print::<BITS>("anywhere in 1 GB, nothing marked", time(&shadow, absent));
    print::<BITS>("(marking 8 bytes, page by page)", mark * 1e9);
    println!("      resident: {} MB for {} MB of memory", shadow.resident() >> 20, MEMORY >> 20);
}

fn print<const BITS: u32>(what: &str, nanoseconds: f64) {
    println!("{BITS:4}  {what:35} {nanoseconds:8.2}");
}

/// Nanoseconds of a lookup, without the time to compute the address.
fn time<const BITS: u32>(shadow: &Shadow<BITS>, address: impl Fn(u64) -> u64) -> f64 {
    let run = |look: &dyn Fn(u64) -> u64| {
        let begin = Instant::now();
        black_box(look(LOOKUPS));
        begin.elapsed().as_secs_f64()
    };
    let plain = run(&|n| (0..n).fold(0, |sum, i| sum ^ black_box(address(i))));
    let looked = run(&|n| (0..n).fold(0, |sum, i| sum + u64::from(shadow.any(black_box(address(i)), 8))));
    (looked - plain) / LOOKUPS as f64 * 1e9
}
