//! Words in memory that order events by themselves: atomics, and coherent DMA memory that driver and device
//! hand back and forth.

use super::clocks::{Relation, Var};
use super::strands::Strand;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// Most atomic words that are known at a time.
const MAX_ATOMS: usize = 1 << 14;
/// Most cells of DMA memory; with more, a page is one cell.
const MAX_CELLS: usize = 1 << 16;
/// Most pages of DMA memory.
const MAX_PAGES: usize = 1 << 18;
/// Most cells that one access orders; a larger access is cut.
const MAX_SPAN: u64 = 4096;
const PAGE: u64 = 4096;
const CELL: u64 = 16;

/// A filter that quickly rules most addresses out of a set.
#[derive(Debug)]
pub(super) struct Filter(Box<[u64; 1024]>);

impl Default for Filter {
    fn default() -> Self {
        Filter(Box::new([0; 1024]))
    }
}

impl Filter {
    #[inline]
    fn place(key: u64) -> (usize, u64) {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        ((hash >> 6) as usize, 1 << (hash & 63))
    }

    #[inline]
    pub fn may_have(&self, key: u64) -> bool {
        let (word, bit) = Filter::place(key);
        self.0[word] & bit != 0
    }

    pub fn add(&mut self, key: u64) {
        let (word, bit) = Filter::place(key);
        self.0[word] |= bit;
    }
}

/// A filter that quickly rules out that something lies in a range of memory.
#[derive(Debug, Default)]
pub(super) struct PageFilter(Filter);

impl PageFilter {
    /// Whether something may lie in a range that is not empty.
    #[inline]
    pub fn may_have(&self, from: u64, to: u64) -> bool {
        const MOST: u64 = 16;
        let (first, last) = (from / PAGE, to.wrapping_sub(1) / PAGE);
        last.wrapping_sub(first) > MOST || (first..=last).any(|page| self.0.may_have(page))
    }

    /// Something lies at an address from now on.
    #[inline]
    pub fn add(&mut self, addr: u64) {
        self.0.add(addr / PAGE);
    }
}

/// A word that locked instructions work on. Each of its bits may be a lock of its own.
#[derive(Debug, Default)]
pub(super) struct Atom {
    /// What strands released that wrote all of the word.
    word: Option<Var>,
    /// What strands released that changed one bit, by bit.
    bits: Vec<(u8, Option<Var>)>,
}

impl Atom {
    /// A locked instruction releases what its strand has done.
    pub fn release(&mut self, strand: &mut Strand, bit: Option<u8>) {
        let Some(bit) = bit else { return strand.release(&mut self.word, Relation::Hard) };
        let at = self.bits.iter().position(|(known, _)| *known == bit).unwrap_or_else(|| {
            self.bits.push((bit, None));
            self.bits.len() - 1
        });
        strand.release(&mut self.bits[at].1, Relation::Hard);
    }

    /// A strand acquires the word, or one bit of it, because it read it.
    pub fn acquire(&self, strand: &mut Strand, bit: Option<u8>) {
        strand.acquire(&self.word, Relation::Hard);
        for (_, var) in self.bits.iter().filter(|(known, _)| bit.is_none_or(|bit| bit == *known)) {
            strand.acquire(var, Relation::Hard);
        }
    }

    /// A plain store replaces all earlier releases.
    pub fn replace(&mut self, strand: &mut Strand) {
        self.bits.clear();
        strand.replace(&mut self.word);
    }
}

/// All atomic words and all cells of DMA memory.
#[derive(Debug, Default)]
pub(super) struct Atoms {
    atoms: FxHashMap<u64, Atom>,
    filter: Filter,
    /// Cells by tagged address. `order` holds these keys and the addresses of atoms, to find those in a
    /// range.
    cells: FxHashMap<u64, Option<Var>>,
    order: BTreeSet<u64>,
    /// The pages of the addresses in `order`.
    ordered: PageFilter,
    pages: FxHashSet<u64>,
    page_filter: Filter,
    /// Stands for an atomic word where there are too many.
    none: Atom,
}

impl Atoms {
    /// The atomic word at an address; `None` where it is not known as one.
    #[inline]
    pub fn atom(&mut self, addr: u64) -> Option<&mut Atom> {
        let key = addr & !7;
        if !self.filter.may_have(key) {
            return None;
        }
        self.atoms.get_mut(&key)
    }

    /// The atomic word at an address that a locked instruction accesses. Adds it if needed.
    pub fn add(&mut self, addr: u64) -> &mut Atom {
        let key = addr & !7;
        if self.atoms.len() >= MAX_ATOMS && !self.atoms.contains_key(&key) {
            self.none = Atom::default();
            return &mut self.none;
        }
        self.filter.add(key);
        self.atoms.entry(key).or_insert_with(|| {
            self.order.insert(key);
            self.ordered.add(key);
            Atom::default()
        })
    }

    /// Whether an address is in coherent DMA memory.
    #[inline]
    pub fn is_shared(&self, addr: u64) -> bool {
        let page = addr / PAGE;
        self.page_filter.may_have(page) && self.pages.contains(&page)
    }

    /// Calls `f` with the cells of DMA memory in a range, one after the other.
    pub fn each_cell(&mut self, addr: u64, size: u64, store: bool, mut f: impl FnMut(&mut Option<Var>)) {
        let first = addr / CELL;
        let last = addr.saturating_add(size.max(1) - 1) / CELL;
        for cell in first..=last.min(first + MAX_SPAN) {
            let full = self.cells.len() >= MAX_CELLS;
            let key = (cell * CELL) | 1;
            let key =
                if full && !self.cells.contains_key(&key) { (cell * CELL / PAGE * PAGE) | 2 } else { key };
            // A cell without a store orders nothing.
            if !store {
                if let Some(var) = self.cells.get_mut(&key) {
                    f(var);
                }
                continue;
            }
            if self.cells.len() >= 2 * MAX_CELLS && !self.cells.contains_key(&key) {
                continue;
            }
            f(self.cells.entry(key).or_insert_with(|| {
                self.order.insert(key);
                self.ordered.add(key);
                None
            }));
        }
    }

    /// Marks a range as coherent DMA memory.
    pub fn share(&mut self, from: u64, to: u64) {
        for page in from / PAGE..to.div_ceil(PAGE) {
            if self.pages.len() >= MAX_PAGES {
                return;
            }
            self.pages.insert(page);
            self.page_filter.add(page);
        }
    }

    /// Forgets the words in a range: its memory was freed or allocated.
    pub fn forget(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        // Pages that are only partly in the range hold other blocks of a pool.
        let whole = from.div_ceil(PAGE)..to / PAGE;
        if self.pages.len() > 64 && whole.end.saturating_sub(whole.start) > self.pages.len() as u64 {
            self.pages.retain(|page| !whole.contains(page));
        } else if !self.pages.is_empty() {
            for page in whole.take(MAX_PAGES) {
                self.pages.remove(&page);
            }
        }
        if !self.ordered.may_have(from, to) {
            return;
        }
        while let Some(&key) = self.order.range(from..to).next() {
            self.order.remove(&key);
            if key & 7 == 0 {
                self.atoms.remove(&key);
            } else {
                self.cells.remove(&key);
            }
        }
    }
}
