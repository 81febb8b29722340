//! Judges an access to a byte without an owner.

use super::areas::Area;
use super::caches::{Cache, Slot};
use super::guest::Guest;
use super::memory::{Memory, SlabSlot};
use super::pages::{PAGE, Pages, Use};
use std::sync::atomic::Ordering::Relaxed;

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// Guest virtual address of its first byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// True for a store.
    pub store: bool,
}

/// The judgment of an access, without the location in the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The kind, in the field's words.
    pub kind: &'static str,
    /// One sentence, without symbols.
    pub message: String,
    /// The sort of memory: `slab`, `page`, `vmalloc`, `percpu`.
    pub class: &'static str,
    /// Name of the slab cache; `None` for other memory.
    pub name: Option<String>,
    /// Address and size of the object.
    pub object: (u64, u64),
    /// Numbers of the stacks that allocated and freed it.
    pub stacks: (u32, u32),
}

pub(super) const FREED: &str = "use-after-free";
const BEYOND: &str = "out-of-bounds";
const REDZONE: &str = "redzone";

impl Memory {
    /// Judges an access whose byte `bad` is marked. `None` where the kernel's own structures say that
    /// the memory has an owner. Its allocation was then missed, and the mark is removed.
    pub fn judge(&self, guest: &mut impl Guest, access: MemoryAccess, bad: u64) -> Option<Verdict> {
        let verdict = match self.known_pages() {
            // Per-CPU memory that existed when the kernel started lies among pages.
            Some(pages) if pages.number(bad).is_some() => {
                self.judge_per_cpu(guest, access, bad).or_else(|| self.judge_page(guest, pages, access, bad))
            }
            _ => {
                let area = self.vmalloc.at(bad);
                area.and_then(|area| judge_area(access, bad, area, "vmalloc", "vmalloc"))
                    .or_else(|| self.judge_per_cpu(guest, access, bad))
            }
        };
        if verdict.is_none() {
            self.healed.fetch_add(1, Relaxed);
            // Where nothing was recorded either, the marks of at least these bytes are removed.
            self.shadow.clear(access.addr, access.len);
        }
        verdict
    }

    fn judge_page(
        &self,
        guest: &mut impl Guest,
        pages: &Pages,
        access: MemoryAccess,
        bad: u64,
    ) -> Option<Verdict> {
        let number = pages.number(bad)?;
        let page = pages.get(number);
        let head = number.checked_sub(page.index)?;
        let of = |kind, len: u64, what: &str, stacks| {
            let object = (pages.address(head), len);
            let message = describe(access, object, what);
            Verdict { kind, message, class: "page", name: None, object, stacks }
        };
        match page.what {
            Use::Slab(_) => self.judge_slot(guest, pages, access, bad),
            Use::Free => {
                let references = guest.word(pages.structure(head).wrapping_add(self.layout.page_refcount), 4);
                if references != Some(0) || self.is_slab(guest, pages, head) {
                    pages.set_block(head, page.order, Use::Unknown, false);
                    self.shadow.clear(pages.address(head), PAGE << page.order);
                    return None;
                }
                let (allocated, freed, _) = pages.records(head);
                Some(of(FREED, PAGE << page.order, "pages that were freed", (allocated, freed)))
            }
            Use::Allocated => {
                let (allocated, freed, size) = pages.records(head);
                let size = u64::from(size);
                let beyond = size > 0 && bad >= pages.address(head) + size;
                beyond.then(|| of(BEYOND, size, &format!("{size} bytes of whole pages"), (allocated, freed)))
            }
            Use::Unknown | Use::Exempt => None,
        }
    }

    fn judge_slot(
        &self,
        guest: &mut impl Guest,
        pages: &Pages,
        access: MemoryAccess,
        bad: u64,
    ) -> Option<Verdict> {
        let place = self.slot_at(bad)?;
        let slot = self.slots.get(place.head, place.index);
        let cache = &place.cache;
        let object = (place.address, slot.size());
        let of = |kind, object: (u64, u64), slot: Slot, what: String| Verdict {
            kind,
            message: describe(access, object, &what),
            class: "slab",
            name: Some(cache.name.clone()),
            object,
            stacks: (slot.allocated, slot.freed),
        };
        if slot.lives() {
            if bad - place.address >= slot.size() {
                return Some(of(BEYOND, object, slot, object_of(cache, slot.size())));
            }
            self.shadow.clear(place.address, slot.size());
            return None;
        }
        let behind = bad >= pages.address(place.head) + self.objects(guest, pages, &place) * cache.size;
        if !behind && !self.is_free_now(guest, &place) {
            self.shadow.clear(place.address, cache.object_size);
            self.slots.update(place.head, place.index, |slot| *slot = Slot::live(cache.size, 0));
            return None;
        }
        if slot.was_used() {
            let what = format!("{} that was freed", object_of(cache, slot.size()));
            return Some(of(FREED, object, slot, what));
        }
        // A slot that was never used: the access overran the object before it, or all objects.
        let before = place.index.checked_sub(1).map(|index| self.slots.get(place.head, index));
        if let Some(before) = before.filter(|before| before.lives()) {
            let object = (place.address - cache.size, before.size());
            return Some(of(BEYOND, object, before, object_of(cache, before.size())));
        }
        let object = (place.address, cache.size);
        Some(of(REDZONE, object, slot, format!("memory of {} that holds no object", cache.name)))
    }

    fn objects(&self, guest: &mut impl Guest, pages: &Pages, place: &SlabSlot) -> u64 {
        let at = pages.structure(place.head).wrapping_add(self.layout.slab_objects);
        guest.word(at, 2).unwrap_or(0) & 0x7fff
    }

    fn judge_per_cpu(&self, guest: &mut impl Guest, access: MemoryAccess, bad: u64) -> Option<Verdict> {
        let found = self.cpus(guest).iter().find_map(|&cpu| {
            let (at, area) = self.per_cpu.at(bad.wrapping_sub(cpu))?;
            Some((at.wrapping_add(cpu), area))
        });
        judge_area(access, bad, found?, "percpu", "per-CPU")
    }
}

/// Judges an access to an area at an address. `None` where the area lives and contains the byte.
fn judge_area(
    access: MemoryAccess,
    bad: u64,
    (at, area): (u64, Area),
    class: &'static str,
    name: &str,
) -> Option<Verdict> {
    let (kind, freed) = match area.lives {
        true if bad < at + area.size => return None,
        true => (BEYOND, ""),
        false => (FREED, " that were freed"),
    };
    let object = (at, area.size);
    Some(Verdict {
        kind,
        message: describe(access, object, &format!("{} bytes of {name} memory{freed}", area.size)),
        class,
        name: None,
        object,
        stacks: (area.allocated, area.freed),
    })
}

fn object_of(cache: &Cache, size: u64) -> String {
    format!("an object of {size} bytes of {}", cache.name)
}

/// Text such as "writes 4 bytes at offset 12 of …".
fn describe(access: MemoryAccess, object: (u64, u64), what: &str) -> String {
    let verb = if access.store { "writes" } else { "reads" };
    let unit = if access.len == 1 { "byte" } else { "bytes" };
    let place = match access.addr.checked_sub(object.0) {
        Some(offset) if offset >= object.1 => format!("{} bytes behind the end of", offset - object.1),
        Some(offset) => format!("at offset {offset} of"),
        None => format!("{} bytes before", object.0 - access.addr),
    };
    format!("{verb} {} {unit} {place} {what}", access.len)
}
