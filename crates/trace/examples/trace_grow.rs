//! Makes a large trace of a recorded one, by repeating what the run did: `cargo run --release -p guardrail-trace
//! --example trace_grow -- FROM TO MIB`.

use guardrail_trace::file::{Ending, TraceReader, TraceWriter};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, mib] = words.as_slice() else {
        return Err("three words are expected: FROM TO MIB".into());
    };
    let bytes = mib.parse::<u64>()? << 20;
    let mut writer = TraceWriter::create(to, TraceReader::open(from)?.meta())?;
    let mut first = 0;
    loop {
        let (mut reader, mut last) = (TraceReader::open(from)?, None);
        while let Some(segment) = reader.next()? {
            last = Some(segment.ticket);
            writer.segment(segment.ring, first + segment.ticket, segment.continuation, segment.words)?;
        }
        first += last.ok_or("it has no segment")? + 1;
        if writer.bytes() >= bytes {
            let Some(Ending::Complete { summary, .. }) = reader.ending() else {
                return Err("FROM was cut".into());
            };
            return Ok(writer.finish(summary.clone())?);
        }
    }
}
