//! Atomics, DMA memory, per-CPU memory.

use super::guest::*;
use crate::order::Parts;
use guardrail_trace::event::{Global, Head, Kind};

const FLAG: u64 = 0xffff_8880_0600_0000;

/// lock add [rdi], eax
fn update(r: Running<'_>) -> Running<'_> {
    r.block(&[0xf0, 0x01, 0x07], &[load(0, FLAG, 4), store(0, FLAG, 4)])
}

type Step = fn(Running<'_>) -> Running<'_>;

fn hand_over(mut g: Guest, first: Step, second: Step) -> Vec<u64> {
    // A third task uses the word as an atomic.
    update(g.by(&task(3)).enter("vfs_read", &[]));
    first(g.by(&task(1)).enter("vfs_read", &[]).write(1)).write(2);
    second(g.by(&task(2)).enter("vfs_read", &[])).write(3);
    g.written(3).after
}

#[test]
fn atomics_order() {
    assert_eq!(hand_over(Guest::new(), update, update), [1]);
    assert_eq!(hand_over(Guest::new(), update, |r| r.load_word(FLAG)), [1]);
    assert_eq!(hand_over(Guest::new(), |r| r.store_word(FLAG), |r| r.load_word(FLAG)), [1]);
    // Reads release nothing, and writes acquire nothing.
    assert!(hand_over(Guest::new(), |r| r.load_word(FLAG), update).is_empty());
    assert!(hand_over(Guest::new(), update, |r| r.store_word(FLAG)).is_empty());
    // Other words have no effect.
    assert!(hand_over(Guest::new(), |r| r.store_word(FLAG + 8), |r| r.load_word(FLAG + 8)).is_empty());
    let off = Guest::with(Parts { atomics: false, ..Parts::default() });
    assert!(hand_over(off, update, update).is_empty());
}

#[test]
fn an_atomic_ends_with_its_memory() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(2));
    update(g.by(&a).hooked("kmalloc", &[64], FLAG).enter("vfs_read", &[]).write(1))
        .hooked("kfree", &[FLAG], 0)
        .hooked("kmalloc", &[64], FLAG);
    g.by(&b).enter("vfs_read", &[]).load_word(FLAG).write(2);
    assert!(g.written(2).after.is_empty());
}

#[test]
fn descriptors_order_by_cells() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(2));
    let ring = 0xffff_8880_0500_0000;
    g.by(&a).hooked("dma_alloc", &[4096], ring).enter("vfs_read", &[]).write(1).store_word(ring + 32);
    g.by(&b).enter("vfs_read", &[]).load_word(ring + 48).write(2).load_word(ring + 44).write(3);
    assert!(g.written(2).after.is_empty());
    assert_eq!(g.written(3).after, [1, 2]);
    // The writes of two strands count for both.
    let c = task(3);
    g.by(&b).write(4).store_word(ring + 64);
    g.by(&a).write(5).store_word(ring + 68);
    g.by(&c).enter("vfs_read", &[]).load_word(ring + 64).write(6);
    assert_eq!(g.written(6).after, [1, 2, 3, 4, 5]);
}

#[test]
fn a_string_instruction_accesses_all_cells() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(2));
    let ring = 0xffff_8880_0500_0000;
    g.by(&a).hooked("dma_alloc", &[4096], ring).enter("vfs_read", &[]).write(1);
    // rep stosq
    g.by(&a).block(&[0xf3, 0x48, 0xab], &[]);
    g.words(a.cpu, &[Head::encode(Kind::Rep, 0, 0), 64, 0, ring]);
    g.by(&a).block(&[0x90], &[]);
    g.by(&b).enter("vfs_read", &[]).load_word(ring + 480).write(2);
    assert_eq!(g.written(2).after, [1]);
}

#[test]
fn per_cpu_memory_is_recognized() {
    let mut g = Guest::new();
    let base = HEAP + 64 * 20;
    g.words(0, &[Head::encode(Kind::Global, Global::GsBase as u8, 0), base]);
    let a = task(1);
    g.by(&a).run("vfs_read", &[], 21);
    // One unit is 640 bytes here; a second base shows that.
    g.words(1, &[Head::encode(Kind::Global, Global::GsBase as u8, 0), base + 640]);
    g.by(&a).run("vfs_read", &[], 22).run("vfs_read", &[], 35).run("vfs_read", &[], 41);
    g.by(&a).hooked("alloc_percpu", &[64], 64 * 15).run("vfs_read", &[], 45);
    let per_cpu: Vec<bool> = [21, 22, 35, 41, 45].iter().map(|&n| g.written(n).per_cpu).collect();
    assert_eq!(per_cpu, [false, true, true, false, true]);
}

/// lock bts dword [rdi], BIT; and the reverse: lock btr
fn bit(r: Running<'_>, bit: u8) -> Running<'_> {
    r.block(&[0xf0, 0x0f, 0xba, 0x2f, bit], &[load(0, FLAG, 4), store(0, FLAG, 4)])
}

#[test]
fn each_bit_of_a_word_orders_by_itself() {
    assert_eq!(hand_over(Guest::new(), |r| bit(r, 3), |r| bit(r, 3)), [1]);
    assert!(hand_over(Guest::new(), |r| bit(r, 3), |r| bit(r, 4)).is_empty());
    // lock and byte [rdi], ~8 is about the same bit.
    let clear: Step = |r| r.block(&[0xf0, 0x80, 0x27, 0xf7], &[load(0, FLAG, 1), store(0, FLAG, 1)]);
    assert_eq!(hand_over(Guest::new(), clear, |r| bit(r, 3)), [1]);
    assert!(hand_over(Guest::new(), clear, |r| bit(r, 2)).is_empty());
    // An access that reads or writes the whole word concerns all bits.
    assert_eq!(hand_over(Guest::new(), |r| bit(r, 3), |r| r.load_word(FLAG)), [1]);
    assert_eq!(hand_over(Guest::new(), update, |r| bit(r, 3)), [1]);
}
