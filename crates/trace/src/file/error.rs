//! Errors of trace files.

use std::io;
use std::path::{Path, PathBuf};

/// Why a trace file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A system call failed.
    #[error("cannot {what} the trace {path}", path = .path.display())]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// Path of the trace file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The disk has no room for the next chunk.
    #[error(
        "the disk is full: the trace {path} ends at byte {offset}; free some space or record elsewhere",
        path = .path.display()
    )]
    DiskFull {
        /// Path of the trace file.
        path: PathBuf,
        /// Bytes written before the disk was full.
        offset: u64,
    },
    /// The file does not begin with the magic of trace files.
    #[error("{path} is not a guardrail trace", path = .path.display())]
    NotATrace {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file has a format version newer than this reader knows.
    #[error(
        "the trace {path} was written by a newer guardrail (format {found}, this one reads up to {known}); \
         update guardrail",
        path = .path.display()
    )]
    Newer {
        /// Path of the trace file.
        path: PathBuf,
        /// Format version of the file.
        found: u32,
        /// Newest format version that this reader knows.
        known: u32,
    },
    /// The file is cut before its first chunk.
    #[error(
        "the trace {path} is cut inside its preamble, at byte {offset}: there is nothing to read",
        path = .path.display()
    )]
    NoPreamble {
        /// Path of the trace file.
        path: PathBuf,
        /// Length of the file in bytes.
        offset: u64,
    },
    /// The content does not match its checksum, or has an impossible value.
    #[error("the trace {path} is corrupt at byte {offset}: {what}", path = .path.display())]
    Corrupt {
        /// Path of the trace file.
        path: PathBuf,
        /// Byte offset where the corrupt part begins.
        offset: u64,
        /// The check that failed.
        what: &'static str,
    },
    /// The writer got a segment longer than the format allows.
    #[error("segment {ticket} has {words} words, more than a trace file holds in one")]
    SegmentTooLong {
        /// Ticket of the segment.
        ticket: u64,
        /// Length of the segment in words.
        words: usize,
    },
    /// The writer got a segment whose ticket is not greater than the one before it.
    #[error("segment {ticket} cannot follow segment {last} in a trace")]
    OutOfOrder {
        /// Ticket of the segment.
        ticket: u64,
        /// Ticket of the segment before it.
        last: u64,
    },
    /// An earlier write failed, so the writer accepts no more segments.
    #[error("the trace {path} is incomplete after an earlier error", path = .path.display())]
    Poisoned {
        /// Path of the trace file.
        path: PathBuf,
    },
}

impl FileError {
    pub(super) fn io(what: &'static str, path: &Path, source: io::Error) -> FileError {
        FileError::Io { what, path: path.to_owned(), source }
    }

    pub(super) fn write(path: &Path, offset: u64, source: io::Error) -> FileError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                FileError::DiskFull { path: path.to_owned(), offset }
            }
            _ => FileError::io("write", path, source),
        }
    }
}
