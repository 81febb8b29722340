//! Records the use of each page of the direct map.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// The largest block of the page allocator, as a power of two of pages.
const MAX_ORDER: u32 = 11;

/// The use of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The client saw no event of the page.
    Unknown,
    /// Allocated from the page allocator.
    Allocated,
    /// Returned to the page allocator.
    Free,
    /// Part of a slab; the number of its cache.
    Slab(u32),
    /// Not checked: it belongs to KFENCE, or to a cache that checks itself.
    Exempt,
}

/// A page: its use, and the block that it was allocated in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Use of the page.
    pub what: Use,
    /// The block has 2^order pages.
    pub order: u32,
    /// Number of pages of the block before this one.
    pub index: u64,
    /// True where the page belonged to a slab before it was freed.
    pub was_slab: bool,
}

/// Bits of an encoded page: 3 of use, one for `was_slab`, 4 of order, 11 of index, 13 of cache.
const CACHES: u32 = 1 << 13;

impl Page {
    fn encode(self) -> u32 {
        let (what, cache) = match self.what {
            Use::Unknown => (0, 0),
            Use::Allocated => (1, 0),
            Use::Free => (2, 0),
            Use::Slab(cache) if cache < CACHES => (3, cache),
            Use::Slab(_) | Use::Exempt => (4, 0),
        };
        what | u32::from(self.was_slab) << 3
            | self.order << 4
            | (self.index as u32 & 0x7ff) << 8
            | cache << 19
    }

    fn decode(word: u32) -> Page {
        let what = match word & 7 {
            1 => Use::Allocated,
            2 => Use::Free,
            3 => Use::Slab(word >> 19),
            4 => Use::Exempt,
            _ => Use::Unknown,
        };
        Page { what, order: word >> 4 & 15, index: u64::from(word >> 8 & 0x7ff), was_slab: word & 8 != 0 }
    }
}

/// The row of one page: its use, the numbers of the stacks that allocated and freed it, and the size of
/// a large object in it.
#[derive(Default)]
struct Entry {
    word: AtomicU32,
    allocated: AtomicU32,
    freed: AtomicU32,
    size: AtomicU32,
}

/// All pages of the direct map.
pub struct Pages {
    /// Guest virtual address of the direct map's start.
    pub direct: u64,
    /// Guest virtual address of the array of `struct page`.
    pub vmemmap: u64,
    /// Bytes of a `struct page`.
    pub stride: u64,
    entries: Box<[Entry]>,
}

impl Pages {
    /// Makes a table for `count` pages of unknown use.
    pub fn new(direct: u64, vmemmap: u64, stride: u64, count: u64) -> Pages {
        Pages { direct, vmemmap, stride, entries: (0..count).map(|_| Entry::default()).collect() }
    }

    /// Number of pages in the table.
    pub fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// The number of the page with this address in the direct map.
    #[inline]
    pub fn number(&self, addr: u64) -> Option<u64> {
        let number = addr.wrapping_sub(self.direct) / PAGE;
        (number < self.len()).then_some(number)
    }

    /// The number of the page with this `struct page`.
    pub fn number_of(&self, page: u64) -> Option<u64> {
        let number = page.wrapping_sub(self.vmemmap) / self.stride;
        (number < self.len()).then_some(number)
    }

    /// The address of a page in the direct map.
    pub fn address(&self, number: u64) -> u64 {
        self.direct.wrapping_add(number * PAGE)
    }

    /// The address of a page's `struct page`.
    pub fn structure(&self, number: u64) -> u64 {
        self.vmemmap.wrapping_add(number * self.stride)
    }

    /// The use of a page, and its block.
    #[inline]
    pub fn get(&self, number: u64) -> Page {
        Page::decode(self.entries.get(number as usize).map_or(0, |entry| entry.word.load(Acquire)))
    }

    /// Changes the use of all pages of a block.
    pub fn set_block(&self, first: u64, order: u32, what: Use, was_slab: bool) {
        let order = order.min(MAX_ORDER);
        for index in 0..1u64 << order {
            if let Some(entry) = self.entries.get((first + index) as usize) {
                entry.word.store(Page { what, order, index, was_slab }.encode(), Release);
            }
        }
    }

    /// The stacks that allocated and freed the block that begins with this page, and the size of the
    /// large object in it.
    pub fn records(&self, first: u64) -> (u32, u32, u32) {
        self.entries.get(first as usize).map_or((0, 0, 0), |entry| {
            (entry.allocated.load(Relaxed), entry.freed.load(Relaxed), entry.size.load(Relaxed))
        })
    }

    /// Notes the stack that allocated a block.
    pub fn note_allocated(&self, first: u64, stack: u32) {
        if let Some(entry) = self.entries.get(first as usize) {
            entry.allocated.store(stack, Relaxed);
            entry.freed.store(0, Relaxed);
            entry.size.store(0, Relaxed);
        }
    }

    /// Notes the stack that freed a block.
    pub fn note_freed(&self, first: u64, stack: u32) {
        if let Some(entry) = self.entries.get(first as usize) {
            entry.freed.store(stack, Relaxed);
        }
    }

    /// Notes the size of the large object in a block, and the stack that allocated it.
    pub fn note_size(&self, first: u64, size: u64, stack: u32) {
        if let Some(entry) = self.entries.get(first as usize) {
            entry.size.store(u32::try_from(size).unwrap_or(0), Relaxed);
            entry.allocated.store(stack, Relaxed);
        }
    }

    /// Bytes of memory that the table takes.
    pub fn resident(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_what_it_was_said_to_be() {
        let pages = Pages::new(0xffff_8880_0000_0000, 0xffff_ea00_0000_0000, 64, 100);
        assert_eq!(pages.get(5).what, Use::Unknown);
        pages.set_block(4, 2, Use::Slab(4711), false);
        let page = pages.get(6);
        assert_eq!((page.what, page.order, page.index), (Use::Slab(4711), 2, 2));
        pages.set_block(4, 2, Use::Free, true);
        assert!(pages.get(7).was_slab && pages.get(7).what == Use::Free);
        assert_eq!(pages.get(8).what, Use::Unknown);
        assert_eq!(pages.number(0xffff_8880_0000_5fff), Some(5));
        assert_eq!(pages.number(0xffff_8880_0006_4000), None);
        assert_eq!(pages.number_of(pages.structure(7)), Some(7));
        pages.set_block(99, 10, Use::Free, false);
        assert_eq!(pages.get(1000).what, Use::Unknown);
    }
}
