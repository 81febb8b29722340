//! Counters that translated code increments inline.

use guardrail_plugin::ffi::{self, ScoreWord, Scoreboard};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Words per vCPU in one scoreboard.
const WORDS: usize = 1 << 13;

/// A 64-bit counter for each vCPU. Blocks add to it inline ([`Block::add`](crate::Block::add)), without
/// a call and without a lock.
#[derive(Clone, Copy)]
pub struct Counter {
    word: ScoreWord,
    vcpus: u32,
}

// SAFETY: scoreboards live as long as QEMU; their words are only touched as atomics or by translated
// code.
unsafe impl Send for Counter {}
// SAFETY: as above.
unsafe impl Sync for Counter {}

impl Counter {
    pub(crate) fn word(&self) -> ScoreWord {
        self.word
    }

    /// The count of one vCPU.
    #[inline]
    pub fn of(&self, vcpu: u32) -> u64 {
        self.place(vcpu).load(Relaxed)
    }

    /// The sum over all vCPUs.
    pub fn total(&self) -> u64 {
        (0..self.vcpus).map(|vcpu| self.of(vcpu)).fold(0, u64::wrapping_add)
    }

    /// Sets a vCPU's value. Only in callbacks of that vCPU.
    #[inline]
    pub fn set(&self, vcpu: u32, value: u64) {
        self.place(vcpu).store(value, Relaxed);
    }

    /// Adds to a vCPU's value (wrapping). Only in callbacks of that vCPU.
    #[inline]
    pub fn add(&self, vcpu: u32, value: u64) {
        self.set(vcpu, self.of(vcpu).wrapping_add(value));
    }

    fn place(&self, vcpu: u32) -> &AtomicU64 {
        let vcpu = vcpu.min(self.vcpus.saturating_sub(1));
        // SAFETY: the scoreboard has an element for each vCPU, which holds the word, aligned, as long as QEMU lives.
        unsafe {
            let element = ffi::qemu_plugin_scoreboard_find(self.word.score, vcpu);
            AtomicU64::from_ptr(element.cast::<u8>().add(self.word.offset).cast())
        }
    }
}

/// Makes counters from QEMU's scoreboards.
pub(crate) struct Counters {
    pub(super) vcpus: u32,
    current: Mutex<Board>,
}

struct Board {
    score: *mut Scoreboard,
    used: usize,
}

// SAFETY: a scoreboard is not tied to a thread.
unsafe impl Send for Board {}

impl Counters {
    pub(crate) fn new(vcpus: u32) -> Counters {
        Counters { vcpus, current: Mutex::new(Board { score: std::ptr::null_mut(), used: WORDS }) }
    }

    /// Makes a new counter with all values zero.
    pub(crate) fn make(&self) -> Counter {
        let mut board = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if board.used == WORDS {
            // SAFETY: called while QEMU installs or translates; QEMU makes zeroed elements.
            let score = unsafe { ffi::qemu_plugin_scoreboard_new(WORDS * 8) };
            *board = Board { score, used: 0 };
        }
        let word = ScoreWord { score: board.score, offset: board.used * 8 };
        board.used += 1;
        Counter { word, vcpus: self.vcpus }
    }
}
