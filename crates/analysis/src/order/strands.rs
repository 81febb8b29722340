//! Strands: what runs in order. Slots are few and are reused, the least recently used first.

use super::clocks::{Relation, Seen, Snapshot, Var};
use crate::level::Level;
use rustc_hash::FxHashMap;

/// Number of a strand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StrandId(pub u32);

/// Most strands that are known at a time. A forgotten strand counts as ordered with everything.
const MAX_STRANDS: usize = 1024;
const SLOT_BITS: u32 = MAX_STRANDS.trailing_zeros();

/// The identity of a strand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// A task, at process level.
    Task {
        /// Guest address of the `task_struct`.
        task: u64,
        /// The task's pid: addresses are reused.
        pid: u32,
    },
    /// The runs of a serial callback of an object.
    Serial {
        /// Index of the chart.
        chart: usize,
        /// Index of the callback in the chart.
        callback: usize,
        /// Number of the object among the chart's instances.
        instance: u32,
    },
    /// The runs of a work item that no chart knows.
    Work {
        /// Address of the work function.
        function: u64,
        /// Guest address of the work item.
        item: u64,
    },
    /// What runs on a stack of the driver's own, in one task or interrupt after the other.
    OwnStack {
        /// The lowest address of the stack.
        stack: u64,
    },
    /// Other work in interrupts.
    Interrupt {
        /// Number of the vCPU.
        cpu: u32,
        /// The level that it runs at.
        level: Level,
        /// Address of the driver's function.
        function: u64,
    },
}

/// A strand and what it knows.
#[derive(Clone, Debug)]
pub(super) struct Strand {
    pub id: StrandId,
    pub slot: usize,
    pub who: Identity,
    pub label: String,
    /// The strand's clock: grows with each release.
    pub time: u32,
    pub hard: Seen,
    pub full: Seen,
    /// It is a task of a user process.
    pub user: bool,
    /// What the strand had done before it began to put the system to sleep; `None` outside of that.
    pub asleep: Option<Snapshot>,
    used: u64,
}

impl Strand {
    /// Takes a snapshot of the strand's work so far, and advances the clock: what follows is not in it.
    pub(super) fn hand(&mut self) -> Snapshot {
        let snapshot =
            Snapshot { slot: self.slot, time: self.time, hard: self.hard.clone(), full: self.full.clone() };
        self.time = self.time.saturating_add(1);
        snapshot
    }

    fn knows(&self, snapshot: &Snapshot, order: Relation) -> bool {
        let seen = match order {
            Relation::Hard => &self.hard,
            Relation::Full => &self.full,
        };
        snapshot.slot == self.slot || seen.get(snapshot.slot) >= snapshot.time
    }

    /// Acquires a snapshot of another strand.
    pub(super) fn learn(&mut self, snapshot: &Snapshot) {
        if !self.knows(snapshot, Relation::Hard) {
            self.hard.join(&snapshot.hard);
            self.hard.raise(snapshot.slot, snapshot.time);
        }
        self.full.join(&snapshot.full);
        self.full.raise(snapshot.slot, snapshot.time);
    }

    /// Releases into an object, in addition to earlier releases.
    pub(super) fn release(&mut self, into: &mut Option<Var>, order: Relation) {
        let snapshot = self.hand();
        match into {
            None => *into = Some(Var::new(snapshot)),
            Some(var) => {
                if !self.knows(&var.last, order) {
                    let (hard, full) = &mut **var.more.get_or_insert_default();
                    hard.join(&var.last.hard);
                    hard.raise(var.last.slot, var.last.time);
                    full.join(&var.last.full);
                    full.raise(var.last.slot, var.last.time);
                }
                var.last = snapshot;
            }
        }
    }

    /// Releases into an object and replaces all earlier releases, as a new value replaces the old one.
    pub(super) fn replace(&mut self, into: &mut Option<Var>) {
        *into = Some(Var::new(self.hand()));
    }

    /// Acquires what was released into an object.
    pub(super) fn acquire(&mut self, from: &Option<Var>, order: Relation) {
        let Some(var) = from else { return };
        if !self.knows(&var.last, order) {
            if order == Relation::Hard {
                self.hard.join(&var.last.hard);
                self.hard.raise(var.last.slot, var.last.time);
            }
            self.full.join(&var.last.full);
            self.full.raise(var.last.slot, var.last.time);
        }
        if let Some(more) = &var.more {
            if order == Relation::Hard {
                self.hard.join(&more.0);
            }
            self.full.join(&more.1);
        }
    }
}

/// All strands that are known, by slot and by identity.
#[derive(Debug, Default)]
pub(super) struct Strands {
    table: Vec<Strand>,
    slots: FxHashMap<Identity, usize>,
    ticks: u64,
}

impl Strands {
    /// The strand of `who`; `None` where it is not known.
    pub fn find(&mut self, who: &Identity) -> Option<StrandId> {
        let slot = *self.slots.get(who)?;
        self.ticks += 1;
        let strand = self.table.get_mut(slot)?;
        strand.used = self.ticks;
        Some(strand.id)
    }

    /// Adds a strand for `who`, described by `label`. `user` says that it is a task of a user process.
    pub fn add(&mut self, who: Identity, label: String, user: bool) -> StrandId {
        self.ticks += 1;
        let new = |slot: usize, id: u32, time: u32| Strand {
            id: StrandId(id),
            slot,
            who,
            label,
            time,
            hard: Seen::default(),
            full: Seen::default(),
            user,
            asleep: None,
            used: self.ticks,
        };
        let slot = if self.table.len() < MAX_STRANDS {
            let slot = self.table.len();
            self.table.push(new(slot, (slot + MAX_STRANDS) as u32, 1));
            slot
        } else {
            let slot = self.table.iter().min_by_key(|strand| strand.used).map_or(0, |strand| strand.slot);
            let strand = &mut self.table[slot];
            self.slots.remove(&strand.who);
            // What others know about the slot is about its earlier strand, so its clock continues.
            let id = strand.id.0.wrapping_add(MAX_STRANDS as u32);
            *strand = new(slot, id, strand.time.saturating_add(1));
            slot
        };
        self.slots.insert(who, slot);
        self.table[slot].id
    }

    /// The strand; `None` where it has been forgotten.
    #[inline]
    pub fn get(&self, id: StrandId) -> Option<&Strand> {
        self.table.get(slot(id)).filter(|strand| strand.id == id)
    }

    /// Like [`Self::get`], mutable.
    #[inline]
    pub fn get_mut(&mut self, id: StrandId) -> Option<&mut Strand> {
        self.table.get_mut(slot(id)).filter(|strand| strand.id == id)
    }

    /// All strands but one.
    pub fn others(&mut self, id: StrandId) -> impl Iterator<Item = &mut Strand> {
        self.table.iter_mut().filter(move |strand| strand.id != id)
    }

    /// The strand that uses a slot now.
    pub fn in_slot(&self, slot: usize) -> Option<StrandId> {
        self.table.get(slot).map(|strand| strand.id)
    }

    /// Marks the strand as recently used.
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
