//! Rewrites all modules below folders with all stores checked, and tells what could not be: `cargo run --release -p guardrail-rewrite --example tree -- FOLDER…`.

use guardrail_rewrite::checks::{Checks, Stores};
use guardrail_rewrite::rewrite;
use std::path::{Path, PathBuf};

fn main() {
    let mut files = Vec::new();
    for folder in std::env::args_os().skip(1) {
        find(Path::new(&folder), &mut files);
    }
    files.sort();
    let (mut good, mut bad) = (0, 0);
    let mut own: Vec<String> = Vec::new();
    let (mut counts, mut sums) = ((0, 0), [0; NAMES.len()]);
    for file in files {
        let what = file.display().to_string();
        let mut checks = Checks::new(1);
        let result = std::fs::read(&file)
            .map_err(|error| error.to_string())
            .and_then(|data| rewrite(&what, data, &mut [&mut checks]).map_err(|error| error.to_string()));
        match result {
            Ok(rewritten) => {
                good += 1;
                own.extend(
                    rewritten
                        .own
                        .iter()
                        .map(|name| format!("{name} in {}", what.rsplit('/').next().unwrap_or_default())),
                );
                counts.0 += rewritten.counts.old_bytes;
                counts.1 += rewritten.counts.new_bytes;
                for (sum, count) in sums.iter_mut().zip(numbers(&checks.stores)) {
                    *sum += count;
                }
            }
            Err(error) => {
                bad += 1;
                println!("{}: {error}", file.file_name().unwrap_or_default().to_string_lossy());
            }
        }
    }
    println!("bytes {counts:?}");
    for (name, sum) in NAMES.iter().zip(sums) {
        println!("{sum:8} {name}");
    }
    println!("{good} rewritten, {bad} not");
}

/// What became of stores, and of calls by pointer.
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
    "into own variables",
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

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, files);
        } else if path.to_string_lossy().contains(".ko") {
            files.push(path);
        }
    }
}
