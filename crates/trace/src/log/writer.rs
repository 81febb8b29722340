//! The writing end of one ring.

use super::error::FailReason;
use super::futex;
use super::layout::{ATTENTION_FAILED, ATTENTION_SLEEPER, Mapping, READER_ACTIVE, READER_FREE, SegmentHead};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};

/// How long a writer sleeps before it looks again for space.
const SLICE: Duration = Duration::from_millis(20);

/// Writes segments into one ring. Only one thread at a time may use it.
///
/// Records are never cut: [`push`](Self::push) takes a record of one word,
/// [`push_slice`](Self::push_slice) a whole longer record. A segment that grows too long, or meets a
/// full ring, is closed. It continues in a segment with a ticket of its own, so no segment is open while
/// the writer waits.
///
/// When two writers share a thread (QEMU's `thread=single`), close one before you use the other. The
/// reader cannot pass an open segment, and the owner of that segment cannot run while the other writer
/// waits.
#[derive(Debug)]
pub struct RingWriter {
    map: Arc<Mapping>,
    /// The ring's words, `mask + 1` of them. The pointer is valid as long as `map`.
    data: NonNull<AtomicU64>,
    mask: u64,
    ring: u32,
    /// Position of the next word.
    pos: u64,
    /// Position at which `push` leaves the fast path: the end of the space, or of the longest segment. 0
    /// while no segment is open.
    limit: u64,
    /// End of the space that is known to be free for ordinary segments.
    space: u64,
    /// Position of the open segment's header.
    start: u64,
    ticket: u64,
    open: bool,
    continuation: bool,
    urgent: bool,
    failed: bool,
    finished: bool,
}

// SAFETY: the pointer refers to shared atomics kept alive by `map`.
unsafe impl Send for RingWriter {}

impl RingWriter {
    pub(super) fn new(map: Arc<Mapping>, ring: u32) -> RingWriter {
        let data = map.data(ring);
        let data = NonNull::from(&data[0]);
        let pos = map.control(ring).published.load(Acquire);
        RingWriter {
            mask: map.words - 1,
            map,
            data,
            ring,
            pos,
            limit: 0,
            space: pos,
            start: pos,
            ticket: 0,
            open: false,
            continuation: false,
            urgent: false,
            failed: false,
            finished: false,
        }
    }

    /// Index of this ring in the log.
    pub fn ring(&self) -> u32 {
        self.ring
    }

    /// Whether the log has failed. The writer then records nothing more, and the run must end with an
    /// error.
    pub fn failed(&self) -> bool {
        self.failed && !self.finished
    }

    /// The ticket of the segment begun last.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Whether a segment is open.
    pub fn is_open(&self) -> bool {
        self.open
    }

    #[inline]
    fn store(&self, pos: u64, word: u64) {
        // SAFETY: masked to the ring's size, and `map` keeps the ring alive.
        unsafe { (*self.data.as_ptr().add((pos & self.mask) as usize)).store(word, Relaxed) }
    }

    /// Closes the open segment, takes the next ticket and begins a segment. Waits while the ring is
    /// full.
    #[inline]
    pub fn begin(&mut self) {
        self.publish();
        self.start_segment(1, false);
    }

    /// Like [`begin`](Self::begin), but continues the open segment if it has fewer than `words` words
    /// and no writer has taken a ticket since. Only for writers of which one runs at a time: their words
    /// are then in order.
    #[inline]
    pub fn go_on(&mut self, words: u64) {
        let alone = || self.map.header().next_ticket.load(Relaxed) == self.ticket + 1;
        if !(self.open && !self.urgent && self.pos - self.start < words && alone()) {
            self.begin();
        }
    }

    /// Like [`begin`](Self::begin), but in the middle of a block. Accesses in the new segment still
    /// belong to the block that ran in the ring's previous segment.
    #[inline]
    pub fn begin_continuation(&mut self) {
        self.publish();
        self.start_segment(1, true);
    }

    #[inline]
    fn start_segment(&mut self, needed: u64, continuation: bool) {
        // Space first, ticket second: a writer that waits with a ticket would block all readers.
        if self.pos + 1 + needed > self.space && !self.make_space(1 + needed) {
            return;
        }
        self.take_ticket(continuation);
        self.limit = self.space.min(self.pos + self.map.max_segment());
    }

    #[inline]
    fn take_ticket(&mut self, continuation: bool) {
        let header = self.map.header();
        self.ticket = header.next_ticket.fetch_add(1, SeqCst);
        // On x86-64 the read-modify-write above orders `publish` before this load. A sleeping reader
        // that is missed anyway looks again after a short time.
        let attention = header.attention.load(Relaxed);
        self.open = true;
        self.continuation = continuation;
        self.start = self.pos;
        self.pos += 1;
        if attention != 0 {
            self.attend(attention);
        }
    }

    /// Adds a record of one word.
    #[inline]
    pub fn push(&mut self, word: u64) {
        if self.pos >= self.limit && !self.extend(1) {
            return;
        }
        self.store(self.pos, word);
        self.pos += 1;
    }

    /// Adds one record of several words, which stays in one segment.
    #[inline]
    pub fn push_slice(&mut self, words: &[u64]) {
        let n = words.len() as u64;
        if self.pos + n > self.limit && !self.extend(n) {
            return;
        }
        for (i, &word) in words.iter().enumerate() {
            self.store(self.pos + i as u64, word);
        }
        self.pos += n;
    }

    /// Closes the open segment, so that readers can read it. Does nothing if no segment is open.
    #[inline]
    pub fn close(&mut self) {
        if !self.open {
            return;
        }
        self.publish();
        // Pairs with the reader's fence: the reader first asks for a wake-up, then looks for published
        // words.
        fence(SeqCst);
        let attention = self.map.header().attention.load(Relaxed);
        if attention != 0 {
            self.attend(attention);
        }
    }

    /// Closes the open segment and begins an urgent one, which never waits and may use the ring's
    /// reserve.
    pub fn begin_urgent(&mut self) {
        self.publish();
        if self.failed {
            return;
        }
        self.urgent = true;
        if self.pos + 2 > self.urgent_space() {
            self.refresh();
            if self.pos + 2 > self.urgent_space() {
                self.lose(1);
                return;
            }
        }
        self.take_ticket(false);
    }

    /// Adds one record to a segment begun with [`begin_urgent`](Self::begin_urgent). If even the reserve
    /// is full, the record counts as lost and the log fails.
    pub fn push_urgent(&mut self, words: &[u64]) {
        if self.failed || !self.open || !self.urgent {
            return;
        }
        let n = words.len() as u64;
        let longest = self.start + 1 + self.map.max_segment();
        if self.pos + n > self.urgent_space().min(longest) {
            self.refresh();
            if self.pos + n > self.urgent_space().min(longest) {
                self.lose(n);
                return;
            }
        }
        for (i, &word) in words.iter().enumerate() {
            self.store(self.pos + i as u64, word);
        }
        self.pos += n;
    }

    /// Closes the open segment and ends the ring. The writer drops later words.
    pub fn finish(&mut self) {
        self.publish();
        self.map.control(self.ring).ended.store(1, Release);
        self.map.wake_readers();
        // The writer drops whatever a caller pushes by mistake after this.
        self.finished |= !self.failed;
        self.drop_all();
    }

    #[inline]
    fn publish(&mut self) {
        if !self.open {
            return;
        }
        let len = self.pos - self.start - 1;
        let head = SegmentHead { ticket: self.ticket, continuation: self.continuation, len };
        self.store(self.start, head.encode());
        self.open = false;
        self.urgent = false;
        self.limit = 0;
        self.map.control(self.ring).published.store(self.pos, Release);
    }

    #[inline]
    fn urgent_space(&self) -> u64 {
        self.space + self.map.reserve
    }

    #[cold]
    fn attend(&mut self, attention: u32) {
        if attention & ATTENTION_SLEEPER != 0 {
            self.map.wake_readers();
        }
        if attention & ATTENTION_FAILED != 0 {
            self.drop_all();
        }
    }

    /// Makes room for `n` more words in a segment of this ring: the open one if it can grow, else a
    /// continuation, or a new one where none is open. Returns false where the words must be dropped.
    #[cold]
    #[inline(never)]
    fn extend(&mut self, n: u64) -> bool {
        if self.failed {
            return false;
        }
        if n > self.map.max_segment() {
            self.map.fail(FailReason::RecordTooLong);
            self.drop_all();
            return false;
        }
        if self.open && !self.urgent {
            let longest = self.start + 1 + self.map.max_segment();
            if self.pos + n <= longest {
                self.refresh();
                self.limit = self.space.min(longest);
                if self.pos + n <= self.limit {
                    return true;
                }
            }
        }
        let continuation = self.open && !self.urgent;
        self.publish();
        self.start_segment(n, continuation);
        self.open && self.pos + n <= self.limit
    }

    /// Reads the readers' tails again, and updates `space`.
    fn refresh(&mut self) {
        match self.slowest() {
            Some(tail) if tail <= self.pos && self.pos - tail <= self.map.words => {
                self.space = tail + self.map.words - self.map.reserve;
            }
            Some(_) => {
                self.map.fail(FailReason::BadTail);
                self.drop_all();
            }
            None => {
                self.map.fail(FailReason::ReadersGone);
                self.drop_all();
            }
        }
    }

    /// The smallest tail of all readers, including those that have not attached yet. `None` where all
    /// have detached.
    fn slowest(&self) -> Option<u64> {
        if self.map.readers_expected == 0 {
            // The open segment stays whole, so that a wrap never overwrites its own header.
            return Some(if self.open { self.start } else { self.pos });
        }
        let header = self.map.header();
        let control = self.map.control(self.ring);
        let mut slowest = None;
        for slot in 0..self.map.readers_expected {
            match header.readers[slot].state.load(Acquire) {
                READER_FREE | READER_ACTIVE => {
                    let tail = control.tails[slot].load(Acquire);
                    slowest = Some(slowest.map_or(tail, |s: u64| s.min(tail)));
                }
                _ => {}
            }
        }
        slowest
    }

    /// A number that changes whenever a reader frees space.
    fn progress(&self) -> u64 {
        let mut sum = self.map.header().readers.iter().map(|r| u64::from(r.state.load(Relaxed))).sum::<u64>();
        for ring in 0..self.map.rings {
            for tail in &self.map.control(ring).tails {
                sum = sum.wrapping_add(tail.load(Relaxed));
            }
        }
        sum
    }

    /// Waits until `needed` words are free. No segment is open here. Returns false where the log has
    /// failed.
    #[cold]
    #[inline(never)]
    fn make_space(&mut self, needed: u64) -> bool {
        if self.failed {
            return false;
        }
        self.refresh();
        if self.failed || self.pos + needed <= self.space {
            return !self.failed;
        }
        let map = self.map.clone();
        let control = map.control(self.ring);
        control.waits.fetch_add(1, Relaxed);
        let begun = Instant::now();
        let mut still_since = begun;
        let mut progress = self.progress();
        // Readers that nap do not ask for a wake-up; a full ring is a reason to wake them.
        map.wake_readers();
        loop {
            control.waiting.store(1, SeqCst);
            let seq = control.space_seq.load(SeqCst);
            self.refresh();
            if map.header().attention.load(SeqCst) & ATTENTION_FAILED != 0 {
                self.drop_all();
            }
            if self.failed || self.pos + needed <= self.space {
                break;
            }
            futex::wait(&control.space_seq, seq, SLICE.min(map.wait_limit));
            let now = self.progress();
            if now != progress {
                progress = now;
                still_since = Instant::now();
            } else if still_since.elapsed() >= map.wait_limit {
                map.fail(FailReason::ReaderStalled);
            }
        }
        control.waiting.store(0, SeqCst);
        control.wait_nanos.fetch_add(begun.elapsed().as_nanos() as u64, Relaxed);
        !self.failed
    }

    #[cold]
    fn lose(&mut self, words: u64) {
        self.map.control(self.ring).lost.fetch_add(words, Relaxed);
        self.map.fail(FailReason::UrgentOverflow);
        self.drop_all();
    }

    /// Records nothing from now on. An open segment stays unpublished, because half of it would mislead.
    fn drop_all(&mut self) {
        self.failed = true;
        if self.open {
            self.pos = self.start;
        }
        self.open = false;
        self.urgent = false;
        self.limit = 0;
        self.space = 0;
    }
}

impl Drop for RingWriter {
    /// Publishes the open segment. The ring does not end: only [`finish`](RingWriter::finish) ends it.
    fn drop(&mut self) {
        self.close();
    }
}
