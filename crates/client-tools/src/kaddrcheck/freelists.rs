//! Reads the kernel's own lists of free objects.

use super::caches::Cache;
use super::guest::Guest;
use guardrail_client_api::kernel::slab::Layout;
use rustc_hash::FxHashSet;

/// Most entries of an array or list of free objects. Longer ones are damaged, or change during the read.
const MAX_OBJECTS: u64 = 1 << 12;
const MAX_SHEAVES: usize = 256;

/// The slab of an object, as far as its free list needs it.
#[derive(Clone, Copy, Debug)]
pub struct Slab {
    /// Guest virtual address of its `struct slab`.
    pub structure: u64,
    /// Guest virtual address of its first object.
    pub base: u64,
    /// Number of its objects.
    pub count: u64,
}

impl Slab {
    /// The index of the slot that contains this address.
    pub fn index(&self, cache: &Cache, object: u64) -> Option<u64> {
        let index = object.wrapping_sub(self.base) / cache.size;
        (index < self.count).then_some(index)
    }
}

/// Follows a list of free objects from the first one, until `each` returns false.
pub fn follow(guest: &mut impl Guest, cache: &Cache, first: u64, mut each: impl FnMut(u64) -> bool) {
    let mut object = first;
    for _ in 0..MAX_OBJECTS {
        if object == 0 || !each(object) {
            return;
        }
        let at = object.wrapping_add(cache.offset);
        let Some(word) = guest.word(at, 8) else { return };
        // Where `random` is 0, pointers are plain, or the random value happens to be 0.
        object = if cache.random == 0 { word } else { word ^ cache.random ^ at.swap_bytes() };
    }
}

/// Free objects that CPUs and nodes keep outside their slabs' lists.
pub fn kept(guest: &mut impl Guest, layout: &Layout, cache: &Cache, cpus: &[u64]) -> FxHashSet<u64> {
    let mut kept = FxHashSet::default();
    if let Some(places) = layout.cpu_slabs {
        let own = guest.word(cache.address.wrapping_add(places.cache), 8).unwrap_or(0);
        for &cpu in cpus.iter().filter(|_| own != 0) {
            let at = own.wrapping_add(cpu).wrapping_add(places.freelist);
            let first = guest.word(at, 8).unwrap_or(0);
            follow(guest, cache, first, |object| kept.insert(object));
        }
    }
    let Some(places) = &layout.sheaves else { return kept };
    let own = guest.word(cache.address.wrapping_add(places.cache), 8).unwrap_or(0);
    let mut sheaves = Vec::new();
    for &cpu in cpus.iter().filter(|_| own != 0) {
        let at = own.wrapping_add(cpu);
        sheaves.extend(places.sheaves.iter().filter_map(|&place| guest.word(at.wrapping_add(place), 8)));
    }
    if let Some((barn, full, list)) = places.barn
        && let Some(barn) = guest.word(cache.address.wrapping_add(barn), 8).filter(|&barn| barn != 0)
    {
        let head = barn.wrapping_add(full);
        let mut at = guest.word(head, 8).unwrap_or(0);
        while at != head && at != 0 && sheaves.len() < MAX_SHEAVES {
            sheaves.push(at.wrapping_sub(list));
            at = guest.word(at, 8).unwrap_or(0);
        }
    }
    for sheaf in sheaves.into_iter().filter(|&sheaf| sheaf != 0) {
        let count = guest.word(sheaf.wrapping_add(places.count), 4).unwrap_or(0).min(MAX_OBJECTS);
        let objects = sheaf.wrapping_add(places.objects);
        kept.extend((0..count).filter_map(|i| guest.word(objects.wrapping_add(8 * i), 8)));
    }
    kept
}

/// Whether each object of a slab is free. `kept` is the result of [`kept`] for its cache.
pub fn free_slots(
    guest: &mut impl Guest,
    layout: &Layout,
    cache: &Cache,
    slab: Slab,
    kept: &FxHashSet<u64>,
) -> Vec<bool> {
    let mut free: Vec<bool> =
        (0..slab.count).map(|i| kept.contains(&slab.base.wrapping_add(i * cache.size))).collect();
    let first = guest.word(slab.structure.wrapping_add(layout.slab_freelist), 8).unwrap_or(0);
    follow(guest, cache, first, |object| match slab.index(cache, object) {
        Some(index) if !free[index as usize] => {
            free[index as usize] = true;
            true
        }
        _ => false,
    });
    free
}
