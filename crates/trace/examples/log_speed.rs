//! Measures how fast the log is: `cargo run --release -p guardrail-trace --example log_speed`.

use guardrail_trace::file::{RunSummary, TraceMeta, TraceReader, TraceWriter};
use guardrail_trace::log::{Log, LogOptions, MergedReader, Next};
use std::time::{Duration, Instant};

const SEGMENTS: u64 = 5_000_000;
const WORDS: u64 = 5;

fn fill(log: &Log, ring: u32) -> Duration {
    let mut writer = log.writer(ring).expect("the ring is free");
    let begun = Instant::now();
    for i in 0..SEGMENTS {
        writer.begin();
        for j in 0..WORDS {
            writer.push(i ^ j << 40);
        }
    }
    writer.finish();
    begun.elapsed()
}

fn drain(mut reader: MergedReader, mut each: impl FnMut(&guardrail_trace::Segment<'_>)) -> u64 {
    let mut sum = 0u64;
    loop {
        match reader.next(Duration::from_secs(10)).expect("the log is in order") {
            Next::Segment(segment) => {
                sum = segment.words.iter().fold(sum, |s, w| s.wrapping_add(*w));
                each(&segment);
            }
            Next::End { .. } => return sum,
            other => panic!("{other:?}"),
        }
    }
}

fn nanos(time: Duration, count: u64) -> f64 {
    time.as_nanos() as f64 / count as f64
}

fn main() {
    let dir = std::path::Path::new("/dev/shm");
    let dir = tempfile::tempdir_in(if dir.is_dir() { dir } else { std::path::Path::new(".") })
        .expect("a folder for the log");
    let words = SEGMENTS * WORDS;

    let log = Log::create_with(dir.path().join("a"), &LogOptions { readers: 0, ..LogOptions::new(1) })
        .expect("a log");
    let mut writer = log.writer(0).expect("the ring is free");
    let begun = Instant::now();
    for i in 0..words {
        writer.push(i);
    }
    writer.finish();
    println!("push alone, no readers:            {:6.2} ns per word", nanos(begun.elapsed(), words));
    println!("segments of {WORDS} words, no readers:    {:6.2} ns per word", nanos(fill(&log, 1), words));

    let log = Log::create(dir.path().join("b"), 1, 1 << 20).expect("a log");
    let reader = MergedReader::attach(&log).expect("a reader");
    log.writer(1).expect("the ring is free").finish();
    let begun = Instant::now();
    let reading = std::thread::spawn(move || drain(reader, |_| ()));
    let writing = fill(&log, 0);
    reading.join().expect("the reader is done");
    println!("segments of {WORDS} words, one reader:    {:6.2} ns per word", nanos(writing, words));
    println!("read to the end:                   {:6.2} ns per word", nanos(begun.elapsed(), words));
    println!("  {:?}", log.stats());

    let log = Log::create(dir.path().join("c"), 1, 1 << 20).expect("a log");
    let reader = MergedReader::attach(&log).expect("a reader");
    log.writer(1).expect("the ring is free").finish();
    let path = dir.path().join("trace");
    let mut file = TraceWriter::create(&path, &TraceMeta::default()).expect("a trace file");
    let begun = Instant::now();
    let writing = std::thread::spawn({
        let log = log.clone();
        move || fill(&log, 0)
    });
    drain(reader, |segment| file.add(segment).expect("room for the trace"));
    file.finish(RunSummary::default()).expect("room for the trace");
    writing.join().expect("the writer is done");
    println!("recorded to a file:                {:6.2} ns per word", nanos(begun.elapsed(), words));

    let begun = Instant::now();
    let mut reader = TraceReader::open(&path).expect("the trace file");
    let mut count = 0;
    while let Some(segment) = reader.next().expect("the trace file is in order") {
        count += segment.words.len() as u64;
    }
    assert_eq!(count, words);
    println!("read from the file:                {:6.2} ns per word", nanos(begun.elapsed(), words));
}
