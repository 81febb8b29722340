//! The reading end of the log: merges all rings by ticket.

use super::error::{FailReason, LogError};
use super::layout::{ATTENTION_SLEEPER, Mapping, READER_ACTIVE, READER_FREE, READER_LEFT, SegmentHead};
use super::{Log, futex};
use crate::Segment;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};

/// Words that the reader copies from a ring at once, unless one segment is longer.
const CHUNK: usize = 8192;
/// How many times the reader looks again before it sleeps.
const SPINS: u32 = 64;
/// Naps before the reader asks for a wake-up. With naps, a busy writer never pays for a wake-up.
const NAPS: u32 = 5;
/// How long a reader looks before it asks for a wake-up, because a wake-up costs the writer more.
const LOOKING: Duration = Duration::from_micros(60);
const NAP: Duration = Duration::from_micros(200);
/// The longest sleep. A missed wake-up costs no more than this.
const SLICE: Duration = Duration::from_millis(50);

/// What a reader does while the log has nothing to read (thesis 6.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Naps for 200 microseconds at a time, then sleeps until a writer wakes it. A busy writer never
    /// pays for a wake-up, but a word may wait for one nap.
    #[default]
    Napping,
    /// Looks without a pause. This has the lowest latency and uses a whole processor.
    Polling,
    /// Looks whenever the system has no other work for the reader's processor.
    Yielding,
    /// Looks for some microseconds, then sleeps until a writer wakes it.
    Interrupt,
}

/// What [`MergedReader::next`] returns.
#[derive(Debug)]
pub enum Next<'a> {
    /// The next segment in the order of the run.
    Segment(Segment<'a>),
    /// No segment arrived within the timeout.
    Idle,
    /// All rings have ended, and the reader has returned every segment.
    End {
        /// The producer died without ending its rings. The reader has returned everything up to the
        /// point where the log stops.
        cut: bool,
    },
    /// The log has failed. The reader has returned every segment that was published in order before the
    /// failure.
    Failed(FailReason),
}

/// The reader's side of one ring: a private copy of published words.
#[derive(Debug)]
struct Ring {
    buf: Vec<u64>,
    start: usize,
    end: usize,
    /// Position in the ring, in words; the reader has copied everything before it.
    tail: u64,
    /// The value of `tail` that the writer has seen last.
    released: u64,
    /// The segment at `start`; it is whole in `buf`.
    head: Option<SegmentHead>,
}

/// Reads all rings of a log in the order of tickets.
#[derive(Debug)]
pub struct MergedReader {
    map: Arc<Mapping>,
    slot: usize,
    rings: Vec<Ring>,
    /// The ring of the last segment. It most likely has the next one too.
    last: usize,
    next_ticket: u64,
    naps: u32,
    schedule: Schedule,
}

impl MergedReader {
    /// Takes one of the log's reader slots.
    pub fn attach(log: &Log) -> Result<MergedReader, LogError> {
        let map = log.map.clone();
        let header = map.header();
        let slot = (0..map.readers_expected)
            .find(|&slot| {
                let state = &header.readers[slot].state;
                state.compare_exchange(READER_FREE, READER_ACTIVE, AcqRel, Acquire).is_ok()
            })
            .ok_or(LogError::TooManyReaders { readers: map.readers_expected as u32 })?;
        header.readers[slot].pid.store(std::process::id(), Relaxed);
        let rings = (0..map.rings)
            .map(|_| Ring { buf: vec![0; CHUNK], start: 0, end: 0, tail: 0, released: 0, head: None })
            .collect();
        Ok(MergedReader { map, slot, rings, last: 0, next_ticket: 0, naps: 0, schedule: Schedule::default() })
    }

    pub(super) fn map(&self) -> &Mapping {
        &self.map
    }

    /// Sets what the reader does while there is nothing to read.
    pub fn set_schedule(&mut self, schedule: Schedule) {
        self.schedule = schedule;
    }

    /// The ticket of the segment that the reader returns next.
    pub fn next_ticket(&self) -> u64 {
        self.next_ticket
    }

    /// Words published but not yet read: how far this reader lags behind.
    pub fn lag(&self) -> u64 {
        let published: u64 = (0..self.map.rings)
            .map(|ring| self.map.control(ring).published.load(Relaxed))
            .fold(0, u64::wrapping_add);
        let read: u64 = self.rings.iter().map(|r| r.tail - (r.end - r.start) as u64).sum();
        published.saturating_sub(read)
    }

    /// Returns the next segment, or the reason why no segment arrived within `timeout`.
    pub fn next(&mut self, timeout: Duration) -> Result<Next<'_>, LogError> {
        if let Some(ring) = self.find_buffered() {
            return Ok(Next::Segment(self.take(ring)));
        }
        let mut deadline = None;
        let mut spins = 0;
        loop {
            // The end marks are read before the last look at the rings, so that this look finds
            // everything published before the end.
            let header = self.map.header();
            let failed = self.map.failed();
            let dead = header.producer_dead.load(Acquire) != 0;
            let ended = (0..self.map.rings).all(|ring| self.map.control(ring).ended.load(Acquire) != 0);
            if let Some(ring) = self.find()? {
                self.naps = 0;
                return Ok(Next::Segment(self.take(ring)));
            }
            self.release_all();
            if let Some(reason) = failed {
                return Ok(Next::Failed(reason));
            }
            if dead || ended {
                return self.ending(ended);
            }
            spins += 1;
            // Reading the clock costs as much as several looks.
            if spins % SPINS != 0 {
                std::hint::spin_loop();
                continue;
            }
            let now = Instant::now();
            let deadline = *deadline.get_or_insert(now + timeout);
            if now >= deadline {
                return Ok(Next::Idle);
            }
            match self.schedule {
                Schedule::Polling => {}
                Schedule::Yielding => std::thread::yield_now(),
                Schedule::Interrupt if now + timeout < deadline + LOOKING => {}
                Schedule::Napping | Schedule::Interrupt => self.sleep(deadline - now),
            }
        }
    }

    /// Ends the reading once no segment is left. After an orderly end no words may be left over. If the
    /// producer died, segments behind an unpublished ticket stay unread, because their order is not
    /// known to be whole.
    fn ending(&self, ended: bool) -> Result<Next<'_>, LogError> {
        if ended {
            if let Some((ring, found)) =
                self.rings.iter().enumerate().find_map(|(i, r)| r.head.map(|h| (i as u32, h.ticket)))
            {
                return Err(LogError::BadTicket { ring, found, expected: self.next_ticket });
            }
            let taken = self.map.header().next_ticket.load(Acquire);
            if taken != self.next_ticket {
                return Err(LogError::MissingTickets { taken, read: self.next_ticket });
            }
        }
        Ok(Next::End { cut: !ended })
    }

    #[inline]
    fn find_buffered(&mut self) -> Option<usize> {
        let n = self.rings.len();
        let mut ring = self.last;
        for _ in 0..n {
            let r = &mut self.rings[ring];
            if r.head.is_none() && r.start < r.end {
                let head = SegmentHead::decode(r.buf[r.start], self.next_ticket);
                if head.len < (r.end - r.start) as u64 {
                    r.head = Some(head);
                }
            }
            if r.head.is_some_and(|h| h.ticket == self.next_ticket) {
                return Some(ring);
            }
            ring = if ring + 1 == n { 0 } else { ring + 1 };
        }
        None
    }

    /// Finds the ring of the next segment. Looks at the shared memory too, and checks what it reads
    /// there.
    fn find(&mut self) -> Result<Option<usize>, LogError> {
        for ring in 0..self.rings.len() {
            self.fill(ring)?;
        }
        Ok(self.find_buffered())
    }

    /// Copies a whole segment of the ring into its buffer, if one is published.
    fn fill(&mut self, ring: usize) -> Result<(), LogError> {
        if self.rings[ring].start == self.rings[ring].end {
            self.copy_more(ring, CHUNK)?;
        }
        let r = &self.rings[ring];
        if r.start == r.end {
            return Ok(());
        }
        let position = r.tail - (r.end - r.start) as u64;
        let head = SegmentHead::decode(r.buf[r.start], self.next_ticket);
        if head.ticket < self.next_ticket {
            let (ring, found) = (ring as u32, head.ticket);
            return Err(LogError::BadTicket { ring, found, expected: self.next_ticket });
        }
        let bad = LogError::BadSegment { ring: ring as u32, position, length: head.len };
        // An urgent segment may exceed the limit by the reserve, but is never as long as the ring.
        if head.len >= self.map.words {
            return Err(bad);
        }
        let whole = 1 + head.len as usize;
        if r.end - r.start < whole {
            self.copy_more(ring, whole.max(CHUNK))?;
            if self.rings[ring].end - self.rings[ring].start < whole {
                return Err(bad);
            }
        }
        self.rings[ring].head = Some(head);
        Ok(())
    }

    /// Copies published words until the buffer holds `capacity` words or the ring has no more.
    fn copy_more(&mut self, ring: usize, capacity: usize) -> Result<(), LogError> {
        let shared = self.map.control(ring as u32);
        let r = &mut self.rings[ring];
        let published = shared.published.load(Acquire);
        if published < r.tail || published - r.released > self.map.words {
            return Err(LogError::BadPosition { ring: ring as u32, published, tail: r.tail });
        }
        if published == r.tail {
            return Ok(());
        }
        r.buf.copy_within(r.start..r.end, 0);
        r.end -= r.start;
        r.start = 0;
        if r.buf.len() < capacity {
            r.buf.resize(capacity, 0);
        }
        let n = (published - r.tail).min((r.buf.len() - r.end) as u64) as usize;
        let data = self.map.data(ring as u32);
        let from = (r.tail & (self.map.words - 1)) as usize;
        let first = n.min(data.len() - from);
        let to = &mut r.buf[r.end..r.end + n];
        for (to, word) in to.iter_mut().zip(data[from..from + first].iter().chain(&data[..n - first])) {
            *to = word.load(Relaxed);
        }
        r.end += n;
        r.tail += n as u64;
        if r.tail - r.released >= self.map.words / 16 {
            self.release(ring);
        }
        Ok(())
    }

    #[inline]
    fn take(&mut self, ring: usize) -> Segment<'_> {
        self.last = ring;
        self.next_ticket += 1;
        let r = &mut self.rings[ring];
        // `find_buffered` has just seen the segment head.
        let head = r.head.take().unwrap_or(SegmentHead {
            ticket: self.next_ticket - 1,
            continuation: false,
            len: 0,
        });
        let words = &r.buf[r.start + 1..r.start + 1 + head.len as usize];
        r.start += 1 + head.len as usize;
        Segment { ring: ring as u32, ticket: head.ticket, continuation: head.continuation, words }
    }

    /// Publishes this reader's tail, so that the writer may reuse the space before it.
    fn release(&mut self, ring: usize) {
        let r = &mut self.rings[ring];
        r.released = r.tail;
        self.map.control(ring as u32).tails[self.slot].store(r.tail, Release);
        // Pairs with the writer's fence: the writer first sets its waiting flag, then looks at the
        // tails.
        fence(SeqCst);
        self.map.wake_writer(ring as u32);
    }

    fn release_all(&mut self) {
        for ring in 0..self.rings.len() {
            if self.rings[ring].released != self.rings[ring].tail {
                self.release(ring);
            }
        }
    }

    fn sleep(&mut self, limit: Duration) {
        let header = self.map.header();
        let seq = header.wake_seq.load(SeqCst);
        if self.naps < NAPS && self.schedule == Schedule::Napping {
            self.naps += 1;
            futex::wait(&header.wake_seq, seq, NAP.min(limit));
            return;
        }
        header.attention.fetch_or(ATTENTION_SLEEPER, SeqCst);
        let news = self
            .rings
            .iter()
            .enumerate()
            .any(|(ring, r)| self.map.control(ring as u32).published.load(SeqCst) != r.tail);
        let last_words = header.producer_dead.load(SeqCst) != 0 || self.map.failed().is_some();
        // Published words may lie behind a missing ticket, so the reader does not return for them. It
        // naps, so that it does not miss that ticket.
        futex::wait(&header.wake_seq, seq, if news || last_words { NAP } else { SLICE }.min(limit));
    }
}

impl Drop for MergedReader {
    fn drop(&mut self) {
        self.map.header().readers[self.slot].state.store(READER_LEFT, Release);
        for ring in 0..self.map.rings {
            self.map.wake_writer(ring);
        }
    }
}
