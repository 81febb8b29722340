//! Counts of what passed the gate and what did not.

use crate::policy::{Access, Space, Verdict};
use serde::{Deserialize, Serialize};

/// Accesses to one space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceCounts {
    /// Reads that the device answered.
    pub reads_passed: u64,
    /// Writes that reached the device.
    pub writes_passed: u64,
    /// Reads that were answered with all ones instead.
    pub reads_dropped: u64,
    /// Writes that had no effect.
    pub writes_dropped: u64,
    /// Accesses that waited for the policy.
    pub held: u64,
}

/// Counts of a gate, from its start on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Accesses to memory and ports, by base address register.
    pub bars: [SpaceCounts; 6],
    /// Accesses to PCI configuration space.
    pub config: SpaceCounts,
    /// Writes by the gate itself to the device's memory, to fill the table of interrupt vectors.
    pub own_writes: u64,
    /// Operations on configuration space in the device's QEMU. They are those that passed, of which larger
    /// reads count as several, and the gate's own.
    pub config_operations: u64,
    /// Interrupts that the guest received.
    pub interrupts: u64,
    /// Interrupts that were dropped because the gate was closed.
    pub interrupts_dropped: u64,
    /// The longest time that the gate held an access, in microseconds.
    pub longest_hold_us: u64,
    /// The total time that the gate held accesses, in microseconds.
    pub held_us: u64,
    /// Resets of the device by the guest.
    pub resets: u64,
    /// Why the gate closed; `None` while it is open.
    pub contained: Option<String>,
}

impl Counts {
    pub(crate) fn of(&mut self, space: Space) -> &mut SpaceCounts {
        match space {
            // The server accepts no other numbers; any other would count as the last.
            Space::Bar(bar) => &mut self.bars[usize::from(bar).min(5)],
            Space::Config => &mut self.config,
        }
    }

    pub(crate) fn note(&mut self, access: &Access, verdict: Verdict) {
        let counts = self.of(access.space);
        let count = match (access.write, verdict) {
            (false, Verdict::Pass) => &mut counts.reads_passed,
            (true, Verdict::Pass) => &mut counts.writes_passed,
            (false, Verdict::Drop) => &mut counts.reads_dropped,
            (true, Verdict::Drop) => &mut counts.writes_dropped,
        };
        *count += 1;
    }

    /// Accesses that reached the device, of all spaces.
    pub fn passed(&self) -> u64 {
        self.spaces().map(|space| space.reads_passed + space.writes_passed).sum()
    }

    /// Accesses that did not reach the device.
    pub fn dropped(&self) -> u64 {
        self.spaces().map(|space| space.reads_dropped + space.writes_dropped).sum()
    }

    /// Accesses that waited for the policy.
    pub fn held(&self) -> u64 {
        self.spaces().map(|space| space.held).sum()
    }

    fn spaces(&self) -> impl Iterator<Item = &SpaceCounts> {
        self.bars.iter().chain([&self.config])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_counted_where_they_go() {
        let mut counts = Counts::default();
        let mut access = Access { space: Space::Bar(1), offset: 0, size: 4, write: true, value: 1 };
        counts.note(&access, Verdict::Pass);
        counts.note(&access, Verdict::Drop);
        access.space = Space::Config;
        access.write = false;
        counts.note(&access, Verdict::Pass);
        assert_eq!(counts.bars[1].writes_passed, 1);
        assert_eq!((counts.passed(), counts.dropped(), counts.held()), (2, 1, 0));
        let text = serde_json::to_string(&counts).unwrap();
        assert_eq!(serde_json::from_str::<Counts>(&text).unwrap(), counts);
    }
}
