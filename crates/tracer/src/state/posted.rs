//! Writes to devices that their vCPU did not wait for: they arrive, in order, when they have been checked.

use super::coherent::Coherent;
use guardrail_plugin::ffi::{self, GByteArray};
use guardrail_trace::log::{Admission, Log, Space};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The most writes that wait. A vCPU waits with one more.
const MOST: usize = 64;
/// The words of coherent memory that were stored to last, so many of which are remembered.
const RECENT: usize = 256;

/// A write that its vCPU did not wait for.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// Physical address.
    pub address: u64,
    /// Length in bytes, up to eight.
    pub size: u8,
    pub value: u64,
    /// The segment that must be checked before.
    pub ticket: u64,
    pub since: Instant,
}

/// How far the writes have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// None is left.
    All,
    /// The first that is left needs this ticket checked, and has waited for this long.
    Until(u64, Duration),
}

/// The writes of all vCPUs that have not arrived yet.
pub struct Posted {
    queue: Mutex<Queue>,
    /// True while a write is left.
    left: AtomicBool,
    /// Memory that the devices may read when a write arrives.
    pub coherent: Coherent,
}

struct Queue {
    writes: VecDeque<Write>,
    recent: Recent,
    bytes: *mut GByteArray,
}

/// Words of eight bytes that were stored to last.
#[derive(Debug)]
struct Recent {
    words: [u64; RECENT],
    /// The place of the next word.
    next: usize,
}

// SAFETY: GLib's array is not tied to a thread.
unsafe impl Send for Queue {}

impl Posted {
    /// Makes an empty queue, while QEMU installs the plugin.
    pub fn new(coherent: Coherent) -> Posted {
        // SAFETY: plain allocation; the array lives as long as the process.
        let bytes = unsafe { ffi::g_byte_array_new() };
        let writes = VecDeque::with_capacity(MOST);
        let queue = Queue { writes, recent: Recent::new(), bytes };
        let (queue, left) = (Mutex::new(queue), AtomicBool::new(false));
        Posted { queue, left, coherent }
    }

    /// Whether a write is left. Translated code asks often.
    #[inline]
    pub fn are_left(&self) -> bool {
        self.left.load(Relaxed)
    }

    /// Whether one more may wait.
    pub fn has_room(&self) -> bool {
        self.lock().writes.len() < MOST
    }

    /// Adds a write. The caller has looked whether there is room; each vCPU may add one after the last look.
    pub fn push(&self, write: Write) {
        let mut queue = self.lock();
        queue.writes.push_back(write);
        self.left.store(true, Relaxed);
    }

    /// A driver is about to store to coherent memory. False where it has done so before, and a write that is left may tell a
    /// device to read what was stored then: that write has to arrive first.
    pub fn may_store(&self, address: u64, length: u64) -> bool {
        self.lock().store(address, length)
    }

    /// Lets the writes arrive that have been checked, and drops all where the gate is closed. Not for callbacks with
    /// QEMU's big lock, which a device needs.
    pub fn deliver(&self, log: &Log) -> Arrived {
        self.deliver_from(self.lock(), log)
    }

    /// As [`deliver`](Self::deliver), unless another thread does it.
    pub fn try_deliver(&self, log: &Log) -> Option<Arrived> {
        match self.queue.try_lock() {
            Ok(queue) => Some(self.deliver_from(queue, log)),
            Err(TryLockError::Poisoned(queue)) => Some(self.deliver_from(queue.into_inner(), log)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn deliver_from(&self, mut queue: MutexGuard<'_, Queue>, log: &Log) -> Arrived {
        while let Some(write) = queue.writes.front().copied() {
            match log.admits(write.ticket) {
                Admission::Wait => return Arrived::Until(write.ticket, write.since.elapsed()),
                Admission::Pass => {
                    log.count_posted();
                    queue.write(write);
                }
                Admission::Closed(_) => log.count_dropped(Space::Memory, 1),
            }
            queue.writes.pop_front();
        }
        self.left.store(false, Relaxed);
        Arrived::All
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn store(&mut self, address: u64, length: u64) -> bool {
        let words = address / 8..=address.saturating_add(length.saturating_sub(1)) / 8;
        if !self.writes.is_empty() && self.recent.words.iter().any(|word| words.contains(word)) {
            return false;
        }
        self.recent.add(words);
        true
    }

    fn write(&mut self, write: Write) {
        let bytes = write.value.to_le_bytes();
        // SAFETY: called on a vCPU's thread, outside QEMU's device code; GLib copies the bytes.
        unsafe {
            (*self.bytes).len = 0;
            ffi::g_byte_array_append(self.bytes, bytes.as_ptr(), u32::from(write.size.min(8)));
            // Where no device answers, a write is lost, as on a bus.
            ffi::qemu_plugin_write_memory_hwaddr(write.address, self.bytes);
        }
    }
}

impl Recent {
    fn new() -> Recent {
        // No address is as high.
        Recent { words: [u64::MAX; RECENT], next: 0 }
    }

    fn add(&mut self, words: RangeInclusive<u64>) {
        // Many stores go to the word of the store before.
        if words.start() == words.end() && self.words[self.next.wrapping_sub(1) % RECENT] == *words.start() {
            return;
        }
        for word in words.take(RECENT) {
            self.words[self.next] = word;
            self.next = (self.next + 1) % RECENT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> Queue {
        Queue { writes: VecDeque::new(), recent: Recent::new(), bytes: std::ptr::null_mut() }
    }

    fn write(queue: &mut Queue) {
        queue.writes.push_back(Write { address: 0, size: 4, value: 1, ticket: 1, since: Instant::now() });
    }

    #[test]
    fn a_store_waits_where_a_device_may_be_told_to_read_what_was_there() {
        let mut queue = queue();
        assert!(queue.store(0x1000, 8) && queue.store(0x1000, 4), "no write is left");
        write(&mut queue);
        // The next descriptor is free; the one that the device shall read is not.
        assert!(queue.store(0x1010, 8));
        assert!(!queue.store(0x1004, 2) && !queue.store(0x0ffc, 8) && !queue.store(0x1010, 1));
        queue.writes.clear();
        assert!(queue.store(0x1004, 2) && queue.store(0x1010, 1));
    }

    #[test]
    fn a_write_in_between_makes_no_difference() {
        let mut queue = queue();
        // One CPU fills a descriptor, another writes to the device, and then comes the write for the descriptor.
        assert!(queue.store(0x1000, 8));
        write(&mut queue);
        queue.writes.clear();
        write(&mut queue);
        assert!(!queue.store(0x1000, 8));
    }

    #[test]
    fn the_words_stored_to_last_are_remembered() {
        let mut queue = queue();
        assert!(queue.store(0x1000, 8) && queue.store(0x2000, 8 * RECENT as u64 - 8));
        write(&mut queue);
        assert!(!queue.store(0x1000, 8));
        queue.writes.clear();
        assert!(queue.store(0x9000, 1));
        write(&mut queue);
        assert!(queue.store(0x1000, 8), "a ring has come round");
        assert!(queue.store(0x10_0000, u64::MAX), "whatever a register says");
    }
}
