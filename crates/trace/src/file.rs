//! Trace files: a run's segments in merged order, compressed and indexed.
//!
//! All numbers are little endian.
//!
//! | part | content |
//! |---|---|
//! | preamble | magic (8 bytes), format version (u32), length of the metadata (u32), its CRC-32 (u32), metadata as JSON |
//! | chunks | 64 bytes of header (see `ChunkHeader`), then segments, compressed with zstd |
//! | end block | a chunk header of its own kind, then JSON: totals, outcome, index |
//! | trailer | offset of the end block (u64), CRC-32 of it (u32), magic (8 bytes) |
//!
//! In a chunk, a segment is its ticket, one word `ring << 48 | flags << 40 | number of words`, and its words.
//!
//! Readers read a cut file up to the last whole chunk. A change that an older reader would misread
//! increments [`FORMAT`], and older readers then refuse the file. Additions to the JSON parts do not
//! increment it.

mod error;
mod format;
mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub use error::FileError;
pub use reader::TraceReader;
pub use writer::TraceWriter;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The format version that this crate writes, and the newest that it reads. Version 1 has no
/// [`Stack`](crate::event::Kind::Stack).
pub const FORMAT: u32 = 2;

/// Metadata of a trace: what was recorded, and where. The recorder writes it first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceMeta {
    /// Version of Guardrail that recorded the trace.
    pub guardrail: String,
    /// The driver, as the user named it.
    pub driver: String,
    /// Release of the kernel, as `uname -r` prints it.
    pub kernel_release: String,
    /// Path of the kernel image.
    pub kernel_image: String,
    /// Names and file paths of the watched modules.
    pub modules: Vec<(String, String)>,
    /// Name or path of the workload.
    pub workload: String,
    /// The tools that ran during the recording: checkers with their options.
    pub tools: Vec<String>,
    /// Names of the hooked functions. The index is the hook number in events.
    pub hooks: Vec<String>,
    /// Number of vCPUs. The control ring has this number as its index.
    pub vcpus: u32,
    /// When the run started, in seconds since 1970.
    pub started: u64,
    /// Further values from the writer to the reader, by name.
    pub more: BTreeMap<String, serde_json::Value>,
}

/// How the recorded run ended, as the recorder saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSummary {
    /// The outcome, in the words of the report.
    pub outcome: String,
    /// True where the log itself was cut: its producer died.
    pub cut: bool,
    /// Further values from the recorder, by name.
    pub more: BTreeMap<String, serde_json::Value>,
}

/// Totals of a complete file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Number of chunks in the file.
    pub chunks: u64,
    /// Number of segments in the file.
    pub segments: u64,
    /// Number of event words in the file.
    pub words: u64,
}

/// How a trace file ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The recorder finished the file.
    Complete {
        /// How the recorded run ended.
        summary: RunSummary,
        /// Totals of the file.
        totals: Totals,
    },
    /// The file was cut.
    Truncated {
        /// Ticket of the last whole segment; `None` where the file has none.
        last_ticket: Option<u64>,
        /// Byte offset where the readable part ends.
        offset: u64,
    },
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ending::Complete { totals, .. } => {
                write!(f, "complete: {} segments, {} words", totals.segments, totals.words)
            }
            Ending::Truncated { last_ticket: Some(ticket), offset } => {
                write!(f, "cut short: the last segment that can be read is {ticket}, before byte {offset}")
            }
            Ending::Truncated { last_ticket: None, offset } => {
                write!(f, "cut short before the first segment, at byte {offset}")
            }
        }
    }
}
