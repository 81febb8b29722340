//! DMACheck: each kind of fault with its correct twin.

mod uninit;

use super::guest::*;
use crate::machine::{ModuleMap, Range, Region, World};
use guardrail_knowledge::effect::{Class, DmaOp, Effect, Len, MapKind, Ptr, Summary, Zeroed};
use std::sync::Arc;

const FUNCTIONS: [&str; 24] = [
    "dma_map_page_attrs",
    "dma_unmap_page_attrs",
    "dma_map_sg_attrs",
    "dma_unmap_sg_attrs",
    "dma_sync_single_for_cpu",
    "dma_sync_single_for_device",
    "dma_alloc_attrs",
    "dma_free_attrs",
    "dma_pool_create",
    "dma_pool_destroy",
    "dma_pool_alloc",
    "dma_pool_free",
    "ioremap",
    "iounmap",
    "devres_release_all",
    "dma_need_unmap",
    "kmalloc",
    "kfree",
    "dma_map_phys",
    "is_vmalloc_addr",
    "dev_driver_string",
    "memcpy",
    "alloc_page",
    "free_page",
];
const MAP: u64 = 0;
const UNMAP: u64 = 1;
const MAP_SG: u64 = 2;
const UNMAP_SG: u64 = 3;
const SYNC_CPU: u64 = 4;
const SYNC_DEVICE: u64 = 5;
const COHERENT: u64 = 6;
const FREE_COHERENT: u64 = 7;
const POOL: u64 = 8;
const DESTROY_POOL: u64 = 9;
const POOL_ALLOC: u64 = 10;
const POOL_FREE: u64 = 11;
const MAP_IO: u64 = 12;
const UNMAP_IO: u64 = 13;
const UNBIND: u64 = 14;
const NEED_UNMAP: u64 = 15;
const ALLOC: u64 = 16;
const FREE: u64 = 17;
const MAP_PHYS: u64 = 18;
const IS_VMALLOC: u64 = 19;
const DRIVER_STRING: u64 = 20;
const COPY: u64 = 21;
const PAGE_ALLOC: u64 = 22;
const PAGE_FREE: u64 = 23;
const HOOKED: u64 = 19;

const DEV: u64 = HEAP + 0x80_0000;
const OTHER: u64 = HEAP + 0x90_0000;
const PAGES: u64 = 0xffff_ea00_0000_0000;
const DIRECT: u64 = 0xffff_8880_0000_0000;
const BOTH: u64 = 0;
const TO: u64 = 1;
const FROM: u64 = 2;
/// The bus address where the device sees the direct map.
const BUS: u64 = 0x10_0000_0000;
/// Offset of the flag in `struct device`, where the test's kernel has it.
const SKIP: u64 = 0x2f4;

/// cmp rax, -1; je +0
const CHECK: &[u8] = &[0x48, 0x83, 0xf8, 0xff, 0x74, 0x00];
/// movzx eax, byte [rdi]
const READ1: &[u8] = &[0x0f, 0xb6, 0x07];

struct Dma {
    skips: bool,
}

fn effects(n: u64) -> Vec<Effect> {
    let (dev, len) = (0, Len::Arg(3));
    let alloc = |class, size| Effect::Alloc {
        class,
        size,
        zeroed: Zeroed::Yes,
        page: false,
        cache: None,
        realloc: None,
    };
    let free = |arg, class| Effect::Free { ptr: Ptr::Arg(arg), classes: vec![class], cache: None };
    let kind = MapKind::Single;
    match n {
        MAP => vec![Effect::Dma(DmaOp::Map {
            dev,
            ptr: Ptr::Page(1, Some(2)),
            physical: None,
            len,
            dir: 4,
            kind,
        })],
        MAP_PHYS => vec![Effect::Dma(DmaOp::Map {
            dev,
            ptr: Ptr::Arg(1),
            physical: Some(1),
            len: Len::Arg(2),
            dir: 3,
            kind,
        })],
        UNMAP => vec![Effect::Dma(DmaOp::Unmap { dev, addr: 1, len: Len::Arg(2), dir: 3, kind })],
        MAP_SG => vec![Effect::Dma(DmaOp::MapList { dev, list: 1, count: Some(2), dir: 3 })],
        UNMAP_SG => vec![Effect::Dma(DmaOp::UnmapList { dev, list: 1, count: Some(2), dir: 3 })],
        SYNC_CPU | SYNC_DEVICE => vec![Effect::Dma(DmaOp::SyncSingle {
            dev,
            addr: 1,
            offset: None,
            len: Len::Arg(2),
            dir: 3,
            for_cpu: n == SYNC_CPU,
        })],
        COHERENT => vec![
            alloc(Class::Dma, Len::Arg(1)),
            Effect::Dma(DmaOp::AllocCoherent { dev, size: 1, handle: 2 }),
        ],
        FREE_COHERENT => {
            vec![free(2, Class::Dma), Effect::Dma(DmaOp::FreeCoherent { dev, size: 1, cpu: 2, handle: 3 })]
        }
        POOL => vec![Effect::Dma(DmaOp::CreatePool { dev: 1, size: 2 })],
        DESTROY_POOL => vec![Effect::Dma(DmaOp::DestroyPool { pool: 0 })],
        POOL_ALLOC => {
            vec![alloc(Class::Dma, Len::Const(64)), Effect::Dma(DmaOp::PoolAlloc { pool: 0, handle: 2 })]
        }
        POOL_FREE => {
            vec![free(1, Class::Dma), Effect::Dma(DmaOp::PoolFree { pool: 0, cpu: 1, handle: 2 })]
        }
        MAP_IO => vec![Effect::Dma(DmaOp::MapIo)],
        UNMAP_IO => vec![Effect::Dma(DmaOp::UnmapIo { addr: 0 })],
        UNBIND => vec![Effect::Dma(DmaOp::Unbind { dev })],
        NEED_UNMAP => vec![Effect::Dma(DmaOp::NeedUnmap { dev })],
        ALLOC => vec![Effect::Alloc {
            class: Class::Slab,
            size: Len::Arg(0),
            zeroed: Zeroed::Gfp(1),
            page: false,
            cache: None,
            realloc: None,
        }],
        FREE => vec![free(0, Class::Slab)],
        PAGE_ALLOC => vec![alloc(Class::Page, Len::Const(4096))],
        PAGE_FREE => vec![free(0, Class::Page)],
        IS_VMALLOC => vec![Effect::Dma(DmaOp::AskVmalloc { addr: 0 })],
        DRIVER_STRING => vec![Effect::Dma(DmaOp::NameDriver)],
        COPY => vec![Effect::Copy { dst: Ptr::Arg(0), src: Ptr::Arg(1), len: Len::Arg(2) }],
        _ => Vec::new(),
    }
}

impl World for Dma {
    fn function_at(&self, at: u64) -> Option<(String, u64)> {
        let offset = at.wrapping_add(SLIDE).checked_sub(function(0))?;
        let name = FUNCTIONS.get((offset / 0x100) as usize)?;
        Some(((*name).to_owned(), offset % 0x100))
    }
    fn hook(&self, n: u64) -> Option<Arc<Summary>> {
        (n < HOOKED || n == PAGE_ALLOC || n == PAGE_FREE)
            .then(|| Arc::new(Summary { name: FUNCTIONS[n as usize].to_owned(), effects: effects(n) }))
    }
    fn hook_args(&self, _: u64) -> usize {
        6
    }
    fn hook_address(&self, n: u64) -> u64 {
        function(n) - SLIDE
    }
    fn call(&self, name: &str) -> Arc<Summary> {
        let n = FUNCTIONS.iter().position(|f| *f == name).unwrap_or(usize::MAX) as u64;
        Arc::new(Summary { name: name.to_owned(), effects: effects(n) })
    }
    fn module(&self, _: &str, _: &[Region], _: &[u64]) -> Option<ModuleMap> {
        let range = |start: u64, end: u64, name: &str| Range { start, end, name: name.into() };
        Some(ModuleMap { functions: vec![range(F, F + 0x1000, "f")], ..ModuleMap::default() })
    }
    fn dma_skip_sync(&self) -> Option<u64> {
        self.skips.then_some(SKIP)
    }
}

/// The guest, and the address of the next call or block of `f`.
struct Run {
    g: Guest,
    at: u64,
}

impl Run {
    fn new() -> Run {
        Run::with(false, "dmacheck")
    }

    fn with(skips: bool, tool: &str) -> Run {
        let mut g = Guest::with(Box::new(Dma { skips }), &[tool]);
        g.enter(F);
        Run { g, at: F }
    }

    /// The driver calls a function; a block follows.
    fn call(&mut self, n: u64, args: &[u64], result: u64) -> &mut Run {
        self.g.hooked(self.at, n, args, result);
        self.at += 5;
        self.block(&[0x90])
    }

    fn block(&mut self, bytes: &[u8]) -> &mut Run {
        self.g.block(self.at, bytes);
        self.at += bytes.len() as u64;
        self
    }

    fn read(&mut self, at: u64) -> &mut Run {
        self.block(READ4).g.load(0, at, 4);
        self
    }

    fn write(&mut self, at: u64) -> &mut Run {
        self.block(WRITE1).g.store(0, at, 1);
        self
    }

    /// Maps memory. Its bus address is `BUS` plus its offset in the direct map.
    fn map(&mut self, at: u64, size: u64, dir: u64) -> &mut Run {
        let page = PAGES + (at - DIRECT) / 4096 * 64;
        self.call(MAP, &[DEV, page, at & 4095, size, dir], bus(at)).block(CHECK)
    }

    fn unmap(&mut self, at: u64, size: u64, dir: u64) -> &mut Run {
        self.call(UNMAP, &[DEV, bus(at), size, dir], 0)
    }

    fn sync(&mut self, n: u64, at: u64, size: u64, dir: u64) -> &mut Run {
        self.call(n, &[DEV, bus(at), size, dir], 0)
    }

    fn map_list(&mut self, list: u64, entries: &[(u64, u64)], dir: u64) -> &mut Run {
        let args = [DEV, list, entries.len() as u64, dir];
        self.g.call(self.at, MAP_SG, [args[0], args[1], args[2], args[3], 0, 0]);
        let rsp = self.g.rsp;
        self.g.hook(MAP_SG, rsp, self.at + 5, &args);
        self.g.hook_return(MAP_SG, rsp, entries.len() as u64);
        self.g.list(MAP_SG, rsp, &words(entries));
        self.g.back(entries.len() as u64);
        self.at += 5;
        self.block(&[0x90])
    }

    fn unmap_list(&mut self, list: u64, count: u64, entries: &[(u64, u64)], dir: u64) -> &mut Run {
        let args = [DEV, list, count, dir];
        self.g.call(self.at, UNMAP_SG, [args[0], args[1], args[2], args[3], 0, 0]);
        let rsp = self.g.rsp;
        self.g.hook(UNMAP_SG, rsp, self.at + 5, &args);
        self.g.list(UNMAP_SG, rsp, &words(entries));
        self.g.hook_return(UNMAP_SG, rsp, 0);
        self.g.back(0);
        self.at += 5;
        self.block(&[0x90])
    }

    /// Ends the run; returns each finding as `kind: message`.
    fn found(mut self) -> Vec<String> {
        self.g.unload();
        self.g.finish().findings.iter().map(|f| format!("{}: {}", f.kind, f.message)).collect()
    }
}

fn bus(at: u64) -> u64 {
    at - DIRECT + BUS
}

fn words(entries: &[(u64, u64)]) -> Vec<u64> {
    let word =
        |&(at, len): &(u64, u64)| [PAGES + (at - DIRECT) / 4096 * 64 + 2, at & 4095, len, bus(at), len];
    entries.iter().flat_map(word).collect()
}

const NONE: [&str; 0] = [];

#[test]
fn a_buffer_that_is_mapped_used_and_unmapped_in_order_is_silent() {
    let mut r = Run::new();
    r.write(HEAP).map(HEAP, 100, TO).read(HEAP).write(HEAP + 100).unmap(HEAP, 100, TO).write(HEAP);
    r.map(HEAP, 100, FROM).unmap(HEAP, 100, FROM).read(HEAP);
    assert_eq!(r.found(), NONE);
}

#[test]
fn a_write_to_what_the_device_reads_is_a_race() {
    let mut r = Run::new();
    r.map(HEAP, 100, TO).write(HEAP + 99).unmap(HEAP, 100, TO);
    assert_eq!(
        r.found(),
        [
            "dma-race: write of 1 byte at offset 99 of a 100-byte buffer mapped DMA_TO_DEVICE, which the device may be reading"
        ]
    );
}

#[test]
fn a_mapping_that_the_driver_goes_on_using_is_told_a_few_times() {
    let mut r = Run::new();
    r.map(HEAP, 100, TO);
    for _ in 0..20 {
        r.write(HEAP);
    }
    let report = r.g.finish();
    assert_eq!(report.findings.iter().map(|f| f.count).collect::<Vec<_>>(), [1, 1, 1, 17]);
    assert_eq!(report.findings[3].notes.len(), 1);
}

#[test]
fn places_that_are_taken_back_hide_none() {
    let mut r = Run::new();
    r.map(HEAP, 100, TO);
    for _ in 0..10 {
        r.write(HEAP);
    }
    r.sync(SYNC_DEVICE, HEAP, 100, TO).write(HEAP + 7);
    let found = r.found();
    assert_eq!(found.iter().filter(|f| f.starts_with("dma-race")).count(), 1, "{found:?}");
    assert!(found[0].contains("at offset 7 of"), "{found:?}");
}

#[test]
fn a_copy_by_the_kernel_is_the_drivers_write() {
    let mut r = Run::new();
    r.map(HEAP, 100, BOTH);
    r.g.called(r.at, COPY, [HEAP + 90, HEAP + 0x1000, 20, 0, 0, 0]);
    r.at += 5;
    r.block(&[0x90]).unmap(HEAP, 100, BOTH);
    assert_eq!(
        r.found(),
        [
            "dma-race: write of 20 bytes at offset 90 of a 100-byte buffer mapped DMA_BIDIRECTIONAL, which the device may be reading and writing"
        ]
    );
}

#[test]
fn a_read_before_the_unmapping_sees_what_was_there_before() {
    let mut r = Run::new();
    r.map(HEAP, 100, FROM).read(HEAP + 4).write(HEAP).unmap(HEAP, 100, FROM);
    assert_eq!(
        r.found(),
        [
            "dma-direction: read of 4 bytes at offset 4 of a 100-byte buffer mapped DMA_FROM_DEVICE, which the device may be writing",
            "dma-race: write of 1 byte at offset 0 of a 100-byte buffer mapped DMA_FROM_DEVICE, which the device may be writing",
        ]
    );
}

#[test]
fn a_synchronized_part_is_the_cpus_until_it_is_given_back() {
    let mut r = Run::new();
    r.map(HEAP, 4096, FROM).sync(SYNC_CPU, HEAP, 60, FROM).read(HEAP + 56);
    r.sync(SYNC_DEVICE, HEAP, 60, FROM).unmap(HEAP, 4096, FROM);
    assert_eq!(r.found(), NONE);
    let mut r = Run::new();
    r.map(HEAP, 4096, FROM).sync(SYNC_CPU, HEAP, 60, FROM).read(HEAP + 60);
    r.sync(SYNC_DEVICE, HEAP, 60, FROM).read(HEAP).unmap(HEAP, 4096, FROM);
    assert_eq!(r.found().len(), 2);
}

#[test]
fn what_is_handed_over_behind_the_write_was_no_race() {
    for (size, count) in [(8, 0), (2, 1)] {
        let mut r = Run::new();
        r.map(HEAP, 100, BOTH).write(HEAP + 4).sync(SYNC_DEVICE, HEAP, size, BOTH).unmap(HEAP, 100, BOTH);
        assert_eq!(r.found().len(), count);
    }
    // or byte [rdi], 1: it writes what it has read.
    let mut r = Run::new();
    r.map(HEAP, 100, BOTH).block(&[0x80, 0x0f, 0x01]).g.load(0, HEAP, 1).store(0, HEAP, 1);
    r.sync(SYNC_DEVICE, HEAP, 8, BOTH).unmap(HEAP, 100, BOTH);
    assert_eq!(r.found(), NONE);
}

#[test]
fn a_look_at_the_devices_flag_may_be_a_synchronization() {
    let mut r = Run::with(true, "dmacheck");
    r.map(HEAP, 100, FROM).block(READ1).g.load(0, DEV + SKIP, 1);
    r.read(HEAP).unmap(HEAP, 100, FROM);
    assert_eq!(r.found(), NONE);
    // A call that follows says exactly what is synchronized.
    let mut r = Run::with(true, "dmacheck");
    r.map(HEAP, 100, FROM).block(READ1).g.load(0, DEV + SKIP, 1);
    r.sync(SYNC_CPU, HEAP, 40, FROM).read(HEAP).read(HEAP + 40).unmap(HEAP, 100, FROM);
    assert_eq!(r.found().len(), 1);
}

#[test]
fn a_mapping_that_stays_is_a_leak() {
    let mut r = Run::new();
    r.map(HEAP, 100, FROM);
    assert_eq!(
        r.found(),
        ["dma-leak: a 100-byte buffer mapped DMA_FROM_DEVICE still mapped when the module was unloaded"]
    );
    let mut r = Run::new();
    r.map(HEAP, 100, FROM).call(UNBIND, &[DEV], 0).unmap(HEAP + 0x1000, 1, TO);
    assert_eq!(
        r.found(),
        [
            "dma-leak: a 100-byte buffer mapped DMA_FROM_DEVICE still mapped when the driver had left the device"
        ]
    );
}

#[test]
fn a_device_that_needs_no_unmapping_leaks_nothing() {
    let mut r = Run::new();
    r.map(HEAP, 100, FROM).call(NEED_UNMAP, &[DEV], 0xff00).map(HEAP, 100, FROM).unmap(HEAP + 0x2000, 1, TO);
    assert_eq!(r.found(), NONE);
}

#[test]
fn a_second_mapping_of_what_is_mapped() {
    let mut r = Run::new();
    r.map(HEAP, 100, FROM).map(HEAP, 100, FROM).unmap(HEAP, 100, FROM).unmap(HEAP, 100, FROM);
    assert_eq!(
        r.found(),
        [
            "dma-repeated-map: a 100-byte buffer mapped DMA_FROM_DEVICE that is mapped already, DMA_FROM_DEVICE"
        ]
    );
    // The same data may be sent twice.
    let mut r = Run::new();
    r.map(HEAP, 100, TO).map(HEAP, 100, TO).unmap(HEAP, 100, TO).unmap(HEAP, 100, TO);
    assert_eq!(r.found(), NONE);
}

#[test]
fn mappings_must_not_overlap_where_the_device_writes() {
    let mut r = Run::new();
    r.map(HEAP, 100, TO).map(HEAP + 90, 100, FROM).unmap(HEAP, 100, TO).unmap(HEAP + 90, 100, FROM);
    assert_eq!(
        r.found(),
        [
            "dma-overlap: a 100-byte buffer mapped DMA_FROM_DEVICE over 10 bytes of a 100-byte buffer mapped DMA_TO_DEVICE"
        ]
    );
}

#[test]
fn neighbors_in_one_object_must_not_share_a_line() {
    for (second, count) in [(40, 1), (64, 0)] {
        let mut r = Run::new();
        r.call(ALLOC, &[256, GFP_ZERO], HEAP).map(HEAP, 32, TO).map(HEAP + second, 32, FROM);
        r.unmap(HEAP, 32, TO).unmap(HEAP + second, 32, FROM).call(FREE, &[HEAP], 0);
        assert_eq!(r.found().len(), count);
    }
}

#[test]
fn an_unmapping_for_which_there_is_no_mapping() {
    let mut r = Run::new();
    r.map(HEAP, 100, TO).unmap(HEAP, 100, TO).unmap(HEAP, 100, TO).unmap(HEAP + 0x5000, 7, TO);
    assert_eq!(
        r.found(),
        [
            "dma-repeated-unmap: unmap of a buffer that has been unmapped already",
            "dma-repeated-unmap: unmap of a bus address that is not mapped",
        ]
    );
}

#[test]
fn an_unmapping_must_be_as_the_mapping_was() {
    for (dev, at, size, dir, what) in [
        (DEV, HEAP, 99, TO, "a 100-byte buffer mapped DMA_TO_DEVICE unmapped with the size 99"),
        (DEV, HEAP, 100, FROM, "a 100-byte buffer mapped DMA_TO_DEVICE unmapped as DMA_FROM_DEVICE"),
        (
            OTHER,
            HEAP,
            100,
            TO,
            "a 100-byte buffer mapped DMA_TO_DEVICE for another device than this unmap names",
        ),
        (DEV, HEAP + 4, 100, TO, "unmap at offset 4 of a 100-byte buffer mapped DMA_TO_DEVICE"),
    ] {
        let mut r = Run::new();
        r.map(HEAP, 100, TO).call(UNMAP, &[dev, bus(at), size, dir], 0);
        assert_eq!(r.found(), [format!("dma-unmap-mismatch: {what}")]);
    }
}

#[test]
fn lists_are_mapped_and_unmapped_as_a_whole() {
    let entries = [(HEAP, 4096), (HEAP + 0x3000, 512)];
    let list = HEAP + 0x10_0000;
    let mut r = Run::new();
    r.map_list(list, &entries, FROM).unmap_list(list, 2, &entries, FROM).read(HEAP);
    // A copy of the list works as well.
    r.map_list(list, &entries, FROM).unmap_list(list + 0x100, 2, &entries, FROM).read(HEAP + 0x3000);
    assert_eq!(r.found(), NONE);
    let mut r = Run::new();
    r.map_list(list, &entries, FROM).read(HEAP + 0x3000).unmap_list(list, 1, &entries, FROM);
    r.unmap_list(list, 2, &entries, FROM);
    assert_eq!(
        r.found(),
        [
            "dma-direction: read of 4 bytes at offset 0 of a list of 2 entries mapped DMA_FROM_DEVICE, which the device may be writing",
            "dma-unmap-mismatch: a list of 2 entries mapped DMA_FROM_DEVICE unmapped with 1 entries",
            "dma-repeated-unmap: unmap of a buffer that has been unmapped already",
        ]
    );
    let mut r = Run::new();
    r.map_list(list, &entries, TO).unmap(HEAP, 4096, TO);
    assert_eq!(
        r.found(),
        [
            "dma-unmap-mismatch: dma_unmap_single or dma_unmap_page of a list of 2 entries mapped DMA_TO_DEVICE"
        ]
    );
}

#[test]
fn a_list_that_is_mapped_twice_and_unmapped_twice_is_one_fault() {
    let entries = [(HEAP, 4096)];
    let list = HEAP + 0x10_0000;
    let mut r = Run::new();
    r.map_list(list, &entries, FROM).map_list(list, &entries, FROM);
    r.unmap_list(list, 1, &entries, FROM).unmap_list(list, 1, &entries, FROM).read(HEAP);
    assert_eq!(r.found(), ["dma-repeated-map: a list mapped DMA_FROM_DEVICE that is mapped already"]);
}

#[test]
fn synchronization_needs_a_mapping_its_range_and_its_direction() {
    let mut r = Run::new();
    r.map(HEAP, 100, FROM).sync(SYNC_CPU, HEAP, 100, TO).sync(SYNC_CPU, HEAP + 90, 20, FROM);
    r.sync(SYNC_CPU, HEAP + 0x1000, 10, FROM).unmap(HEAP, 100, FROM).sync(SYNC_CPU, HEAP, 100, FROM);
    assert_eq!(
        r.found(),
        [
            "dma-direction: a 100-byte buffer mapped DMA_FROM_DEVICE synchronized for the CPU as DMA_TO_DEVICE",
            "dma-sync-range: 20 bytes synchronized at offset 90, beyond the end of a 100-byte buffer mapped DMA_FROM_DEVICE",
            "dma-sync-unmapped: synchronization of a bus address that is not mapped",
            "dma-sync-unmapped: synchronization of a buffer that has been unmapped",
        ]
    );
}

#[test]
fn a_result_that_is_not_compared_is_unchecked() {
    let page = PAGES + (HEAP - DIRECT) / 4096 * 64;
    for (check, wanted) in [(true, 0), (false, 1)] {
        let mut r = Run::new();
        r.call(MAP, &[DEV, page, 0, 64, TO], bus(HEAP));
        if check {
            r.block(CHECK);
        }
        r.unmap(HEAP, 64, TO);
        // ret
        r.block(&[0xc3]).g.load(0, STACK, 8);
        r.g.send(0);
        r.g.rsp = STACK;
        r.g.enter(F);
        let found = r.found();
        assert_eq!(found.len(), wanted, "{found:?}");
        assert!(found.iter().all(|f| f.starts_with("dma-unchecked: the bus address of a 64-byte buffer")));
    }
}

#[test]
fn what_failed_is_not_mapped() {
    let page = PAGES + (HEAP - DIRECT) / 4096 * 64;
    let mut r = Run::new();
    r.call(MAP, &[DEV, page, 0, 64, TO], u64::MAX).block(CHECK).write(HEAP);
    r.call(UNMAP, &[DEV, u64::MAX, 64, TO], 0);
    assert_eq!(r.found(), ["dma-unchecked: a failed mapping (DMA_MAPPING_ERROR) is unmapped"]);
}

#[test]
fn buffers_that_no_device_may_have() {
    let page = |at: u64| PAGES.wrapping_add(at.wrapping_sub(DIRECT) / 4096 * 64);
    for (at, what) in [
        (0x7fff_0000_1000, "user memory"),
        (VMALLOC, "vmalloc memory"),
        (STACK - 0x100, "a buffer on the stack"),
        (MODULE + 0x2000, "memory of the module drv"),
    ] {
        let mut r = Run::new();
        r.g.called(r.at, IS_VMALLOC, [at, 0, 0, 0, 0, 0]);
        r.at += 5;
        r.block(&[0x90]).call(MAP, &[DEV, page(at), at & 4095, 64, TO], BUS).block(CHECK);
        r.call(UNMAP, &[DEV, BUS, 64, TO], 0);
        assert_eq!(r.found(), [format!("dma-bad-buffer: {what} mapped DMA_TO_DEVICE for a device")]);
    }
    // A buffer that `dma_map_single` refuses is never mapped.
    let mut r = Run::new();
    for (n, value) in [(IS_VMALLOC, STACK - 0x100), (DRIVER_STRING, DEV)] {
        r.g.called(r.at, n, [value, 0, 0, 0, 0, 0]);
        r.at += 5;
        r.block(&[0x90]);
    }
    assert_eq!(
        r.found(),
        ["dma-bad-buffer: a buffer on the stack given to dma_map_single, which refuses it"]
    );
    let mut r = Run::new();
    r.call(ALLOC, &[64, GFP_ZERO], HEAP).call(FREE, &[HEAP], 0).map(HEAP, 64, TO).unmap(HEAP, 64, TO);
    assert_eq!(
        r.found(),
        ["dma-bad-buffer: freed memory, a 64-byte slab object mapped DMA_TO_DEVICE for a device"]
    );
}

#[test]
fn memory_must_not_be_freed_while_a_device_has_it() {
    let mut r = Run::new();
    r.call(ALLOC, &[100, GFP_ZERO], HEAP)
        .map(HEAP, 100, FROM)
        .call(FREE, &[HEAP], 0)
        .read(HEAP)
        .unmap(HEAP, 100, FROM);
    assert_eq!(
        r.found(),
        [
            "dma-freed-while-mapped: memory freed that the device may be writing: a 100-byte buffer mapped DMA_FROM_DEVICE"
        ]
    );
    let mut r = Run::new();
    r.call(ALLOC, &[100, GFP_ZERO], HEAP).map(HEAP, 100, FROM).unmap(HEAP, 100, FROM).call(FREE, &[HEAP], 0);
    assert_eq!(r.found(), NONE);
}

#[test]
fn functions_that_map_call_each_other() {
    let page = PAGES + (HEAP - DIRECT) / 4096 * 64;
    let mut r = Run::new();
    r.g.call(r.at, MAP, [DEV, page, 0, 64, TO, 0]);
    let rsp = r.g.rsp;
    r.g.hook(MAP, rsp, r.at + 5, &[DEV, page, 0, 64, TO]);
    // A tail call: it has the same stack, and the same return ends it.
    r.g.hook(MAP_PHYS, rsp, r.at + 5, &[DEV, HEAP - DIRECT, 64, TO]);
    r.g.hook_return(MAP_PHYS, rsp, bus(HEAP));
    r.g.hook_return(MAP, rsp, bus(HEAP));
    r.g.back(bus(HEAP));
    r.at += 5;
    r.block(CHECK).unmap(HEAP, 64, TO).write(HEAP);
    assert_eq!(r.found(), NONE);
}

#[test]
fn an_interrupt_unmaps_while_the_interrupted_code_does() {
    let other = HEAP + 4096;
    let mut r = Run::new();
    r.call(ALLOC, &[64, GFP_ZERO], other).map(HEAP, 64, TO).map(other, 64, TO);
    r.g.call(r.at, UNMAP, [DEV, bus(HEAP), 64, TO, 0, 0]);
    let rsp = r.g.rsp;
    r.g.hook(UNMAP, rsp, r.at + 5, &[DEV, bus(HEAP), 64, TO]);
    // The handler runs on the same stack, a little deeper.
    r.g.enter_as(0, TASK, rsp - 0x100, 0x1_0000, false);
    r.at += 5;
    r.unmap(other, 64, TO).call(FREE, &[other], 0);
    assert_eq!(r.found(), NONE);
}

#[test]
fn a_call_within_one_that_was_interrupted_is_part_of_it() {
    let mut r = Run::new();
    r.map(HEAP, 64, TO);
    r.g.call(r.at, UNMAP, [DEV, bus(HEAP), 64, TO, 0, 0]);
    let rsp = r.g.rsp;
    r.g.hook(UNMAP, rsp, r.at + 5, &[DEV, bus(HEAP), 64, TO]);
    // The driver's handler ran and is over. Only the next block of the driver shows whose call continues.
    r.g.enter_as(0, TASK, rsp - 0x100, 0x1_0000, false);
    r.at += 5;
    r.block(&[0xc3]).g.load(0, rsp - 0x100, 8);
    r.g.send(0);
    r.g.hook(UNMAP, rsp - 0x20, function(CALLER), &[DEV, bus(HEAP), 64, TO]);
    r.g.hook_return(UNMAP, rsp - 0x20, 0);
    r.g.hook_return(UNMAP, rsp, 0);
    assert_eq!(r.found(), NONE);
}

#[test]
fn a_function_that_tells_no_return_has_mapped_all_the_same() {
    let page = PAGES + (HEAP - DIRECT) / 4096 * 64;
    let mut r = Run::new();
    r.g.call(r.at, MAP, [DEV, page, 0, 64, TO, 0]);
    let rsp = r.g.rsp;
    r.g.hook(MAP, rsp, r.at + 5, &[DEV, page, 0, 64, TO]);
    r.g.back(bus(HEAP));
    r.at += 5;
    r.block(CHECK).write(HEAP).unmap(HEAP, 64, TO);
    assert_eq!(r.found().len(), 1);
}

#[test]
fn a_call_that_tells_no_return_hides_none_at_the_same_depth() {
    let mut r = Run::new();
    r.call(COHERENT, &[DEV, 4096, 0], HEAP).call(POOL, &[0, DEV, 64], HEAP + 0x20_0000);
    // The kernel makes both calls, one after the other.
    for (n, args, at) in
        [(DESTROY_POOL, [HEAP + 0x20_0000, 0, 0, 0], 9), (FREE_COHERENT, [DEV, 4096, HEAP, BUS], 50)]
    {
        r.g.hook(n, STACK - 0x4_0000, function(CALLER) + at, &args);
    }
    r.call(UNBIND, &[DEV], 0);
    assert_eq!(r.found(), NONE);
}

#[test]
fn a_page_that_only_the_kernel_had_may_be_the_drivers_by_now() {
    for by_driver in [false, true] {
        let mut r = Run::with(false, "dmcheck");
        let rsp = STACK - 0x4_0000;
        r.g.hook(PAGE_ALLOC, rsp, function(CALLER) + 9, &[]);
        r.g.hook_return(PAGE_ALLOC, rsp, HEAP);
        if by_driver {
            r.call(PAGE_FREE, &[HEAP], 0);
        } else {
            r.g.hook(PAGE_FREE, rsp, function(CALLER) + 9, &[HEAP]);
            r.g.enter(F);
        }
        r.read(HEAP);
        assert_eq!(r.found().len(), usize::from(by_driver));
    }
}

#[test]
fn a_free_that_tells_no_return_hides_no_later_one() {
    let pool = HEAP + 0x20_0000;
    let mut r = Run::new();
    r.call(COHERENT, &[DEV, 4096, 0], HEAP).call(POOL, &[0, DEV, 64], pool);
    r.call(POOL_ALLOC, &[pool, 0, 0], HEAP + 0x4000);
    // The kernel makes both calls; the second one is somewhat deeper on the stack.
    r.g.hook(FREE_COHERENT, STACK - 0x4_0000, function(CALLER) + 9, &[DEV, 4096, HEAP, BUS]);
    r.g.hook(POOL_FREE, STACK - 0x4_0040, function(CALLER) + 50, &[pool, HEAP + 0x4000, BUS]);
    r.call(DESTROY_POOL, &[pool], 0).call(UNBIND, &[DEV], 0);
    assert_eq!(r.found(), NONE);
}

#[test]
fn coherent_memory_and_pools_end_as_they_began() {
    let pool = HEAP + 0x20_0000;
    let mut r = Run::new();
    r.call(COHERENT, &[DEV, 4096, 0], HEAP).write(HEAP).call(FREE_COHERENT, &[DEV, 4096, HEAP, BUS], 0);
    r.call(POOL, &[0, DEV, 64], pool).call(POOL_ALLOC, &[pool, 0, 0], HEAP + 0x4000);
    r.call(POOL_FREE, &[pool, HEAP + 0x4000, BUS], 0).call(DESTROY_POOL, &[pool], 0);
    r.call(MAP_IO, &[0xfebc_0000, 4096], MMIO).call(UNMAP_IO, &[MMIO], 0).call(UNBIND, &[DEV], 0);
    assert_eq!(r.found(), NONE);
    let mut r = Run::new();
    r.call(COHERENT, &[DEV, 4096, 0], HEAP).call(FREE_COHERENT, &[DEV, 2048, HEAP, BUS], 0).read(HEAP + 8);
    r.call(POOL, &[0, DEV, 64], pool).call(POOL_ALLOC, &[pool, 0, 0], HEAP + 0x4000);
    r.call(DESTROY_POOL, &[pool], 0);
    r.call(COHERENT, &[DEV, 8192, 0], HEAP + 0x8000).call(POOL, &[0, DEV, 32], pool + 64).call(
        UNBIND,
        &[DEV],
        0,
    );
    r.call(MAP_IO, &[0xfebc_0000, 4096], MMIO);
    assert_eq!(
        r.found(),
        [
            "dma-unmap-mismatch: 4096 bytes of coherent memory freed with the size 2048",
            "dma-use-after-free: read of 4 bytes at offset 8 of 4096 bytes of DMA memory that was freed",
            "dma-leak: a DMA pool destroyed while 1 block of 64 bytes is not freed",
            "dma-leak: a DMA pool for blocks of 32 bytes not destroyed when the driver had left the device",
            "dma-leak: 8192 bytes of coherent memory not freed when the driver had left the device",
            "dma-leak: device registers still mapped when the module was unloaded",
        ]
    );
}

#[test]
fn alignment_is_judged_where_a_line_is_named() {
    for (tool, at, size, count) in [
        ("dmacheck", HEAP + 2, 60, 0),
        ("dmacheck:line=64", HEAP + 2, 64, 1),
        ("dmacheck:line=64", HEAP, 60, 1),
        ("dmacheck:line=32", HEAP + 32, 64, 0),
    ] {
        let mut r = Run::with(false, tool);
        r.map(at, size, FROM).unmap(at, size, FROM);
        assert_eq!(r.found().len(), count, "{tool} {size}");
    }
}
