//! Caches of the slab allocator, and the slots of their slabs.

use super::guest::Guest;
use super::pages::PAGE;
use guardrail_client_api::kernel::slab::Layout;
use rustc_hash::FxHashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Most slots with a record. Beyond this, findings lack stacks.
const MAX_SLOTS: usize = 8 << 20;
const SHARDS: usize = 64;
/// No cache has larger objects in its slabs.
const MAX_OBJECT: u64 = 1 << 22;

/// The members of a `kmem_cache`, as read from the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Guest virtual address of the `kmem_cache`.
    pub address: u64,
    /// Name of the cache; empty where it cannot be read.
    pub name: String,
    /// Bytes from one object to the next.
    pub size: u64,
    /// Bytes of an object.
    pub object_size: u64,
    /// Offset in a free object of the pointer to the next free one.
    pub offset: u64,
    /// Value that is mixed with that pointer; 0 where pointers are plain.
    pub random: u64,
    /// True where freed objects stay readable for a grace period.
    pub typesafe: bool,
    /// Bytes at the end of each slot that belong to the allocator. Others may read them through it.
    pub own: u64,
}

impl Cache {
    /// Reads a cache. `None` where its values are impossible, or the cache checks itself (slub_debug).
    pub fn read(guest: &mut impl Guest, layout: &Layout, address: u64) -> Option<Cache> {
        let mut field = |offset: u64, len: usize| guest.word(address.wrapping_add(offset), len);
        let size = field(layout.cache_size, 4)?;
        let object_size = field(layout.cache_object_size, 4)?;
        let flags = field(layout.cache_flags, 4)?;
        let offset = field(layout.cache_offset, 4)?;
        let random = layout.cache_random.map_or(Some(0), |random| field(random, 8))?;
        let pad = layout.cache_red_left_pad.map_or(Some(0), |pad| field(pad, 4))?;
        let name_at = field(layout.cache_name, 8)?;
        if pad != 0 || size == 0 || size > MAX_OBJECT || object_size > size || offset.saturating_add(8) > size
        {
            return None;
        }
        // A module's unloading frees the name of its cache. The cache is usable without it.
        let mut name = [0; 32];
        let len = match guest.fill(name_at, &mut name) {
            true => name.iter().position(|&byte| byte == 0).unwrap_or(name.len()),
            false => 0,
        };
        let name = String::from_utf8_lossy(&name[..len]).into_owned();
        let typesafe = flags & layout.typesafe_by_rcu != 0;
        let own = layout.own_words.filter(|(bit, size_of, _)| flags & bit != 0 && *size_of < size);
        let own = own.map_or(0, |(_, size_of, _)| size_of);
        Some(Cache { address, name, size, object_size, offset, random, typesafe, own })
    }
}

impl Cache {
    /// Bytes of a slot that an object may get.
    pub fn usable(&self) -> u64 {
        self.size - self.own
    }

    /// Bytes of a slab with this many objects. SLUB takes a power of two of pages.
    pub fn slab_bytes(&self, objects: u64) -> u64 {
        (objects * self.size).div_ceil(PAGE).next_power_of_two() * PAGE
    }

    /// Whether `objects` fill a slab of `len` bytes as SLUB fills it, so that no further object fits.
    /// Pages of KFENCE differ: they claim to be slabs of the cache in whose name they hold one object.
    pub fn fills(&self, objects: u64, len: u64) -> bool {
        objects > 0 && objects * self.size <= len && (objects + 1) * self.size > len
    }
}

/// All caches that the client saw, by number.
#[derive(Default)]
pub struct Caches(RwLock<Known>);

#[derive(Default)]
struct Known {
    all: Vec<Arc<Cache>>,
    /// Number of the latest cache at each address.
    numbers: FxHashMap<u64, u32>,
}

impl Caches {
    /// The number of a cache in its present state. A new cache at an old address gets a new number.
    pub fn number(&self, cache: Cache) -> u32 {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(&number) = known.numbers.get(&cache.address)
            && *known.all[number as usize] == cache
        {
            return number;
        }
        let number = known.all.len() as u32;
        known.numbers.insert(cache.address, number);
        known.all.push(Arc::new(cache));
        number
    }

    /// The cache with this number.
    pub fn get(&self, number: u32) -> Option<Arc<Cache>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).all.get(number as usize).cloned()
    }

    /// Number of caches seen.
    pub fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).all.len()
    }
}

/// The record of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Bytes asked for. The highest bit is set while the object lives.
    size: u32,
    /// Number of the stack that allocated the object.
    pub allocated: u32,
    /// Number of the stack that freed the object.
    pub freed: u32,
}

const LIVES: u32 = 1 << 31;

impl Slot {
    /// The record of a live object.
    pub fn live(size: u64, allocated: u32) -> Slot {
        Slot { size: (size as u32 & !LIVES) | LIVES, allocated, freed: 0 }
    }

    /// Bytes that the allocation asked for.
    pub fn size(self) -> u64 {
        u64::from(self.size & !LIVES)
    }

    /// Whether the object is allocated and not freed.
    pub fn lives(self) -> bool {
        self.size & LIVES != 0
    }

    /// Whether the slot ever held an object.
    pub fn was_used(self) -> bool {
        self.size != 0
    }
}

/// Slots by the number of their slab's first page.
type Shard = FxHashMap<u64, Box<[Slot]>>;

/// Slots of all slabs.
pub struct Slots {
    shards: Box<[Mutex<Shard>]>,
    used: AtomicUsize,
}

impl Default for Slots {
    fn default() -> Self {
        Slots { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), used: AtomicUsize::new(0) }
    }
}

impl Slots {
    fn shard(&self, page: u64) -> std::sync::MutexGuard<'_, Shard> {
        self.shards[page as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a slab, whose slots are all unused.
    pub fn add(&self, page: u64, count: usize) {
        if self.used.load(Relaxed).saturating_add(count) > MAX_SLOTS {
            return;
        }
        self.used.fetch_add(count, Relaxed);
        if let Some(old) = self.shard(page).insert(page, vec![Slot::default(); count].into()) {
            self.used.fetch_sub(old.len(), Relaxed);
        }
    }

    /// Removes a slab, because its pages get another use.
    pub fn remove(&self, page: u64) {
        if let Some(old) = self.shard(page).remove(&page) {
            self.used.fetch_sub(old.len(), Relaxed);
        }
    }

    /// The record of a slot; an empty one where there was no room.
    pub fn get(&self, page: u64, index: u64) -> Slot {
        let shard = self.shard(page);
        shard.get(&page).and_then(|slots| slots.get(index as usize)).copied().unwrap_or_default()
    }

    /// Changes the record of a slot.
    pub fn update(&self, page: u64, index: u64, change: impl FnOnce(&mut Slot)) {
        if let Some(slot) = self.shard(page).get_mut(&page).and_then(|slots| slots.get_mut(index as usize)) {
            change(slot);
        }
    }

    /// Marks the object of a slot as freed.
    pub fn end(&self, page: u64, index: u64, freed: u32) {
        self.update(page, index, |slot| {
            slot.size &= !LIVES;
            slot.freed = freed;
        });
    }

    /// Bytes of memory that the records take.
    pub fn resident(&self) -> usize {
        self.used.load(Relaxed) * size_of::<Slot>()
    }
}
