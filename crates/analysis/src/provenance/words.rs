//! Pointers in memory, by aligned word of 8 bytes.

use crate::value_flow::Pointer;
use rustc_hash::FxHashMap;

const PAGE: u64 = 4096;
const WORDS: usize = 512;
/// Most pages with pointers. Each costs 8 KB.
const MAX_PAGES: usize = 4096;
/// Number of pages of which the place is remembered.
const RECENT: usize = 64;

/// A pointer in memory.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    value: u64,
    /// 0 where nothing is known of the word.
    from: u32,
    certain: bool,
    known: bool,
}

/// The pointers in memory.
#[derive(Debug)]
pub(super) struct Words {
    /// Index in `table`, by number of page.
    places: FxHashMap<u64, u32>,
    table: Vec<Box<[Word; WORDS]>>,
    /// Unused pages of `table`.
    unused: Vec<u32>,
    /// Numbers of pages that were looked up, with their index; `None` for those without pointers.
    recent: [(u64, Option<u32>); RECENT],
}

impl Default for Words {
    fn default() -> Self {
        Words {
            places: FxHashMap::default(),
            table: Vec::new(),
            unused: Vec::new(),
            recent: [(u64::MAX, None); RECENT],
        }
    }
}

fn recent(number: u64) -> usize {
    (number ^ number >> 6) as usize % RECENT
}

impl Words {
    #[inline]
    fn page(&mut self, number: u64) -> Option<&mut [Word; WORDS]> {
        let slot = &mut self.recent[recent(number)];
        if slot.0 != number {
            *slot = (number, self.places.get(&number).copied());
        }
        self.table.get_mut(slot.1? as usize).map(|page| &mut **page)
    }

    /// The pointer in the word at `addr`; `None` where nothing is known.
    #[inline]
    pub(super) fn get(&mut self, addr: u64) -> Option<Pointer> {
        if self.places.is_empty() || !addr.is_multiple_of(8) {
            return None;
        }
        let word = self.page(addr / PAGE)?[(addr % PAGE / 8) as usize];
        (word.from != 0).then_some(Pointer {
            from: word.from,
            certain: word.certain,
            value: word.known.then_some(word.value),
        })
    }

    /// A pointer is in the word at `addr` from now on.
    pub(super) fn put(&mut self, addr: u64, pointer: Pointer) {
        if !addr.is_multiple_of(8) {
            return;
        }
        let number = addr / PAGE;
        if self.page(number).is_none() && !self.add(number) {
            return;
        }
        if let Some(page) = self.page(number) {
            page[(addr % PAGE / 8) as usize] = Word {
                value: pointer.value.unwrap_or(0),
                from: pointer.from,
                certain: pointer.certain,
                known: pointer.value.is_some(),
            };
        }
    }

    /// Adds a page; false where there are too many.
    fn add(&mut self, number: u64) -> bool {
        let index = match self.unused.pop() {
            Some(index) => index,
            None if self.table.len() < MAX_PAGES => {
                self.table.push(Box::new([Word::default(); WORDS]));
                (self.table.len() - 1) as u32
            }
            None => return false,
        };
        self.table[index as usize].fill(Word::default());
        self.places.insert(number, index);
        self.recent[recent(number)] = (number, Some(index));
        true
    }

    fn remove(&mut self, number: u64) {
        if let Some(index) = self.places.remove(&number) {
            self.unused.push(index);
            self.recent[recent(number)] = (u64::MAX, None);
        }
    }

    /// Something else was stored.
    #[inline]
    pub(super) fn overwrite(&mut self, addr: u64, len: u64) {
        if self.places.is_empty() {
            return;
        }
        let last = addr.saturating_add(len.max(1) - 1);
        if addr / PAGE != last / PAGE {
            return self.clear(addr, len);
        }
        if let Some(page) = self.page(addr / PAGE) {
            for word in addr % PAGE / 8..=last % PAGE / 8 {
                page[word as usize].from = 0;
            }
        }
    }

    /// Nothing is known any more about the words of a range.
    pub(super) fn clear(&mut self, addr: u64, len: u64) {
        if self.places.is_empty() || len == 0 {
            return;
        }
        let end = addr.saturating_add(len);
        let (first, last) = (addr / PAGE, (end - 1) / PAGE);
        if last - first > self.places.len() as u64 {
            let within: Vec<u64> =
                self.places.keys().copied().filter(|page| (first..=last).contains(page)).collect();
            within.into_iter().for_each(|number| self.clear_in(number, addr, end));
        } else {
            (first..=last).for_each(|number| self.clear_in(number, addr, end));
        }
    }

    fn clear_in(&mut self, number: u64, addr: u64, end: u64) {
        let base = number.wrapping_mul(PAGE);
        let (from, to) = (addr.max(base) - base, (end - base).min(PAGE));
        if to - from == PAGE {
            return self.remove(number);
        }
        if let Some(page) = self.page(number) {
            for word in &mut page[(from / 8) as usize..=((to - 1) / 8) as usize] {
                word.from = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(from: u32) -> Pointer {
        Pointer { from, certain: true, value: Some(0x100) }
    }

    #[test]
    fn a_word_keeps_its_pointer_until_a_part_of_it_is_written() {
        let mut words = Words::default();
        words.put(0x1ff8, pointer(7));
        words.put(0x2000, pointer(8));
        assert_eq!(words.get(0x1ff8), Some(pointer(7)));
        words.overwrite(0x1ffe, 4);
        assert_eq!((words.get(0x1ff8), words.get(0x2000)), (None, None));
    }

    #[test]
    fn a_range_loses_its_pointers_however_long_it_is() {
        let mut words = Words::default();
        for at in [0x1ff8, 0x2000, 0x5ff0, 0x5ff8] {
            words.put(at, pointer(7));
        }
        words.clear(0x2000, 0x3ff8);
        let left: Vec<bool> =
            [0x1ff8, 0x2000, 0x5ff0, 0x5ff8].iter().map(|&at| words.get(at).is_some()).collect();
        assert_eq!(left, [true, false, false, true]);
        words.clear(0, u64::MAX);
        assert_eq!((words.places.len(), words.get(0x1ff8)), (0, None));
    }

    #[test]
    fn there_are_no_more_pages_than_the_limit() {
        let mut words = Words::default();
        for page in 0..MAX_PAGES as u64 + 9 {
            words.put(page * PAGE, pointer(7));
        }
        assert_eq!(words.table.len(), MAX_PAGES);
        assert_eq!(words.get((MAX_PAGES as u64 + 1) * PAGE), None);
        words.clear(0, PAGE);
        words.put((MAX_PAGES as u64 + 1) * PAGE, pointer(9));
        assert_eq!(words.get((MAX_PAGES as u64 + 1) * PAGE), Some(pointer(9)));
        assert_eq!(words.get(0), None);
    }
}
