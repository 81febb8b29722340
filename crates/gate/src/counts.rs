//! What passed the gate.

use crate::policy::{Access, Space, Verdict};
use serde::{Deserialize, Serialize};

/// Accesses to one space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceCounts {
    /// Reads that the device answered.
    pub reads_passed: u64,
    /// Writes that the device got.
    pub writes_passed: u64,
    /// Reads that were answered with all ones instead.
    pub reads_dropped: u64,
    /// Writes that had no effect.
    pub writes_dropped: u64,
    /// Accesses that had to wait for the policy.
    pub held: u64,
}

/// What passed the gate, and what did not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// By base address register.
    pub bars: [SpaceCounts; 6],
    /// PCI configuration space.
    pub config: SpaceCounts,
    /// Writes of the gate itself to the device's memory: it fills the table of interrupt vectors.
    pub own_writes: u64,
    /// Operations on configuration space in the device's QEMU: what passed, of which larger reads are several, and the
    /// gate's own.
    pub config_operations: u64,
    /// Interrupts that were handed to the guest.
    pub interrupts: u64,
    /// Interrupts that were not handed on, because the gate was closed.
    pub interrupts_dropped: u64,
    /// The longest time that an access was held, in microseconds.
    pub longest_hold_us: u64,
    /// The time that accesses were held, together, in microseconds.
    pub held_us: u64,
    /// Resets of the device by the guest.
    pub resets: u64,
    /// Why the gate closed, if it did.
    pub contained: Option<String>,
}

impl Counts {
    pub(crate) fn of(&mut self, space: Space) -> &mut SpaceCounts {
        match space {
            // The server lets no other numbers in; should one come, it counts as the last.
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

    /// Accesses that the device got, of all spaces.
    pub fn passed(&self) -> u64 {
        self.spaces().map(|space| space.reads_passed + space.writes_passed).sum()
    }

    /// Accesses that the device did not get.
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
