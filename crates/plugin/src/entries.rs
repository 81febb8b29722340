//! Kernel functions to instrument, by link-time address: their entries, and ranges whose returns count.

use guardrail_trace::config::Hook;

/// Entries of functions, each with its meaning, and returns that end calls of hooks. Sorted for lookup.
#[derive(Debug)]
pub struct Entries<E> {
    entries: Vec<(u64, E)>,
    /// Ranges (start, end, hook): a return there ends a call of the hook. They may overlap.
    returns: Vec<(u64, u64, u32)>,
    /// The same ranges, merged.
    merged: Vec<(u64, u64)>,
}

impl<E> Entries<E> {
    /// Sorts the entries, and collects the returns of the hooks whose results are wanted, by number.
    pub fn new<'a>(mut entries: Vec<(u64, E)>, hooks: impl Iterator<Item = (u32, &'a Hook)>) -> Entries<E> {
        entries.sort_by_key(|entry| entry.0);
        let ranges = |(number, hook): (u32, &'a Hook)| {
            let whole = hook.returns.iter().filter(|range| hook.result && range.0 < range.1);
            whole.map(move |&(from, to)| (from, to, number))
        };
        let mut returns: Vec<_> = hooks.flat_map(ranges).collect();
        returns.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for &(from, to, _) in &returns {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        Entries { entries, returns, merged }
    }

    /// The entries with addresses in `from..=to`.
    pub fn within(&self, from: u64, to: u64) -> &[(u64, E)] {
        let low = self.entries.partition_point(|entry| entry.0 < from);
        let count = self.entries[low..].partition_point(|entry| entry.0 <= to);
        &self.entries[low..low + count]
    }

    /// Whether a return at this address ends a call of any hook.
    pub fn has_returns(&self, addr: u64) -> bool {
        let next = self.merged.partition_point(|range| range.0 <= addr);
        next > 0 && addr < self.merged[next - 1].1
    }

    /// Numbers of the hooks whose calls a return at this address ends.
    pub fn returns(&self, addr: u64) -> Vec<u32> {
        let next = self.returns.partition_point(|range| range.0 <= addr);
        let held = self.returns[..next].iter().filter(|range| addr < range.1);
        let mut hooks: Vec<u32> = held.map(|range| range.2).collect();
        hooks.sort_unstable();
        hooks.dedup();
        hooks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Entries<u32> {
        let hook = |address, result, returns: &[(u64, u64)]| Hook {
            name: String::new(),
            address,
            args: 1,
            derefs: Vec::new(),
            result,
            returns: returns.to_vec(),
            lists: Vec::new(),
        };
        let hooks = [
            hook(0x200, false, &[(0x200, 0x240)]),
            hook(0x100, true, &[(0x100, 0x140), (0x800, 0x810)]),
            hook(0x140, true, &[(0x140, 0x180), (0x100, 0x140)]),
        ];
        let addresses = (0..).zip(&hooks).map(|(number, hook)| (hook.address, number)).collect();
        Entries::new(addresses, (0..).zip(&hooks))
    }

    #[test]
    fn entries_are_found_anywhere_in_a_block() {
        let e = entries();
        assert_eq!(e.within(0xf0, 0x140), [(0x100, 1), (0x140, 2)]);
        assert_eq!(e.within(0x101, 0x13f), []);
        assert_eq!(e.within(0x200, 0x200), [(0x200, 0)]);
    }

    #[test]
    fn returns_belong_to_every_hook_that_names_them() {
        let e = entries();
        assert!(e.has_returns(0x13f) && e.has_returns(0x17f) && e.has_returns(0x80f));
        assert!(!e.has_returns(0xff) && !e.has_returns(0x180) && !e.has_returns(0x200));
        assert_eq!(e.returns(0x120), [1, 2]);
        assert_eq!(e.returns(0x150), [2]);
        assert_eq!(e.returns(0x805), [1]);
    }
}
