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
//! In a chunk a segment is its ticket, one word `ring << 48 | flags << 40 | number of words`, and the words.
//!
//! A file that was cut reads up to the last whole chunk. When the format changes so that an older reader
//! would misread it, [`FORMAT`] goes up, and older readers refuse the file; additions to the JSON parts do not count.

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

/// The version of the format that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// What a trace is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceMeta {
    /// Version of guardrail that recorded it.
    pub guardrail: String,
    /// The driver, as the user named it.
    pub driver: String,
    /// Release of the kernel, as `uname -r` prints it.
    pub kernel_release: String,
    /// Path of the kernel image.
    pub kernel_image: String,
    /// The modules' names and files.
    pub modules: Vec<(String, String)>,
    /// Name or path of the workload.
    pub workload: String,
    /// The tools that ran when it was recorded.
    pub tools: Vec<String>,
    /// Names of the hooked functions; the index is the hook number in events.
    pub hooks: Vec<String>,
    /// Number of vCPUs; the control ring has this index.
    pub vcpus: u32,
    /// When the run started, in seconds since 1970.
    pub started: u64,
    /// Whatever else the writer wants the reader to know.
    pub more: BTreeMap<String, serde_json::Value>,
}

/// How the recorded run ended, as the recorder saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSummary {
    /// The outcome, in the words of the report.
    pub outcome: String,
    /// The log itself was cut: its producer died.
    pub cut: bool,
    /// Whatever else the recorder wants to tell.
    pub more: BTreeMap<String, serde_json::Value>,
}

/// What a whole file holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Number of chunks.
    pub chunks: u64,
    /// Number of segments.
    pub segments: u64,
    /// Number of event words.
    pub words: u64,
}

/// Where a trace file ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The recorder finished the file.
    Complete {
        /// How the run ended.
        summary: RunSummary,
        /// What the file holds.
        totals: Totals,
    },
    /// The file was cut.
    Truncated {
        /// The last segment that could be read, if any could.
        last_ticket: Option<u64>,
        /// Where the part that can be read ends.
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
