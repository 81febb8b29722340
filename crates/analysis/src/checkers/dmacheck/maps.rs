//! Live streaming mappings, by bus address and by the memory that they lend.

use crate::machine::ObjectId;
use crate::stacks::StackId;
use guardrail_knowledge::effect::MapKind;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

pub(super) type MapId = u32;

/// Most mappings that are known at a time; further ones are not followed.
const MAX_MAPPINGS: usize = 1 << 18;
/// Most elements in the lists of mappings by page.
const MAX_PAGES: usize = 1 << 20;
/// Mappings of more pages are wide: they are kept apart, since a list for each page would be too long. No driver
/// needs one, but a log may have any length.
const WIDE: u64 = 1 << 12;
/// Most wide mappings that are found by their memory.
const MAX_WIDE: usize = 64;
/// Most unmapped addresses that are remembered.
const MAX_GONE: usize = 1 << 14;
/// Most ranges of one mapping that the CPU may own; with more, all of the mapping counts as owned.
const MAX_OWNED: usize = 64;
/// How many mappings that begin before an address are searched for it.
const MAX_BACK: usize = 256;
const SLOTS: usize = 1 << 14;

/// The direction of a mapping, numbered as in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dir {
    Both,
    ToDevice,
    FromDevice,
    None,
}

impl Dir {
    pub fn of(value: u64) -> Dir {
        match value as u32 {
            0 => Dir::Both,
            1 => Dir::ToDevice,
            2 => Dir::FromDevice,
            _ => Dir::None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Dir::Both => "DMA_BIDIRECTIONAL",
            Dir::ToDevice => "DMA_TO_DEVICE",
            Dir::FromDevice => "DMA_FROM_DEVICE",
            Dir::None => "DMA_NONE",
        }
    }

    /// The device may write.
    pub fn writes(self) -> bool {
        matches!(self, Dir::Both | Dir::FromDevice)
    }
}

/// A live mapping.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub dev: u64,
    pub dir: Dir,
    pub kind: MapKind,
    pub size: u64,
    /// The memory: address and length of each piece. Empty where it is not known or was freed.
    pub memory: Vec<(u64, u64)>,
    /// Bus address and length of each segment.
    pub bus: Vec<(u64, u64)>,
    /// Address of the scatterlist and the number of its elements; `None` for a single buffer.
    pub list: Option<(u64, u64)>,
    /// The stack of the call that mapped it.
    pub stack: StackId,
    /// The module in whose call it was mapped.
    pub module: Option<u32>,
    /// The module called the mapping function itself.
    pub by_driver: bool,
    pub serial: u64,
    /// The objects that the memory lay in, with their serial numbers.
    pub objects: Vec<(ObjectId, u64)>,
    /// The memory was freed, and that was reported.
    pub told: bool,
    /// How often it was mapped again since, where that was reported. As many unmaps do not end the mapping.
    pub again: u32,
    owned: Vec<(u64, u64)>,
}

impl Mapping {
    pub fn new(dev: u64, dir: Dir, kind: MapKind, size: u64) -> Mapping {
        Mapping {
            dev,
            dir,
            kind,
            size,
            memory: Vec::new(),
            bus: Vec::new(),
            list: None,
            stack: StackId::default(),
            module: None,
            by_driver: false,
            serial: 0,
            objects: Vec::new(),
            told: false,
            again: 0,
            owned: Vec::new(),
        }
    }

    /// The first piece of memory that overlaps the range.
    pub fn piece(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        self.memory.iter().copied().find(|&(at, len)| from < at.saturating_add(len) && to > at)
    }

    /// Makes the CPU the owner of a range of the memory.
    pub fn give(&mut self, from: u64, to: u64) {
        if self.owned.len() >= MAX_OWNED {
            self.owned = self.memory.iter().map(|&(at, len)| (at, at.saturating_add(len))).collect();
            return;
        }
        let (mut from, mut to) = (from, to);
        self.owned.retain(|&(a, b)| {
            let apart = b < from || a > to;
            if !apart {
                from = from.min(a);
                to = to.max(b);
            }
            apart
        });
        self.owned.push((from, to));
    }

    /// Makes the device the owner of a range of the memory again.
    pub fn take(&mut self, from: u64, to: u64) {
        let old = std::mem::take(&mut self.owned);
        for (a, b) in old {
            if a < from.min(b) {
                self.owned.push((a, from.min(b)));
            }
            if b > to.max(a) {
                self.owned.push((to.max(a), b));
            }
        }
    }

    /// Whether the CPU owns all of a range.
    pub fn is_owned(&self, from: u64, to: u64) -> bool {
        self.owned.iter().any(|&(a, b)| a <= from && to <= b)
    }
}

/// The end of a mapping at an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone {
    pub mapped: StackId,
    pub unmapped: StackId,
}

/// All live mappings.
#[derive(Debug)]
pub(super) struct Maps {
    table: FxHashMap<MapId, Mapping>,
    by_bus: BTreeMap<(u64, u64, MapId), u64>,
    by_list: FxHashMap<(u64, u64), MapId>,
    by_page: FxHashMap<u64, Vec<MapId>>,
    pages: usize,
    /// The wide mappings with memory.
    wide: Vec<MapId>,
    /// How many pages of interest fall into each slot. Most accesses need only this check.
    filter: Box<[u16]>,
    gone: FxHashMap<(u64, u64), Gone>,
    gone_order: VecDeque<(u64, u64)>,
    next: MapId,
    serial: u64,
}

impl Default for Maps {
    fn default() -> Self {
        Maps {
            table: FxHashMap::default(),
            by_bus: BTreeMap::new(),
            by_list: FxHashMap::default(),
            by_page: FxHashMap::default(),
            pages: 0,
            wide: Vec::new(),
            filter: vec![0; SLOTS].into(),
            gone: FxHashMap::default(),
            gone_order: VecDeque::new(),
            next: 0,
            serial: 0,
        }
    }
}

#[inline]
fn slot(page: u64) -> usize {
    (page ^ page >> 14) as usize & (SLOTS - 1)
}

/// The numbers of the pages that a range lies in.
fn pages_of((at, len): (u64, u64)) -> RangeInclusive<u64> {
    let last = at.saturating_add(len.max(1) - 1) >> 12;
    at >> 12..=last
}

/// Whether memory of these pieces has so many pages that they are not counted one by one.
fn is_wide(memory: &[(u64, u64)]) -> bool {
    memory.iter().fold(0, |sum: u64, piece| sum.saturating_add((piece.1 >> 12) + 1)) > WIDE
}

/// Whether one of the pieces lies in a page of the range.
fn shares_page(memory: &[(u64, u64)], range: (u64, u64)) -> bool {
    let wanted = pages_of(range);
    memory.iter().any(|piece| {
        let pages = pages_of(*piece);
        pages.start() <= wanted.end() && wanted.start() <= pages.end()
    })
}

impl Maps {
    pub fn get(&self, id: MapId) -> Option<&Mapping> {
        self.table.get(&id)
    }

    pub fn get_mut(&mut self, id: MapId) -> Option<&mut Mapping> {
        self.table.get_mut(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (MapId, &Mapping)> {
        self.table.iter().map(|(id, mapping)| (*id, mapping))
    }

    /// The serial number of the newest mapping; newer mappings have larger numbers.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Whether an access may be to a page of interest.
    #[inline]
    pub fn may_touch(&self, addr: u64, len: u64) -> bool {
        let last = addr.saturating_add(len.max(1) - 1) >> 12;
        self.filter[slot(addr >> 12)] != 0 || self.filter[slot(last)] != 0 || !self.wide.is_empty()
    }

    /// Marks a page as one of interest, though no mapping lies there.
    pub fn watch(&mut self, addr: u64) {
        let count = &mut self.filter[slot(addr >> 12)];
        *count = count.saturating_add(1);
    }

    pub fn unwatch(&mut self, addr: u64) {
        // A saturated counter is no longer exact, so it stays.
        let count = &mut self.filter[slot(addr >> 12)];
        if *count != u16::MAX {
            *count = count.saturating_sub(1);
        }
    }

    /// Adds a mapping. Returns `None` where there are too many.
    pub fn add(&mut self, mut mapping: Mapping) -> Option<MapId> {
        if self.table.len() >= MAX_MAPPINGS {
            return None;
        }
        self.serial += 1;
        mapping.serial = self.serial;
        self.next = self.next.wrapping_add(1);
        let id = self.next;
        if let Some((list, _)) = mapping.list {
            self.by_list.insert((mapping.dev, list), id);
            self.gone.remove(&(mapping.dev, list));
        }
        self.table.insert(id, mapping);
        self.index(id);
        Some(id)
    }

    /// Fills in the memory and the bus segments of a list's mapping.
    pub fn fill(&mut self, id: MapId, memory: Vec<(u64, u64)>, bus: Vec<(u64, u64)>) {
        if let Some(mapping) = self.table.get_mut(&id)
            && mapping.memory.is_empty()
        {
            mapping.memory = memory;
            mapping.bus = bus;
            self.index(id);
        }
    }

    fn index(&mut self, id: MapId) {
        let Some(mapping) = self.table.get(&id) else { return };
        for &(at, len) in &mapping.bus {
            self.by_bus.insert((mapping.dev, at, id), len);
            self.gone.remove(&(mapping.dev, at));
        }
        if is_wide(&mapping.memory) {
            if self.wide.len() < MAX_WIDE {
                self.wide.push(id);
            }
            return;
        }
        for page in mapping.memory.iter().copied().flat_map(pages_of) {
            if self.pages >= MAX_PAGES {
                return;
            }
            let ids = self.by_page.entry(page).or_default();
            if ids.last() != Some(&id) {
                ids.push(id);
                self.pages += 1;
                let count = &mut self.filter[slot(page)];
                *count = count.saturating_add(1);
            }
        }
    }

    /// The memory of a mapping was freed and may be allocated again; the bus address stays mapped.
    pub fn detach(&mut self, id: MapId) {
        let Some(mapping) = self.table.get_mut(&id) else { return };
        let memory = std::mem::take(&mut mapping.memory);
        if is_wide(&memory) {
            return self.wide.retain(|&other| other != id);
        }
        for page in memory.into_iter().flat_map(pages_of) {
            let Some(ids) = self.by_page.get_mut(&page) else { continue };
            let before = ids.len();
            ids.retain(|&other| other != id);
            if ids.len() < before {
                self.pages -= 1;
                let count = &mut self.filter[slot(page)];
                if *count != u16::MAX {
                    *count = count.saturating_sub(1);
                }
            }
            if ids.is_empty() {
                self.by_page.remove(&page);
            }
        }
    }

    /// Removes a mapping and returns it.
    pub fn remove(&mut self, id: MapId) -> Option<Mapping> {
        let memory = self.table.get(&id)?.memory.clone();
        self.detach(id);
        let mut mapping = self.table.remove(&id)?;
        mapping.memory = memory;
        for &(at, _) in &mapping.bus {
            self.by_bus.remove(&(mapping.dev, at, id));
        }
        if let Some((list, _)) = mapping.list
            && self.by_list.get(&(mapping.dev, list)) == Some(&id)
        {
            self.by_list.remove(&(mapping.dev, list));
        }
        Some(mapping)
    }

    /// Remembers where a mapping was made and unmapped.
    pub fn bury(&mut self, mapping: &Mapping, unmapped: StackId) {
        let gone = Gone { mapped: mapping.stack, unmapped };
        let keys = mapping.bus.first().map(|bus| bus.0).into_iter().chain(mapping.list.map(|list| list.0));
        for key in keys.map(|at| (mapping.dev, at)) {
            if self.gone.insert(key, gone).is_none() {
                self.gone_order.push_back(key);
            }
        }
        while self.gone_order.len() > MAX_GONE {
            if let Some(oldest) = self.gone_order.pop_front() {
                self.gone.remove(&oldest);
            }
        }
    }

    /// The end of the last mapping at a bus address, or of a list; `None` where none is remembered.
    pub fn gone(&self, dev: u64, at: u64) -> Option<Gone> {
        self.gone.get(&(dev, at)).copied()
    }

    /// The mappings that begin at a bus address.
    pub fn exact(&self, dev: u64, bus: u64) -> impl Iterator<Item = (MapId, &Mapping)> {
        let range = (dev, bus, MapId::MIN)..=(dev, bus, MapId::MAX);
        self.by_bus.range(range).filter_map(|(key, _)| Some((key.2, self.table.get(&key.2)?)))
    }

    /// The mapping that holds a bus address, and its segment there. One that holds the whole range is
    /// preferred.
    pub fn holding(&self, dev: u64, bus: u64, len: u64) -> Option<(MapId, (u64, u64))> {
        let before = self.by_bus.range((dev, 0, 0)..=(dev, bus, MapId::MAX)).rev().take(MAX_BACK);
        let mut found = None;
        for (&(_, at, id), &size) in before {
            let end = at.saturating_add(size);
            if bus < end {
                if bus.saturating_add(len) <= end {
                    return Some((id, (at, size)));
                }
                found = found.or(Some((id, (at, size))));
            }
        }
        found
    }

    /// The live mapping of a scatterlist.
    pub fn of_list(&self, dev: u64, list: u64) -> Option<MapId> {
        self.by_list.get(&(dev, list)).copied()
    }

    /// The mappings that lend memory of these pages, each once.
    pub fn on(&self, addr: u64, len: u64) -> Vec<MapId> {
        let touches =
            |id: &MapId| self.table.get(id).is_some_and(|mapping| shares_page(&mapping.memory, (addr, len)));
        if is_wide(&[(addr, len)]) {
            let mut found: Vec<MapId> = self.table.keys().copied().filter(touches).collect();
            found.sort_unstable();
            return found;
        }
        let mut found: Vec<MapId> = self.wide.iter().copied().filter(touches).collect();
        for page in pages_of((addr, len)) {
            for &id in self.by_page.get(&page).map_or(&[][..], |ids| ids) {
                if !found.contains(&id) {
                    found.push(id);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(bus: u64, memory: u64, len: u64) -> Mapping {
        Mapping {
            memory: vec![(memory, len)],
            bus: vec![(bus, len)],
            ..Mapping::new(1, Dir::Both, MapKind::Single, len)
        }
    }

    #[test]
    fn ownership_is_kept_by_ranges() {
        let mut m = mapping(0, 0x1000, 0x1000);
        m.give(0x1100, 0x1200);
        m.give(0x1200, 0x1300);
        assert!(m.is_owned(0x1100, 0x1300) && !m.is_owned(0x10ff, 0x1101));
        m.take(0x1180, 0x1280);
        assert!(m.is_owned(0x1100, 0x1180) && m.is_owned(0x1280, 0x1300) && !m.is_owned(0x1180, 0x1181));
        m.take(0, u64::MAX);
        assert!(!m.is_owned(0x1100, 0x1101));
    }

    #[test]
    fn a_mapping_of_any_length_leaves_room_for_others() {
        let mut maps = Maps::default();
        let vast = maps.add(mapping(0x5000, 0x10_0000, u64::MAX >> 1)).unwrap();
        let small = maps.add(mapping(0x9000, 0x8000, 0x100)).unwrap();
        assert_eq!(maps.on(0x8000, 8), [small]);
        assert_eq!(maps.on(0x7000_0000_0000, 8), [vast]);
        assert_eq!(maps.on(0x8000, u64::MAX), [vast, small]);
        assert!(maps.may_touch(0x7000_0000_0000, 8));
        assert_eq!((maps.pages, maps.wide.len()), (1, 1));
        maps.remove(vast);
        assert!(!maps.may_touch(0x7000_0000_0000, 8) && maps.wide.is_empty());
        assert_eq!(maps.on(0, u64::MAX), [small]);
    }

    #[test]
    fn a_removed_mapping_leaves_nothing() {
        let mut maps = Maps::default();
        let a = maps.add(mapping(0x5000, 0x1_0000, 0x2001)).unwrap();
        let b = maps.add(mapping(0x5000, 0x1_0000, 0x100)).unwrap();
        assert_eq!(maps.exact(1, 0x5000).count(), 2);
        assert_eq!(maps.holding(1, 0x5080, 0x1000).unwrap().0, a);
        assert_eq!(maps.on(0x1_0000, 1), [a, b]);
        assert!(maps.may_touch(0x1_2000, 1));
        maps.remove(a);
        maps.remove(b);
        assert!(!maps.may_touch(0x1_0000, 0x1000) && !maps.may_touch(0x1_2000, 1));
        assert!(maps.by_bus.is_empty() && maps.by_page.is_empty() && maps.pages == 0);
    }
}
