//! Records which memory was freed lately. QEMU reports an access after it was made. Another CPU may have
//! freed the accessed memory in between, which is correct.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Number of frees that are remembered.
const LAST: usize = 256;

/// Addresses that were freed, in order.
pub struct Frees {
    count: AtomicU64,
    last: [AtomicU64; LAST],
}

impl Default for Frees {
    fn default() -> Self {
        Frees { count: AtomicU64::new(0), last: [const { AtomicU64::new(0) }; LAST] }
    }
}

impl Frees {
    /// Notes that the memory at an address is about to be marked as freed.
    pub fn note(&self, addr: u64) {
        let number = self.count.fetch_add(1, Relaxed);
        self.last[number as usize % LAST].store(addr, Release);
    }

    /// Number of frees so far.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Whether the memory at an address was freed, or may have been freed, since the number of frees was
    /// `count`.
    pub fn since(&self, count: u64, addr: u64) -> bool {
        let now = self.count.load(Acquire);
        let known = now.saturating_sub(count) < LAST as u64;
        !known || (count..now).any(|number| self.last[number as usize % LAST].load(Acquire) == addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_freed_since_a_moment_is_known() {
        let frees = Frees::default();
        frees.note(0x1000);
        let then = frees.count();
        assert!(!frees.since(then, 0x1000), "it was freed before");
        frees.note(0x2000);
        assert!(frees.since(then, 0x2000) && !frees.since(then, 0x1000));
        assert!(!frees.since(frees.count(), 0x2000));
    }

    #[test]
    fn what_is_not_remembered_can_have_been_freed() {
        let frees = Frees::default();
        (0..LAST as u64).for_each(|number| frees.note(number << 12));
        assert!(frees.since(0, 0xffff_0000));
        assert!(!frees.since(1, 0xffff_0000));
    }
}
