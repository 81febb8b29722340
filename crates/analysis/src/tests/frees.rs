//! Wrong frees and missing frees.

use super::guest::*;

fn allocated(size: u64) -> Guest {
    let mut g = Guest::new();
    g.hooked(F, "kmalloc", &[size, GFP_KERNEL], HEAP);
    g.block(F + 5, WRITE1).store(0, HEAP, 1);
    g
}

#[test]
fn twice() {
    let mut g = allocated(64);
    g.hooked(F + 7, "kfree", &[HEAP], 0);
    g.block(F + 12, &[0x90]);
    g.hooked(F + 13, "kfree", &[HEAP], 0);
    g.block(F + 18, &[0x90]);
    assert_eq!(g.found(), ["double-free at f+0xd: kfree of a 64-byte slab object that is already free"]);
}

#[test]
fn twice_through_a_free_whose_return_is_not_seen() {
    let mut g = allocated(64);
    for at in [F + 7, F + 12] {
        g.call(at, "kfree", &[HEAP]);
        let rsp = g.rsp;
        g.hook("kfree", rsp, at + 5, &[HEAP]);
        g.back(0);
    }
    g.block(F + 17, &[0x90]);
    assert_eq!(g.found(), ["double-free at f+0xc: kfree of a 64-byte slab object that is already free"]);
}

#[test]
fn once_though_the_task_began_a_free_there_before_whose_end_was_not_seen() {
    let mut g = Guest::new();
    g.by_kernel("kmalloc", &[64, GFP_KERNEL], HEAP);
    // The task had another stack then.
    g.begun_by_kernel("kfree", &[HEAP]);
    g.hooked(F, "kmalloc", &[64, GFP_KERNEL], HEAP);
    g.block(F + 5, WRITE1).store(0, HEAP, 1);
    g.hooked(F + 7, "kfree", &[HEAP], 0);
    g.block(F + 12, &[0x90]);
    g.unload();
    assert_eq!(g.found(), [] as [&str; 0]);
}

#[test]
fn twice_after_others_had_the_memory() {
    let mut g = allocated(64);
    g.hooked(F + 7, "kfree", &[HEAP], 0);
    g.block(F + 12, &[0x90]);
    g.send(0);
    g.by_kernel("vmalloc", &[4096], HEAP);
    g.block(F + 13, &[0x90]);
    g.hooked(F + 14, "kfree", &[HEAP], 0);
    g.block(F + 19, &[0x90]);
    assert!(g.found()[0].starts_with("double-free at f+0xe"));
}

#[test]
fn a_pointer_into_the_middle() {
    let mut g = allocated(64);
    g.hooked(F + 7, "kfree", &[HEAP + 16], 0);
    g.block(F + 12, &[0x90]);
    assert_eq!(
        g.found(),
        ["invalid-free at f+0x7: kfree of a pointer to offset 16 of a 64-byte slab object"]
    );
}

#[test]
fn a_variable() {
    let mut g = Guest::new();
    g.hooked(F, "kfree", &[SLOTS], 0);
    g.block(F + 5, &[0x90]);
    assert_eq!(g.found(), ["invalid-free at f+0x0: kfree of a pointer to memory of a module"]);
}

#[test]
fn by_the_wrong_function() {
    let mut g = allocated(200);
    g.hooked(F + 7, "vfree", &[HEAP], 0);
    g.block(F + 12, &[0x90]);
    g.unload();
    assert_eq!(g.found(), ["mismatched-free at f+0x7: vfree of a 200-byte slab object"]);
}

#[test]
fn into_the_wrong_cache() {
    let (requests, replies) = (HEAP + 0x10000, HEAP + 0x20000);
    let mut g = Guest::new();
    g.hooked(F, "kmem_cache_alloc", &[replies, GFP_KERNEL, 184], HEAP);
    g.block(F + 5, &[0x90]);
    g.hooked(F + 6, "kmem_cache_free", &[requests, HEAP], 0);
    g.block(F + 11, &[0x90]);
    assert_eq!(
        g.found(),
        ["mismatched-free at f+0x6: kmem_cache_free of a 184-byte cache object, of another cache"]
    );
}

#[test]
fn never() {
    let mut g = allocated(100);
    g.unload();
    let report = g.finish();
    let finding = &report.findings[0];
    assert_eq!(finding.kind, "leak");
    assert_eq!(finding.message, "a 100-byte slab object still allocated when the module was unloaded");
    assert_eq!((finding.function.as_str(), finding.offset), ("f", 5));
}

#[test]
fn what_the_kernel_may_own_is_no_leak() {
    let mut g = allocated(100);
    g.called(F + 7, "scribble", &[HEAP]);
    g.block(F + 12, &[0x90]);
    g.unload();
    assert_eq!(g.found(), [""; 0]);
}

/// The driver uses managed memory, writes behind it, and reads it after the kernel has freed it.
fn managed(kernel: Kernel) -> Vec<String> {
    let mut g = Guest::with(kernel, &["dmcheck"]);
    g.enter();
    g.call(F, "devm_kmalloc", &[1, 5000, GFP_KERNEL]);
    let rsp = g.rsp;
    g.hook("devm_kmalloc", rsp, F + 5, &[1, 5000, GFP_KERNEL]);
    g.hook("kmalloc", rsp - 0x80, g.function("caller"), &[5040, GFP_KERNEL]);
    g.hook_return("kmalloc", rsp - 0x80, HEAP);
    g.hook_return("devm_kmalloc", rsp, HEAP + 40);
    g.back(HEAP + 40);
    g.block(F + 5, WRITE1).store(0, HEAP + 40 + 4999, 1);
    g.block(F + 7, WRITE1).store(0, HEAP + 40 + 5000, 1);
    // The kernel frees it, from its base.
    g.call(F + 9, "scribble", &[]);
    let rsp = g.rsp;
    g.hook("kfree", rsp - 0x80, g.function("caller"), &[HEAP]);
    g.hook_return("kfree", rsp - 0x80, 0);
    g.back(0);
    g.block(F + 14, READ4).load(0, HEAP + 40, 4);
    g.found()
}

#[test]
fn managed_memory_begins_behind_its_header_and_goes_with_its_device() {
    for kernel in [kernel(), kernel().with_redzones()] {
        assert_eq!(
            managed(kernel),
            [
                "out-of-bounds at f+0x7: out-of-bounds write of 1 byte at offset 5000 of a 5000-byte device-managed object",
                "use-after-free at f+0xe: use-after-free read of 4 bytes at offset 0 of a 5000-byte device-managed object",
            ]
        );
    }
}

#[test]
fn krealloc_frees_what_it_moves() {
    let mut g = allocated(80);
    g.call(F + 7, "krealloc", &[HEAP, 4000, GFP_KERNEL]);
    let rsp = g.rsp;
    g.hook("krealloc", rsp, F + 12, &[HEAP, 4000, GFP_KERNEL]);
    g.hook("kmalloc", rsp - 0x80, g.function("caller"), &[4000, GFP_KERNEL]);
    g.hook_return("kmalloc", rsp - 0x80, HEAP + 0x4000);
    g.hook("kfree", rsp - 0x80, g.function("caller"), &[HEAP]);
    g.hook_return("kfree", rsp - 0x80, 0);
    g.hook_return("krealloc", rsp, HEAP + 0x4000);
    g.back(HEAP + 0x4000);
    g.block(F + 12, READ4).load(0, HEAP, 4);
    g.block(F + 14, READ4).load(0, HEAP + 0x4000, 4);
    assert_eq!(
        g.found(),
        ["use-after-free at f+0xc: use-after-free read of 4 bytes at offset 0 of a 80-byte slab object"]
    );
}

#[test]
fn not_what_the_kernel_allocates_after_the_driver_has_left_by_a_jump() {
    for (at, leaks) in [(9, 1), (70, 0)] {
        let mut g = Guest::new();
        g.jump(F, "scribble");
        let rsp = g.rsp;
        g.hook("kmalloc", rsp, g.function("caller") + at, &[64, GFP_KERNEL]);
        g.hook_return("kmalloc", rsp, HEAP);
        g.unload();
        assert_eq!(g.found().len(), leaks);
    }
}

/// A repeated instruction that is held at the gate is in the log before it runs: its fault is known then.
#[test]
fn a_repeated_instruction_is_checked_before_it_runs() {
    for before in [&[][..], &[0x90]] {
        let mut g = allocated(64);
        g.hooked(F + 7, "kfree", &[HEAP], 0);
        // rep outsb, from memory that is free
        g.block(F + 12, &[before, &[0xf3, 0x6e]].concat());
        g.rep(before.len() as u64, 8, HEAP, 0);
        g.send(0);
        assert_eq!(g.so_far(), 1);
        // The instruction succeeded, and its fault is reported once.
        g.block(F + 14 + before.len() as u64, &[0x90]);
        assert_eq!(g.found().len(), 1);
    }
}
