//! Which memory was freed lately: an access is told of after it was made, and meanwhile another CPU may have freed what it went to, by right.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// So many are remembered.
const LAST: usize = 256;

/// Addresses that were freed, in their order.
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
    /// What begins at an address is about to be marked as freed.
    pub fn note(&self, addr: u64) {
        let number = self.count.fetch_add(1, Relaxed);
        self.last[number as usize % LAST].store(addr, Release);
    }

    /// How many there have been.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Whether what begins at an address was, or can have been, freed since there had been so many.
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
