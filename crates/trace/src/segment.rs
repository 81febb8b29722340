//! One segment in merged order: the unit that readers return and trace files store.

use crate::event::Events;

/// What one vCPU did between two order points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The ring that holds the segment: the vCPU's index, or the number of vCPUs for the control ring.
    pub ring: u32,
    /// Position in the order of the whole run; dense from 0.
    pub ticket: u64,
    /// True where this segment continues the ring's previous one: the block begun there is still
    /// running.
    pub continuation: bool,
    /// Event words, without the segment's header.
    pub words: &'a [u64],
}

impl<'a> Segment<'a> {
    /// Decodes the segment's words.
    pub fn events(&self) -> Events<'a> {
        Events::new(self.words)
    }
}
