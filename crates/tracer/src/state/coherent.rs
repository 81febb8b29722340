//! Coherent DMA memory: what drivers have allocated for a device to read at any time.

use guardrail_plugin::ranges::RangeSet;
use guardrail_trace::config::Hook;
use guardrail_trace::event::MAX_ARGS;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, PoisonError};

/// `void *f(struct device *, size_t size, …)` allocates it (kernel/dma/mapping.c). Pools take theirs from there, too.
const ALLOCATES: &str = "dma_alloc_attrs";
/// `void f(struct device *, size_t size, void *address, …)` frees it.
const FREES: &str = "dma_free_attrs";

const PAGE: u64 = 4096;
/// More memory than any guest has. Addresses from here on are not looked up by page.
const MOST: u64 = 1 << 36;
/// Longest allocation, in bytes. A longer one is a misread argument.
const LONGEST: u64 = 1 << 30;

/// The coherent memory of all devices, by virtual address.
pub struct Coherent {
    /// A bit for each page of the direct map.
    pages: Box<[AtomicU64]>,
    /// Memory that the kernel has mapped elsewhere, as it does behind an IOMMU.
    elsewhere: RangeSet,
    /// True once some of it could not be remembered: then any memory may be.
    any: AtomicBool,
    /// Held for a change.
    change: Mutex<()>,
    /// Numbers of the hooks of the functions that allocate and free it.
    hooks: [usize; 2],
}

impl Coherent {
    /// Makes an empty set for a guest with RAM up to this physical address. `None` where its functions are not hooked.
    pub fn new(ram_end: u64, hooks: &[Hook]) -> Option<Coherent> {
        let hook = |name| hooks.iter().position(|hook| hook.name == name && hook.address != 0 && hook.result);
        let words = ram_end.min(MOST).div_ceil(PAGE * 64);
        Some(Coherent {
            pages: (0..words).map(|_| AtomicU64::new(0)).collect(),
            elsewhere: RangeSet::new(),
            any: AtomicBool::new(false),
            change: Mutex::new(()),
            hooks: [hook(ALLOCATES)?, hook(FREES)?],
        })
    }

    /// Whether the hook with this number is of a function that allocates or frees it.
    pub fn changes_at(&self, hook: usize) -> bool {
        self.hooks.contains(&hook)
    }

    /// A hooked function is entered.
    pub fn entered(&self, hook: usize, direct_map: u64, args: &[u64; MAX_ARGS]) {
        if hook == self.hooks[1] {
            self.remove(direct_map, args[2], args[1]);
        }
    }

    /// A hooked function returns.
    pub fn returned(&self, hook: usize, direct_map: u64, args: &[u64; MAX_ARGS], result: u64) {
        if hook == self.hooks[0] && result != 0 && !self.add(direct_map, result, args[1]) {
            self.any.store(true, Relaxed);
        }
    }

    /// Whether the memory at an address is coherent. `direct_map` is where the kernel maps all RAM.
    #[inline]
    pub fn contains(&self, direct_map: u64, address: u64) -> bool {
        let page = address.wrapping_sub(direct_map) / PAGE;
        let known = match self.pages.get((page / 64) as usize) {
            Some(word) => word.load(Relaxed) >> (page % 64) & 1 != 0,
            None => self.elsewhere.contains(address),
        };
        known || self.any.load(Relaxed)
    }

    /// Adds memory. False where it cannot be remembered.
    fn add(&self, direct_map: u64, address: u64, size: u64) -> bool {
        let _changing = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        if size > LONGEST {
            return false;
        }
        match self.of(direct_map, address, size) {
            Some(pages) => pages.for_each(|(word, bit)| _ = word.fetch_or(bit, Relaxed)),
            None => return self.elsewhere.add(address, address.saturating_add(size), 0).is_ok(),
        }
        true
    }

    /// Removes memory.
    fn remove(&self, direct_map: u64, address: u64, size: u64) {
        let _changing = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        match self.of(direct_map, address, size.min(LONGEST)) {
            Some(pages) => pages.for_each(|(word, bit)| _ = word.fetch_and(!bit, Relaxed)),
            // A part that finds no room stays: then a store waits where it need not.
            None => _ = self.elsewhere.remove(address, address.saturating_add(size), 0),
        }
    }

    /// The words and bits of the pages of some memory; `None` where it is not in the direct map.
    fn of(
        &self,
        direct_map: u64,
        address: u64,
        size: u64,
    ) -> Option<impl Iterator<Item = (&AtomicU64, u64)>> {
        let from = address.wrapping_sub(direct_map);
        let end = from.checked_add(size)?;
        let known = end.div_ceil(PAGE) <= self.pages.len() as u64 * 64;
        let pages = from / PAGE..end.div_ceil(PAGE);
        known.then(|| pages.map(|page| (&self.pages[(page / 64) as usize], 1 << (page % 64))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: u64 = 0xffff_8880_0000_0000;
    const VMALLOC: u64 = 0xffff_c900_0000_0000;

    fn hook(name: &str) -> Hook {
        Hook {
            name: name.to_owned(),
            address: 0x1000,
            args: 3,
            derefs: Vec::new(),
            result: true,
            returns: Vec::new(),
            lists: Vec::new(),
        }
    }

    fn coherent() -> Coherent {
        let hooks = ["kfree", FREES, ALLOCATES].map(hook);
        assert!(Coherent::new(1 << 20, &hooks[..2]).is_none());
        Coherent::new(512 << 20, &hooks).expect("both are hooked")
    }

    fn allocate(coherent: &Coherent, address: u64, size: u64) {
        coherent.returned(2, MAP, &[0x10, size, 0, 0, 0, 0], address);
    }

    fn free(coherent: &Coherent, address: u64, size: u64) {
        coherent.entered(1, MAP, &[0x10, size, address, 0, 0, 0]);
    }

    #[test]
    fn memory_is_coherent_from_its_allocation_to_its_end() {
        let coherent = coherent();
        assert!(!coherent.contains(MAP, MAP + 0x5000));
        allocate(&coherent, MAP + 0x5000, 0x1001);
        for (address, is) in [(0x4fff, false), (0x5000, true), (0x6fff, true), (0x7000, false)] {
            assert_eq!(coherent.contains(MAP, MAP + address), is, "{address:#x}");
        }
        free(&coherent, MAP + 0x5000, 0x1001);
        assert!(!coherent.contains(MAP, MAP + 0x5000) && !coherent.contains(MAP, MAP + 0x6000));
    }

    #[test]
    fn memory_may_be_mapped_elsewhere() {
        let coherent = coherent();
        allocate(&coherent, VMALLOC, 0x2000);
        assert!(coherent.contains(MAP, VMALLOC + 0x1fff) && !coherent.contains(MAP, VMALLOC + 0x2000));
        free(&coherent, VMALLOC, 0x2000);
        assert!(!coherent.contains(MAP, VMALLOC));
        // The direct map is not known yet.
        assert!(!coherent.contains(u64::MAX, VMALLOC) && !coherent.contains(u64::MAX, MAP));
    }

    #[test]
    fn a_failed_allocation_gives_none() {
        let coherent = coherent();
        allocate(&coherent, 0, 0x1000);
        assert!(!coherent.contains(MAP, 0) && !coherent.contains(MAP, MAP));
    }

    #[test]
    fn what_cannot_be_remembered_may_be_anywhere() {
        let coherent = coherent();
        free(&coherent, MAP, u64::MAX);
        free(&coherent, u64::MAX, 5);
        assert!(!coherent.contains(MAP, MAP));
        allocate(&coherent, MAP, u64::MAX);
        assert!(coherent.contains(MAP, MAP + 0x1000) && coherent.contains(MAP, VMALLOC));
    }
}
