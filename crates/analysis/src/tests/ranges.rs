//! What kernel functions read for the driver, objects that come and go in arrays, and redzones.

use super::guest::*;

const CACHE: u64 = HEAP + 0x10000;
const ARRAY: u64 = HEAP + 0x20000;

/// A guest in which the driver has 24 bytes of kmalloc.
fn allocated() -> Guest {
    let mut g = Guest::new();
    g.hooked(F, "kmalloc", &[24, GFP_KERNEL], HEAP);
    g.block(F + 5, &[0x90]);
    g
}

/// A call of the driver that returns `result`.
fn returning(g: &mut Guest, addr: u64, name: &str, args: &[u64], result: u64) {
    g.call(addr, name, args);
    g.back(result);
    g.block(addr + 5, &[0x90]);
}

#[test]
fn a_string_without_an_end_is_read_beyond_its_object() {
    let mut g = allocated();
    returning(&mut g, F + 6, "strlen", &[HEAP], 23);
    returning(&mut g, F + 12, "strlen", &[HEAP], 24);
    assert_eq!(
        g.found(),
        ["out-of-bounds at f+0xc: out-of-bounds read of 25 bytes at offset 0 of a 24-byte slab object"]
    );
}

#[test]
fn a_search_reads_up_to_what_it_finds() {
    let mut g = allocated();
    returning(&mut g, F + 6, "memchr", &[HEAP, 1, 4096], HEAP + 23);
    returning(&mut g, F + 12, "memchr", &[HEAP, 1, 24], 0);
    returning(&mut g, F + 18, "strnlen", &[HEAP, 24], 24);
    returning(&mut g, F + 24, "memchr", &[HEAP, 1, 25], 0);
    assert_eq!(
        g.found(),
        ["out-of-bounds at f+0x18: out-of-bounds read of 25 bytes at offset 0 of a 24-byte slab object"]
    );
}

#[test]
fn a_comparison_of_nothing_reads_nothing() {
    let mut g = allocated();
    g.hooked(F + 6, "kfree", &[HEAP], 0);
    g.block(F + 11, &[0x90]);
    returning(&mut g, F + 12, "strncmp", &[HEAP, ARRAY, 0], 0);
    returning(&mut g, F + 18, "strncmp", &[HEAP, ARRAY, 7], 0);
    assert_eq!(
        g.found(),
        ["use-after-free at f+0x12: use-after-free read of 1 byte at offset 0 of a 24-byte slab object"]
    );
}

#[test]
fn a_search_that_finds_nothing_shows_no_end() {
    let mut g = allocated();
    returning(&mut g, F + 6, "strchr", &[HEAP, 1], HEAP + 23);
    returning(&mut g, F + 12, "strchr", &[HEAP, 1], 0);
    returning(&mut g, F + 18, "strchr", &[HEAP, 1], HEAP + 24);
    assert_eq!(
        g.found(),
        ["out-of-bounds at f+0x12: out-of-bounds read of 25 bytes at offset 0 of a 24-byte slab object"]
    );
}

#[test]
fn a_copied_string_is_read_up_to_its_end_or_its_bound() {
    const TOO_LONG: u64 = -7i64 as u64;
    let mut g = allocated();
    returning(&mut g, F + 6, "strscpy", &[ARRAY, HEAP, 64], 23);
    returning(&mut g, F + 12, "strscpy", &[ARRAY, HEAP, 24], TOO_LONG);
    returning(&mut g, F + 18, "strscpy", &[ARRAY, HEAP, 0], TOO_LONG);
    assert_eq!(g.so_far(), 0);
    returning(&mut g, F + 24, "strscpy", &[ARRAY, HEAP, 64], 24);
    returning(&mut g, F + 30, "strscpy", &[ARRAY, HEAP, 26], TOO_LONG);
    assert_eq!(
        g.found(),
        [
            "out-of-bounds at f+0x18: out-of-bounds read of 25 bytes at offset 0 of a 24-byte slab object",
            "out-of-bounds at f+0x1e: out-of-bounds read of 26 bytes at offset 0 of a 24-byte slab object",
        ]
    );
}

#[test]
fn what_is_copied_or_summed_up_is_read_though_the_pointer_may_be_kept() {
    let mut g = allocated();
    returning(&mut g, F + 6, "crc32_le", &[0, HEAP, 24], 1);
    returning(&mut g, F + 12, "kstrdup", &[HEAP, GFP_KERNEL], ARRAY);
    returning(&mut g, F + 18, "kstrdup", &[0, GFP_KERNEL], 0);
    assert_eq!(g.so_far(), 0);
    returning(&mut g, F + 24, "crc32_le", &[0, HEAP, 25], 1);
    g.hooked(F + 30, "kfree", &[HEAP], 0);
    g.block(F + 35, &[0x90]);
    returning(&mut g, F + 36, "kstrdup", &[HEAP, GFP_KERNEL], ARRAY);
    assert_eq!(
        g.found(),
        [
            "out-of-bounds at f+0x18: out-of-bounds read of 25 bytes at offset 0 of a 24-byte slab object",
            "use-after-free at f+0x24: use-after-free read of 1 byte at offset 0 of a 24-byte slab object",
        ]
    );
}

#[test]
fn what_several_effects_read_is_reported_once() {
    let mut g = allocated();
    g.hooked(F + 6, "kfree", &[HEAP], 0);
    g.block(F + 11, &[0x90]);
    returning(&mut g, F + 12, "strchr", &[HEAP, 1], HEAP + 2);
    let report = g.finish();
    let counts: Vec<_> = report.findings.iter().map(|f| (f.kind.as_str(), f.count)).collect();
    assert_eq!(counts, [("use-after-free", 1)]);

    let mut g = allocated();
    // mov rdi, [rdi+8]
    g.block(F + 6, &[0x48, 0x8b, 0x7f, 0x08]).load(0, HEAP + 8, 8);
    returning(&mut g, F + 10, "strchr", &[HEAP, 1], HEAP + 2);
    let report = g.finish();
    let counts: Vec<_> = report.findings.iter().map(|f| (f.kind.as_str(), f.count)).collect();
    assert_eq!(counts, [("uninit-address", 1)]);
}

/// The driver calls a bulk function; `words` are the objects.
fn bulk(g: &mut Guest, addr: u64, name: &str, words: &[u64]) {
    let freeing = name == "kmem_cache_free_bulk";
    let n = words.len() as u64;
    let args = if freeing { [CACHE, n, ARRAY, 0] } else { [CACHE, GFP_KERNEL, n, ARRAY] };
    g.call(addr, name, &args);
    let rsp = g.rsp;
    let more = [&args[..], &[200]].concat();
    g.hook(name, rsp, addr + 5, &more);
    if freeing {
        g.list(name, rsp, words);
    }
    g.hook_return(name, rsp, n);
    if !freeing {
        g.list(name, rsp, words);
    }
    g.back(n);
    g.block(addr + 5, &[0x90]);
}

#[test]
fn objects_of_an_array_live_and_die() {
    let (a, b) = (HEAP, HEAP + 200);
    let mut g = Guest::new();
    // The memory had another user before, who freed it.
    g.hooked(F, "kmalloc", &[200, GFP_KERNEL], a);
    g.block(F + 5, &[0x90]);
    g.hooked(F + 6, "kfree", &[a], 0);
    g.block(F + 11, &[0x90]);
    bulk(&mut g, F + 12, "kmem_cache_alloc_bulk", &[a, b]);
    g.block(F + 18, WRITE1).store(0, a + 199, 1);
    g.block(F + 20, WRITE1).store(0, b + 200, 1);
    bulk(&mut g, F + 22, "kmem_cache_free_bulk", &[a, b]);
    g.block(F + 28, WRITE1).store(0, b, 1);
    g.block(F + 30, &[0x90]);
    bulk(&mut g, F + 31, "kmem_cache_free_bulk", &[a]);
    g.unload();
    assert_eq!(
        g.found(),
        [
            "use-after-free at f+0x1c: use-after-free write of 1 byte at offset 0 of a 200-byte cache object",
            "double-free at f+0x1f: kmem_cache_free_bulk of a 200-byte cache object that is already free",
        ]
    );
}

#[test]
fn an_array_that_the_kernel_gives_back_was_taken_unseen() {
    let mut g = Guest::new();
    g.hooked(F, "kmem_cache_alloc", &[CACHE, GFP_KERNEL, 200], HEAP);
    g.block(F + 5, &[0x90]);
    g.hooked(F + 6, "kmem_cache_free", &[CACHE, HEAP], 0);
    g.block(F + 11, &[0x90]);
    g.call(F + 12, "kmem_cache_alloc_bulk", &[CACHE, GFP_KERNEL, 2, ARRAY]);
    let inner = g.rsp - 64;
    g.hook("kmem_cache_alloc_bulk", g.rsp, F + 17, &[CACHE, GFP_KERNEL, 2, ARRAY, 200]);
    g.hook("kmem_cache_free_bulk", inner, g.function("caller") + 9, &[CACHE, 1, ARRAY, 0, 0]);
    g.list("kmem_cache_free_bulk", inner, &[HEAP]);
    g.hook_return("kmem_cache_free_bulk", inner, 0);
    g.hook_return("kmem_cache_alloc_bulk", g.rsp, 0);
    g.back(0);
    g.block(F + 17, &[0x90]);
    assert_eq!(g.found(), [""; 0]);
}

#[test]
fn what_is_freed_stays_so_though_krealloc_returns_it() {
    let mut g = allocated();
    g.hooked(F + 6, "kfree", &[HEAP], 0);
    g.block(F + 11, &[0x90]);
    g.hooked(F + 12, "krealloc", &[HEAP, 30, GFP_KERNEL], HEAP);
    g.block(F + 17, READ4).load(0, HEAP, 4);
    assert_eq!(
        g.found(),
        ["use-after-free at f+0x11: use-after-free read of 4 bytes at offset 0 of a 24-byte slab object"]
    );
}

/// The driver takes two objects of 32 bytes that fill their slots, and goes 1 byte to the left of the first and to the
/// right of the second. A kernel with redzones leaves room between slots.
fn beyond_slots(kernel: Kernel) -> Vec<String> {
    let mut g = Guest::with(kernel, &["dmcheck"]);
    g.enter();
    g.hooked(F, "kmalloc", &[32, GFP_KERNEL], HEAP);
    g.block(F + 5, &[0x90]);
    g.hooked(F + 6, "kmem_cache_alloc", &[CACHE, GFP_KERNEL, 32], HEAP + 64);
    g.block(F + 11, WRITE1).store(0, HEAP - 1, 1);
    g.block(F + 13, WRITE1).store(0, HEAP + 31, 1);
    g.block(F + 15, WRITE1).store(0, HEAP + 64 + 32, 1);
    g.found()
}

#[test]
fn a_kernel_with_redzones_shows_what_leaves_a_slot() {
    assert_eq!(beyond_slots(kernel()), [""; 0]);
    assert_eq!(
        beyond_slots(kernel().with_redzones()),
        [
            "out-of-bounds at f+0xb: out-of-bounds write of 1 byte 1 byte before the start of a 32-byte slab object",
            "out-of-bounds at f+0xf: out-of-bounds write of 1 byte at offset 32 of a 32-byte cache object",
        ]
    );
}

#[test]
fn ksize_leaves_the_redzone_alone() {
    let mut g = Guest::with(kernel().with_redzones(), &["dmcheck"]);
    g.enter();
    g.hooked(F, "kmalloc", &[123, GFP_KERNEL], HEAP);
    g.block(F + 5, &[0x90]);
    g.hooked(F + 6, "ksize", &[HEAP], 128);
    g.block(F + 11, WRITE1).store(0, HEAP + 127, 1);
    g.block(F + 13, WRITE1).store(0, HEAP + 128, 1);
    assert_eq!(
        g.found(),
        ["out-of-bounds at f+0xd: out-of-bounds write of 1 byte at offset 128 of a 128-byte slab object"]
    );
}

#[test]
fn typesafe_memory_may_be_read_after_its_free() {
    const TYPESAFE: u64 = 0x8_0000;
    for (flags, findings) in [(TYPESAFE, 0), (0, 1)] {
        let mut g = Guest::new();
        g.hooked(F, "kmem_cache_create", &[0, 32, 0, flags, 0], CACHE);
        g.block(F + 5, &[0x90]);
        g.hooked(F + 6, "kmem_cache_alloc", &[CACHE, GFP_KERNEL, 32], HEAP);
        g.block(F + 11, WRITE1).store(0, HEAP, 1);
        g.hooked(F + 13, "kmem_cache_free", &[CACHE, HEAP], 0);
        g.block(F + 18, READ4).load(0, HEAP, 4);
        g.block(F + 20, &[0x90]);
        g.send(0);
        assert_eq!(g.so_far(), findings, "{flags:#x}");
        g.hooked(F + 21, "kmem_cache_free", &[CACHE, HEAP], 0);
        g.block(F + 26, &[0x90]);
        assert!(g.found().last().unwrap().starts_with("double-free at f+0x15"));
    }
}

/// The driver maps a page of its own a second time.
fn maps(g: &mut Guest, addr: u64) {
    const VMEMMAP: u64 = 0xffff_ea00_0000_0000;
    let page = VMEMMAP + (HEAP - 0xffff_8880_0000_0000) / 4096 * 64;
    g.call(addr, "vmap", &[ARRAY, 1, 0, 0]);
    let rsp = g.rsp;
    g.hook("vmap", rsp, addr + 5, &[ARRAY, 1, 0, 0]);
    g.list("vmap", rsp, &[page]);
    g.hook_return("vmap", rsp, VMALLOC);
    g.back(VMALLOC);
    g.block(addr + 5, &[0x90]);
}

#[test]
fn pages_that_are_mapped_again_may_be_written_unseen() {
    for mapped in [false, true] {
        let mut g = Guest::new();
        g.hooked(F, "kmalloc", &[16384, GFP_KERNEL], HEAP);
        g.block(F + 5, &[0x90]);
        if mapped {
            maps(&mut g, F + 6);
        }
        g.block(F + 12, READ_AND_BRANCH).load(0, HEAP + 8, 4);
        g.block(F + 18, &[0x90]);
        g.send(0);
        assert_eq!(g.so_far(), usize::from(!mapped));
    }
}

#[test]
fn a_mapping_may_lie_where_vmalloc_memory_was() {
    for mapped in [false, true] {
        let mut g = Guest::new();
        g.hooked(F, "vmalloc", &[4096], VMALLOC);
        g.block(F + 5, &[0x90]);
        g.hooked(F + 6, "vfree", &[VMALLOC], 0);
        g.block(F + 11, &[0x90]);
        if mapped {
            maps(&mut g, F + 12);
        }
        g.block(F + 18, WRITE1).store(0, VMALLOC + 8, 1);
        g.block(F + 20, &[0x90]);
        g.send(0);
        assert_eq!(g.so_far(), usize::from(!mapped));
    }
}
