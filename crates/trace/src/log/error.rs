//! What can go wrong with a log.

use std::path::PathBuf;

/// Why a log was marked as failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FailReason {
    /// A writer waited for space and no reader made progress for the whole limit.
    #[error("no reader of the log made progress within the time limit while a ring was full")]
    ReaderStalled,
    /// The reserve for urgent segments was full.
    #[error("the reserve of a ring was full when an interrupt or exception had to be recorded")]
    UrgentOverflow,
    /// Every reader has detached while the run went on.
    #[error("every reader of the log has gone while the driver was still running")]
    ReadersGone,
    /// The supervisor saw a reader die.
    #[error("the analysis ended before the driver did")]
    ReaderDied,
    /// A reader's tail lies outside what was written.
    #[error("a reader's position in the log is impossible")]
    BadTail,
    /// One record is longer than a segment may be.
    #[error("a record is too long for the rings of this log; make the rings larger")]
    RecordTooLong,
    /// The tracer gave up for a reason of its own.
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
    /// The number that stands for it in shared memory; never 0.
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

    /// The reason for a number; `None` for 0, which says that nothing failed.
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

/// An error of a log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The options ask for a log that cannot be.
    #[error("cannot lay out a log: {what}")]
    BadOptions {
        /// What is wrong with them.
        what: &'static str,
    },
    /// The file system has no room.
    #[error(
        "no room for the log {path}: it needs {bytes} bytes; free some or choose another folder",
        path = .path.display()
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The operating system refused.
    #[error("cannot {what} the log {path}", path = .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Its answer.
        source: std::io::Error,
    },
    /// Not a log, or damaged.
    #[error("{path} is not a log of this version of guardrail: {what}", path = .path.display())]
    NotALog {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        what: &'static str,
    },
    /// A ring that the log does not have.
    #[error("the log has {rings} rings, there is no ring {ring}")]
    NoSuchRing {
        /// The ring asked for.
        ring: u32,
        /// How many there are.
        rings: u32,
    },
    /// A second writer for one ring.
    #[error("ring {ring} of the log already has a writer")]
    WriterTaken {
        /// The ring.
        ring: u32,
    },
    /// More readers than the log was created for.
    #[error("the log was created for {readers} readers, and all of them have attached")]
    TooManyReaders {
        /// How many it was created for.
        readers: u32,
    },
    /// The writer of a ring published a position that cannot be.
    #[error(
        "ring {ring} of the log is broken: its writer claims position {published}, its reader is at {tail}"
    )]
    BadPosition {
        /// The ring.
        ring: u32,
        /// The writer's position.
        published: u64,
        /// The reader's.
        tail: u64,
    },
    /// A segment header that cannot be.
    #[error("ring {ring} of the log is broken at word {position}: the segment there claims {length} words")]
    BadSegment {
        /// The ring.
        ring: u32,
        /// Where the header is.
        position: u64,
        /// The length it claims.
        length: u64,
    },
    /// A ticket that came before, or one that no ring has.
    #[error("the order of the log is broken: ring {ring} has ticket {found} where {expected} is next")]
    BadTicket {
        /// The ring.
        ring: u32,
        /// What it has.
        found: u64,
        /// What should be next.
        expected: u64,
    },
    /// All rings ended in order, but segments are missing.
    #[error("the log ended with {read} segments although {taken} were begun")]
    MissingTickets {
        /// Tickets that writers took.
        taken: u64,
        /// Segments that were read.
        read: u64,
    },
}
