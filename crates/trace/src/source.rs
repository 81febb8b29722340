//! Where segments come from: a running guest or a recorded trace, to those who read them all the same.

use crate::Segment;
use crate::file::{Ending, FileError, TraceReader};
use crate::log::{FailReason, LogError, MergedReader, Next};
use std::io::{Read, Seek};
use std::time::Duration;

/// What a source has next.
#[derive(Debug)]
pub enum Step<'a> {
    /// The next segment in the order of the run.
    Segment(Segment<'a>),
    /// Nothing for now; ask again. Only live sources say this.
    Idle,
    /// There is no more.
    End(SourceEnd),
}

/// How a source ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEnd {
    /// All of it was read.
    Complete,
    /// It stops in the middle: the producer died or the file is cut. The text says where.
    Cut(String),
    /// The log was marked as failed.
    Failed(FailReason),
}

/// Why a source cannot be read further.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The live log is broken.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The trace file is.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Gives segments in the order of the run.
pub trait Source {
    /// The next step.
    fn step(&mut self) -> Result<Step<'_>, SourceError>;

    /// Everything handed out so far has been checked; a guest may wait for that.
    fn checked(&mut self) {}
}

/// A live log, with the time after which an idle one says so.
#[derive(Debug)]
pub struct Live {
    /// The reader.
    pub reader: MergedReader,
    /// How long to wait for a segment.
    pub timeout: Duration,
}

impl Source for Live {
    fn step(&mut self) -> Result<Step<'_>, SourceError> {
        let ticket = self.reader.next_ticket();
        Ok(match self.reader.next(self.timeout)? {
            Next::Segment(segment) => Step::Segment(segment),
            Next::Idle => Step::Idle,
            Next::End { cut: false } => Step::End(SourceEnd::Complete),
            Next::End { cut: true } => {
                Step::End(SourceEnd::Cut(format!("the guest died before segment {ticket}")))
            }
            Next::Failed(reason) => Step::End(SourceEnd::Failed(reason)),
        })
    }

    #[inline]
    fn checked(&mut self) {
        self.reader.tell_checked();
    }
}

impl<R: Read + Seek> Source for TraceReader<R> {
    fn step(&mut self) -> Result<Step<'_>, SourceError> {
        // Two looks, because what `next` lends cannot be returned from one branch only.
        if self.at_end()? {
            return Ok(Step::End(match self.ending() {
                Some(ending @ Ending::Truncated { .. }) => SourceEnd::Cut(ending.to_string()),
                Some(Ending::Complete { summary, .. }) if summary.cut => {
                    SourceEnd::Cut("the guest died before the driver was done".to_owned())
                }
                _ => SourceEnd::Complete,
            }));
        }
        Ok(self.next()?.map_or(Step::Idle, Step::Segment))
    }
}

/// Segments in memory, for tests and fuzzing.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    segments: std::collections::VecDeque<(u32, bool, Vec<u64>)>,
    current: Vec<u64>,
    ticket: u64,
}

impl Memory {
    /// Adds a segment; tickets count from 0.
    pub fn add(&mut self, ring: u32, continuation: bool, words: Vec<u64>) {
        self.segments.push_back((ring, continuation, words));
    }
}

impl Source for Memory {
    fn step(&mut self) -> Result<Step<'_>, SourceError> {
        let Some((ring, continuation, words)) = self.segments.pop_front() else {
            return Ok(Step::End(SourceEnd::Complete));
        };
        self.current = words;
        self.ticket += 1;
        let words = &self.current;
        Ok(Step::Segment(Segment { ring, ticket: self.ticket - 1, continuation, words }))
    }
}
