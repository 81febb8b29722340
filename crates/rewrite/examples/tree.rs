//! Rewrites all modules below folders, with all stores checked, and prints which modules could not be
//! rewritten.
//! Run it as `cargo run --release -p guardrail-rewrite --example tree -- FOLDER…`.

mod modules;

use guardrail_rewrite::passes::checks::{Checks, Stores};
use guardrail_rewrite::rewrite;

fn main() {
    let (mut counts, mut sums) = ((0, 0), [0; NAMES.len()]);
    modules::each("rewritten", |name, data| {
        let mut checks = Checks::new(1);
        let rewritten = rewrite(name, data, &mut [&mut checks])?;
        counts.0 += rewritten.counts.old_bytes;
        counts.1 += rewritten.counts.new_bytes;
        for (sum, count) in sums.iter_mut().zip(numbers(&checks.stores)) {
            *sum += count;
        }
        Ok(())
    });
    println!("bytes {counts:?}");
    for (name, sum) in NAMES.iter().zip(sums) {
        println!("{sum:8} {name}");
    }
}

/// Names of the counts of stores and of calls by pointer, in the order in which they are printed.
const NAMES: [&str; 15] = [
    "checked",
    "of them sharing a check",
    "bits by number",
    "to what may be user memory",
    "strings",
    "per CPU",
    "odd sizes",
    "calls by pointer",
    "with a register saved",
    "with flags kept",
    "into the frame",
    "into own per-CPU variables",
    "into the kernel's per-CPU variables",
    "of what was there",
    "in code that is replaced",
];

fn numbers(stores: &Stores) -> [usize; NAMES.len()] {
    let Stores { checked, merged, bits, user, strings, per_cpu, odd, calls, saved, flags, .. } = *stores;
    let Stores { frame, own, kernel_per_cpu, same, replaced, .. } = *stores;
    [
        checked,
        merged,
        bits,
        user,
        strings,
        per_cpu,
        odd,
        calls,
        saved,
        flags,
        frame,
        own,
        kernel_per_cpu,
        same,
        replaced,
    ]
}
