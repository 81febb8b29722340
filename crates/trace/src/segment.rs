//! One segment in merged order: the unit that readers hand out and trace files store.

use crate::event::Events;

/// What one vCPU did between two order points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The ring it came through: the vCPU's index, or the number of vCPUs for the control ring.
    pub ring: u32,
    /// Its place in the order of the whole run; dense from 0.
    pub ticket: u64,
    /// It goes on where the ring's segment before it stopped: the block begun there is still running.
    pub continuation: bool,
    /// The event words.
    pub words: &'a [u64],
}

impl<'a> Segment<'a> {
    /// The events in the segment.
    pub fn events(&self) -> Events<'a> {
        Events::new(self.words)
    }
}
