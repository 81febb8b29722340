//! Tests the state machine on a guest that consists of a few words.

use super::guest::Guest;
use super::judge::{MemoryAccess, Verdict};
use super::memory::Memory;
use guardrail_client_api::kernel::slab::{CpuSlabs, Layout, SlabMark};
use std::collections::HashMap;

const DIRECT: u64 = 0xffff_8880_0000_0000;
const VMEMMAP: u64 = 0xffff_ea00_0000_0000;
const PAGES: u64 = 256;
/// Link-time addresses of the kernel's variables.
const MAX_PFN: u64 = 0xffff_ffff_8200_0000;
const PAGE_OFFSET_BASE: u64 = MAX_PFN + 8;
const VMEMMAP_BASE: u64 = MAX_PFN + 16;
const NR_CPU_IDS: u64 = MAX_PFN + 24;
const PER_CPU_OFFSET: u64 = MAX_PFN + 32;
/// Per-CPU offsets of two CPUs.
const CPUS: [u64; 2] = [DIRECT + 0xf0000, DIRECT + 0xf4000];
/// A cache in the kernel's data, and the value that its list pointers are mixed with.
const CACHE: u64 = 0xffff_ffff_8300_0000;
const RANDOM: u64 = 0x1234_5678_9abc_def0;
/// A per-CPU pointer of the cache.
const CPU_SLAB: u64 = 0x100;

fn layout() -> Layout {
    Layout {
        cache_flags: 8,
        cache_size: 16,
        cache_object_size: 20,
        cache_offset: 24,
        cache_random: Some(32),
        cache_name: 40,
        cache_red_left_pad: None,
        slab_cache: 8,
        slab_freelist: 16,
        slab_objects: 24,
        page_size: 64,
        page_flags: 0,
        page_type: 48,
        page_refcount: 52,
        slab_mark: SlabMark::Flag(9),
        cpu_slabs: Some(CpuSlabs { cache: 0, freelist: 0, slab: 8 }),
        sheaves: None,
        typesafe_by_rcu: 0x80000,
        own_words: Some((0x100000, 8, 56)),
        max_pfn: MAX_PFN,
        page_offset_base: PAGE_OFFSET_BASE,
        vmemmap_base: VMEMMAP_BASE,
        per_cpu_offset: PER_CPU_OFFSET,
        nr_cpu_ids: NR_CPU_IDS,
        vm_addr: 8,
        vm_size: 16,
        va_start: 0,
        va_end: 8,
        folio_batch: None,
        page_lru: 8,
    }
}

/// A guest with all memory present. Words that were not written are zero.
struct Fake {
    bytes: HashMap<u64, u8>,
    memory: Memory,
}

impl Guest for HashMap<u64, u8> {
    fn word(&mut self, addr: u64, len: usize) -> Option<u64> {
        let byte = |i: u64| u64::from(self.get(&addr.wrapping_add(i)).copied().unwrap_or(0)) << (8 * i);
        Some((0..len as u64).map(byte).sum())
    }

    fn fill(&mut self, addr: u64, buffer: &mut [u8]) -> bool {
        for (i, byte) in (0u64..).zip(buffer) {
            *byte = self.get(&addr.wrapping_add(i)).copied().unwrap_or(0);
        }
        true
    }
}

impl Fake {
    fn new() -> Fake {
        let mut fake = Fake { bytes: HashMap::new(), memory: Memory::new(layout()).unwrap() };
        fake.set(MAX_PFN, PAGES);
        fake.set(PAGE_OFFSET_BASE, DIRECT);
        fake.set(VMEMMAP_BASE, VMEMMAP);
        fake.set(NR_CPU_IDS, 2);
        fake.set(PER_CPU_OFFSET, CPUS[0]);
        fake.set(PER_CPU_OFFSET + 8, CPUS[1]);
        fake.set(CACHE, CPU_SLAB);
        fake.cache(64, 56, 0);
        fake
    }

    fn set(&mut self, addr: u64, word: u64) {
        for (i, byte) in (0u64..).zip(word.to_le_bytes()) {
            self.bytes.insert(addr + i, byte);
        }
    }

    fn cache(&mut self, size: u64, object_size: u64, flags: u64) {
        self.set(CACHE + 8, flags);
        self.set(CACHE + 16, size | object_size << 32);
        self.set(CACHE + 24, 0);
        self.set(CACHE + 32, RANDOM);
        self.set(CACHE + 40, CACHE + 48);
        self.set(CACHE + 48, u64::from_le_bytes(*b"things\0\0"));
    }

    /// Turns a page into a slab with as many objects as fit.
    fn slab(&mut self, page: u64, size: u64) {
        self.set(VMEMMAP + 64 * page, 1 << 9);
        self.set(VMEMMAP + 64 * page + 8, CACHE);
        self.set(VMEMMAP + 64 * page + 16, 0);
        self.set(VMEMMAP + 64 * page + 24, 4096 / size);
    }

    /// Links free objects into a list whose head is the word at `head`.
    fn list(&mut self, head: u64, objects: &[u64]) {
        self.set(head, objects.first().copied().unwrap_or(0));
        for (i, &object) in objects.iter().enumerate() {
            let next = objects.get(i + 1).copied().unwrap_or(0);
            self.set(object, next ^ RANDOM ^ object.swap_bytes());
        }
    }

    fn pages(&mut self, page: u64, order: u64) {
        self.memory.pages_allocated(&mut self.bytes, VMEMMAP + 64 * page, order, 1);
    }

    fn free_pages(&mut self, page: u64, order: u64) {
        self.memory.pages_freed(&mut self.bytes, VMEMMAP + 64 * page, order, 2);
    }

    fn object(&mut self, addr: u64, size: Option<u64>) {
        self.memory.object_allocated(&mut self.bytes, addr, size, 3);
    }

    /// Judges an access, if any of its bytes is marked.
    fn access(&mut self, addr: u64, len: u64) -> Option<Verdict> {
        let bad = self.memory.shadow.first(addr, len)?;
        self.memory.judge(&mut self.bytes, MemoryAccess { addr, len, store: false }, bad)
    }

    fn kind(&mut self, addr: u64, len: u64) -> &'static str {
        self.access(addr, len).map_or("", |verdict| verdict.kind)
    }
}

fn page(number: u64) -> u64 {
    DIRECT + 4096 * number
}

/// A slab in which one object of 40 bytes is allocated: the second.
fn one_object() -> (Fake, u64) {
    let mut fake = Fake::new();
    fake.pages(5, 0);
    fake.slab(5, 64);
    let object = page(5) + 64;
    fake.object(object, Some(40));
    let free: Vec<u64> = (0..64).filter(|&i| i != 1).map(|i| page(5) + 64 * i).collect();
    fake.list(VMEMMAP + 64 * 5 + 16, &free);
    (fake, object)
}

#[test]
fn an_object_is_as_large_as_was_asked_for() {
    let (mut fake, object) = one_object();
    assert_eq!(fake.access(object, 40), None);
    let verdict = fake.access(object + 36, 8).unwrap();
    assert_eq!((verdict.kind, verdict.object), ("out-of-bounds", (object, 40)));
    assert_eq!(verdict.message, "reads 8 bytes at offset 36 of an object of 40 bytes of things");
    assert_eq!(fake.kind(object + 63, 1), "out-of-bounds");
    // Slots that were never used count to the object before them, if there is one.
    assert_eq!(fake.access(object + 64, 8).unwrap().object, (object, 40));
    assert_eq!(fake.kind(object - 8, 8), "redzone");
    assert_eq!(fake.kind(object + 256, 8), "redzone");
}

#[test]
fn what_was_freed_is_nobodys_until_it_is_given_out_again() {
    let (mut fake, object) = one_object();
    fake.memory.object_freed(object, 7);
    fake.list(VMEMMAP + 64 * 5 + 16, &[object]);
    let verdict = fake.access(object + 8, 8).unwrap();
    assert_eq!((verdict.kind, verdict.stacks), ("use-after-free", (3, 7)));
    assert_eq!(verdict.name.as_deref(), Some("things"));
    fake.object(object, None);
    assert_eq!(fake.access(object, 56), None);
    assert_eq!(fake.kind(object + 56, 1), "out-of-bounds");
}

#[test]
fn an_object_that_no_list_has_is_somebodys() {
    let (mut fake, object) = one_object();
    fake.memory.object_freed(object, 7);
    assert_eq!(fake.access(object + 8, 8), None);
    assert_eq!(fake.access(object, 56), None);
    assert_eq!(fake.memory.healed.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn objects_that_stay_readable_are_not_marked() {
    let mut fake = Fake::new();
    fake.cache(64, 56, 0x80000);
    fake.pages(5, 0);
    fake.slab(5, 64);
    fake.object(page(5), None);
    fake.memory.object_freed(page(5), 7);
    assert!(!fake.memory.shadow.any(page(5), 56) && !fake.memory.shadow.any(page(5) + 64, 56));
    assert!(fake.memory.shadow.any(page(5) + 56, 1));
    fake.free_pages(5, 0);
    assert!(fake.memory.shadow.any(page(5), 56));
}

#[test]
fn words_of_the_allocator_inside_of_slabs_are_nobodys_fault() {
    let mut fake = Fake::new();
    fake.cache(72, 56, 0x100000);
    fake.pages(5, 0);
    fake.slab(5, 72);
    // 56 slots leave 64 bytes, and the slab's own pointer points there.
    fake.set(VMEMMAP + 64 * 5 + 56, page(5) + 4032 + 1);
    fake.object(page(5), None);
    fake.memory.object_freed(page(5), 7);
    assert!(fake.memory.shadow.any(page(5) + 56, 8) && !fake.memory.shadow.any(page(5) + 64, 8));
    assert!(fake.memory.shadow.any(page(5) + 72, 64) && !fake.memory.shadow.any(page(5) + 4032, 64));
    fake.memory.scan(&mut fake.bytes);
    assert!(!fake.memory.shadow.any(page(5) + 64, 8) && !fake.memory.shadow.any(page(5) + 4032, 64));
}

#[test]
fn pages_of_kfence_are_no_slabs() {
    let mut fake = Fake::new();
    fake.slab(5, 64);
    fake.set(VMEMMAP + 64 * 5 + 24, 1);
    assert_eq!(fake.memory.scan(&mut fake.bytes), 0);
    fake.pages(5, 0);
    fake.object(page(5) + 4000, Some(40));
    assert_eq!(fake.access(page(5), 64), None);
}

#[test]
fn ksize_gives_the_whole_slot() {
    let (mut fake, object) = one_object();
    fake.memory.object_grown(object);
    assert_eq!(fake.access(object, 64), None);
    assert!(fake.memory.shadow.any(object + 64, 1));
}

#[test]
fn pages_are_nobodys_once_freed() {
    let mut fake = Fake::new();
    fake.pages(8, 2);
    fake.free_pages(8, 2);
    let verdict = fake.access(page(10), 8).unwrap();
    assert_eq!((verdict.kind, verdict.class, verdict.object), ("use-after-free", "page", (page(8), 16384)));
    fake.pages(9, 0);
    assert_eq!(fake.access(page(9), 64), None);
    assert_eq!(fake.kind(page(10), 8), "use-after-free");
    // The page is in use, for whatever reason.
    fake.set(VMEMMAP + 64 * 8 + 48, 1 << 32);
    assert_eq!(fake.access(page(8), 8), None);
}

#[test]
fn an_object_of_whole_pages_ends_where_it_was_asked_to() {
    let mut fake = Fake::new();
    fake.pages(16, 2);
    fake.object(page(16), Some(10_000));
    assert_eq!(fake.access(page(16) + 9992, 8), None);
    assert_eq!(fake.kind(page(16) + 10_000, 1), "out-of-bounds");
    fake.memory.object_grown(page(16));
    assert_eq!(fake.access(page(16) + 10_000, 1), None);
}

#[test]
fn a_scan_finds_what_is_free_by_hardened_lists() {
    let mut fake = Fake::new();
    fake.slab(5, 64);
    let slot = |i: u64| page(5) + 64 * i;
    fake.list(VMEMMAP + 64 * 5 + 16, &[slot(3), slot(9)]);
    fake.list(CPUS[1] + CPU_SLAB, &[slot(4), slot(60)]);
    assert_eq!(fake.memory.scan(&mut fake.bytes), 1);
    for i in 0..64 {
        let free = matches!(i, 3 | 9 | 4 | 60);
        assert_eq!(fake.memory.shadow.any(slot(i), 56), free, "{i}");
        assert!(fake.memory.shadow.any(slot(i) + 56, 1), "{i}");
    }
    // A slot whose object existed from the beginning.
    fake.memory.object_freed(slot(1), 7);
    assert!(fake.memory.shadow.any(slot(1), 8));
    fake.memory.forget();
    assert!(!fake.memory.shadow.any(slot(3), 8));
}

#[test]
fn memory_with_page_tables_of_its_own_has_exact_sizes_and_ends() {
    let mut fake = Fake::new();
    let at = 0xffff_c900_0001_0000;
    fake.memory.vmalloc_allocated(at, 5000, 3);
    assert_eq!(fake.access(at + 4992, 8), None);
    assert_eq!(fake.kind(at + 5000, 1), "out-of-bounds");
    fake.memory.vmalloc_freed(at, 7);
    assert_eq!(fake.access(at, 8).map(|verdict| verdict.stacks), Some((3, 7)));
    fake.memory.addresses_taken(at, 0x4000);
    assert_eq!(fake.access(at, 8), None);
}

#[test]
fn memory_of_each_cpu_is_marked_for_all_of_them() {
    let mut fake = Fake::new();
    fake.memory.per_cpu_allocated(&mut fake.bytes, 0x200, 30, 3);
    assert_eq!(fake.kind(CPUS[1] + 0x200 + 30, 2), "out-of-bounds");
    assert_eq!(fake.access(CPUS[0] + 0x200, 8), None);
    fake.memory.per_cpu_freed(&mut fake.bytes, 0x200, 7);
    for cpu in CPUS {
        let verdict = fake.access(cpu + 0x208, 4).unwrap();
        assert_eq!((verdict.kind, verdict.class), ("use-after-free", "percpu"));
    }
    fake.memory.per_cpu_allocated(&mut fake.bytes, 0x200, 32, 3);
    assert_eq!(fake.access(CPUS[0] + 0x200, 32), None);
}

#[test]
fn a_slab_that_goes_is_forgotten_when_its_pages_are_used_anew() {
    let (mut fake, object) = one_object();
    fake.set(VMEMMAP + 64 * 5, 0);
    fake.free_pages(5, 0);
    assert_eq!(fake.kind(object, 8), "use-after-free");
    fake.pages(5, 0);
    assert_eq!(fake.access(object, 64), None);
    // Another cache at the same address, with other sizes.
    fake.cache(128, 128, 0);
    fake.slab(5, 128);
    fake.object(page(5) + 128, None);
    assert_eq!(fake.access(page(5) + 128, 128), None);
    assert!(fake.memory.shadow.any(page(5), 1) && fake.memory.shadow.any(page(5) + 256, 1));
}

#[test]
fn nonsense_is_survived() {
    let mut fake = Fake::new();
    for addr in [0, 16, 0xffff_ffff_ffff_fff4, DIRECT - 8, DIRECT + 4096 * PAGES, u64::MAX] {
        fake.object(addr, Some(40));
        fake.object(addr, None);
        fake.memory.object_freed(addr, 1);
        fake.memory.object_grown(addr);
        fake.memory.vmalloc_allocated(addr, u64::MAX, 1);
        fake.memory.vmalloc_freed(addr, 1);
        fake.memory.pages_allocated(&mut fake.bytes, addr, 40, 1);
        fake.memory.pages_freed(&mut fake.bytes, addr, 40, 1);
        fake.memory.addresses_taken(addr, u64::MAX);
        assert_eq!(fake.access(addr, 64), None);
    }
}
