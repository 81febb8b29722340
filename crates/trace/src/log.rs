//! The shared-memory log: one ring of words per vCPU and one control ring. The tracer inside QEMU writes
//! it; up to [`MAX_READERS`] processes read it.
//!
//! A ring holds whole segments, each after a header word. A writer owns its position, and publishes it
//! with a release store when it closes a segment. So a reader never sees an open segment.
//!
//! Every reader has a tail per ring, and a writer never overtakes the slowest tail. All shared words are
//! atomics. Readers copy words into memory of their own before they look at them. So nothing here is
//! undefined, whatever the other side writes.

mod error;
mod futex;
mod gate;
mod layout;
mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub use error::{FailReason, LogError};
pub use gate::{Admission, Closed, GateStats, Space, SpaceCounts};
pub use layout::MAX_READERS;
pub use reader::{MergedReader, Next, Schedule};
pub use writer::RingWriter;

use layout::{ATTENTION_FAILED, Header, Mapping, READER_FREE, RingControl};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;

/// The layout of a log, and how long its writers wait.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Number of vCPUs. The log has one ring for each, plus the control ring.
    pub vcpus: u32,
    /// Words in each ring: a power of two, 1 << 10 ..= 1 << 28.
    pub words_per_ring: u64,
    /// Number of readers. Writers overwrite nothing until all of them have attached. With 0, no process
    /// reads, and rings wrap freely.
    pub readers: u32,
    /// How long a writer waits for space without progress of any reader. After that the log fails.
    pub wait_limit: Duration,
    /// Words at the end of each ring that only urgent segments may fill; at most a quarter of the ring.
    pub reserve: u64,
}

impl LogOptions {
    /// One reader, rings of 1 << 20 words, a limit of 60 seconds.
    pub fn new(vcpus: u32) -> LogOptions {
        LogOptions {
            vcpus,
            words_per_ring: 1 << 20,
            readers: 1,
            wait_limit: Duration::from_secs(60),
            reserve: 4096,
        }
    }
}

/// Counts of one ring so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RingStats {
    /// Words published, segment headers included.
    pub words: u64,
    /// Number of times that the writer waited for space.
    pub waits: u64,
    /// Time that the writer waited for space, in nanoseconds.
    pub wait_nanos: u64,
    /// Urgent words for which even the reserve had no room. With any value but 0 the log has failed.
    pub lost: u64,
    /// True once the writer has ended the ring in order.
    pub ended: bool,
}

/// Counts of the whole log so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LogStats {
    /// Number of tickets that writers took.
    pub tickets: u64,
    /// One row per ring, the control ring last.
    pub rings: Vec<RingStats>,
}

impl LogStats {
    /// Number of lost words, over all rings.
    pub fn lost(&self) -> u64 {
        self.rings.iter().map(|r| r.lost).sum()
    }
}

/// A mapped log. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct Log {
    map: Arc<Mapping>,
}

impl Log {
    /// Creates the file at `path` (it must not exist) for one reader; see [`LogOptions::new`].
    pub fn create(path: impl AsRef<Path>, vcpus: u32, words_per_ring: u64) -> Result<Log, LogError> {
        Log::create_with(path, &LogOptions { words_per_ring, ..LogOptions::new(vcpus) })
    }

    /// Creates the file at `path` (it must not exist).
    pub fn create_with(path: impl AsRef<Path>, options: &LogOptions) -> Result<Log, LogError> {
        Ok(Log { map: Arc::new(Mapping::create(path.as_ref(), options)?) })
    }

    /// Opens a log that another process created. Every size is checked against the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Log, LogError> {
        Ok(Log { map: Arc::new(Mapping::open(path.as_ref())?) })
    }

    /// Number of vCPUs that the log was created for.
    pub fn vcpus(&self) -> u32 {
        self.map.rings - 1
    }

    /// Index of the control ring.
    pub fn control_ring(&self) -> u32 {
        self.map.rings - 1
    }

    /// Number of words in each ring, which is a power of two.
    pub fn words_per_ring(&self) -> u64 {
        self.map.words
    }

    /// Takes the only writer of a ring, for the life of the log.
    pub fn writer(&self, ring: u32) -> Result<RingWriter, LogError> {
        if ring >= self.map.rings {
            return Err(LogError::NoSuchRing { ring, rings: self.map.rings });
        }
        if self.control(ring).writer_taken.swap(1, AcqRel) != 0 {
            return Err(LogError::WriterTaken { ring });
        }
        Ok(RingWriter::new(self.map.clone(), ring))
    }

    /// Marks the log as failed. Writers drop later words; readers get [`Next::Failed`] after everything
    /// published. A later reason does not replace the first one.
    pub fn fail(&self, reason: FailReason) {
        self.map.fail(reason);
    }

    /// Why the log failed; `None` where it has not.
    pub fn failed(&self) -> Option<FailReason> {
        self.map.failed()
    }

    /// Marks the producer as dead, because QEMU has ended. Readers then expect no more words, whatever
    /// the rings say.
    pub fn mark_producer_dead(&self) {
        self.header().producer_dead.store(1, Release);
        self.map.wake_readers();
    }

    /// Number of readers that have attached so far.
    pub fn readers_attached(&self) -> u32 {
        let header = self.header();
        header.readers.iter().filter(|r| r.state.load(Acquire) != READER_FREE).count() as u32
    }

    /// Counts so far, consistent enough for a summary.
    pub fn stats(&self) -> LogStats {
        LogStats {
            tickets: self.header().next_ticket.load(Relaxed),
            rings: (0..self.map.rings)
                .map(|ring| {
                    let control = self.control(ring);
                    RingStats {
                        words: control.published.load(Acquire),
                        waits: control.waits.load(Relaxed),
                        wait_nanos: control.wait_nanos.load(Relaxed),
                        lost: control.lost.load(Relaxed),
                        ended: control.ended.load(Acquire) != 0,
                    }
                })
                .collect(),
        }
    }

    fn header(&self) -> &Header {
        self.map.header()
    }

    fn control(&self, ring: u32) -> &RingControl {
        self.map.control(ring)
    }
}

impl Mapping {
    fn fail(&self, reason: FailReason) {
        let header = self.header();
        let _ = header.fail_reason.compare_exchange(0, reason.code(), AcqRel, Acquire);
        header.attention.fetch_or(ATTENTION_FAILED, SeqCst);
        self.wake_readers();
        for ring in 0..self.rings {
            self.wake_writer(ring);
        }
    }

    fn failed(&self) -> Option<FailReason> {
        FailReason::from_code(self.header().fail_reason.load(Acquire))
    }
}
