//! Accesses through pointers that came from another object than the one they hit.

use super::guest::*;
use guardrail_knowledge::effect::{Effect, LockKind, LockMode, SyncOp, When};

const NEIGHBOR: u64 = HEAP + 64;
/// mov rbx, rax
const KEEP: &[u8] = &[0x48, 0x89, 0xc3];
/// mov [rbx+0x40], al
const BEHIND: &[u8] = &[0x88, 0x43, 0x40];
/// mov [rbx], al
const AT: &[u8] = &[0x88, 0x03];
/// mov [rdi], rbx
const SAVE: &[u8] = &[0x48, 0x89, 0x1f];
/// mov rbx, [rdi]; mov [rbx+0x40], al
const LOAD_AND_BEHIND: &[u8] = &[0x48, 0x8b, 0x1f, 0x88, 0x43, 0x40];
/// mov rbx, [rdi]; mov [rbx+rcx], al
const LOAD_AND_INDEX: &[u8] = &[0x48, 0x8b, 0x1f, 0x88, 0x04, 0x0b];

const OUT: &str =
    "out-of-bounds at f+0x20: out-of-bounds write of 1 byte at offset 64 of a 64-byte slab object";
const FREED: &str =
    "use-after-free at f+0x20: use-after-free write of 1 byte at offset 0 of a 64-byte slab object";
const NOTHING: [&str; 0] = [];

/// An object whose pointer is in rbx.
fn one() -> Guest {
    let mut g = Guest::new();
    g.hooked(F, "kmalloc", &[64, GFP_KERNEL], HEAP);
    g.block(F + 5, KEEP);
    g
}

/// Two objects without a gap; the first one's pointer is in rbx, the second one's in rax.
fn two() -> Guest {
    let mut g = one();
    g.hooked(F + 8, "kmalloc", &[64, GFP_KERNEL], NEIGHBOR);
    g
}

/// An object that was freed and whose memory was allocated again; its pointer is in rbx.
fn reused() -> Guest {
    let mut g = one();
    g.hooked(F + 8, "kfree", &[HEAP], 0);
    g.block(F + 13, &[0x90]);
    g.hooked(F + 14, "kmalloc", &[64, GFP_KERNEL], HEAP);
    g
}

#[test]
fn beyond_the_end_is_a_neighbor() {
    let mut g = two();
    g.block(F + 0x20, BEHIND).store(0, NEIGHBOR, 1);
    let report = g.finish();
    let finding = &report.findings[0];
    assert_eq!(finding.kind, "out-of-bounds");
    assert_eq!(finding.message, "out-of-bounds write of 1 byte at offset 64 of a 64-byte slab object");
    assert_eq!(
        finding.notes,
        ["the pointer came from this object; the access is to offset 0 of a 64-byte slab object beside it"]
    );
    assert_eq!(finding.related[0].what, "neighbor allocated");
    assert_eq!(report.findings.len(), 1);
}

#[test]
fn what_lies_beside_an_object_need_not_be_known() {
    let mut g = one();
    g.block(F + 0x20, BEHIND).store(0, NEIGHBOR, 1);
    assert_eq!(g.found(), [OUT]);
}

#[test]
fn an_index_of_unknown_value_may_lead_to_memory_of_which_nothing_is_known() {
    let mut g = one();
    // mov [rbx+rcx*4], al; add rbx, rcx; mov [rbx], al; mov [rbx+1], al
    let code = [0x88, 0x04, 0x8b, 0x48, 0x01, 0xcb, 0x88, 0x03, 0x88, 0x43, 0x01];
    g.block(F + 0x20, &code).store(0, NEIGHBOR, 1).store(2, NEIGHBOR, 1).store(3, NEIGHBOR + 1, 1);
    assert_eq!(g.found(), NOTHING);
}

#[test]
fn far_from_an_object_nothing_is_said() {
    let mut g = one();
    // mov [rbx+0x80], al
    g.block(F + 0x20, &[0x88, 0x83, 0x80, 0, 0, 0]).store(0, HEAP + 0x80, 1);
    assert_eq!(g.found(), NOTHING);
}

#[test]
fn a_part_beyond_the_end() {
    let mut g = two();
    // mov [rbx+0x3c], rax
    g.block(F + 0x20, &[0x48, 0x89, 0x43, 0x3c]).store(0, HEAP + 0x3c, 8);
    assert_eq!(
        g.found(),
        ["out-of-bounds at f+0x20: out-of-bounds write of 8 bytes at offset 60 of a 64-byte slab object"]
    );
}

#[test]
fn before_the_start() {
    let mut g = two();
    // mov [rax-1], al
    g.block(F + 0x20, &[0x88, 0x40, 0xff]).store(0, NEIGHBOR - 1, 1);
    assert_eq!(
        g.found(),
        [
            "out-of-bounds at f+0x20: out-of-bounds write of 1 byte 1 byte before the start of a 64-byte slab object"
        ]
    );
}

#[test]
fn the_neighbors_own_pointer_is_right() {
    let mut g = two();
    // mov [rax], al; lea rbx, [rax+8]; mov [rbx-8], al
    let code = [0x88, 0x00, 0x48, 0x8d, 0x58, 0x08, 0x88, 0x43, 0xf8];
    g.block(F + 0x20, &code).store(0, NEIGHBOR, 1).store(2, NEIGHBOR, 1);
    assert_eq!(g.found(), NOTHING);
}

#[test]
fn an_index_of_unknown_value() {
    let mut g = two();
    // mov [rbx+rcx*4], al
    g.block(F + 0x20, &[0x88, 0x04, 0x8b]).store(0, NEIGHBOR, 1);
    assert_eq!(g.found(), [OUT]);
}

#[test]
fn a_sum_keeps_the_object() {
    let mut g = two();
    // add rbx, rcx; mov [rbx], al
    g.block(F + 0x20 - 3, &[0x48, 0x01, 0xcb, 0x88, 0x03]).store(1, NEIGHBOR, 1);
    assert_eq!(g.found(), [OUT]);
}

#[test]
fn a_comparison_leaves_the_pointer() {
    let mut g = two();
    // test rbx, rbx; cmp rbx, rax; mov [rbx+0x40], al (the pointer into the object equals no other)
    let code = [0x48, 0x85, 0xdb, 0x48, 0x39, 0xc3, 0x88, 0x43, 0x40];
    g.block(F + 0x20 - 6, &code).store(2, NEIGHBOR, 1);
    assert_eq!(g.found(), [OUT]);
}

#[test]
fn a_sum_with_a_difference_of_pointers_may_point_anywhere() {
    let mut g = two();
    // sub rax, rbx; mov [rbx+rax], al
    g.block(F + 0x20, &[0x48, 0x29, 0xd8, 0x88, 0x04, 0x03]).store(1, NEIGHBOR, 1);
    assert_eq!(g.found(), NOTHING);
}

#[test]
fn a_difference_with_a_pointer_of_which_nothing_is_known_may_be_any() {
    let mut g = two();
    // sub rdx, rbx; mov [rbx+rdx], al; sub rbx, rdi; mov [rdi+rbx], al
    let code = [0x48, 0x29, 0xda, 0x88, 0x04, 0x13, 0x48, 0x29, 0xfb, 0x88, 0x04, 0x1f];
    g.block(F + 0x20, &code).store(1, NEIGHBOR, 1).store(3, NEIGHBOR, 1);
    assert_eq!(g.found(), NOTHING);
}

#[test]
fn a_choice_may_be_either() {
    let mut g = two();
    // cmovz rbx, rax; mov [rbx], al
    g.block(F + 0x20, &[0x48, 0x0f, 0x44, 0xd8, 0x88, 0x03]).store(1, NEIGHBOR, 1);
    assert_eq!(g.found(), NOTHING);
}

#[test]
fn an_access_that_is_not_where_the_pointer_says_came_from_elsewhere() {
    let mut g = two();
    g.block(F + 0x20, BEHIND).store(0, NEIGHBOR + 8, 1);
    assert_eq!(g.found(), NOTHING);
}

#[test]
fn a_register_that_the_kernel_changes_holds_nothing() {
    let mut g = Guest::new();
    g.hooked(F, "kmalloc", &[64, GFP_KERNEL], NEIGHBOR);
    g.block(F + 5, &[0x90]);
    g.hooked(F + 6, "kmalloc", &[64, GFP_KERNEL], HEAP);
    // mov rcx, rax
    g.block(F + 11, &[0x48, 0x89, 0xc1]);
    g.called(F + 14, "scribble", &[]);
    // mov [rcx+rdx], al
    g.block(F + 0x20, &[0x88, 0x04, 0x11]).store(0, NEIGHBOR, 1);
    assert_eq!(g.found(), NOTHING);
}

#[test]
fn through_memory() {
    let mut g = two();
    g.block(F + 0x18, SAVE).store(0, SLOTS, 8);
    g.block(F + 0x20 - 3, LOAD_AND_BEHIND).load(0, SLOTS, 8).store(1, NEIGHBOR, 1);
    assert_eq!(g.found(), [OUT]);
}

#[test]
fn through_the_stack() {
    let mut g = two();
    // push rbx; pop rcx; mov [rcx+0x40], al
    g.block(F + 0x20 - 2, &[0x53, 0x59, 0x88, 0x41, 0x40]);
    let top = g.rsp - 8;
    g.store(0, top, 8).load(1, top, 8).store(2, NEIGHBOR, 1);
    assert_eq!(g.found(), [OUT]);
}

#[test]
fn a_word_that_the_kernel_may_have_written() {
    let mut g = two();
    g.block(F + 0x14, SAVE).store(0, SLOTS, 8);
    g.called(F + 0x17, "scribble", &[SLOTS]);
    g.block(F + 0x20 - 3, LOAD_AND_INDEX).load(0, SLOTS, 8).store(1, NEIGHBOR, 1);
    assert_eq!(g.found(), NOTHING);
}

#[test]
fn a_word_of_which_a_part_was_written() {
    let mut g = two();
    // mov [rdi], rbx; mov [rdi+4], eax
    g.block(F + 0x14, &[0x48, 0x89, 0x1f, 0x89, 0x47, 0x04]).store(0, SLOTS, 8).store(1, SLOTS + 4, 4);
    g.block(F + 0x20 - 3, LOAD_AND_INDEX).load(0, SLOTS, 8).store(1, NEIGHBOR, 1);
    assert_eq!(g.found(), NOTHING);
}

#[test]
fn a_word_of_the_kernel_s_object_counts_only_where_its_value_shows() {
    for (code, at, found) in
        [(LOAD_AND_INDEX, NEIGHBOR, vec![]), (LOAD_AND_BEHIND, NEIGHBOR, vec![OUT.to_owned()])]
    {
        let mut g = two();
        let place = HEAP + 0x1000;
        g.by_kernel("kmalloc", &[64, GFP_KERNEL], place);
        g.block(F + 0x14, SAVE).store(0, place, 8);
        g.block(F + 0x20 - 3, code).load(0, place, 8).store(1, at, 1);
        assert_eq!(g.found(), found);
    }
}

#[test]
fn memory_that_was_allocated_again() {
    let mut g = reused();
    g.block(F + 0x20, AT).store(0, HEAP, 1);
    let report = g.finish();
    let finding = &report.findings[0];
    assert_eq!(finding.kind, "use-after-free");
    assert_eq!(finding.message, "use-after-free write of 1 byte at offset 0 of a 64-byte slab object");
    assert_eq!(
        finding.notes,
        ["the pointer came from the freed object; its memory now belongs to a 64-byte slab object"]
    );
    assert_eq!(finding.related[0].what, "allocated again");
    let object = finding.object.as_ref().unwrap();
    assert!(object.allocated.is_some() && object.freed.is_some());
    assert_eq!(report.findings.len(), 1);
}

#[test]
fn memory_that_others_have_allocated_again() {
    let mut g = one();
    g.hooked(F + 8, "kfree", &[HEAP], 0);
    g.block(F + 13, &[0x90]);
    g.send(0);
    g.by_kernel("kmalloc", &[64, GFP_KERNEL], HEAP);
    g.block(F + 0x20, AT).store(0, HEAP, 1);
    assert_eq!(g.found(), [FREED]);
}

#[test]
fn the_compiler_may_use_the_old_pointer_where_it_equals_the_new_one() {
    for compare in [&[0x48, 0x39, 0xd8][..], &[0x48, 0x3b, 0x1f], &[0x48, 0x39, 0x1f]] {
        let mut g = reused();
        // mov rcx, rbx
        g.block(F + 0x14, &[0x48, 0x89, 0xd9]);
        // cmp rax, rbx; or cmp rbx, [rdi]; or cmp [rdi], rbx
        g.block(F + 0x17, compare);
        if compare[1] != 0x39 || compare[2] != 0xd8 {
            g.load(0, SLOTS, 8);
        }
        // mov [rbx], al; mov [rcx], al
        g.block(F + 0x20, &[0x88, 0x03, 0x88, 0x01]).store(0, HEAP, 1).store(1, HEAP, 1);
        assert_eq!(g.found(), NOTHING);
    }
}

#[test]
fn a_pointer_to_the_end_may_be_used_for_the_neighbor_s() {
    let mut g = two();
    // add rbx, 64; cmp rbx, rax; mov [rbx], al
    g.block(F + 0x18, &[0x48, 0x83, 0xc3, 0x40, 0x48, 0x39, 0xc3, 0x88, 0x03]).store(2, NEIGHBOR, 1);
    assert_eq!(g.found(), NOTHING);
}

#[test]
fn the_new_pointer_is_right() {
    let mut g = reused();
    // mov [rax], al
    g.block(F + 0x20, &[0x88, 0x00]).store(0, HEAP, 1);
    assert_eq!(g.found(), NOTHING);
}

#[test]
fn a_reallocation_in_place_keeps_the_pointer() {
    let mut g = Guest::new();
    g.hooked(F, "kmalloc", &[40, GFP_KERNEL], HEAP);
    g.block(F + 5, KEEP);
    g.hooked(F + 8, "krealloc", &[HEAP, 64, GFP_KERNEL], HEAP);
    // mov [rbx+0x3f], al; mov [rbx+0x40], al
    g.block(F + 0x20 - 3, &[0x88, 0x43, 0x3f, 0x88, 0x43, 0x40]).store(0, HEAP + 63, 1).store(1, NEIGHBOR, 1);
    assert_eq!(g.found(), [OUT]);
}

#[test]
fn a_stale_word_of_the_kernel_s_object_may_hold_the_new_pointer() {
    let mut g = one();
    let place = HEAP + 0x1000;
    g.by_kernel("kmalloc", &[64, GFP_KERNEL], place);
    g.block(F + 8, SAVE).store(0, place, 8);
    g.hooked(F + 11, "kfree", &[HEAP], 0);
    g.block(F + 16, &[0x90]);
    g.hooked(F + 17, "kmalloc", &[64, GFP_KERNEL], HEAP);
    // mov rbx, [rdi]; mov [rbx], al
    g.block(F + 0x20, &[0x48, 0x8b, 0x1f, 0x88, 0x03]).load(0, place, 8).store(1, HEAP, 1);
    assert_eq!(g.found(), NOTHING);
}

#[test]
fn what_the_kernel_reads_through_a_stale_pointer() {
    let mut g = reused();
    // mov rdi, rbx
    g.block(F + 0x20 - 3, &[0x48, 0x89, 0xdf]);
    g.called(F + 0x20, "look_at", &[HEAP]);
    assert_eq!(
        g.found(),
        ["use-after-free at f+0x20: use-after-free read of 8 bytes at offset 0 of a 64-byte slab object"]
    );
}

#[test]
fn a_string_instruction_that_begins_in_a_neighbor() {
    let mut g = two();
    // lea rdi, [rbx+0x40]; rep stosb
    g.block(F + 0x20 - 4, &[0x48, 0x8d, 0x7b, 0x40, 0xf3, 0xaa]);
    g.rep(1, 8, 0, NEIGHBOR);
    g.store(1, NEIGHBOR, 1);
    g.block(F + 0x30, &[0x90]);
    assert_eq!(
        g.found(),
        ["out-of-bounds at f+0x20: out-of-bounds write of 8 bytes at offset 64 of a 64-byte slab object"]
    );
}

/// The name of the lock at an offset of an object whose address the driver keeps in its device, at the displacement.
fn kept(size: u64, displacement: u8, offset: u64) -> String {
    let (kind, mode, when) = (LockKind::Spin, LockMode::Exclusive, When::Always);
    let lock = SyncOp::Lock { kind, key: arg(0), mode, when, tries: false };
    let kernel = kernel().function("_raw_spin_lock", [Effect::Sync(lock)]);
    let mut g = Guest::with(kernel, &["dmcheck", "lockcheck"]);
    g.hooked(F, "kmalloc", &[320, GFP_KERNEL], HEAP);
    // mov rbx, rax
    g.block(F + 5, &[0x48, 0x89, 0xc3]);
    let object = HEAP + 0x1000;
    g.hooked(F + 8, "kmalloc", &[size, GFP_KERNEL], object);
    // mov [rbx+displacement], rax
    g.block(F + 13, &[0x48, 0x89, 0x83, displacement, 0, 0, 0]);
    g.store(0, HEAP + u64::from(displacement), 8);
    for at in [F + 20, F + 25] {
        g.called(at, "_raw_spin_lock", &[object + offset]);
    }
    let found = g.found();
    let locks = found.iter().find_map(|found| found.split("the spinlock ").nth(1));
    let name = locks.and_then(|rest| rest.split(", which").next());
    name.unwrap_or_else(|| panic!("no lock in {found:?}")).to_owned()
}

#[test]
fn an_object_is_what_the_pointer_to_it_points_to() {
    assert_eq!(kept(48, 128, 8), "ring.lock");
    // An element of an array, and a structure with more behind it.
    assert_eq!(kept(96, 128, 56), "ring.lock");
    assert_eq!(kept(100, 144, 8), "ring.lock");
    // The type has another size, is a part of another one, or is not known.
    for (size, displacement, offset) in [(100, 128, 8), (48, 136, 8), (48, 152, 8)] {
        let name = kept(size, displacement, offset);
        assert_eq!(name, format!("offset {offset} of the {size}-byte slab object allocated in f"));
    }
}
