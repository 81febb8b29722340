//! Shadow memory: 1, 2 or 8 bits for every byte of a kernel's memory.
//!
//! A lookup is direct, after Umbra ("Efficient and Scalable Memory Shadowing", CGO 2010). The address
//! space is cut into units of 4 GB. A table has the address of each unit's shadow, and a shadow word
//! lies at a fixed offset in it. Units without marks share one shadow of zeros, so a lookup needs no
//! check and no branch. The host assigns memory to a shadow page at the first mark in it.
//!
//! **Knows**: addresses, and small numbers that stand for bytes.
//!
//! **Must not know**: what the numbers mean, the guest, QEMU.
//!
//! **Invariants**:
//! - Any address gives a result, never a panic.
//! - Lookups take no lock. They may race with marks, and then see each word before or after the change.
//! - Memory stays below the limit, beyond which nothing new is marked.

mod region;

use region::Region;
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
use std::sync::{Mutex, PoisonError};

/// Bytes of memory that one unit covers, as a power of two.
const UNIT_SHIFT: u32 = 32;
const UNIT: u64 = 1 << UNIT_SHIFT;
/// Addresses differ in this many bits; the bits above repeat the highest one.
const ADDRESS_BITS: u32 = 57;
const UNITS: usize = 1 << (ADDRESS_BITS - UNIT_SHIFT);
/// Size of the host's pages in bytes.
const PAGE: usize = 4096;
const WORDS_IN_PAGE: usize = PAGE / 8;
/// The least number of adjacent cleared pages that are returned to the host.
const RELEASE: usize = 16;
/// Most units with marks. Each has a shadow of its own, so this bounds address space too.
const MAX_UNITS: usize = 64;

/// Limits on the memory of a shadow.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of memory for shadow pages.
    pub bytes: usize,
    /// Most units of 4 GB with marks. Each takes 4 GB of address space times `BITS`, divided by 8.
    pub units: usize,
}

impl Limits {
    /// Limits memory to about `bytes`.
    pub fn bytes(bytes: usize) -> Limits {
        Limits { bytes, units: MAX_UNITS }
    }
}

/// The shadow of all memory, with `BITS` (1, 2 or 8) bits for each byte. All bits are zero at first.
pub struct Shadow<const BITS: u32> {
    /// Address of each unit's shadow, by bits 32 to 56 of the address. Null where nothing was marked.
    table: Region,
    /// The shadow of all units without marks.
    zero: Region,
    /// Shadows of units, in the order of their first marks. The mutex also serializes their creation.
    units: Mutex<Vec<Region>>,
    /// Number of pages that were marked and not returned to the host.
    pages: AtomicUsize,
    limits: Limits,
}

/// A part of a range within one unit: the unit's number, the first bit in its shadow, and the number of
/// bits.
struct Piece {
    unit: usize,
    bit: u64,
    bits: u64,
}

impl<const BITS: u32> Shadow<BITS> {
    /// Size of a unit's shadow in bytes.
    const UNIT_BYTES: usize = (UNIT / 8 * BITS as u64) as usize;
    /// Size in bytes of the bit set of marked pages, which follows a unit's shadow.
    const TOUCHED_BYTES: usize = Self::UNIT_BYTES / PAGE / 8;
    /// The largest number that a byte can have.
    pub const MAX: u8 = (0xff_u16 >> (8 - BITS)) as u8;

    /// Makes a shadow in which all bits are zero.
    ///
    /// # Errors
    ///
    /// The host gives no address space: the shadow takes 256 MB, and 512 MB for each bit of `BITS`.
    pub fn new(limits: Limits) -> io::Result<Self> {
        const { assert!(BITS == 1 || BITS == 2 || BITS == 8) };
        Ok(Shadow {
            table: Region::writable(UNITS * 8)?,
            zero: Region::zeros(Self::UNIT_BYTES)?,
            units: Mutex::default(),
            pages: AtomicUsize::new(0),
            limits: Limits { units: limits.units.min(MAX_UNITS), ..limits },
        })
    }

    /// Whether the shadow distinguishes this address from all others. In such canonical addresses the
    /// upper bits repeat one another. Other addresses are never marked, and a lookup of one returns the
    /// number of a canonical one.
    #[inline]
    pub fn covers(addr: u64) -> bool {
        let unused = u64::BITS - ADDRESS_BITS;
        (((addr << unused) as i64) >> unused) as u64 == addr
    }

    #[inline]
    fn slot(&self, unit: usize) -> &AtomicPtr<AtomicU64> {
        // SAFETY: the table has UNITS entries that begin as null and are used as atomics only. The index
        // is below UNITS.
        unsafe { &*self.table.start().cast::<AtomicPtr<AtomicU64>>().add(unit % UNITS) }
    }

    /// The shadow of a unit, or the shadow of zeros where nothing was marked.
    #[inline]
    fn words(&self, unit: usize) -> *const AtomicU64 {
        let words = self.slot(unit).load(Acquire).cast_const();
        if words.is_null() { self.zero.start().cast::<AtomicU64>().cast_const() } else { words }
    }

    #[inline]
    fn word(&self, unit: usize, index: u64) -> u64 {
        // SAFETY: `index` comes from the 32 low bits of an address, so it is inside the unit's shadow.
        // The shadow stays mapped while `self` lives, and its words are only used as atomics. The shadow
        // of zeros is only read.
        unsafe { (*self.words(unit).add(index as usize)).load(Relaxed) }
    }

    /// Whether any of the `len` bytes from `addr` is marked. One load suffices for the bytes of one
    /// shadow word (64 bytes with 1 bit, 8 with 8). That covers every aligned access of the processor.
    #[inline]
    pub fn any(&self, addr: u64, len: u64) -> bool {
        let (unit, bit) = split::<BITS>(addr);
        let (shift, count) = (bit % 64, len.wrapping_mul(u64::from(BITS)));
        if count.wrapping_sub(1) > 63 - shift {
            return self.any_across(addr, len);
        }
        self.word(unit, bit / 64) >> shift & (u64::MAX >> (64 - count)) != 0
    }

    #[cold]
    fn any_across(&self, addr: u64, len: u64) -> bool {
        self.first(addr, len).is_some()
    }

    /// The number of the byte at `addr`.
    #[inline]
    pub fn get(&self, addr: u64) -> u8 {
        let (unit, bit) = split::<BITS>(addr);
        (self.word(unit, bit / 64) >> (bit % 64)) as u8 & Self::MAX
    }

    /// The address of the first marked byte in a range.
    pub fn first(&self, addr: u64, len: u64) -> Option<u64> {
        let mut at = addr;
        for piece in pieces::<BITS>(addr, len) {
            if self.slot(piece.unit).load(Acquire).is_null() {
                at = at.wrapping_add(piece.bits / u64::from(BITS));
                continue;
            }
            let (mut bit, end) = (piece.bit, piece.bit + piece.bits);
            while bit < end {
                let count = (64 - bit % 64).min(end - bit);
                let word = self.word(piece.unit, bit / 64) >> (bit % 64) & (u64::MAX >> (64 - count));
                if word != 0 {
                    return Some(at.wrapping_add(u64::from(word.trailing_zeros() / BITS)));
                }
                at = at.wrapping_add(count / u64::from(BITS));
                bit += count;
            }
        }
        None
    }

    /// Gives all bytes of a range the number `value`, cut to its bits. Returns false where the limit
    /// kept a part unmarked.
    pub fn fill(&self, addr: u64, len: u64, value: u8) -> bool {
        let pattern = u64::from(value & Self::MAX) * (u64::MAX / u64::from(Self::MAX));
        if !Self::covers(addr) {
            return pattern == 0;
        }
        // Numbers after the lower half of the address space are no addresses.
        let end = if addr >> 63 == 0 { (1 << (ADDRESS_BITS - 1)) - addr } else { u64::MAX };
        let len = len.min(end);
        let mut whole = true;
        for piece in pieces::<BITS>(addr, len) {
            let words = match self.slot(piece.unit).load(Acquire).cast_const() {
                words if !words.is_null() => words,
                // A unit without marks is already clear.
                _ if pattern == 0 => continue,
                _ => match self.create(piece.unit) {
                    Some(words) => words,
                    None => return false,
                },
            };
            whole &= self.fill_unit(words, piece.bit, piece.bits, pattern);
        }
        whole
    }

    /// Clears all marks, and returns all memory to the host.
    pub fn clear_all(&self) {
        let units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        for region in units.iter() {
            self.release(region.start().cast::<AtomicU64>().cast_const(), 0, Self::UNIT_BYTES / PAGE);
        }
    }

    /// Clears all marks in a range.
    pub fn clear(&self, addr: u64, len: u64) {
        self.fill(addr, len, 0);
    }

    fn fill_unit(&self, words: *const AtomicU64, bit: u64, bits: u64, pattern: u64) -> bool {
        const PAGE_BITS: u64 = PAGE as u64 * 8;
        let (mut at, end) = (bit, bit + bits);
        while at < end {
            let page = (at / PAGE_BITS) as usize;
            let next = end.min((at / PAGE_BITS + 1) * PAGE_BITS);
            let whole = ((end - at) / PAGE_BITS) as usize;
            if pattern == 0 && at % PAGE_BITS == 0 && whole >= RELEASE {
                self.release(words, page, whole);
                at += whole as u64 * PAGE_BITS;
                continue;
            }
            if pattern == 0 {
                if !self.is_touched(words, page) {
                    at = next;
                    continue;
                }
            } else if !self.touch(words, page) {
                return false;
            }
            // SAFETY: the page belongs to the unit's shadow, whose words are only used as atomics.
            let page = unsafe { std::slice::from_raw_parts(words.add(page * WORDS_IN_PAGE), WORDS_IN_PAGE) };
            fill_page(page, at % PAGE_BITS, next - at, pattern);
            at = next;
        }
        true
    }

    /// The word that says whether a page of a unit's shadow was marked, and the page's bit in it.
    fn touched(words: *const AtomicU64, page: usize) -> (*const AtomicU64, u64) {
        let at = Self::UNIT_BYTES / 8 + page / 64;
        // SAFETY: in a unit's mapping TOUCHED_BYTES follow the shadow, with a bit for each page.
        (unsafe { words.add(at) }, 1 << (page % 64))
    }

    fn is_touched(&self, words: *const AtomicU64, page: usize) -> bool {
        let (word, bit) = Self::touched(words, page);
        // SAFETY: the word is inside the unit's mapping.
        unsafe { (*word).load(Acquire) & bit != 0 }
    }

    /// Counts a page before its first mark. Returns false where the limit does not allow it.
    fn touch(&self, words: *const AtomicU64, page: usize) -> bool {
        let (word, bit) = Self::touched(words, page);
        // SAFETY: the word is inside the unit's mapping.
        let word = unsafe { &*word };
        if word.load(Acquire) & bit != 0 {
            return true;
        }
        if (self.pages.fetch_add(1, Relaxed) + 1).saturating_mul(PAGE) > self.limits.bytes {
            self.pages.fetch_sub(1, Relaxed);
            return false;
        }
        if word.fetch_or(bit, AcqRel) & bit != 0 {
            // Another thread was faster, and has counted the page.
            self.pages.fetch_sub(1, Relaxed);
        }
        true
    }

    /// Returns whole pages to the host. If another thread marks memory in them at the same time, the
    /// mark may be lost.
    fn release(&self, words: *const AtomicU64, first: usize, count: usize) {
        let mut any = 0;
        for page in first..first + count {
            let (word, bit) = Self::touched(words, page);
            // SAFETY: the word is inside the unit's mapping.
            let word = unsafe { &*word };
            if word.load(Acquire) & bit != 0 && word.fetch_and(!bit, AcqRel) & bit != 0 {
                any += 1;
            }
        }
        if any == 0 {
            return;
        }
        // SAFETY: the pages are inside the unit's mapping, and its words are only used as atomics.
        unsafe { region::discard(words.cast_mut().add(first * WORDS_IN_PAGE).cast(), count * PAGE) };
        self.pages.fetch_sub(any, Relaxed);
    }

    /// Makes a shadow for a unit that has none. `None` beyond the limits.
    #[cold]
    fn create(&self, unit: usize) -> Option<*const AtomicU64> {
        let mut units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.slot(unit).load(Acquire);
        if !known.is_null() {
            return Some(known);
        }
        if units.len() >= self.limits.units {
            return None;
        }
        let region = Region::writable(Self::UNIT_BYTES + Self::TOUCHED_BYTES).ok()?;
        let words = region.start().cast::<AtomicU64>();
        units.push(region);
        self.slot(unit).store(words, Release);
        Some(words)
    }

    /// Bytes of memory that marks take: shadow pages, and the table parts and page lists that lead to
    /// them.
    pub fn resident(&self) -> usize {
        let units = self.units.lock().unwrap_or_else(PoisonError::into_inner).len();
        (self.pages.load(Relaxed) + 2 * units) * PAGE
    }
}

impl<const BITS: u32> std::fmt::Debug for Shadow<BITS> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shadow").field("bits", &BITS).field("resident", &self.resident()).finish()
    }
}

/// Splits an address into the number of its unit and the first bit in the unit's shadow.
#[inline]
fn split<const BITS: u32>(addr: u64) -> (usize, u64) {
    ((addr >> UNIT_SHIFT) as usize % UNITS, addr % UNIT * u64::from(BITS))
}

/// Cuts a range by units. It ends at the end of the address space.
fn pieces<const BITS: u32>(addr: u64, len: u64) -> impl Iterator<Item = Piece> {
    let mut at = addr;
    // This counts to the last byte, because the end of the address space has no number.
    let mut left = len.min((u64::MAX - addr).saturating_add(1));
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let count = left.min(UNIT - at % UNIT);
        let (unit, bit) = split::<BITS>(at);
        at = at.wrapping_add(count);
        left -= count;
        Some(Piece { unit, bit, bits: count * u64::from(BITS) })
    })
}

/// Stores a pattern into consecutive bits of a page.
fn fill_page(page: &[AtomicU64], bit: u64, bits: u64, pattern: u64) {
    let (mut at, end) = (bit, bit + bits);
    while at < end {
        let word = &page[(at / 64) as usize];
        let count = (64 - at % 64).min(end - at);
        if count == 64 {
            word.store(pattern, Relaxed);
        } else {
            let mask = (u64::MAX >> (64 - count)) << (at % 64);
            // Other threads may change neighbors in the word.
            match pattern {
                0 => word.fetch_and(!mask, Relaxed),
                u64::MAX => word.fetch_or(mask, Relaxed),
                _ => word
                    .fetch_update(Relaxed, Relaxed, |old| Some(old & !mask | pattern & mask))
                    .unwrap_or_else(|old| old),
            };
        }
        at += count;
    }
}

#[cfg(test)]
mod tests;
