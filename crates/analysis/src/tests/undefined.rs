//! Tests of definedness.

use super::guest::*;
use guardrail_finding::Severity;

/// A `struct device`.
const DEV: u64 = HEAP + 0x80_0000;

fn allocated(gfp: u64) -> Guest {
    let mut g = Guest::new();
    g.hooked(F, "kmalloc", &[64, gfp], HEAP);
    g
}

#[test]
fn a_branch_on_memory_that_nobody_wrote() {
    let mut g = allocated(GFP_KERNEL);
    g.block(F + 5, READ_AND_BRANCH).load(0, HEAP + 8, 4);
    let report = g.finish();
    let finding = &report.findings[0];
    assert_eq!((finding.kind.as_str(), finding.offset), ("uninit-branch", 9));
    let origin = finding.origin.as_ref().unwrap();
    assert_eq!(origin.description, "a 64-byte slab object");
    assert_eq!(origin.stack[1].function, "f");
}

#[test]
fn zeroes_that_were_asked_for_count() {
    let mut g = allocated(GFP_KERNEL | GFP_ZERO);
    g.block(F + 5, READ_AND_BRANCH).load(0, HEAP + 8, 4);
    assert_eq!(g.found(), [""; 0]);
}

#[test]
fn what_was_written_is_defined() {
    let mut g = allocated(GFP_KERNEL);
    // mov dword [rdi], 1
    g.block(F + 5, &[0xc7, 0x07, 1, 0, 0, 0]).store(0, HEAP + 8, 4);
    g.block(F + 11, READ_AND_BRANCH).load(0, HEAP + 8, 4);
    assert_eq!(g.found(), [""; 0]);
}

#[test]
fn a_local_that_nobody_wrote() {
    let mut g = Guest::new();
    // sub rsp, 0x20; cmp dword [rsp+8], 3; ja +0
    g.block(F, &[0x48, 0x83, 0xec, 0x20, 0x83, 0x7c, 0x24, 0x08, 0x03, 0x77, 0x00]);
    g.load(1, STACK - 0x20 + 8, 4);
    let report = g.finish();
    assert_eq!(report.findings[0].kind, "uninit-branch");
    assert_eq!(report.findings[0].origin.as_ref().unwrap().description, "the stack frame of f");
}

#[test]
fn a_local_in_the_room_that_a_push_made() {
    for (at, findings) in [(ROOM, 1), (ROOM + 1, 0)] {
        let mut g = Guest::new();
        // push rdx; cmp dword [rsp+4], 3; ja +0
        g.block(at, &[0x52, 0x83, 0x7c, 0x24, 0x04, 0x03, 0x77, 0x00]);
        g.store(0, STACK - 8, 8).load(1, STACK - 4, 4);
        let found = g.found();
        assert_eq!(found.len(), findings, "{found:?}");
        assert!(found.iter().all(|finding| finding.starts_with("uninit-branch at f+")));
    }
}

#[test]
fn a_local_given_to_an_unknown_function() {
    let mut g = Guest::new();
    g.block(F, &[0x48, 0x83, 0xec, 0x20]);
    g.send(0);
    g.rsp -= 0x20;
    let local = g.rsp + 8;
    g.called(F + 4, "scribble", &[local]);
    g.block(F + 9, READ_AND_BRANCH).load(0, local, 4);
    assert_eq!(g.found(), [""; 0]);
}

#[test]
fn an_index_that_nobody_wrote() {
    let mut g = allocated(GFP_KERNEL);
    // mov eax, [rdi]; and eax, 15; mov eax, [rbx+rax*4]
    g.block(F + 5, &[0x8b, 0x07, 0x83, 0xe0, 0x0f, 0x8b, 0x04, 0x83]);
    g.load(0, HEAP + 4, 4).load(2, SLOTS + 4, 4);
    let found = g.found();
    assert!(found[0].starts_with("uninit-address at f+0xa: read of 4 bytes at an address"), "{found:?}");
}

#[test]
fn a_pointer_that_nobody_wrote_given_to_the_kernel() {
    for written in [false, true] {
        let mut g = allocated(GFP_KERNEL);
        if written {
            // mov [rdi+8], rsi
            g.block(F + 5, &[0x48, 0x89, 0x77, 0x08]).store(0, HEAP + 8, 8);
        }
        // mov rdi, [rdi+8]
        g.block(F + 9, &[0x48, 0x8b, 0x7f, 0x08]).load(0, HEAP + 8, 8);
        g.called(F + 13, "look_at", &[0xffff_8880_0300_0000]);
        let expected = "uninit-address at f+0xd: uninitialized pointer given to look_at";
        assert_eq!(g.found(), [expected][usize::from(written)..]);
    }
}

#[test]
fn to_a_device_register() {
    let mut g = allocated(GFP_KERNEL);
    // mov eax, [rdi]; mov [rsi], eax
    g.block(F + 5, &[0x8b, 0x07, 0x89, 0x06]).load(0, HEAP + 4, 4).device(1, MMIO, 4, true);
    assert_eq!(
        g.found(),
        ["uninit-to-device at f+0x7: uninitialized value of 4 bytes written to a device register"]
    );
}

#[test]
fn to_the_device_by_dma() {
    for (direction, expected) in [(1, 1), (2, 0), (0, 0)] {
        let mut g = allocated(GFP_KERNEL);
        g.block(F + 5, WRITE1).store(0, HEAP, 1);
        g.called(F + 7, "dma_map_single", &[1, HEAP, 64, direction]);
        g.block(F + 12, READ_AND_BRANCH).load(0, HEAP + 8, 4);
        let found = g.found();
        assert_eq!(found.len(), expected, "{found:?}");
        if expected == 1 {
            assert_eq!(
                found[0],
                "uninit-to-device at f+0x7: 63 of 64 bytes mapped for the device to read are uninitialized, the first at offset 1"
            );
        }
    }
}

#[test]
fn to_memory_that_the_device_reads() {
    let shared = HEAP + 0x1000;
    // The driver stores a value, copies bytes, and moves bytes with an instruction.
    let stored = |freed: bool| {
        let mut g = allocated(GFP_KERNEL);
        g.hooked(F, "dma_alloc_attrs", &[DEV, 64], shared);
        if freed {
            g.hooked(F, "dma_free_attrs", &[DEV, 64, shared], 0);
        }
        // mov eax, [rdi]; mov [rsi], eax
        g.block(F + 5, &[0x8b, 0x07, 0x89, 0x06]).load(0, HEAP + 4, 4).store(1, shared, 4);
        g.found()
    };
    let value =
        "uninit-to-device at f+0x7: uninitialized value of 4 bytes written to memory that the device reads";
    assert_eq!(stored(false), [value]);
    assert!(!stored(true).iter().any(|finding| finding.starts_with("uninit")));
    for written in [false, true] {
        let mut g = allocated(if written { GFP_KERNEL | GFP_ZERO } else { GFP_KERNEL });
        g.hooked(F, "dma_alloc_attrs", &[DEV, 64], shared);
        g.called(F + 7, "memcpy", &[shared, HEAP, 16]);
        g.block(F + 12, &[0x90]);
        let copied = "uninit-to-device at f+0x7: 16 of 16 bytes copied to memory that the device reads are uninitialized, the first at offset 0";
        assert_eq!(g.found(), [copied][usize::from(written)..]);
    }
    // Of the two words that one instruction copies, one is padding.
    for (first, severity) in [(true, Severity::Warning), (false, Severity::Error)] {
        let mut g = allocated(GFP_KERNEL);
        g.hooked(F, "dma_alloc_attrs", &[DEV, 64], shared);
        if first {
            // mov dword [rdi], 1
            g.block(F + 5, &[0xc7, 0x07, 1, 0, 0, 0]).store(0, HEAP, 4);
        }
        // mov rax, [rdi]; mov [rsi], rax
        g.block(F + 11, &[0x48, 0x8b, 0x07, 0x48, 0x89, 0x06]).load(0, HEAP, 8).store(1, shared, 8);
        let severities: Vec<Severity> = g.finish().findings.iter().map(|finding| finding.severity).collect();
        assert_eq!(severities, [severity]);
    }
}

#[test]
fn to_the_user() {
    let mut g = allocated(GFP_KERNEL);
    g.block(F + 5, WRITE1).store(0, HEAP, 1);
    g.called(F + 7, "copy_to_user", &[0x1000_0000, HEAP, 16]);
    g.block(F + 12, &[0x90]);
    let found = g.found();
    assert!(found[0].starts_with("uninit-to-user at f+0x7: 15 of 16 bytes"), "{found:?}");
}

#[test]
fn copies_carry_definedness() {
    let mut g = allocated(GFP_KERNEL);
    g.block(F + 5, WRITE1).store(0, HEAP, 1);
    g.called(F + 7, "memcpy", &[HEAP + 0x1000, HEAP, 16]);
    g.block(F + 12, READ_AND_BRANCH).load(0, HEAP + 0x1008, 4);
    let found = g.found();
    assert!(found[0].starts_with("uninit-branch at f+0x10"), "{found:?}");
}

#[test]
fn stack_that_the_driver_has_left_is_others() {
    let mut g = Guest::new();
    // sub rsp, 0x100; add rsp, 0x100; ret
    let code = [0x48, 0x81, 0xec, 0, 1, 0, 0, 0x48, 0x81, 0xc4, 0, 1, 0, 0, 0xc3];
    g.block(F, &code).load(2, STACK, 8);
    g.send(0);
    // The kernel calls again, deeper, and passes a local variable of its own.
    g.rsp = STACK - 0xc0;
    g.enter();
    g.block(G, READ_AND_BRANCH).load(0, STACK - 0x80, 4);
    assert_eq!(g.found(), [""; 0]);
}
