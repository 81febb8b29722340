//! User processes are frozen while the system sleeps. What they did comes before, and what they do afterwards
//! comes after.
//!
//! They are frozen from `freeze_processes()` to `thaw_processes()` (kernel/power/process.c), with all
//! callbacks of devices in between. Freezable work queues stand still as well (`freeze_workqueues_begin()`
//! and `thaw_workqueues()` in kernel/workqueue.c). Other threads of the kernel and interrupts continue.
//!
//! The process that puts the system to sleep runs callbacks itself, beside workers that run those of other
//! devices. What it does then comes neither before nor after theirs. But all devices are suspended before the
//! first is resumed, so what runs below the suspend of any device comes before all that resumes one. So
//! do requests that a layer waits for before its devices are suspended, from whatever thread. The layer sends
//! none before they are resumed, so later ones come after what resumed a device.

use super::clocks::Relation;
use super::{Order, StrandId};

/// Most freezable work queues that are known.
const MAX_QUEUES: usize = 16;

impl Order {
    /// Adds a work queue that is frozen with user processes.
    pub(crate) fn add_freezable(&mut self, queue: u64) {
        if queue != 0 && self.freezable.len() < MAX_QUEUES && !self.freezable.contains(&queue) {
            self.freezable.push(queue);
        }
    }

    /// A callback begins while user processes are frozen.
    pub(crate) fn freeze(&mut self, by: StrandId) {
        let mut before = Vec::new();
        for strand in self.strands.others(by).filter(|strand| strand.user) {
            before.push(strand.asleep.clone().unwrap_or_else(|| strand.hand()));
        }
        let Some(strand) = self.strands.get_mut(by) else { return };
        if strand.user && strand.asleep.is_none() {
            strand.asleep = Some(strand.hand());
        }
        for snapshot in &before {
            strand.learn(snapshot);
        }
        if self.parts.deferral {
            self.charts.freeze(&mut self.strands, by, &self.freezable);
        }
    }

    /// Such a callback ends: what user processes do when they run again comes later.
    pub(crate) fn freeze_ends(&mut self, by: StrandId) {
        if let Some(strand) = self.strands.get_mut(by) {
            strand.release(&mut self.thawed, Relation::Hard);
        }
        if self.parts.deferral {
            self.charts.thaw(&mut self.strands, by, &self.freezable);
        }
    }

    /// A run ends below which the kernel suspends a device, or which the kernel waits for before it does.
    pub(crate) fn suspend_ends(&mut self, by: StrandId) {
        if self.parts.states
            && let Some(strand) = self.strands.get_mut(by)
        {
            strand.release(&mut self.suspended, Relation::Hard);
        }
    }

    /// A callback begins that resumes a device: the kernel has suspended all devices before.
    pub(crate) fn resume_begins(&mut self, by: StrandId) {
        if let Some(strand) = self.strands.get_mut(by) {
            strand.acquire(&self.suspended, Relation::Hard);
        }
    }

    /// A callback ends that resumed a device.
    pub(crate) fn resume_ends(&mut self, by: StrandId) {
        if let Some(strand) = self.strands.get_mut(by) {
            strand.release(&mut self.resumed, Relation::Hard);
        }
    }

    /// A run begins of what a layer sends only to devices that are resumed.
    pub(crate) fn drained_begins(&mut self, by: StrandId) {
        if self.parts.states
            && let Some(strand) = self.strands.get_mut(by)
        {
            strand.acquire(&self.resumed, Relation::Hard);
        }
    }

    /// Whether the system has slept since the run began.
    pub(crate) fn has_slept(&self) -> bool {
        self.thawed.is_some()
    }

    /// A strand runs code outside of the system's sleep. So the strand, if it is a user process, is not
    /// frozen.
    pub(crate) fn thaw(&mut self, strand: StrandId) {
        let Some(strand) = self.strands.get_mut(strand).filter(|strand| strand.user) else { return };
        strand.asleep = None;
        strand.acquire(&self.thawed, Relation::Hard);
    }
}
