//! Plain Eraser, for comparison: a word is protected by the locks that all its users held.
//!
//! Disabled interrupts, softirqs and preemption are locks of the vCPU, as in the thesis, 4.2.5. With
//! deferral, a word starts anew as its user's own where all its earlier accesses come before the new one.

use super::cell::Cell;
use super::words::Eraser;
use crate::machine::State;
use guardrail_knowledge::effect::LockMode;
use rustc_hash::FxHashMap;

/// Most sets that are distinguished.
const MAX_SETS: usize = 1 << 16;
/// Numbers of locks that stand for what is off on a vCPU begin here.
const VIRTUAL: u64 = 1 << 40;

/// Sets of locks, by number; 0 is the empty one. Locks that may protect writes are marked with `true`.
#[derive(Debug, Default)]
pub(super) struct Sets {
    ids: FxHashMap<Vec<(u64, bool)>, u32>,
    table: Vec<Vec<(u64, bool)>>,
    /// The last key that was looked up, and its set.
    last: Option<((u32, u8, u32), u32)>,
}

impl Sets {
    fn id(&mut self, set: Vec<(u64, bool)>) -> u32 {
        if set.is_empty() {
            return 0;
        }
        if let Some(&id) = self.ids.get(&set) {
            return id;
        }
        if self.table.len() >= MAX_SETS {
            return 0;
        }
        self.table.push(set.clone());
        let id = self.table.len() as u32;
        self.ids.insert(set, id);
        id
    }

    fn get(&self, id: u32) -> &[(u64, bool)] {
        (id as usize).checked_sub(1).and_then(|i| self.table.get(i)).map_or(&[], Vec::as_slice)
    }

    /// The locks that an access was made with, including those of the vCPU.
    pub fn of(&mut self, state: &State, cell: &Cell, cpu: u32) -> u32 {
        let key = (cell.locks.0, cell.off, cpu);
        if let Some((last, id)) = self.last
            && last == key
        {
            return id;
        }
        let held = state.order.locks(cell.locks).iter();
        let mut set: Vec<(u64, bool)> =
            held.map(|&(lock, mode)| (u64::from(lock.0), mode == LockMode::Exclusive)).collect();
        for bit in 0..3u64 {
            if cell.off >> bit & 1 != 0 {
                set.push((VIRTUAL + (bit << 32) + u64::from(cpu), true));
            }
        }
        set.sort_unstable();
        set.dedup();
        let id = self.id(set);
        self.last = Some((key, id));
        id
    }

    /// The locks that are in both sets. For a write, only locks that are held exclusively count.
    fn meet(&mut self, a: u32, b: u32, write: bool) -> u32 {
        if a == b && !write {
            return a;
        }
        let held = self.get(b).to_vec();
        let both = self
            .get(a)
            .iter()
            .filter_map(|&(lock, exclusive)| {
                let &(_, other) = held.iter().find(|(name, _)| *name == lock)?;
                (other || !write).then_some((lock, exclusive && other))
            })
            .collect();
        self.id(both)
    }

    /// The next state of a word after an access with `held`, and whether it is a race.
    pub fn step(&mut self, old: Eraser, cell: &Cell, held: u32) -> (Eraser, bool) {
        let write = cell.kind.writes();
        let refined = match old {
            Eraser::Virgin => return (Eraser::Exclusive(cell.strand), false),
            Eraser::Exclusive(strand) if strand == cell.strand => return (old, false),
            Eraser::Exclusive(_) => self.meet(held, held, write),
            Eraser::Shared(set) | Eraser::Modified(set) => self.meet(set, held, write),
        };
        if write || matches!(old, Eraser::Modified(_)) {
            (Eraser::Modified(refined), refined == 0)
        } else {
            (Eraser::Shared(refined), false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell::Kind;
    use super::*;
    use crate::order::{Now, StrandId};

    fn cell(strand: u32, write: bool) -> Cell {
        let kind = if write { Kind::WRITE } else { Kind::default() };
        Cell::new(0, 0, 0, Now { strand: StrandId(strand), ..Now::default() }, kind)
    }

    #[test]
    fn locks_are_refined_once_a_word_is_shared() {
        let mut sets = Sets::default();
        let (a, ab, read) =
            (sets.id(vec![(1, true)]), sets.id(vec![(1, true), (2, true)]), sets.id(vec![(1, false)]));
        let mut state = Eraser::Virgin;
        let mut races = Vec::new();
        for (strand, write, held) in
            [(1, true, 0), (2, false, ab), (1, true, ab), (2, true, a), (1, false, read), (1, true, read)]
        {
            let (next, race) = sets.step(state, &cell(strand, write), held);
            state = next;
            races.push(race);
        }
        assert_eq!(races, [false, false, false, false, false, true]);
    }

    #[test]
    fn what_is_only_read_is_no_race() {
        let mut sets = Sets::default();
        let mut state = Eraser::Exclusive(StrandId(1));
        for strand in 2..5 {
            let (next, race) = sets.step(state, &cell(strand, false), 0);
            assert!(!race);
            state = next;
        }
        assert_eq!(sets.step(state, &cell(5, true), 0), (Eraser::Modified(0), true));
    }
}
