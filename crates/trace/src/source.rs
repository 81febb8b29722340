//! Sources of segments: a running guest or a recorded trace. Checkers read both in the same way.

use crate::Segment;
use crate::file::{Ending, FileError, TraceReader};
use crate::log::{FailReason, LogError, MergedReader, Next};
use std::io::{Read, Seek};
use std::time::Duration;

/// What [`Source::step`] returns.
#[derive(Debug)]
pub enum Step<'a> {
    /// The next segment in the order of the run.
    Segment(Segment<'a>),
    /// No segment for now; the caller asks again. Only live sources return this.
    Idle,
    /// The source has ended.
    End(SourceEnd),
}

/// How a source ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEnd {
    /// The caller has read every segment.
    Complete,
    /// The source stops in the middle: the producer died, or the file is cut. The text says where.
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
    /// The trace file is broken or cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Returns segments in the order of the run.
pub trait Source {
    /// Returns the next segment, or the reason why no segment follows.
    fn step(&mut self) -> Result<Step<'_>, SourceError>;

    /// Publishes that every segment returned so far has been checked. A guest with a gate waits for
    /// this.
    fn checked(&mut self) {}
}

/// A live log as a source.
#[derive(Debug)]
pub struct Live {
    /// The reader that merges the log's rings.
    pub reader: MergedReader,
    /// How long [`step`](Source::step) waits for a segment before it returns [`Step::Idle`].
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
        self.reader.publish_checked();
    }
}

impl<R: Read + Seek> Source for TraceReader<R> {
    fn step(&mut self) -> Result<Step<'_>, SourceError> {
        // The borrow checker rejects a conditional return of what `next` lends, so the end is checked
        // first.
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

/// Segments in memory, for tests and fuzzers.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    segments: std::collections::VecDeque<(u32, bool, Vec<u64>)>,
    current: Vec<u64>,
    ticket: u64,
}

impl Memory {
    /// Adds a segment with the next ticket; tickets count from 0.
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
