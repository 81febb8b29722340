//! What a call asks of an allocator, and which memory it gets.

use crate::machine::{LARGEST_SLAB, Object, kmalloc_slot};
use guardrail_knowledge::effect::{Class, Len, Zeroed};

pub(super) const PAGE: u64 = 4096;
/// Bytes that a slab cache with redzones keeps free on each side of an object, at least (`calculate_sizes` in mm/slub.c).
pub(super) const REDZONE: u64 = 8;

/// What a row says of an allocation.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) class: Class,
    pub(super) size: Len,
    pub(super) zeroed: Zeroed,
    pub(super) cache: Option<u8>,
    pub(super) realloc: Option<u8>,
}

/// What a call has allocated.
pub(super) struct Request {
    pub(super) class: Class,
    pub(super) start: u64,
    pub(super) size: Option<u64>,
    /// The objects of its allocator lie directly behind each other.
    pub(super) packed: bool,
    /// Slab caches keep redzones between their objects.
    pub(super) redzones: bool,
    /// Guest address of the `kmem_cache`, or 0.
    pub(super) cache: u64,
    /// The object that was allocated again with another size.
    pub(super) old: Option<u64>,
    /// The memory is not as the allocator found it.
    pub(super) defined: bool,
}

impl Request {
    /// The memory that an object of `size` bytes occupies; `None` where the addresses make no sense.
    pub(super) fn slot(&self, size: u64) -> Option<(u64, u64)> {
        let start = self.start;
        let pages = || start.checked_add(size)?.checked_next_multiple_of(PAGE);
        let end = match self.class {
            Class::Slab | Class::Managed => start.checked_add(kmalloc_slot(size)),
            Class::Dma if self.packed => start.checked_add(size.max(1)),
            Class::Cache | Class::Percpu => start.checked_add(size.max(1)),
            Class::Page | Class::Dma => pages(),
            // The page behind is never mapped.
            Class::Vmalloc | Class::Io => pages()?.checked_add(PAGE),
        };
        let in_cache = match self.class {
            Class::Slab => size <= LARGEST_SLAB,
            Class::Cache => true,
            _ => false,
        };
        Some(match self.class {
            Class::Io => (start & !(PAGE - 1), end?),
            _ if self.redzones && in_cache => (start.checked_sub(REDZONE)?, end?.checked_add(REDZONE)?),
            _ => (start, end?),
        })
    }
}

/// The class of an object that an outer allocator returns, where the inner object becomes its result. `None`
/// where it does not.
pub(super) fn adopted_class(outer: Class, inner: &Object, start: u64, size: Option<u64>) -> Option<Class> {
    use Class::{Cache, Dma, Io, Managed, Page, Percpu, Slab, Vmalloc};
    let same = inner.start == start;
    match (outer, inner.class) {
        (Managed, Slab | Managed) => Some(Managed),
        (Io, Io) => Some(Io),
        _ if !same => None,
        (Dma, _) => Some(Dma),
        // Large kmalloc takes pages. Small objects lie in pages that the slab has just taken: those are not
        // the same.
        (Slab, Page) => (size? > LARGEST_SLAB).then_some(Slab),
        (Slab, class @ (Slab | Vmalloc)) => Some(class),
        (Slab | Cache, Slab | Cache) => Some(outer),
        (Vmalloc, class @ (Vmalloc | Slab)) => Some(class),
        (Page, Page) => Some(Page),
        (Percpu, Percpu) => Some(Percpu),
        _ => None,
    }
}
