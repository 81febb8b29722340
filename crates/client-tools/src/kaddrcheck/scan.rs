//! Finds the slabs that exist when the client is attached, and their free objects.

use super::caches::Cache;
use super::freelists::{self, Slab};
use super::guest::Guest;
use super::memory::Memory;
use guardrail_client_api::kernel::slab::SlabMark;
use rustc_hash::{FxHashMap, FxHashSet};

/// Number of `struct page`s that are read at once.
const AT_ONCE: u64 = 64;

impl Memory {
    /// Walks all pages while the guest stands still. Returns the number of slabs found.
    pub fn scan(&self, guest: &mut impl Guest) -> usize {
        let Some(pages) = self.pages(guest) else { return 0 };
        let cpus = self.cpus(guest).to_vec();
        let mut known: FxHashMap<u64, Option<(Cache, FxHashSet<u64>)>> = FxHashMap::default();
        let stride = pages.stride as usize;
        let mut buffer = vec![0; AT_ONCE as usize * stride];
        let mut found = 0;
        for first in (0..pages.len()).step_by(AT_ONCE as usize) {
            if !guest.fill(pages.structure(first), &mut buffer) {
                continue;
            }
            for (number, page) in (first..pages.len()).zip(buffer.chunks_exact(stride)) {
                if !self.is_slab_page(page) {
                    continue;
                }
                let at = word(page, self.layout.slab_cache, 8);
                let objects = word(page, self.layout.slab_objects, 2) & 0x7fff;
                let cache = known.entry(at).or_insert_with(|| {
                    let cache = Cache::read(guest, &self.layout, at)?;
                    let kept = freelists::kept(guest, &self.layout, &cache, &cpus);
                    Some((cache, kept))
                });
                let Some((cache, kept)) = cache else { continue };
                let len = cache.slab_bytes(objects);
                if !cache.fills(objects, len) {
                    continue;
                }
                let slab =
                    Slab { structure: pages.structure(number), base: pages.address(number), count: objects };
                let free = freelists::free_slots(guest, &self.layout, cache, slab, kept);
                let own = self.own_words(guest, slab.structure, slab.base..slab.base + len);
                self.adopt(pages, number, cache, &free, own);
                found += 1;
            }
        }
        found
    }

    fn is_slab_page(&self, page: &[u8]) -> bool {
        match self.layout.slab_mark {
            SlabMark::Flag(bit) => word(page, self.layout.page_flags, 8) >> bit & 1 != 0,
            SlabMark::Type(kind) => word(page, self.layout.page_type, 4) >> 24 == u64::from(kind),
        }
    }
}

/// Decodes up to eight bytes, zero-extended; 0 where the buffer ends before them.
fn word(bytes: &[u8], at: u64, len: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(found) = bytes.get(at as usize..at as usize + len) {
        word[..len].copy_from_slice(found);
    }
    u64::from_le_bytes(word)
}
