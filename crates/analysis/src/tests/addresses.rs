//! Tests of which bytes may be accessed.

use super::guest::*;

#[test]
fn a_read_after_kfree() {
    let mut g = Guest::new();
    g.hooked(F, "kmalloc", &[64, GFP_KERNEL], HEAP);
    g.block(F + 5, WRITE1).store(0, HEAP, 1);
    g.hooked(F + 7, "kfree", &[HEAP], 0);
    g.block(F + 12, READ4).load(0, HEAP + 8, 4);
    let report = g.finish();
    let finding = &report.findings[0];
    assert_eq!(finding.kind, "use-after-free");
    assert_eq!(finding.message, "use-after-free read of 4 bytes at offset 8 of a 64-byte slab object");
    assert_eq!((finding.function.as_str(), finding.offset), ("f", 12));
    let object = finding.object.as_ref().unwrap();
    let names = |t: &Option<guardrail_finding::CallStack>| {
        t.as_ref()
            .unwrap()
            .stack
            .iter()
            .map(|f| format!("{}+{:#x}", f.function, f.offset))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&object.allocated), ["kmalloc+0x0", "f+0x5", "caller+0x9"]);
    assert_eq!(names(&object.freed), ["kfree+0x0", "f+0xc", "caller+0x9"]);
    assert_eq!(finding.context.thread, "insmod/42");
    assert_eq!(report.findings.len(), 1);
}

#[test]
fn memory_that_others_got_is_theirs() {
    let mut g = Guest::new();
    g.hooked(F, "kmalloc", &[64, GFP_KERNEL], HEAP);
    g.block(F + 5, WRITE1).store(0, HEAP, 1);
    g.hooked(F + 7, "kfree", &[HEAP], 0);
    g.block(F + 12, &[0x90]);
    g.send(0);
    g.by_kernel("kmalloc", &[64, GFP_KERNEL], HEAP);
    g.block(F + 13, READ_AND_BRANCH).load(0, HEAP + 8, 4);
    assert_eq!(g.found(), [""; 0]);
}

#[test]
fn one_byte_into_slab_padding() {
    let mut g = Guest::new();
    g.hooked(F, "kmalloc", &[100, GFP_KERNEL], HEAP);
    g.block(F + 5, WRITE1).store(0, HEAP + 99, 1);
    g.block(F + 7, WRITE1).store(0, HEAP + 100, 1);
    assert_eq!(
        g.found(),
        ["out-of-bounds at f+0x7: out-of-bounds write of 1 byte at offset 100 of a 100-byte slab object"]
    );
}

#[test]
fn the_kernels_own_objects_reach_to_the_end_of_their_slot() {
    let mut g = Guest::new();
    g.by_kernel("kmalloc", &[100, GFP_KERNEL], HEAP);
    g.enter();
    g.block(F, READ_AND_BRANCH).load(0, HEAP + 120, 4);
    assert_eq!(g.found(), [""; 0]);
}

#[test]
fn a_small_object_in_a_fresh_slab_page_is_not_the_page() {
    let mut g = Guest::new();
    g.call(F, "kmalloc", &[40, GFP_KERNEL]);
    let rsp = g.rsp;
    g.hook("kmalloc", rsp, F + 5, &[40, GFP_KERNEL]);
    // Within the call, this test's hooks report another object at the same address.
    g.hook("vmalloc", rsp - 0x100, g.function("caller"), &[4096]);
    g.hook_return("vmalloc", rsp - 0x100, HEAP);
    g.hook_return("kmalloc", rsp, HEAP + 64);
    g.back(HEAP + 64);
    g.block(F + 5, WRITE1).store(0, HEAP + 64 + 40, 1);
    g.block(F + 7, WRITE1).store(0, HEAP + 192, 1);
    assert_eq!(
        g.found(),
        ["out-of-bounds at f+0x5: out-of-bounds write of 1 byte at offset 40 of a 40-byte slab object"]
    );
}

#[test]
fn beyond_vmalloc_memory_and_its_guard_page() {
    let mut g = Guest::new();
    g.hooked(F, "vmalloc", &[6000], VMALLOC);
    g.block(F + 5, WRITE1).store(0, VMALLOC + 6000, 1);
    g.block(F + 7, READ4);
    g.page_fault(F + 7, VMALLOC + 8192);
    assert_eq!(
        g.found(),
        [
            "out-of-bounds at f+0x5: out-of-bounds write of 1 byte at offset 6000 of a 6000-byte vmalloc object",
            "out-of-bounds at f+0x7: out-of-bounds access at offset 8192 of a 6000-byte vmalloc object faulted",
        ]
    );
}

#[test]
fn beyond_vmalloc_memory_that_the_kernel_hands_in() {
    let mut g = Guest::new();
    g.by_kernel("vmalloc", &[716], VMALLOC);
    g.enter();
    g.block(F, WRITE1).store(0, VMALLOC + 715, 1);
    g.block(F + 5, WRITE1).store(0, VMALLOC + 716, 1);
    assert_eq!(
        g.found(),
        ["out-of-bounds at f+0x5: out-of-bounds write of 1 byte at offset 716 of a 716-byte vmalloc object"]
    );
}

#[test]
fn vmalloc_memory_that_only_the_kernel_had_may_be_the_stack_of_a_thread_by_now() {
    for by_driver in [false, true] {
        let mut g = Guest::new();
        g.by_kernel("vmalloc", &[0x8000], VMALLOC);
        if by_driver {
            g.hooked(F, "vfree", &[VMALLOC], 0);
        } else {
            g.begun_by_kernel("vfree", &[VMALLOC]);
        }
        g.enter();
        g.block(F + 12, READ4).load(0, VMALLOC + 0x6000, 4);
        assert_eq!(g.found().len(), usize::from(by_driver));
    }
}

#[test]
fn a_page_around_a_small_object_that_the_kernel_freed_may_be_the_drivers_by_now() {
    for around in [false, true] {
        let mut g = Guest::new();
        g.by_kernel("kmalloc", &[72, GFP_KERNEL], HEAP + 72);
        g.begun_by_kernel("kfree", &[HEAP + 72]);
        g.enter();
        if around {
            g.called(F, "copy_to_user", &[0x1000, HEAP, 4096]);
        } else {
            g.block(F, READ4).load(0, HEAP + 80, 4);
        }
        assert_eq!(g.found().len(), usize::from(!around));
    }
}

#[test]
fn beyond_mapped_registers() {
    let mut g = Guest::new();
    g.hooked(F, "ioremap", &[0xfebf_0000, 0x80], MMIO);
    g.block(F + 5, READ4).device(0, MMIO + 0x7c, 4, false);
    g.block(F + 7, READ4).device(0, MMIO + 0x90, 4, false);
    assert_eq!(
        g.found(),
        [
            "mmio-out-of-bounds at f+0x7: mmio-out-of-bounds read of 4 bytes at offset 144 of a 128-byte mapped device object"
        ]
    );
}

#[test]
fn bytes_behind_a_variable() {
    let mut g = Guest::new();
    g.block(F, WRITE1).store(0, SLOTS + 36, 1);
    g.block(F + 2, WRITE1).store(0, SLOTS + 37, 1);
    assert_eq!(
        g.found(),
        ["out-of-bounds at f+0x2: out-of-bounds write of 1 byte at offset 37 of the 37-byte variable slots"]
    );
}

#[test]
fn a_local_of_a_function_that_has_returned() {
    let mut g = Guest::new();
    // sub rsp, 0x20; call g
    g.block(F, &[0x48, 0x83, 0xec, 0x20, 0xe8, 0, 0, 0, 0]).store(1, STACK - 0x28, 8);
    g.send(0);
    // sub rsp, 0x20; add rsp, 0x20; ret
    g.block(G, &[0x48, 0x83, 0xec, 0x20, 0x48, 0x83, 0xc4, 0x20, 0xc3]).load(2, STACK - 0x28, 8);
    g.send(0);
    g.block(F + 9, WRITE1).store(0, STACK - 0x40, 1);
    assert_eq!(
        g.found(),
        ["out-of-bounds at f+0x9: out-of-bounds write of 1 byte on the stack, 32 bytes below the live frame"]
    );
}

#[test]
fn a_return_address() {
    let mut g = Guest::new();
    g.block(F, &[0x48, 0x83, 0xec, 0x20, 0x88, 0x07]).store(1, STACK, 1);
    assert_eq!(
        g.found(),
        ["out-of-bounds at f+0x4: out-of-bounds write of 1 byte on the stack, over a return address"]
    );
}

#[test]
fn pushes_calls_and_locals_are_no_faults() {
    let mut g = Guest::new();
    // push rbx; sub rsp, 0x20; mov [rsp+0x18], rax; add rsp, 0x20; pop rbx; ret
    let code =
        [0x53, 0x48, 0x83, 0xec, 0x20, 0x48, 0x89, 0x44, 0x24, 0x18, 0x48, 0x83, 0xc4, 0x20, 0x5b, 0xc3];
    g.block(F, &code);
    g.store(0, STACK - 8, 8).store(2, STACK - 16, 8).load(4, STACK - 8, 8).load(5, STACK, 8);
    assert_eq!(g.found(), [""; 0]);
}

#[test]
fn faults_by_address() {
    for (addr, expected) in [
        (8, "null-dereference at f+0x2: access to address 0x8 faulted"),
        (0x7fff_0000, "user-pointer at f+0x2: access to user memory without the access functions faulted"),
        (
            0xffff_ffff_ffff_fffe,
            "wild-access at f+0x2: access to a kernel address that is not mapped faulted",
        ),
    ] {
        let mut g = Guest::new();
        g.block(F, &[0x8b, 0x07, 0x8b, 0x07]).load(0, HEAP, 4);
        g.page_fault(F + 2, addr);
        assert_eq!(g.found(), [expected]);
        let mut g = Guest::new();
        g.block(F, &[0x8b, 0x07, 0x8b, 0x07]).load(0, HEAP, 4);
        g.page_fault_in_two(F + 2, addr);
        assert_eq!(g.found(), [expected]);
    }
}

#[test]
fn a_fault_that_is_expected_or_dealt_with() {
    let mut g = Guest::new();
    g.block(F + 0x80, READ4);
    g.page_fault(F + 0x80, 0x1000_0000);
    assert_eq!(g.found(), [""; 0]);

    let mut g = Guest::new();
    g.block(F, READ4);
    g.page_fault(F, VMALLOC);
    g.retry();
    g.block(F, READ4).load(0, VMALLOC, 4);
    assert_eq!(g.found(), [""; 0]);
}

#[test]
fn the_kernels_copy_counts_as_the_drivers() {
    let mut g = Guest::new();
    g.hooked(F, "kmalloc", &[64, GFP_KERNEL | GFP_ZERO], HEAP);
    g.block(F + 5, &[0x90]);
    g.called(F + 6, "memcpy", &[HEAP, HEAP + 0x1000, 65]);
    g.block(F + 11, &[0x90]);
    assert_eq!(
        g.found(),
        ["out-of-bounds at f+0x6: out-of-bounds write of 65 bytes at offset 0 of a 64-byte slab object"]
    );
}

#[test]
fn a_stack_where_freed_memory_was() {
    let mut g = Guest::new();
    g.hooked(F, "vmalloc", &[0x8000], VMALLOC);
    g.block(F + 5, &[0x90]);
    g.hooked(F + 6, "vfree", &[VMALLOC], 0);
    g.block(F + 11, &[0x90]);
    g.rsp = VMALLOC + 0x3f00;
    g.enter();
    // push rbx
    g.block(G, &[0x53]).store(0, VMALLOC + 0x3ef8, 8);
    assert_eq!(g.found(), [""; 0]);
}
