//! Strands: what runs in order. Slots are few and used again, those that ran longest ago first.

use super::clocks::{Seen, Snapshot};
use crate::level::Level;
use rustc_hash::FxHashMap;

/// Names a strand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StrandId(pub u32);

/// Strands that are known at a time. Of one that has been forgotten, everything counts as ordered.
const MAX_STRANDS: usize = 1024;
const SLOT_BITS: u32 = MAX_STRANDS.trailing_zeros();

/// What a strand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    /// A task.
    Task {
        /// Its address.
        task: u64,
        /// Its pid: addresses are used again.
        pid: u32,
    },
    /// The runs of a serial callback of an object.
    Serial {
        /// The chart.
        chart: usize,
        /// The callback.
        callback: usize,
        /// The object.
        instance: u32,
    },
    /// The runs of a work item that no chart knows.
    Work {
        /// Its function.
        function: u64,
        /// The item.
        item: u64,
    },
    /// Other work in interrupts.
    Interrupt {
        /// The vCPU.
        cpu: u32,
        /// The level.
        level: Level,
        /// The driver's function.
        function: u64,
    },
}

/// A strand.
#[derive(Clone, Debug)]
pub(super) struct Strand {
    pub id: StrandId,
    pub slot: usize,
    pub who: Who,
    pub label: String,
    /// Grows with each release.
    pub time: u32,
    pub hard: Seen,
    pub full: Seen,
    /// It is a task of a user process.
    pub user: bool,
    /// What it had done before it began to put the system to sleep, while it is at it.
    pub asleep: Option<Snapshot>,
    used: u64,
}

/// All strands.
#[derive(Debug, Default)]
pub(super) struct Strands {
    table: Vec<Strand>,
    slots: FxHashMap<Who, usize>,
    ticks: u64,
}

impl Strands {
    /// The strand of `who`, if it is known.
    pub fn find(&mut self, who: &Who) -> Option<StrandId> {
        let slot = *self.slots.get(who)?;
        self.ticks += 1;
        let strand = self.table.get_mut(slot)?;
        strand.used = self.ticks;
        Some(strand.id)
    }

    /// A new strand for `who`, described by `label`; `user`: it is a task of a user process.
    pub fn add(&mut self, who: Who, label: String, user: bool) -> StrandId {
        self.ticks += 1;
        let used = self.ticks;
        if self.table.len() < MAX_STRANDS {
            let slot = self.table.len();
            let id = StrandId(slot as u32 + MAX_STRANDS as u32);
            self.table.push(Strand {
                id,
                slot,
                who,
                label,
                time: 1,
                hard: Seen::default(),
                full: Seen::default(),
                user,
                asleep: None,
                used,
            });
            self.slots.insert(who, slot);
            return id;
        }
        let slot = self.table.iter().min_by_key(|strand| strand.used).map_or(0, |strand| strand.slot);
        let strand = &mut self.table[slot];
        self.slots.remove(&strand.who);
        // What others know of the slot is about its strand before: its time goes on.
        *strand = Strand {
            id: StrandId(strand.id.0.wrapping_add(MAX_STRANDS as u32)),
            slot,
            who,
            label,
            time: strand.time.saturating_add(1),
            hard: Seen::default(),
            full: Seen::default(),
            user,
            asleep: None,
            used,
        };
        self.slots.insert(who, slot);
        strand.id
    }

    /// The strand, unless it has been forgotten.
    #[inline]
    pub fn get(&self, id: StrandId) -> Option<&Strand> {
        self.table.get(slot(id)).filter(|strand| strand.id == id)
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, id: StrandId) -> Option<&mut Strand> {
        self.table.get_mut(slot(id)).filter(|strand| strand.id == id)
    }

    /// All strands but one.
    pub fn others(&mut self, id: StrandId) -> impl Iterator<Item = &mut Strand> {
        self.table.iter_mut().filter(move |strand| strand.id != id)
    }

    /// The strand that has a slot now.
    pub fn in_slot(&self, slot: usize) -> Option<StrandId> {
        self.table.get(slot).map(|strand| strand.id)
    }

    /// Notes that the strand runs.
    pub fn touch(&mut self, id: StrandId) {
        self.ticks += 1;
        let used = self.ticks;
        if let Some(strand) = self.get_mut(id) {
            strand.used = used;
        }
    }
}

fn slot(id: StrandId) -> usize {
    (id.0 & ((1 << SLOT_BITS) - 1)) as usize
}
