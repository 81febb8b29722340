//! Writes small trace files as seeds for the fuzzer: `cargo run --example trace_seed FOLDER`.

use guardrail_trace::event::{Access, Head, Kind};
use guardrail_trace::file::{RunSummary, TraceMeta, TraceWriter};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("name a folder")?;
    let folder = std::path::Path::new(&folder);
    for (name, chunks, finish) in
        [("empty", 0, true), ("one", 1, true), ("three", 3, true), ("cut", 2, false)]
    {
        let mut writer = TraceWriter::create(folder.join(name), &TraceMeta::default())?;
        for ticket in 0..chunks * 4 {
            let access = Access { addr: 8 * ticket, size: 8, store: ticket % 2 == 0, io: false, insn: 1 };
            let words =
                [Head::encode(Kind::BlockDef, 0, ticket), 4096, 8, 0, Head::encode(Kind::Block, 0, ticket)];
            writer.segment(0, ticket * 2, false, &words)?;
            writer.segment(1, ticket * 2 + 1, true, &[access.encode()])?;
            if ticket % 4 == 3 {
                writer.flush()?;
            }
        }
        if finish {
            writer.finish(RunSummary::default())?;
        } else {
            writer.flush()?;
        }
    }
    Ok(())
}
