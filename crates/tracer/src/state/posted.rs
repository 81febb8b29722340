//! Writes to devices that their vCPU did not wait for: they arrive, in order, when they have been checked.

use guardrail_plugin::ffi::{self, GByteArray};
use guardrail_trace::log::{Admission, Log, Space};
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The most writes that wait. A vCPU waits with one more.
const MOST: usize = 64;

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
}

struct Queue {
    writes: VecDeque<Write>,
    bytes: *mut GByteArray,
}

// SAFETY: GLib's array is not tied to a thread.
unsafe impl Send for Queue {}

impl Posted {
    /// Makes an empty queue, while QEMU installs the plugin.
    pub fn new() -> Posted {
        // SAFETY: plain allocation; the array lives as long as the process.
        let bytes = unsafe { ffi::g_byte_array_new() };
        let queue = Mutex::new(Queue { writes: VecDeque::with_capacity(MOST), bytes });
        Posted { queue, left: AtomicBool::new(false) }
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
