//! The shadow of accesses: who accessed each word last, and how.
//!
//! Words are 8 bytes, naturally aligned; masks of bytes distinguish finer accesses. A word keeps a few
//! accesses, the newest first.
//!
//! Memory is bounded: the numbers of cells and pages are fixed. When they are used up, the least recently
//! accessed page is evicted with all its accesses. That loses races with old accesses and never invents any.

use super::cell::{Apart, Cell, Kind, NONE};
use crate::order::StrandId;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Most accesses that a word keeps.
pub(super) const CELLS: usize = 12;
/// Number of words in a page.
const WORDS: usize = 512;
/// Most cells (64 bytes each), and most pages (about 4 KB each).
const MAX_CELLS: usize = 2_400_000;
const MAX_PAGES: usize = 16_384;
/// Longest range in bytes that is cleared word by word; a longer one is a mistake.
const MAX_RANGE: u64 = 1 << 28;
const CACHE: usize = 64;

/// What plain Eraser knows about a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Eraser {
    /// No access yet.
    #[default]
    Virgin,
    /// Accessed by one strand.
    Exclusive(StrandId),
    /// Read by several strands; the locks that all held.
    Shared(u32),
    /// Written, and accessed by several strands; the locks that all held.
    Modified(u32),
}

/// A word of a page.
#[derive(Clone, Copy, Debug)]
struct Word {
    /// The number of its newest cell; [`NONE`] without one.
    head: u32,
    /// Bytes that several strands have accessed.
    shared: u8,
    /// Bytes that were accessed atomically.
    atomic: u8,
}

impl Word {
    const EMPTY: Word = Word { head: NONE, shared: 0, atomic: 0 };
}

#[derive(Debug)]
struct Page {
    number: u64,
    words: [Word; WORDS],
    /// Eraser's state for each half of a word; `None` outside of plain Eraser.
    eraser: Option<Box<[[Eraser; 2]; WORDS]>>,
    /// Accessed since the last search for a page to evict.
    recent: bool,
    cells: u32,
}

impl Page {
    /// The first word from `from` to `last` of which something is known.
    fn used(&self, from: u16, last: u16) -> Option<u16> {
        if from > last {
            return None;
        }
        let words = self.words.get(usize::from(from)..=usize::from(last))?;
        let used = |word: &Word| word.head != NONE || word.shared | word.atomic != 0;
        let at = if self.eraser.is_some() { 0 } else { words.iter().position(used)? };
        Some(from + at as u16)
    }

    fn new(number: u64) -> Page {
        Page { number, words: [Word::EMPTY; WORDS], eraser: None, recent: true, cells: 0 }
    }
}

/// Position of a word in the table; valid until the next change of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    page: u32,
    word: u16,
}

/// The table of words.
#[derive(Debug)]
pub(super) struct Words {
    index: FxHashMap<u64, u32>,
    pages: Vec<Option<Box<Page>>>,
    free_pages: Vec<u32>,
    order: VecDeque<u32>,
    cells: Vec<Cell>,
    free_cells: u32,
    used_cells: usize,
    cache: [(u64, u32); CACHE],
    max_cells: usize,
    max_pages: usize,
}

impl Default for Words {
    fn default() -> Self {
        Words::new(MAX_CELLS, MAX_PAGES)
    }
}

impl Words {
    /// A table of limited size.
    pub fn new(max_cells: usize, max_pages: usize) -> Words {
        Words {
            index: FxHashMap::default(),
            pages: Vec::new(),
            free_pages: Vec::new(),
            order: VecDeque::new(),
            // Memory that is not touched costs nothing, and a growing list would be copied again and again.
            cells: Vec::with_capacity(max_cells),
            free_cells: NONE,
            used_cells: 0,
            cache: [(u64::MAX, NONE); CACHE],
            max_cells,
            max_pages,
        }
    }

    #[inline]
    fn page_number(&mut self, number: u64) -> Option<u32> {
        let slot = &mut self.cache[number as usize % CACHE];
        if slot.0 != number {
            *slot = (number, self.index.get(&number).copied().unwrap_or(NONE));
        }
        (slot.1 != NONE).then_some(slot.1)
    }

    /// The position of the word that holds `addr`. Makes the word if needed.
    #[inline]
    pub fn at(&mut self, addr: u64) -> At {
        let word = (addr / 8 % WORDS as u64) as u16;
        let number = addr / 4096;
        match self.page_number(number) {
            Some(page) => At { page, word },
            None => At { page: self.make(number), word },
        }
    }

    fn make(&mut self, number: u64) -> u32 {
        if self.index.len() >= self.max_pages {
            self.evict(NONE);
        }
        let page = Box::new(Page::new(number));
        let at = match self.free_pages.pop() {
            Some(at) => {
                self.pages[at as usize] = Some(page);
                at
            }
            None => {
                self.pages.push(Some(page));
                self.pages.len() as u32 - 1
            }
        };
        self.index.insert(number, at);
        self.cache[number as usize % CACHE] = (number, at);
        self.order.push_back(at);
        at
    }

    /// Evicts the least recently accessed page, but not `keep`.
    fn evict(&mut self, keep: u32) {
        for _ in 0..=2 * self.order.len() {
            let Some(at) = self.order.pop_front() else { return };
            let Some(page) = self.pages.get_mut(at as usize).and_then(Option::as_mut) else { continue };
            if page.recent || at == keep {
                page.recent = false;
                self.order.push_back(at);
                continue;
            }
            self.drop_page(at);
            return;
        }
    }

    fn drop_page(&mut self, at: u32) {
        for word in 0..WORDS as u16 {
            self.clear_word(At { page: at, word });
        }
        if let Some(page) = self.pages.get_mut(at as usize).and_then(Option::take) {
            self.index.remove(&page.number);
            self.cache[page.number as usize % CACHE] = (u64::MAX, NONE);
            self.free_pages.push(at);
        }
    }

    #[inline]
    fn page(&self, at: At) -> Option<&Page> {
        self.pages.get(at.page as usize)?.as_deref()
    }

    #[inline]
    fn page_mut(&mut self, at: At) -> Option<&mut Page> {
        self.pages.get_mut(at.page as usize)?.as_deref_mut()
    }

    /// Whether the newest access to the word covers this one. Records it there if so.
    #[inline]
    pub fn repeats(&mut self, at: At, new: &Cell) -> bool {
        let Some(page) = self.page(at) else { return false };
        let head = page.words[usize::from(at.word)].head;
        let Some(cell) = self.cells.get_mut(head as usize) else { return false };
        if !cell.covers(new) {
            return false;
        }
        cell.last = new.event;
        if cell.run == new.run {
            cell.kind = cell.kind.with(Kind::AGAIN);
        }
        true
    }

    /// Puts an access in the place of an equal one of its strand, where no other strand has accessed the word since.
    /// What kept that one apart from the others keeps this one apart as well. With `handing`, order does not
    /// suffice for that. Returns false, and changes nothing, where the access must be compared and
    /// [pushed](Self::push).
    pub fn renew(&mut self, at: At, new: &Cell, handing: bool) -> bool {
        let word = usize::from(at.word);
        let Some(head) = self.page(at).map(|page| page.words[word].head) else { return false };
        let (mut before, mut this) = (NONE, head);
        let next = loop {
            let Some(cell) = self.cells.get(this as usize) else { return false };
            if cell.is_like(new) {
                if !cell.alone || cell.apart == Apart::Unknown || handing && cell.apart != Apart::Locked {
                    return false;
                }
                break cell.next;
            }
            if cell.strand != new.strand || cell.yields_to(new) {
                return false;
            }
            (before, this) = (this, cell.next);
        };
        if let Some(cell) = self.cells.get_mut(before as usize) {
            cell.next = next;
        }
        let Some(cell) = self.cells.get_mut(this as usize) else { return false };
        let first = Kind(cell.kind.0 & Kind::FIRST.0);
        let next = if before == NONE { next } else { head };
        *cell = Cell { next, kind: new.kind.with(first), apart: cell.apart, alone: true, ..*new };
        if let Some(page) = self.page_mut(at) {
            page.recent = true;
            page.words[word].head = this;
        }
        true
    }

    /// The accesses to a word, the newest first.
    pub fn cells(&self, at: At) -> impl Iterator<Item = &Cell> {
        let mut next = self.page(at).map_or(NONE, |page| page.words[usize::from(at.word)].head);
        std::iter::from_fn(move || {
            let cell = self.cells.get(next as usize)?;
            next = cell.next;
            Some(cell)
        })
    }

    /// The bytes of a word that several strands have accessed, and those that were accessed atomically.
    pub fn marks(&self, at: At) -> (u8, u8) {
        let word = usize::from(at.word);
        self.page(at).map_or((0, 0), |page| (page.words[word].shared, page.words[word].atomic))
    }

    /// Adds to the bytes that [`Self::marks`] returns.
    pub fn mark(&mut self, at: At, shared: u8, atomic: u8) {
        let word = usize::from(at.word);
        if let Some(page) = self.page_mut(at) {
            page.words[word].shared |= shared;
            page.words[word].atomic |= atomic;
        }
    }

    /// Eraser's state for the halves of a word, mutable.
    pub fn eraser(&mut self, at: At) -> Option<&mut [Eraser; 2]> {
        let word = usize::from(at.word);
        let page = self.page_mut(at)?;
        Some(&mut page.eraser.get_or_insert_with(|| Box::new([[Eraser::Virgin; 2]; WORDS]))[word])
    }

    /// Puts an access first, in the place of one that it replaces. In a full word, it evicts the least
    /// important one: an older one of the same strand before others, a read before a write, then the oldest.
    pub fn push(&mut self, at: At, mut new: Cell) {
        let word = usize::from(at.word);
        let mut victim: Option<(u8, u32, u32)> = None;
        let (mut before, mut count, mut yielding) = (NONE, 0, 0);
        let Some(page) = self.page_mut(at) else { return };
        page.recent = true;
        let mut this = page.words[word].head;
        while let Some(cell) = self.cells.get(this as usize) {
            count += 1;
            let rank = if cell.yields_to(&new) {
                yielding += 1;
                0
            } else if cell.strand == new.strand {
                1 + u8::from(cell.kind.writes())
            } else {
                3 + u8::from(cell.kind.writes())
            };
            // Among equal ones the oldest is evicted, and older ones are visited later.
            if victim.is_none_or(|(best, _, _)| rank <= best) {
                victim = Some((rank, before, this));
            }
            (before, this) = (this, cell.next);
        }
        let slot = match victim {
            Some((rank, before, slot)) if rank == 0 || count >= CELLS => {
                let next = self.cells[slot as usize].next;
                match self.cells.get_mut(before as usize) {
                    Some(cell) => cell.next = next,
                    None => {
                        if let Some(page) = self.page_mut(at) {
                            page.words[word].head = next;
                        }
                    }
                }
                slot
            }
            _ => {
                let Some(slot) = self.take_cell(at) else { return };
                if let Some(page) = self.page_mut(at) {
                    page.cells += 1;
                }
                slot
            }
        };
        if let Some(page) = self.page_mut(at) {
            (new.next, new.alone) = (page.words[word].head, yielding <= 1);
            page.words[word].head = slot;
        }
        self.cells[slot as usize] = new;
    }

    fn take_cell(&mut self, at: At) -> Option<u32> {
        if self.free_cells == NONE && self.cells.len() >= self.max_cells {
            self.evict(at.page);
        }
        self.used_cells += 1;
        if self.free_cells != NONE {
            let slot = self.free_cells;
            self.free_cells = self.cells[slot as usize].next;
            return Some(slot);
        }
        if self.cells.len() >= self.max_cells {
            self.used_cells -= 1;
            return None;
        }
        self.cells.push(Cell::new(0, 0, 0, crate::order::Now::default(), Kind::default()));
        Some(self.cells.len() as u32 - 1)
    }

    fn clear_word(&mut self, at: At) {
        let word = usize::from(at.word);
        let Some(page) = self.page_mut(at) else { return };
        if let Some(eraser) = &mut page.eraser {
            eraser[word] = [Eraser::Virgin; 2];
        }
        let head = std::mem::replace(&mut page.words[word], Word::EMPTY).head;
        let mut this = head;
        let mut freed = 0;
        while let Some(cell) = self.cells.get_mut(this as usize) {
            freed += 1;
            let next = cell.next;
            if next == NONE {
                cell.next = self.free_cells;
                self.free_cells = head;
                break;
            }
            this = next;
        }
        self.used_cells -= freed;
        if let Some(page) = self.page_mut(at) {
            page.cells -= freed as u32;
        }
    }

    /// Forgets all words that code in a range has accessed.
    pub fn forget_code(&mut self, from: u64, to: u64) {
        let by = |cell: &Cell| (from..to).contains(&cell.pc);
        for page in 0..self.pages.len() as u32 {
            for word in 0..WORDS as u16 {
                let at = At { page, word };
                if self.cells(at).any(by) {
                    self.clear_word(at);
                }
            }
        }
    }

    /// Forgets the accesses to all words that the range covers.
    pub fn clear(&mut self, from: u64, to: u64) {
        let to = to.min(from.saturating_add(MAX_RANGE));
        if from >= to {
            return;
        }
        let (first, last) = (from / 4096, (to - 1) / 4096);
        // For a large range, only the pages that exist cost anything.
        if last - first > self.index.len() as u64 {
            let inside: Vec<u64> =
                self.index.keys().copied().filter(|number| (first..=last).contains(number)).collect();
            for number in inside {
                self.clear_in_page(number, from, to);
            }
        } else {
            (first..=last).for_each(|number| self.clear_in_page(number, from, to));
        }
    }

    fn clear_in_page(&mut self, number: u64, from: u64, to: u64) {
        let Some(page) = self.page_number(number) else { return };
        let base = number.wrapping_mul(4096);
        let first = (from.max(base) - base) / 8;
        let last = (to.min(base.saturating_add(4096)) - 1 - base) / 8;
        let mut word = first as u16;
        // Most words of most ranges are clear.
        while let Some(further) = self.page(At { page, word }).and_then(|page| page.used(word, last as u16)) {
            self.clear_word(At { page, word: further });
            word = further + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Now;

    fn cell(strand: u32, kind: Kind, mask: u8) -> Cell {
        let now = Now { strand: StrandId(strand), ..Now::default() };
        Cell { mask, ..Cell::new(u64::from(strand), 1, 0, now, kind) }
    }

    #[test]
    fn a_word_keeps_writes_and_distinct_strands() {
        let mut words = Words::default();
        let at = words.at(0x1000);
        words.push(at, cell(1, Kind::WRITE, 0xff));
        for strand in 2..20 {
            words.push(at, cell(strand, Kind::default(), 0xff));
        }
        let kept: Vec<u32> = words.cells(at).map(|c| c.strand.0).collect();
        assert_eq!(kept, [19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 1]);
    }

    #[test]
    fn an_access_stands_for_an_older_one_of_its_kind() {
        let mut words = Words::default();
        let at = words.at(0x1000);
        words.push(at, cell(1, Kind::WRITE, 0x0f));
        words.push(at, cell(2, Kind::WRITE, 0x0f));
        words.push(at, cell(1, Kind::WRITE, 0xff));
        let kept: Vec<(u32, u8)> = words.cells(at).map(|c| (c.strand.0, c.mask)).collect();
        assert_eq!(kept, [(1, 0xff), (2, 0x0f)]);
        assert!(words.repeats(at, &cell(1, Kind::WRITE, 0x01)));
        assert!(!words.repeats(at, &cell(1, Kind::default(), 0x01)));
    }

    #[test]
    fn a_cleared_range_knows_nothing() {
        let mut words = Words::default();
        for addr in (0x1000..0x4000).step_by(8) {
            let at = words.at(addr);
            words.push(at, cell(1, Kind::WRITE, 0xff));
            words.mark(at, 0xff, 0xff);
        }
        words.clear(0x1ffc, 0x3001);
        for (addr, kept) in [(0x1ff0, 1), (0x1ff8, 0), (0x2000, 0), (0x3000, 0), (0x3008, 1)] {
            let at = words.at(addr);
            assert_eq!(words.cells(at).count(), kept, "{addr:#x}");
            assert_eq!(words.marks(at).0 != 0, kept == 1);
        }
    }

    #[test]
    fn what_code_has_touched_is_forgotten_with_the_code() {
        let mut words = Words::default();
        let (a, b) = (words.at(0x1000), words.at(0x2000));
        words.push(a, cell(1, Kind::WRITE, 0xff));
        words.push(b, cell(2, Kind::WRITE, 0xff));
        words.forget_code(1, 2);
        assert_eq!((words.cells(a).count(), words.cells(b).count()), (0, 1));
    }

    #[test]
    fn memory_is_bounded() {
        let mut words = Words::new(1000, 16);
        for addr in (0..(1u64 << 20)).step_by(8) {
            let at = words.at(addr);
            words.push(at, cell(1, Kind::WRITE, 0xff));
        }
        assert!(words.cells.len() <= 1000 && words.index.len() <= 16);
        let at = words.at((1 << 20) - 8);
        assert_eq!(words.cells(at).count(), 1);
        words.clear(0, u64::MAX);
        assert_eq!(words.used_cells, 0);
    }
}
