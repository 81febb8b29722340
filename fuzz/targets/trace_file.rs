//! Any bytes as a trace file: segments, an ending or an error.

#![no_main]

use guardrail_trace::file::TraceReader;
use std::io::Cursor;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(mut reader) = TraceReader::from_input(Cursor::new(data), "input") {
        while let Ok(Some(segment)) = reader.next() {
            std::hint::black_box(segment.events().count());
        }
    }
});
