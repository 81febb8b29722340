//! What can go wrong with a trace file.

use std::io;
use std::path::{Path, PathBuf};

/// An error of a trace file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system refused.
    #[error("cannot {what} the trace {path}", path = .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// No room for the next chunk.
    #[error(
        "the disk is full: the trace {path} ends at byte {offset}; free some space or record elsewhere",
        path = .path.display()
    )]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// How much of it was written.
        offset: u64,
    },
    /// Not a trace file.
    #[error("{path} is not a guardrail trace", path = .path.display())]
    NotATrace {
        /// The file.
        path: PathBuf,
    },
    /// A format that this version does not know.
    #[error(
        "the trace {path} was written by a newer guardrail (format {found}, this one reads up to {known}); \
         update guardrail",
        path = .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this version reads.
        known: u32,
    },
    /// The file is cut before its first chunk.
    #[error(
        "the trace {path} is cut inside its preamble, at byte {offset}: there is nothing to read",
        path = .path.display()
    )]
    NoPreamble {
        /// The file.
        path: PathBuf,
        /// Where it ends.
        offset: u64,
    },
    /// The content is not what its checksum says, or impossible.
    #[error("the trace {path} is corrupt at byte {offset}: {what}", path = .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where the corrupt part begins.
        offset: u64,
        /// What does not fit.
        what: &'static str,
    },
    /// A segment longer than the format allows.
    #[error("segment {ticket} has {words} words, more than a trace file holds in one")]
    SegmentTooLong {
        /// Its ticket.
        ticket: u64,
        /// Its length.
        words: usize,
    },
    /// A segment that does not follow the one before it.
    #[error("segment {ticket} cannot follow segment {last} in a trace")]
    OutOfOrder {
        /// Its ticket.
        ticket: u64,
        /// The ticket before it.
        last: u64,
    },
    /// The writer met an error before.
    #[error("the trace {path} is incomplete after an earlier error", path = .path.display())]
    Poisoned {
        /// The file.
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
