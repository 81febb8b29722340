//! Vector clocks: what a strand knows of the others, and what is handed from strand to strand.

use super::strands::Strand;
use std::rc::Rc;

/// For each slot, the time up to which its strand's deeds are known. Shared until it changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(Rc<Vec<u32>>);

impl Seen {
    /// The time that is known of a slot.
    #[inline]
    pub fn get(&self, slot: usize) -> u32 {
        self.0.get(slot).copied().unwrap_or(0)
    }

    /// Takes over what the other knows.
    pub fn join(&mut self, other: &Seen) {
        if Rc::ptr_eq(&self.0, &other.0) {
            return;
        }
        let (mine, theirs) = (&*self.0, &*other.0);
        if theirs.len() <= mine.len() && theirs.iter().zip(mine).all(|(theirs, mine)| theirs <= mine) {
            return;
        }
        if mine.is_empty() {
            self.0 = Rc::clone(&other.0);
            return;
        }
        let mine = Rc::make_mut(&mut self.0);
        if mine.len() < theirs.len() {
            mine.resize(theirs.len(), 0);
        }
        for (mine, theirs) in mine.iter_mut().zip(theirs) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// Learns that a slot's strand has come to `time`.
    pub fn raise(&mut self, slot: usize, time: u32) {
        if self.get(slot) >= time {
            return;
        }
        let mine = Rc::make_mut(&mut self.0);
        if mine.len() <= slot {
            mine.resize(slot + 1, 0);
        }
        mine[slot] = time;
    }
}

/// What a strand knew, and had done, when it let go of something.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The strand's slot.
    pub slot: usize,
    /// Its time then.
    pub time: u32,
    /// What it knew by hard order.
    pub hard: Seen,
    /// What it knew by full order.
    pub full: Seen,
}

/// What strands have released into an object. It stays small: a strand that knows of the earlier releases replaces them.
#[derive(Clone, Debug)]
pub(super) struct Var {
    last: Snapshot,
    /// What earlier releases held that the last one does not know of.
    more: Option<Box<(Seen, Seen)>>,
}

impl Var {
    /// A release that is the only one that counts.
    pub fn new(last: Snapshot) -> Var {
        Var { last, more: None }
    }

    /// The slot of who released last.
    pub fn slot(&self) -> usize {
        self.last.slot
    }

    /// The time of who released last.
    pub fn time(&self) -> u32 {
        self.last.time
    }

    /// Hands on as well what a slot's strand did up to a time.
    pub fn raise(&mut self, slot: usize, time: u32) {
        let (hard, full) = &mut **self.more.get_or_insert_default();
        hard.raise(slot, time);
        full.raise(slot, time);
    }
}

/// How far an edge counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// In both relations.
    Hard,
    /// In the full relation alone.
    Full,
}

impl Strand {
    /// Takes note that what came before now is handed on; what follows comes later.
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

    /// Learns what another strand handed on, and what that knew.
    pub(super) fn learn(&mut self, snapshot: &Snapshot) {
        if !self.knows(snapshot, Relation::Hard) {
            self.hard.join(&snapshot.hard);
            self.hard.raise(snapshot.slot, snapshot.time);
        }
        self.full.join(&snapshot.full);
        self.full.raise(snapshot.slot, snapshot.time);
    }

    /// Hands on into an object, besides what others handed on there.
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

    /// Hands on through an object that held nothing else that matters: a value that replaces the one before.
    pub(super) fn replace(&mut self, into: &mut Option<Var>) {
        *into = Some(Var::new(self.hand()));
    }

    /// Learns what was handed on into an object.
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
