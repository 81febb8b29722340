//! Free objects, as the kernel's own lists name them.

use super::caches::Cache;
use super::guest::Guest;
use guardrail_client_api::kernel::slab::Layout;
use rustc_hash::FxHashSet;

/// Arrays and lists of free objects are not longer; longer ones are damaged, or change while they are read.
const MAX_OBJECTS: u64 = 1 << 12;
const MAX_SHEAVES: usize = 256;

/// The slab of an object, for a look at its list.
#[derive(Clone, Copy, Debug)]
pub struct Slab {
    /// Its `struct slab`.
    pub structure: u64,
    /// Address of its first object.
    pub base: u64,
    /// How many objects it has.
    pub count: u64,
}

impl Slab {
    /// The index of the slot with this address.
    pub fn index(&self, cache: &Cache, object: u64) -> Option<u64> {
        let index = object.wrapping_sub(self.base) / cache.size;
        (index < self.count).then_some(index)
    }
}

/// Follows a list of free objects from its first one.
pub fn follow(guest: &mut impl Guest, cache: &Cache, first: u64, mut each: impl FnMut(u64) -> bool) {
    let mut object = first;
    for _ in 0..MAX_OBJECTS {
        if object == 0 || !each(object) {
            return;
        }
        let at = object.wrapping_add(cache.offset);
        let Some(word) = guest.word(at, 8) else { return };
        // Where `random` is 0 lists are plain, or so is this one by chance.
        object = if cache.random == 0 { word } else { word ^ cache.random ^ at.swap_bytes() };
    }
}

/// Free objects that CPUs and nodes keep outside of their slabs' lists.
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

/// Whether each object of a slab is free. `kept` is what [`kept`] says of its cache.
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
