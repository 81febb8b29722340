//! Shadow memory: which bits of memory are undefined, and which bytes must not be accessed.
//!
//! A page exists once something in it is undefined; memory without a page is defined. A second shadow marks
//! the bytes that must not be accessed, with one bit for each byte.
//!
//! Memory use is bounded. Beyond the limits nothing new is marked, which loses findings and never invents
//! any.

use crate::value_flow::{Origin, Value};
use guardrail_shadow::{Limits, Shadow as Marks};
use rustc_hash::FxHashMap;

const PAGE: u64 = 4096;
const PAGE_USIZE: usize = 4096;
/// Longest range in bytes that one operation marks, and that a call or a string instruction can plausibly
/// access.
pub const MAX_RANGE: u64 = 1 << 28;
/// Default limit in bytes for the contents of pages. The same limit holds for restricted bytes.
const LIMIT: usize = 160 << 20;
/// Most stretches of 4 GB that may hold restricted bytes: a kernel's objects lie in few, and address space is
/// limited.
const UNITS: usize = 6;
/// Bytes that a page costs besides its contents.
const PAGE_COST: usize = 64;

#[derive(Debug)]
struct Bytes {
    bits: [u8; PAGE_USIZE],
    origins: [Origin; 512],
}

/// The undefined bits of a page.
#[derive(Debug)]
enum Undef {
    All(Origin),
    Bytes(Box<Bytes>),
}

impl Undef {
    fn cost(&self) -> usize {
        match self {
            Undef::All(_) => PAGE_COST,
            Undef::Bytes(_) => PAGE_COST + size_of::<Bytes>(),
        }
    }
}

/// The shadow of all memory of the guest.
#[derive(Debug)]
pub struct Shadow {
    pages: FxHashMap<u64, Undef>,
    used: usize,
    limit: usize,
    restricted: Marks<1>,
}

impl Default for Shadow {
    fn default() -> Self {
        Shadow::new(LIMIT)
    }
}

/// The parts of `addr .. addr + len` in each page: page number, offset, length.
fn pieces(addr: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = addr.saturating_add(len.min(MAX_RANGE));
    let mut at = addr;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (page, offset) = (at / PAGE, at % PAGE);
        let n = (PAGE - offset).min(end - at);
        at += n;
        Some((page, offset as usize, n as usize))
    })
}

impl Shadow {
    /// A shadow that uses at most about `limit` bytes for undefined bits, and as much for restricted bytes.
    ///
    /// # Panics
    ///
    /// Where the host has no address space left, for example because memory is exhausted.
    pub fn new(limit: usize) -> Self {
        Shadow {
            pages: FxHashMap::default(),
            used: 0,
            limit,
            restricted: Marks::new(Limits { bytes: limit, units: UNITS })
                .expect("the host gives address space for shadow memory"),
        }
    }

    fn replace(&mut self, number: u64, page: Option<Undef>) {
        self.used += page.as_ref().map_or(0, Undef::cost);
        let old = match page {
            Some(page) => self.pages.insert(number, page),
            None => self.pages.remove(&number),
        };
        self.used -= old.as_ref().map_or(0, Undef::cost);
    }

    /// The bits of a page, one by one. `None` where the limit is reached.
    fn bytes(&mut self, number: u64) -> Option<&mut Bytes> {
        let plain = match self.pages.get(&number) {
            Some(Undef::Bytes(_)) => None,
            Some(Undef::All(origin)) => Some((0xff, *origin)),
            None => Some((0, 0)),
        };
        if let Some((fill, origin)) = plain {
            if self.used >= self.limit {
                return None;
            }
            let bytes = Bytes { bits: [fill; PAGE_USIZE], origins: [origin; 512] };
            self.replace(number, Some(Undef::Bytes(Box::new(bytes))));
        }
        match self.pages.get_mut(&number) {
            Some(Undef::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Whether a byte of the range is restricted.
    #[inline]
    pub fn is_restricted(&self, addr: u64, len: u64) -> bool {
        self.restricted.any(addr, len.min(MAX_RANGE)) && Marks::<1>::covers(addr)
    }

    /// The address of the first restricted byte of the range; `None` where all may be accessed.
    pub fn first_restricted(&self, addr: u64, len: u64) -> Option<u64> {
        self.restricted.first(addr, len.min(MAX_RANGE)).filter(|_| Marks::<1>::covers(addr))
    }

    /// No byte of the range may be accessed from now on.
    pub fn restrict(&mut self, addr: u64, len: u64) {
        self.restricted.fill(addr, len.min(MAX_RANGE), 1);
    }

    /// Every byte of the range may be accessed from now on.
    pub fn allow(&mut self, addr: u64, len: u64) {
        self.restricted.clear(addr, len.min(MAX_RANGE));
    }

    /// The definedness of an access of `size` bytes, encoded as in [`Value`].
    #[inline]
    pub fn load(&self, addr: u64, size: u8) -> Value {
        let (number, offset) = (addr / PAGE, (addr % PAGE) as usize);
        let size_usize = usize::from(size);
        if offset + size_usize <= PAGE_USIZE {
            match self.pages.get(&number) {
                None => Value::DEFINED,
                Some(Undef::All(origin)) => Value { undef: all_undefined(size), origin: *origin },
                Some(Undef::Bytes(bytes)) => load_bytes(bytes, offset, size_usize),
            }
        } else {
            self.load_across(addr, size)
        }
    }

    #[cold]
    fn load_across(&self, addr: u64, size: u8) -> Value {
        let mut value = Value::DEFINED;
        for i in 0..size {
            let byte = self.load(addr.wrapping_add(u64::from(i)), 1);
            if byte.undef != 0 {
                let shift = if size <= 8 { u32::from(i) * 8 } else { u32::from(i) };
                let undef = if size <= 8 { byte.undef } else { 1 };
                value.undef |= undef.checked_shl(shift).unwrap_or(0);
                value.origin = byte.origin;
            }
        }
        value
    }

    /// Stores the definedness of a value of `size` bytes.
    #[inline]
    pub fn store(&mut self, addr: u64, size: u8, value: Value) {
        let (number, offset) = (addr / PAGE, (addr % PAGE) as usize);
        let size_usize = usize::from(size);
        if offset + size_usize > PAGE_USIZE {
            return self.store_across(addr, size, value);
        }
        match self.pages.get_mut(&number) {
            Some(Undef::Bytes(bytes)) => store_bytes(bytes, offset, size_usize, value),
            None if value.undef == 0 => {}
            _ => {
                if let Some(bytes) = self.bytes(number) {
                    store_bytes(bytes, offset, size_usize, value);
                }
            }
        }
    }

    #[cold]
    fn store_across(&mut self, addr: u64, size: u8, value: Value) {
        for i in 0..size {
            let undef = if size <= 8 {
                value.undef.checked_shr(u32::from(i) * 8).unwrap_or(0) & 0xff
            } else if value.undef.checked_shr(u32::from(i)).unwrap_or(0) & 1 != 0 {
                0xff
            } else {
                0
            };
            self.store(addr.wrapping_add(u64::from(i)), 1, Value { undef, origin: value.origin });
        }
    }

    /// Every bit of the range is defined from now on.
    pub fn set_defined(&mut self, addr: u64, len: u64) {
        for (number, offset, n) in pieces(addr, len) {
            if !self.pages.contains_key(&number) {
                continue;
            }
            if n < PAGE_USIZE
                && let Some(bytes) = self.bytes(number)
            {
                bytes.bits[offset..offset + n].fill(0);
                // The search for undefined bits in the rest of the page costs as much as a long range.
                if n < 64 || bytes.bits.iter().any(|&b| b != 0) {
                    continue;
                }
            }
            self.replace(number, None);
        }
    }

    /// Every bit of the range is undefined from now on.
    pub fn set_undefined(&mut self, addr: u64, len: u64, origin: Origin) {
        for (number, offset, n) in pieces(addr, len) {
            if n == PAGE_USIZE {
                if self.used >= self.limit && !self.pages.contains_key(&number) {
                    return;
                }
                self.replace(number, Some(Undef::All(origin)));
            } else if let Some(bytes) = self.bytes(number) {
                bytes.bits[offset..offset + n].fill(0xff);
                bytes.origins[offset / 8..=(offset + n - 1) / 8].fill(origin);
            }
        }
    }

    /// The address of the first undefined byte of the range, its origin, and the number of undefined bytes in
    /// the range.
    pub fn first_undefined(&self, addr: u64, len: u64) -> Option<(u64, Origin, u64)> {
        let mut found: Option<(u64, Origin, u64)> = None;
        for (number, offset, n) in pieces(addr, len) {
            let Some(page) = self.pages.get(&number) else { continue };
            let base = number.wrapping_mul(PAGE);
            let (first, origin, count) = match page {
                Undef::All(origin) => (offset, *origin, n),
                Undef::Bytes(bytes) => {
                    let range = &bytes.bits[offset..offset + n];
                    let Some(first) = range.iter().position(|&b| b != 0) else { continue };
                    let first = offset + first;
                    (first, bytes.origins[first / 8], range.iter().filter(|&&b| b != 0).count())
                }
            };
            match &mut found {
                Some(found) => found.2 += count as u64,
                None => found = Some((base + first as u64, origin, count as u64)),
            }
        }
        found
    }

    /// Gives `dst` the definedness of `src`.
    pub fn copy(&mut self, dst: u64, src: u64, len: u64) {
        let len = len.min(MAX_RANGE);
        if len == 0 {
            return;
        }
        if self.first_undefined(src, len).is_none() {
            return self.set_defined(dst, len);
        }
        // The values pass through a buffer, so that the ranges may overlap.
        let mut done = 0;
        let mut values = Vec::with_capacity(len.min(1 << 20) as usize);
        while done < len {
            values.clear();
            let n = (len - done).min(1 << 20);
            for i in 0..n {
                values.push(self.load(src.wrapping_add(done + i), 1));
            }
            for (i, value) in (0..).zip(&values) {
                self.store(dst.wrapping_add(done + i), 1, *value);
            }
            done += n;
        }
    }
}

#[inline]
fn all_undefined(size: u8) -> u64 {
    let bits = if size <= 8 { u32::from(size) * 8 } else { u32::from(size) };
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

#[inline]
fn store_bytes(bytes: &mut Bytes, offset: usize, size: usize, value: Value) {
    let bits = &mut bytes.bits[offset..offset + size];
    if size <= 8 {
        let all = value.undef.to_le_bytes();
        match bits.len() {
            4 => bits.copy_from_slice(&all[..4]),
            8 => bits.copy_from_slice(&all),
            _ => bits.iter_mut().zip(all).for_each(|(bits, new)| *bits = new),
        }
    } else {
        for (i, bits) in bits.iter_mut().enumerate() {
            *bits = if value.undef.checked_shr(i as u32).unwrap_or(0) & 1 != 0 { 0xff } else { 0 };
        }
    }
    if value.undef != 0 {
        bytes.origins[offset / 8..=(offset + size - 1) / 8].fill(value.origin);
    }
}

#[inline]
fn load_bytes(bytes: &Bytes, offset: usize, size: usize) -> Value {
    let mut undef = 0u64;
    let bits = &bytes.bits[offset..offset + size];
    if size <= 8 {
        // Copies of a constant size are single instructions.
        undef = match *bits {
            [a] => u64::from(a),
            [a, b] => u64::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => bits.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)),
        };
    } else {
        for (i, &byte) in bits.iter().take(64).enumerate() {
            undef |= u64::from(byte != 0) << i;
        }
    }
    if undef == 0 {
        return Value::DEFINED;
    }
    let first = if size <= 8 { undef.trailing_zeros() / 8 } else { undef.trailing_zeros() } as usize;
    Value { undef, origin: bytes.origins[((offset + first) / 8).min(511)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_defined_until_told_otherwise() {
        let mut shadow = Shadow::default();
        assert_eq!(shadow.load(0x1000, 8), Value::DEFINED);
        shadow.set_undefined(0x1ffe, 4, 7);
        assert_eq!(shadow.load(0x1ffc, 8), Value { undef: 0x0000_ffff_ffff_0000, origin: 7 });
        shadow.store(0x1fff, 2, Value::DEFINED);
        assert_eq!(shadow.load(0x1ffc, 8), Value { undef: 0x0000_ff00_00ff_0000, origin: 7 });
        assert_eq!(shadow.first_undefined(0x1000, 0x2000), Some((0x1ffe, 7, 2)));
        shadow.set_defined(0x1000, 0x2000);
        assert!(shadow.pages.is_empty());
    }

    #[test]
    fn whole_pages_cost_no_bytes_until_a_part_changes() {
        let mut shadow = Shadow::default();
        shadow.set_undefined(0x10000, 1 << 20, 3);
        assert!(shadow.used < 40_000);
        shadow.store(0x10010, 8, Value::DEFINED);
        assert_eq!(shadow.load(0x10010, 8), Value::DEFINED);
        assert_eq!(shadow.load(0x10018, 16), Value { undef: 0xffff, origin: 3 });
    }

    #[test]
    fn restriction_is_by_byte() {
        let mut shadow = Shadow::default();
        shadow.restrict(0x2064, 28);
        assert!(!shadow.is_restricted(0x2060, 4));
        assert!(shadow.is_restricted(0x2060, 8));
        assert_eq!(shadow.first_restricted(0x2000, 4096), Some(0x2064));
        shadow.allow(0x2000, 4096);
        assert_eq!(shadow.first_restricted(0x2000, 4096), None);
    }

    #[test]
    fn a_copy_carries_bits_and_origin_even_over_itself() {
        let mut shadow = Shadow::default();
        shadow.store(0x3000, 4, Value { undef: 0x0f00, origin: 9 });
        shadow.copy(0x3001, 0x3000, 4);
        assert_eq!(shadow.load(0x3001, 4), Value { undef: 0x0f00, origin: 9 });
    }

    #[test]
    fn beyond_the_limit_nothing_is_marked() {
        let mut shadow = Shadow::new(10_000);
        for i in 0..1000u64 {
            shadow.set_undefined(i * 4096 + 1, 8, 1);
            shadow.restrict(i * 4096 + 1, 8);
        }
        assert!(shadow.used < 20_000 && shadow.restricted.resident() < 20_000);
        assert_eq!(shadow.load(999 * 4096, 8), Value::DEFINED);
        assert!(!shadow.is_restricted(999 * 4096, 8));
    }
}
