//! Mappings are made, synchronized and taken back.

use super::run::*;

#[test]
fn a_mapping_that_stays_is_a_leak() {
    let mut r = Run::new();
    r.map(HEAP, 100, FROM);
    assert_eq!(
        r.found(),
        ["dma-leak: a 100-byte buffer mapped DMA_FROM_DEVICE still mapped when the module was unloaded"]
    );
    let mut r = Run::new();
    r.map(HEAP, 100, FROM).call("devres_release_all", &[DEV], 0).unmap(HEAP + 0x1000, 1, TO);
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
    r.map(HEAP, 100, FROM).call("dma_need_unmap", &[DEV], 0xff00).map(HEAP, 100, FROM).unmap(
        HEAP + 0x2000,
        1,
        TO,
    );
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
        r.call("kmalloc", &[256, GFP_ZERO], HEAP).map(HEAP, 32, TO).map(HEAP + second, 32, FROM);
        r.unmap(HEAP, 32, TO).unmap(HEAP + second, 32, FROM).call("kfree", &[HEAP], 0);
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
    for (check, wanted) in [(true, 0), (false, 1)] {
        let mut r = Run::new();
        r.call(MAP, &[DEV, page(HEAP), 0, 64, TO], bus(HEAP));
        if check {
            r.block(CHECK);
        }
        r.unmap(HEAP, 64, TO);
        // ret
        r.block(&[0xc3]).g.load(0, STACK, 8);
        r.g.send(0);
        r.g.rsp = STACK;
        r.g.enter();
        let found = r.found();
        assert_eq!(found.len(), wanted, "{found:?}");
        assert!(found.iter().all(|f| f.starts_with("dma-unchecked: the bus address of a 64-byte buffer")));
    }
}

#[test]
fn an_interrupt_on_a_drivers_own_stack_does_not_hide_the_comparison() {
    let mut r = Run::new();
    let own = 0xffff_8880_0500_3f00;
    r.g.enter_as(0, TASK, own, 0, true);
    // From here on the stack is a context of its own.
    r.called("active_await", &[]);
    let rsp = r.begin(MAP, &[DEV, page(HEAP), 0, 64, TO]);
    let handler = |r: &mut Run, stack: u64| {
        r.g.enter_as(0, TASK, stack, 0x1_0000, false);
        r.block(&[0xc3]).g.load(0, stack, 8);
        r.g.send(0);
    };
    // A handler runs on the stack that it finds, and later one on the stack of interrupts.
    handler(&mut r, own - 0x800);
    r.g.hook_return(MAP, rsp, bus(HEAP));
    r.g.goes_on(rsp, 0);
    r.g.back(bus(HEAP));
    r.block(CHECK);
    handler(&mut r, STACK + 0x90_0000);
    r.g.goes_on(rsp, 0);
    r.g.back(0);
    r.block(&[0x90]).unmap(HEAP, 64, TO);
    assert_eq!(r.found(), NONE);
}

#[test]
fn what_failed_is_not_mapped() {
    let mut r = Run::new();
    r.call(MAP, &[DEV, page(HEAP), 0, 64, TO], u64::MAX).block(CHECK).write(HEAP);
    r.call(UNMAP, &[DEV, u64::MAX, 64, TO], 0);
    assert_eq!(r.found(), ["dma-unchecked: a failed mapping (DMA_MAPPING_ERROR) is unmapped"]);
}

#[test]
fn buffers_that_no_device_may_have() {
    for (at, what) in [
        (0x7fff_0000_1000, "user memory"),
        (VMALLOC, "vmalloc memory"),
        (STACK - 0x100, "a buffer on the stack"),
        (MODULE + 0x2000, "memory of the module drv"),
    ] {
        let mut r = Run::new();
        r.called("is_vmalloc_addr", &[at]).call(MAP, &[DEV, page(at), at & 4095, 64, TO], BUS).block(CHECK);
        r.call(UNMAP, &[DEV, BUS, 64, TO], 0);
        assert_eq!(r.found(), [format!("dma-bad-buffer: {what} mapped DMA_TO_DEVICE for a device")]);
    }
    // A buffer that `dma_map_single` refuses is never mapped.
    let mut r = Run::new();
    for (n, value) in [("is_vmalloc_addr", STACK - 0x100), ("dev_driver_string", DEV)] {
        r.called(n, &[value]);
    }
    assert_eq!(
        r.found(),
        ["dma-bad-buffer: a buffer on the stack given to dma_map_single, which refuses it"]
    );
    let mut r = Run::new();
    r.call("kmalloc", &[64, GFP_ZERO], HEAP).call("kfree", &[HEAP], 0).map(HEAP, 64, TO).unmap(HEAP, 64, TO);
    assert_eq!(
        r.found(),
        ["dma-bad-buffer: freed memory, a 64-byte slab object mapped DMA_TO_DEVICE for a device"]
    );
}

#[test]
fn memory_must_not_be_freed_while_a_device_has_it() {
    let mut r = Run::new();
    r.call("kmalloc", &[100, GFP_ZERO], HEAP)
        .map(HEAP, 100, FROM)
        .call("kfree", &[HEAP], 0)
        .read(HEAP)
        .unmap(HEAP, 100, FROM);
    assert_eq!(
        r.found(),
        [
            "dma-freed-while-mapped: memory freed that the device may be writing: a 100-byte buffer mapped DMA_FROM_DEVICE"
        ]
    );
    let mut r = Run::new();
    r.call("kmalloc", &[100, GFP_ZERO], HEAP).map(HEAP, 100, FROM).unmap(HEAP, 100, FROM).call(
        "kfree",
        &[HEAP],
        0,
    );
    assert_eq!(r.found(), NONE);
}

#[test]
fn alignment_is_judged_where_a_line_is_named() {
    for (tool, at, size, count) in [
        ("dmacheck", HEAP + 2, 60, 0),
        ("dmacheck:line=64", HEAP + 2, 64, 1),
        ("dmacheck:line=64", HEAP, 60, 1),
        ("dmacheck:line=32", HEAP + 32, 64, 0),
    ] {
        let mut r = Run::with(&[tool]);
        r.map(at, size, FROM).unmap(at, size, FROM);
        assert_eq!(r.found().len(), count, "{tool} {size}");
    }
}
