//! Any words in shared memory: a reader that opens the log gets segments, an end or an error.
//!
//! Input: groups of a 16-bit word index and a 64-bit value, stored over a valid log.

#![no_main]

use guardrail_trace::log::{Log, MergedReader, Next};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

static START: OnceLock<(PathBuf, Vec<u8>)> = OnceLock::new();

fn start() -> (PathBuf, Vec<u8>) {
    let path = std::env::temp_dir().join(format!("guardrail-fuzz-{}", std::process::id()));
    let log = Log::create(&path, 1, 1 << 10).expect("room for a log");
    let mut writers = [log.writer(0).expect("free"), log.writer(1).expect("free")];
    for i in 0..20 {
        writers[i % 2].begin();
        (0..i as u64).for_each(|word| writers[i % 2].push(word));
    }
    writers.iter_mut().for_each(|w| w.finish());
    let bytes = std::fs::read(&path).expect("the log can be read");
    (path, bytes)
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (path, bytes) = START.get_or_init(start);
    let mut bytes = bytes.clone();
    for change in data.chunks_exact(10) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) * 8 % bytes.len();
        if let Some(word) = bytes.get_mut(at..at + 8) {
            word.copy_from_slice(&change[2..]);
        }
    }
    std::fs::write(path, &bytes).expect("the log can be written");
    if let Ok(log) = Log::open(path) {
        std::hint::black_box(log.stats());
        if let Ok(mut reader) = MergedReader::attach(&log) {
            for _ in 0..64 {
                match reader.next(Duration::ZERO) {
                    Ok(Next::Segment(segment)) => {
                        std::hint::black_box(segment.events().count());
                    }
                    Ok(Next::Idle) => {}
                    Ok(_) | Err(_) => break,
                }
            }
            std::hint::black_box(reader.lag());
        }
    }
});
