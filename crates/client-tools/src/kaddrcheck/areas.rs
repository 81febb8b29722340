//! Areas of memory with its own page tables (vmalloc), and of per-CPU memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most areas that are kept. Beyond this the oldest freed ones are forgotten.
const MAX: usize = 1 << 16;

/// An area: its sizes, and the stacks that allocated and freed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// Bytes asked for.
    pub size: u64,
    /// Bytes taken from the address space.
    pub taken: u64,
    /// Number of the stack that allocated it.
    pub allocated: u32,
    /// Number of the stack that freed it.
    pub freed: u32,
    /// True until it is freed.
    pub lives: bool,
}

/// Areas by start address.
#[derive(Default)]
pub struct Areas(Mutex<BTreeMap<u64, Area>>);

impl Areas {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Area>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the areas in a range.
    pub fn forget(&self, from: u64, len: u64) {
        let mut all = self.all();
        let end = from.saturating_add(len);
        let before = all.range(..from).next_back().filter(|(at, area)| at.saturating_add(area.taken) > from);
        let mut gone: Vec<u64> = before.map(|(&at, _)| at).into_iter().collect();
        gone.extend(all.range(from..end).map(|(&at, _)| at));
        gone.iter().for_each(|at| {
            all.remove(at);
        });
    }

    /// Adds a new area.
    pub fn add(&self, at: u64, area: Area) {
        self.forget(at, area.taken);
        let mut all = self.all();
        if all.len() >= MAX {
            all.retain(|_, area| area.lives);
        }
        if all.len() < MAX {
            all.insert(at, area);
        }
    }

    /// Marks an area as freed, and returns it.
    pub fn end(&self, at: u64, freed: u32) -> Option<Area> {
        let mut all = self.all();
        let area = all.get_mut(&at).filter(|area| area.lives)?;
        (area.lives, area.freed) = (false, freed);
        Some(*area)
    }

    /// The area that contains an address, with its start.
    pub fn at(&self, addr: u64) -> Option<(u64, Area)> {
        let all = self.all();
        let (&at, &area) = all.range(..=addr).next_back()?;
        (addr - at < area.taken).then_some((at, area))
    }

    /// Forgets all areas.
    pub fn clear(&self) {
        self.all().clear();
    }

    /// Bytes of memory that the areas take.
    pub fn resident(&self) -> usize {
        self.all().len() * (size_of::<Area>() + 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_stretch_takes_the_place_of_old_ones() {
        let areas = Areas::default();
        let area = Area { size: 5000, taken: 8192, lives: true, ..Area::default() };
        areas.add(0x10000, area);
        areas.add(0x14000, area);
        assert_eq!(areas.at(0x11fff), Some((0x10000, area)));
        assert_eq!(areas.at(0x12000), None);
        assert!(areas.end(0x10000, 7).is_some_and(|area| area.freed == 7));
        assert_eq!(areas.end(0x10000, 8), None);
        areas.add(0x11000, Area { taken: 0x4000, ..area });
        assert_eq!(areas.at(0x10800), None);
        assert_eq!(areas.at(0x14800).map(|(at, _)| at), Some(0x11000));
        areas.forget(0, u64::MAX);
        assert_eq!(areas.at(0x14800), None);
    }
}
