//! Vector clocks: what a strand knows about the others, and what strands release and acquire.

use std::rc::Rc;

/// For each slot, the time up to which its strand's actions are known. Shared until it changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(Rc<Vec<u32>>);

impl Seen {
    /// The time up to which a slot's strand is known.
    #[inline]
    pub fn get(&self, slot: usize) -> u32 {
        self.0.get(slot).copied().unwrap_or(0)
    }

    /// Adds what the other knows.
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

    /// Raises the known time of a slot's strand to `time`.
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

/// What a strand knew and had done at a release.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The strand's slot.
    pub slot: usize,
    /// The strand's clock at the release.
    pub time: u32,
    /// What it knew by hard order.
    pub hard: Seen,
    /// What it knew by full order.
    pub full: Seen,
}

/// What strands have released into an object. It stays small: a strand that knows the earlier releases
/// replaces them.
#[derive(Clone, Debug)]
pub(super) struct Var {
    pub last: Snapshot,
    /// Earlier releases that the last one does not know of, by hard and by full order.
    pub more: Option<Box<(Seen, Seen)>>,
}

impl Var {
    /// The variable after a release that replaces all others.
    pub fn new(last: Snapshot) -> Var {
        Var { last, more: None }
    }

    /// The slot of the strand that released last.
    pub fn slot(&self) -> usize {
        self.last.slot
    }

    /// The clock of the strand that released last.
    pub fn time(&self) -> u32 {
        self.last.time
    }

    /// Also releases what a slot's strand did up to a time.
    pub fn raise(&mut self, slot: usize, time: u32) {
        let (hard, full) = &mut **self.more.get_or_insert_default();
        hard.raise(slot, time);
        full.raise(slot, time);
    }
}

/// The relations that an edge counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// The hard and the full relation.
    Hard,
    /// The full relation alone.
    Full,
}
