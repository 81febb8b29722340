//! Errors of logs.

use std::path::PathBuf;

/// Why a log was marked as failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FailReason {
    /// A writer waited for space, and no reader made progress within the whole limit.
    #[error("no reader of the log made progress within the time limit while a ring was full")]
    ReaderStalled,
    /// The reserve for urgent segments was full.
    #[error("the reserve of a ring was full when an interrupt or exception had to be recorded")]
    UrgentOverflow,
    /// Every reader has detached before the run ended.
    #[error("every reader of the log has gone while the driver was still running")]
    ReadersGone,
    /// The supervisor saw a reader die.
    #[error("the analysis ended before the driver did")]
    ReaderDied,
    /// A reader's tail lies outside the written part of the ring.
    #[error("a reader's position in the log is impossible")]
    BadTail,
    /// One record is longer than a segment may be.
    #[error("a record is too long for the rings of this log; make the rings larger")]
    RecordTooLong,
    /// The tracer gave up for a reason of its own, which it prints to its standard error.
    #[error("the tracer gave up")]
    Tracer,
    /// The supervisor ended the run.
    #[error("the run was stopped")]
    Stopped,
    /// A code that this version does not know.
    #[error("unknown reason {0}")]
    Unknown(u32),
}

impl FailReason {
    /// The number for this reason in shared memory; never 0.
    pub fn code(self) -> u32 {
        match self {
            FailReason::ReaderStalled => 1,
            FailReason::UrgentOverflow => 2,
            FailReason::ReadersGone => 3,
            FailReason::ReaderDied => 4,
            FailReason::BadTail => 5,
            FailReason::RecordTooLong => 6,
            FailReason::Tracer => 7,
            FailReason::Stopped => 8,
            FailReason::Unknown(code) => code.max(9),
        }
    }

    /// The reason for a number. `None` for 0, which means that nothing failed.
    pub fn from_code(code: u32) -> Option<FailReason> {
        Some(match code {
            0 => return None,
            1 => FailReason::ReaderStalled,
            2 => FailReason::UrgentOverflow,
            3 => FailReason::ReadersGone,
            4 => FailReason::ReaderDied,
            5 => FailReason::BadTail,
            6 => FailReason::RecordTooLong,
            7 => FailReason::Tracer,
            8 => FailReason::Stopped,
            code => FailReason::Unknown(code),
        })
    }
}

/// Why a log cannot be created or read further.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The options describe a log that cannot exist.
    #[error("cannot lay out a log: {what}")]
    BadOptions {
        /// The option check that failed.
        what: &'static str,
    },
    /// The file system has no room for the log.
    #[error(
        "no room for the log {path}: it needs {bytes} bytes; free some or choose another folder",
        path = .path.display()
    )]
    NoSpace {
        /// Path of the log.
        path: PathBuf,
        /// Size of the log in bytes.
        bytes: u64,
    },
    /// A system call failed.
    #[error("cannot {what} the log {path}", path = .path.display())]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// Path of the log.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The file is not a log, or is damaged.
    #[error("{path} is not a log of this version of guardrail: {what}", path = .path.display())]
    NotALog {
        /// Path of the file.
        path: PathBuf,
        /// The check that failed.
        what: &'static str,
    },
    /// The log has no ring with this index.
    #[error("the log has {rings} rings, there is no ring {ring}")]
    NoSuchRing {
        /// Index of the ring.
        ring: u32,
        /// Number of rings in the log.
        rings: u32,
    },
    /// The ring already has a writer.
    #[error("ring {ring} of the log already has a writer")]
    WriterTaken {
        /// Index of the ring.
        ring: u32,
    },
    /// The log already has all readers that it was created for.
    #[error("the log was created for {readers} readers, and all of them have attached")]
    TooManyReaders {
        /// Number of readers that it was created for.
        readers: u32,
    },
    /// The writer of a ring published an impossible position.
    #[error(
        "ring {ring} of the log is broken: its writer claims position {published}, its reader is at {tail}"
    )]
    BadPosition {
        /// Index of the ring.
        ring: u32,
        /// The writer's position, in words.
        published: u64,
        /// The reader's position, in words.
        tail: u64,
    },
    /// A segment header has an impossible length.
    #[error("ring {ring} of the log is broken at word {position}: the segment there claims {length} words")]
    BadSegment {
        /// Index of the ring.
        ring: u32,
        /// Position of the header in the ring, in words.
        position: u64,
        /// Length that the header claims, in words.
        length: u64,
    },
    /// A ticket was seen before, or no ring has the next one.
    #[error("the order of the log is broken: ring {ring} has ticket {found} where {expected} is next")]
    BadTicket {
        /// Index of the ring.
        ring: u32,
        /// The ticket found.
        found: u64,
        /// The ticket expected.
        expected: u64,
    },
    /// All rings ended in order, but segments are missing.
    #[error("the log ended with {read} segments although {taken} were begun")]
    MissingTickets {
        /// Number of tickets that writers took.
        taken: u64,
        /// Number of segments that the reader read.
        read: u64,
    },
}
