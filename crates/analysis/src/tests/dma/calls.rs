//! Functions that map call each other and are interrupted; coherent memory and pools.

use super::run::*;

#[test]
fn functions_that_map_call_each_other() {
    let mut r = Run::new();
    let rsp = r.begin(MAP, &[DEV, page(HEAP), 0, 64, TO]);
    // A tail call: it has the same stack, and the same return ends it.
    r.g.hook("dma_map_phys", rsp, r.at, &[DEV, HEAP - DIRECT, 64, TO]);
    r.g.hook_return("dma_map_phys", rsp, bus(HEAP));
    r.g.hook_return(MAP, rsp, bus(HEAP));
    r.g.back(bus(HEAP));
    r.block(CHECK).unmap(HEAP, 64, TO).write(HEAP);
    assert_eq!(r.found(), NONE);
}

#[test]
fn an_interrupt_unmaps_while_the_interrupted_code_does() {
    let other = HEAP + 4096;
    let mut r = Run::new();
    r.call("kmalloc", &[64, GFP_ZERO], other).map(HEAP, 64, TO).map(other, 64, TO);
    let rsp = r.begin(UNMAP, &[DEV, bus(HEAP), 64, TO]);
    // The handler runs on the same stack, a little deeper.
    r.g.enter_as(0, TASK, rsp - 0x100, 0x1_0000, false);
    r.unmap(other, 64, TO).call("kfree", &[other], 0);
    assert_eq!(r.found(), NONE);
}

#[test]
fn a_call_within_one_that_was_interrupted_is_part_of_it() {
    let mut r = Run::new();
    r.map(HEAP, 64, TO);
    let rsp = r.begin(UNMAP, &[DEV, bus(HEAP), 64, TO]);
    // The driver's handler ran and is over. Only the next block of the driver shows whose call continues.
    r.g.enter_as(0, TASK, rsp - 0x100, 0x1_0000, false);
    r.block(&[0xc3]).g.load(0, rsp - 0x100, 8);
    r.g.send(0);
    r.g.hook(UNMAP, rsp - 0x20, r.g.function("caller"), &[DEV, bus(HEAP), 64, TO]);
    r.g.hook_return(UNMAP, rsp - 0x20, 0);
    r.g.hook_return(UNMAP, rsp, 0);
    assert_eq!(r.found(), NONE);
}

#[test]
fn a_function_whose_return_is_not_seen_has_mapped_all_the_same() {
    let mut r = Run::new();
    r.begin(MAP, &[DEV, page(HEAP), 0, 64, TO]);
    r.g.back(bus(HEAP));
    r.block(CHECK).write(HEAP).unmap(HEAP, 64, TO);
    assert_eq!(r.found().len(), 1);
}

#[test]
fn a_call_whose_return_is_not_seen_hides_none_at_the_same_depth() {
    let mut r = Run::new();
    r.call("dma_alloc_attrs", &[DEV, 4096, 0], HEAP).call("dma_pool_create", &[0, DEV, 64], HEAP + 0x20_0000);
    // The kernel makes both calls, one after the other.
    for (n, args, at) in
        [("dma_pool_destroy", [HEAP + 0x20_0000, 0, 0, 0], 9), ("dma_free_attrs", [DEV, 4096, HEAP, BUS], 50)]
    {
        r.g.hook(n, KERNEL_STACK, r.g.function("caller") + at, &args);
    }
    r.call("devres_release_all", &[DEV], 0);
    assert_eq!(r.found(), NONE);
}

#[test]
fn a_page_that_only_the_kernel_had_may_be_the_drivers_by_now() {
    for by_driver in [false, true] {
        let mut r = Run::with(&["dmcheck"]);
        r.g.by_kernel("alloc_page", &[], HEAP);
        if by_driver {
            r.call("free_page", &[HEAP], 0);
        } else {
            r.g.begun_by_kernel("free_page", &[HEAP]);
            r.g.enter();
        }
        r.read(HEAP);
        assert_eq!(r.found().len(), usize::from(by_driver));
    }
}

#[test]
fn a_free_whose_return_is_not_seen_hides_no_later_one() {
    let pool = HEAP + 0x20_0000;
    let mut r = Run::new();
    r.call("dma_alloc_attrs", &[DEV, 4096, 0], HEAP).call("dma_pool_create", &[0, DEV, 64], pool);
    r.call("dma_pool_alloc", &[pool, 0, 0], HEAP + 0x4000);
    // The kernel makes both calls; the second one is somewhat deeper on the stack.
    r.g.hook("dma_free_attrs", KERNEL_STACK, r.g.function("caller") + 9, &[DEV, 4096, HEAP, BUS]);
    r.g.hook("dma_pool_free", KERNEL_STACK - 0x40, r.g.function("caller") + 50, &[pool, HEAP + 0x4000, BUS]);
    r.call("dma_pool_destroy", &[pool], 0).call("devres_release_all", &[DEV], 0);
    assert_eq!(r.found(), NONE);
}

#[test]
fn coherent_memory_and_pools_end_as_they_began() {
    let pool = HEAP + 0x20_0000;
    let mut r = Run::new();
    r.call("dma_alloc_attrs", &[DEV, 4096, 0], HEAP).write(HEAP).call(
        "dma_free_attrs",
        &[DEV, 4096, HEAP, BUS],
        0,
    );
    r.call("dma_pool_create", &[0, DEV, 64], pool).call("dma_pool_alloc", &[pool, 0, 0], HEAP + 0x4000);
    r.call("dma_pool_free", &[pool, HEAP + 0x4000, BUS], 0).call("dma_pool_destroy", &[pool], 0);
    r.call("ioremap", &[0xfebc_0000, 4096], MMIO).call("iounmap", &[MMIO], 0).call(
        "devres_release_all",
        &[DEV],
        0,
    );
    assert_eq!(r.found(), NONE);
    let mut r = Run::new();
    r.call("dma_alloc_attrs", &[DEV, 4096, 0], HEAP)
        .call("dma_free_attrs", &[DEV, 2048, HEAP, BUS], 0)
        .read(HEAP + 8);
    r.call("dma_pool_create", &[0, DEV, 64], pool).call("dma_pool_alloc", &[pool, 0, 0], HEAP + 0x4000);
    r.call("dma_pool_destroy", &[pool], 0);
    r.call("dma_alloc_attrs", &[DEV, 8192, 0], HEAP + 0x8000)
        .call("dma_pool_create", &[0, DEV, 32], pool + 64)
        .call("devres_release_all", &[DEV], 0);
    r.call("ioremap", &[0xfebc_0000, 4096], MMIO);
    assert_eq!(
        r.found(),
        [
            "dma-unmap-mismatch: 4096 bytes of coherent memory freed with the size 2048",
            "dma-use-after-free: read of 4 bytes at offset 8 of 4096 bytes of DMA memory that was freed",
            "dma-leak: a DMA pool destroyed while 1 block of 64 bytes is not freed",
            "dma-leak: 8192 bytes of coherent memory not freed when the driver had left the device",
            "dma-leak: a DMA pool for blocks of 32 bytes not destroyed when the driver had left the device",
            "dma-leak: device registers still mapped when the module was unloaded",
        ]
    );
}
