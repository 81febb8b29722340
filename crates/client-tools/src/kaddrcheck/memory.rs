//! Which bytes of the kernel's memory have an owner. Calls of the allocators change this state.

use super::areas::Areas;
use super::caches::{Cache, Caches, Slot, Slots};
use super::freelists::{self, Slab};
use super::frees::Frees;
use super::guest::Guest;
use super::pages::{PAGE, Pages, Use};
use guardrail_client_api::kernel::slab::{Layout, SlabMark};
use guardrail_shadow::{Limits, Shadow};
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Most bytes of memory for marks: an eighth of a guest of 16 GB.
const MARKS: usize = 2 << 30;
/// Most pages and CPUs of a watched guest.
const MAX_PAGES: u64 = 1 << 26;
const MAX_CPUS: u64 = 4096;
/// Most bytes of an object.
pub(super) const MAX_SIZE: u64 = 1 << 32;
/// Pointers below this, or in the last page, are no objects (`ZERO_SIZE_PTR`, `ERR_PTR`).
pub(super) const LOWEST: u64 = 1 << 63;
pub(super) const HIGHEST: u64 = u64::MAX - PAGE;

/// State of one guest's memory.
pub struct Memory {
    /// A marked byte has no owner.
    pub shadow: Shadow<1>,
    /// Addresses that were freed lately.
    pub(super) frees: Frees,
    pub(super) layout: Layout,
    /// The KASLR slide.
    slide: AtomicU64,
    pages: OnceLock<Pages>,
    cpus: OnceLock<Vec<u64>>,
    pub(super) caches: Caches,
    pub(super) slots: Slots,
    pub(super) vmalloc: Areas,
    pub(super) per_cpu: Areas,
    discovering: Mutex<()>,
    /// Marks that turned out to be wrong, because the memory has an owner.
    pub(super) healed: AtomicU64,
}

/// A slot of a slab.
#[derive(Clone, Debug)]
pub struct SlabSlot {
    pub(super) cache: std::sync::Arc<Cache>,
    /// Number of the slab's first page.
    pub(super) head: u64,
    pub(super) index: u64,
    /// Guest virtual address of the slot.
    pub(super) address: u64,
}

impl Memory {
    /// Makes the state of a guest of which nothing is known.
    pub fn new(layout: Layout) -> std::io::Result<Memory> {
        Ok(Memory {
            shadow: Shadow::new(Limits::bytes(MARKS))?,
            frees: Frees::default(),
            layout,
            slide: AtomicU64::new(0),
            pages: OnceLock::new(),
            cpus: OnceLock::new(),
            caches: Caches::default(),
            slots: Slots::default(),
            vmalloc: Areas::default(),
            per_cpu: Areas::default(),
            discovering: Mutex::new(()),
            healed: AtomicU64::new(0),
        })
    }

    /// Sets the KASLR slide.
    pub fn set_slide(&self, slide: u64) {
        self.slide.store(slide, Relaxed);
    }

    /// The table of pages, once the kernel knows their number.
    #[inline]
    pub fn pages(&self, guest: &mut impl Guest) -> Option<&Pages> {
        match self.pages.get() {
            Some(pages) => Some(pages),
            None => self.find_pages(guest),
        }
    }

    /// The table of pages, if it exists already.
    pub fn known_pages(&self) -> Option<&Pages> {
        self.pages.get()
    }

    #[cold]
    fn find_pages(&self, guest: &mut impl Guest) -> Option<&Pages> {
        let slide = self.slide.load(Relaxed);
        let mut variable = |at: u64| guest.word(at.wrapping_add(slide), 8).filter(|&value| value != 0);
        let count = variable(self.layout.max_pfn).filter(|&count| count <= MAX_PAGES)?;
        let direct = variable(self.layout.page_offset_base)?;
        let vmemmap = variable(self.layout.vmemmap_base)?;
        Some(self.pages.get_or_init(|| Pages::new(direct, vmemmap, self.layout.page_size, count)))
    }

    /// The per-CPU offset of each CPU; empty until the kernel has set them up.
    pub(super) fn cpus(&self, guest: &mut impl Guest) -> &[u64] {
        if let Some(cpus) = self.cpus.get() {
            return cpus;
        }
        let slide = self.slide.load(Relaxed);
        let count = guest.word(self.layout.nr_cpu_ids.wrapping_add(slide), 4).unwrap_or(0).min(MAX_CPUS);
        let table = self.layout.per_cpu_offset.wrapping_add(slide);
        let offsets: Option<Vec<u64>> =
            (0..count).map(|cpu| guest.word(table.wrapping_add(8 * cpu), 8)).collect();
        match offsets {
            // Before the kernel sets them up, they are all equal.
            Some(offsets) if offsets.len() < 2 || offsets[0] != offsets[1] => {
                self.cpus.get_or_init(|| offsets)
            }
            _ => &[],
        }
    }

    /// Handles an allocation of a block of pages.
    pub fn pages_allocated(&self, guest: &mut impl Guest, page: u64, order: u64, stack: u32) {
        let Some((pages, first)) = self.block(guest, page) else { return };
        let order = order.min(15) as u32;
        for number in first..first + (1 << order) {
            let known = pages.get(number);
            if (known.was_slab || matches!(known.what, Use::Slab(_))) && known.index == 0 {
                self.slots.remove(number);
            }
        }
        self.shadow.clear(pages.address(first), PAGE << order);
        pages.set_block(first, order, Use::Allocated, false);
        pages.note_allocated(first, stack);
    }

    /// Handles a free of a block of pages.
    pub fn pages_freed(&self, guest: &mut impl Guest, page: u64, order: u64, stack: u32) {
        let Some((pages, first)) = self.block(guest, page) else { return };
        let order = order.min(15) as u32;
        let known = pages.get(first);
        let was_slab = matches!(known.what, Use::Slab(_)) || (known.what == Use::Free && known.was_slab);
        if known.what != Use::Free {
            pages.note_freed(first, stack);
        }
        pages.set_block(first, order, Use::Free, was_slab);
        let len = (PAGE << order).min((pages.len() - first) * PAGE);
        self.frees.note(pages.address(first));
        self.shadow.fill(pages.address(first), len, 1);
    }

    fn block(&self, guest: &mut impl Guest, page: u64) -> Option<(&Pages, u64)> {
        let pages = self.pages(guest)?;
        Some((pages, pages.number_of(page)?))
    }

    /// Handles a page that was allocated together with others. A page that already has a user is not
    /// changed.
    pub fn pages_given(&self, guest: &mut impl Guest, page: u64, stack: u32) {
        if let Some((pages, number)) = self.block(guest, page)
            && matches!(pages.get(number).what, Use::Free | Use::Unknown)
        {
            self.pages_allocated(guest, page, 0, stack);
        }
    }

    /// Offsets in a sheaf of the number of its objects, and of the first one.
    pub fn sheaves(&self) -> Option<(u64, u64)> {
        self.layout.sheaves.as_ref().map(|places| (places.count, places.objects))
    }

    /// Offsets in a batch of folios of their number, and of the first one.
    pub fn batch(&self) -> Option<(u64, u64)> {
        self.layout.folio_batch
    }

    /// Offsets of address and size in a `struct vm_struct`.
    pub fn vm_struct(&self) -> (u64, u64) {
        (self.layout.vm_addr, self.layout.vm_size)
    }

    /// Offsets of start and end in a `struct vmap_area`.
    pub fn vmap_area(&self) -> (u64, u64) {
        (self.layout.va_start, self.layout.va_end)
    }

    /// Offset of the list link in a `struct page`.
    pub fn page_lru(&self) -> u64 {
        self.layout.page_lru
    }

    /// The slot that contains an address, if its page is known to belong to a slab.
    pub(super) fn slot_at(&self, addr: u64) -> Option<SlabSlot> {
        let pages = self.pages.get()?;
        let number = pages.number(addr)?;
        let page = pages.get(number);
        let Use::Slab(cache) = page.what else { return None };
        let cache = self.caches.get(cache)?;
        let head = number.checked_sub(page.index)?;
        let base = pages.address(head);
        let index = (addr - base) / cache.size;
        let address = base + index * cache.size;
        Some(SlabSlot { cache, head, index, address })
    }

    /// Handles an allocation of an object. Without a size, it has the size of its cache's objects.
    pub fn object_allocated(&self, guest: &mut impl Guest, addr: u64, size: Option<u64>, stack: u32) {
        if !(LOWEST..HIGHEST).contains(&addr) || size.is_some_and(|size| size == 0 || size > MAX_SIZE) {
            return;
        }
        let Some((pages, number)) = self.pages(guest).and_then(|pages| Some((pages, pages.number(addr)?)))
        else {
            return;
        };
        let page = pages.get(number);
        match page.what {
            Use::Slab(_) => {}
            Use::Allocated => {
                let Some(head) = number.checked_sub(page.index) else { return };
                if !self.is_slab(guest, pages, head) {
                    return self.large(pages, head, page.order, addr, size, stack);
                }
                self.discover(guest, pages, head, page.order);
            }
            Use::Free => {
                // A user allocated the page unseen.
                pages.set_block(number, 0, Use::Unknown, false);
                self.shadow.clear(pages.address(number), PAGE);
                self.healed.fetch_add(1, Relaxed);
                return;
            }
            Use::Unknown | Use::Exempt => return,
        }
        let Some(place) = self.slot_at(addr).filter(|place| place.address == addr) else { return };
        let taken = place.cache.usable();
        // A cache with several users (slab merging) grows to its users' largest object.
        let now = || guest.word(place.cache.address.wrapping_add(self.layout.cache_object_size), 4);
        let size = size.or_else(now).unwrap_or(taken).min(taken);
        self.shadow.clear(addr, size);
        if size < taken {
            self.shadow.fill(addr + size, taken - size, 1);
        }
        self.slots.update(place.head, place.index, |slot| *slot = Slot::live(size, stack));
    }

    /// Handles an object of whole pages. The bytes after it in the last pages have no owner.
    fn large(&self, pages: &Pages, head: u64, order: u32, addr: u64, size: Option<u64>, stack: u32) {
        let (start, len) = (pages.address(head), PAGE << order);
        let Some(size) = size.filter(|&size| addr == start && size <= len) else { return };
        self.shadow.clear(start, size);
        self.shadow.fill(start + size, len - size, 1);
        pages.note_size(head, size, stack);
    }

    /// Whether a `struct page` says that it is the first of a slab.
    pub(super) fn is_slab(&self, guest: &mut impl Guest, pages: &Pages, head: u64) -> bool {
        let structure = pages.structure(head);
        match self.layout.slab_mark {
            SlabMark::Flag(bit) => guest
                .word(structure.wrapping_add(self.layout.page_flags), 8)
                .is_some_and(|flags| flags >> bit & 1 != 0),
            SlabMark::Type(kind) => guest
                .word(structure.wrapping_add(self.layout.page_type), 4)
                .is_some_and(|word| word >> 24 == u64::from(kind)),
        }
    }

    /// Adds a slab when its first object is allocated. All its other slots have no owner yet.
    fn discover(&self, guest: &mut impl Guest, pages: &Pages, head: u64, order: u32) {
        let _one = self.discovering.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.get(head).what != Use::Allocated {
            return;
        }
        let structure = pages.structure(head);
        let cache = guest
            .word(structure.wrapping_add(self.layout.slab_cache), 8)
            .and_then(|cache| Cache::read(guest, &self.layout, cache));
        let objects = guest.word(structure.wrapping_add(self.layout.slab_objects), 2).unwrap_or(0) & 0x7fff;
        let (start, len) = (pages.address(head), PAGE << order);
        let Some(cache) = cache.filter(|cache| cache.fills(objects, len)) else {
            return pages.set_block(head, order, Use::Exempt, false);
        };
        let own = self.own_words(guest, structure, start..start + len);
        self.mark_gaps(&cache, start, objects, if own { objects * cache.size } else { len });
        for index in (0..objects).filter(|_| !cache.typesafe) {
            self.shadow.fill(start + index * cache.size, cache.usable(), 1);
        }
        self.slots.add(head, objects as usize);
        pages.set_block(head, order, Use::Slab(self.caches.number(cache)), false);
    }

    /// Whether the allocator keeps words of its own after the objects of a slab.
    pub(super) fn own_words(&self, guest: &mut impl Guest, structure: u64, slab: Range<u64>) -> bool {
        // The lowest bits of the pointer say what it points to.
        self.layout.own_words.is_some_and(|(_, _, at)| {
            guest.word(structure.wrapping_add(at), 8).is_some_and(|words| slab.contains(&(words & !7)))
        })
    }

    /// Marks the bytes between a slab's objects and after the last one.
    fn mark_gaps(&self, cache: &Cache, start: u64, objects: u64, len: u64) {
        let gap = cache.usable().saturating_sub(cache.object_size);
        for index in (0..objects).filter(|_| gap > 0) {
            self.shadow.fill(start + index * cache.size + cache.object_size, gap, 1);
        }
        let used = objects * cache.size;
        self.shadow.fill(start + used, len.saturating_sub(used), 1);
    }

    /// Handles a free of an object.
    pub fn object_freed(&self, addr: u64, stack: u32) {
        let Some(place) = self.slot_at(addr) else { return };
        self.frees.note(place.address);
        if !place.cache.typesafe {
            self.shadow.fill(place.address, place.cache.usable(), 1);
        }
        self.slots.end(place.head, place.index, stack);
    }

    /// Allows an object to use its whole slot.
    pub fn object_grown(&self, addr: u64) {
        if let Some(place) = self.slot_at(addr) {
            self.shadow.clear(place.address, place.cache.size);
            let size = place.cache.size;
            self.slots.update(place.head, place.index, |slot| *slot = Slot::live(size, slot.allocated));
        } else if let Some(pages) = self.pages.get()
            && let Some(number) = pages.number(addr)
        {
            let page = pages.get(number);
            if page.what == Use::Allocated && page.index == 0 && pages.records(number).2 != 0 {
                self.shadow.clear(pages.address(number), PAGE << page.order);
            }
        }
    }

    /// Exempts the page of an object that KFENCE returned, because KFENCE watches its own pages.
    pub fn kfence(&self, guest: &mut impl Guest, addr: u64) {
        if let Some(pages) = self.pages(guest)
            && let Some(number) = pages.number(addr)
        {
            self.shadow.clear(pages.address(number), PAGE);
            pages.set_block(number, 0, Use::Exempt, false);
        }
    }

    /// Whether the kernel's own lists say that a slot is free.
    pub(super) fn is_free_now(&self, guest: &mut impl Guest, place: &SlabSlot) -> bool {
        let Some(pages) = self.pages.get() else { return false };
        let cpus = self.cpus(guest).to_vec();
        let kept = freelists::kept(guest, &self.layout, &place.cache, &cpus);
        let structure = pages.structure(place.head);
        let count = guest.word(structure.wrapping_add(self.layout.slab_objects), 2).unwrap_or(0) & 0x7fff;
        let slab = Slab { structure, base: pages.address(place.head), count };
        let free = freelists::free_slots(guest, &self.layout, &place.cache, slab, &kept);
        free.get(place.index as usize).copied().unwrap_or(false)
    }

    /// Forgets everything, because the client is detached.
    pub fn forget(&self) {
        self.shadow.clear_all();
        if let Some(pages) = self.pages.get() {
            for number in 0..pages.len() {
                if pages.get(number).what != Use::Unknown {
                    pages.set_block(number, 0, Use::Unknown, false);
                    self.slots.remove(number);
                }
            }
        }
        self.vmalloc.clear();
        self.per_cpu.clear();
    }

    /// Bytes of memory that the state takes.
    pub fn resident(&self) -> usize {
        self.shadow.resident()
            + self.pages.get().map_or(0, Pages::resident)
            + self.slots.resident()
            + self.vmalloc.resident()
            + self.per_cpu.resident()
    }

    /// Adds a slab that exists already. `free` says which of its objects its lists contain.
    pub(super) fn adopt(&self, pages: &Pages, head: u64, cache: &Cache, free: &[bool], own: bool) {
        let (start, objects) = (pages.address(head), free.len() as u64);
        let len = cache.slab_bytes(objects);
        let order = (len / PAGE).trailing_zeros();
        self.shadow.clear(start, len);
        self.mark_gaps(cache, start, objects, if own { objects * cache.size } else { len });
        self.slots.add(head, free.len());
        for (index, &free) in (0u64..).zip(free) {
            if free && !cache.typesafe {
                self.shadow.fill(start + index * cache.size, cache.usable(), 1);
            } else if !free {
                self.slots.update(head, index, |slot| *slot = Slot::live(cache.object_size, 0));
            }
        }
        pages.set_block(head, order, Use::Slab(self.caches.number(cache.clone())), false);
    }
}
