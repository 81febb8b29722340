//! Address ranges that change rarely and are looked up often, without locks.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const SLOTS: usize = 128;

/// A set of disjoint half-open ranges, each with a tag.
///
/// One thread at a time may change it; callers hold the control lock. Any thread may look up addresses
/// meanwhile. It then sees each range either before or after the change.
pub struct RangeSet {
    /// Number of slots in use so far, including slots that became free.
    used: AtomicU64,
    slots: [Slot; SLOTS],
}

#[derive(Default)]
struct Slot {
    start: AtomicU64,
    /// End of the range; 0 where the slot is free.
    end: AtomicU64,
    tag: AtomicU64,
}

/// The error where all slots hold other ranges.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

impl Default for RangeSet {
    fn default() -> Self {
        RangeSet::new()
    }
}

impl RangeSet {
    /// Makes an empty set.
    pub fn new() -> RangeSet {
        RangeSet { used: AtomicU64::new(0), slots: std::array::from_fn(|_| Slot::default()) }
    }

    /// The tag of the range that contains `addr`.
    #[inline]
    pub fn find(&self, addr: u64) -> Option<u64> {
        let used = self.used.load(Acquire) as usize;
        self.slots[..used.min(SLOTS)].iter().find_map(|slot| {
            let end = slot.end.load(Acquire);
            (addr < end && addr >= slot.start.load(Relaxed)).then(|| slot.tag.load(Relaxed))
        })
    }

    /// Whether any range contains `addr`.
    #[inline]
    pub fn contains(&self, addr: u64) -> bool {
        self.find(addr).is_some()
    }

    /// Adds a range; an empty one is ignored.
    pub fn add(&self, start: u64, end: u64, tag: u64) -> Result<(), Full> {
        if start >= end {
            return Ok(());
        }
        let used = self.used.load(Relaxed) as usize;
        let free = self.slots[..used].iter().position(|slot| slot.end.load(Relaxed) == 0);
        let index = free.unwrap_or(used);
        let slot = self.slots.get(index).ok_or(Full)?;
        slot.start.store(start, Relaxed);
        slot.tag.store(tag, Relaxed);
        slot.end.store(end, Release);
        if index == used {
            self.used.store(used as u64 + 1, Release);
        }
        Ok(())
    }

    /// Removes `start..end` from every range with this tag. Returns true where it removed any address.
    pub fn remove(&self, start: u64, end: u64, tag: u64) -> Result<bool, Full> {
        let mut rest = Vec::new();
        let mut any = false;
        for slot in &self.slots[..self.used.load(Relaxed) as usize] {
            let (from, to) = (slot.start.load(Relaxed), slot.end.load(Relaxed));
            if to == 0 || slot.tag.load(Relaxed) != tag || end <= from || start >= to {
                continue;
            }
            any = true;
            slot.end.store(0, Release);
            rest.push((from, start.min(to)));
            rest.push((end.max(from), to));
        }
        for (from, to) in rest {
            self.add(from, to, tag)?;
        }
        Ok(any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_half_open_and_tagged() {
        let set = RangeSet::new();
        set.add(0x1000, 0x2000, 7).unwrap();
        set.add(0x3000, 0x3000, 8).unwrap();
        assert_eq!(set.find(0xfff), None);
        assert_eq!(set.find(0x1000), Some(7));
        assert_eq!(set.find(0x1fff), Some(7));
        assert_eq!(set.find(0x2000), None);
        assert_eq!(set.find(0x3000), None);
    }

    #[test]
    fn the_middle_of_a_range_can_go() {
        let set = RangeSet::new();
        set.add(0x1000, 0x4000, 1).unwrap();
        set.add(0x8000, 0x9000, 2).unwrap();
        assert_eq!(set.remove(0x2000, 0x3000, 1), Ok(true));
        assert_eq!(set.remove(0x2000, 0x3000, 1), Ok(false));
        assert_eq!(set.remove(0x8000, 0x9000, 1), Ok(false));
        let found: Vec<_> = [0x1fff, 0x2000, 0x2fff, 0x3000, 0x8000].map(|a| set.find(a)).to_vec();
        assert_eq!(found, [Some(1), None, None, Some(1), Some(2)]);
        assert_eq!(set.remove(0, u64::MAX, 2), Ok(true));
        assert!(!set.contains(0x8000));
    }

    #[test]
    fn freed_slots_are_used_again() {
        let set = RangeSet::new();
        for round in 0..1000 {
            set.add(round * 16, round * 16 + 8, round).unwrap();
            assert_eq!(set.remove(0, u64::MAX, round), Ok(true));
        }
        for i in 0..SLOTS as u64 {
            set.add(i * 16, i * 16 + 8, i).unwrap();
        }
        assert_eq!(set.add(0xffff_0000, 0xffff_0001, 0), Err(Full));
    }
}
