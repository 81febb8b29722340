//! Memory of requests: from the kernel to a driver, its device, its handler, and back.

use super::guest::*;
use crate::order::Parts;
use guardrail_trace::event::Access;

/// A request whose size is not known: places 10 to 25. The next one is at places 26 to 41.
const RQ: u64 = HEAP + 64 * 10;
const NEXT: u64 = HEAP + 64 * 26;
const LOCK: u64 = 0xffff_8880_0900_0000;
const RING: u64 = 0xffff_8880_0500_0000;

fn bell(g: &mut Guest, who: &Who) {
    let io = Access { io: true, ..store(0, 0xffff_c900_0300_0000, 4) };
    g.block(who, &[0x89, 0x07], &[io]);
}

fn start(g: &mut Guest, who: &Who, request: u64) {
    g.called(who, "request_start", &[request], 0);
}

/// A task starts the request, and announces it to the device between places 11 and 12.
fn submit(g: &mut Guest, who: &Who) {
    g.enter(who, "queue_caller", six(&[RQ]));
    g.touch(who, 1);
    g.touch(who, 10);
    start(g, who, RQ);
    g.touch(who, 11);
    bell(g, who);
    g.touch(who, 12);
    g.touch(who, 2);
    g.ret(who, 0);
}

#[test]
fn a_request_goes_to_the_device_and_comes_back_in_its_interrupt() {
    let mut g = Guest::new();
    let (handler, next) = (hardirq(2), task(3));
    submit(&mut g, &task(1));
    g.enter(&handler, "handler_caller", NONE);
    g.touch(&handler, 3);
    g.touch(&handler, 13);
    g.called(&handler, "request_end", &[RQ], 0);
    g.touch(&handler, 14);
    g.ret(&handler, 0);
    g.enter(&next, "queue_caller", six(&[NEXT]));
    g.touch(&next, 4);
    g.touch(&next, 15);
    g.ret(&next, 0);
    // Accesses to other memory order nothing, and what followed the doorbell is not ordered.
    assert!(g.touched(3).after.is_empty());
    assert_eq!(g.touched(13).after, [1, 3, 10, 11]);
    assert!(g.touched(4).after.is_empty());
    // What the handler did after it had ended the request is not ordered either.
    assert_eq!(g.touched(15).after, [1, 3, 4, 10, 11, 13]);
}

#[test]
fn an_access_after_the_bell_is_a_race() {
    let mut g = Guest::checked("drcheck");
    let handler = hardirq(2);
    submit(&mut g, &task(1));
    g.place = G;
    g.enter(&handler, "handler_caller", NONE);
    g.touch(&handler, 10);
    g.touch(&handler, 11);
    g.touch(&handler, 12);
    g.ret(&handler, 0);
    let found = g.found();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("data-race"));
}

#[test]
fn who_has_no_answer_of_the_device_does_not_have_the_request() {
    for (who, caller, args) in [
        (task(3), "vfs_read", NONE),
        (task(3), "queue_caller", six(&[NEXT])),
        (softirq(2), "call_timer_fn.isra.0", six(&[LOCK])),
    ] {
        let mut g = Guest::new();
        submit(&mut g, &task(1));
        g.run(&who, caller, args, 13);
        assert!(g.touched(13).after.is_empty(), "{caller}");
    }
    let mut g = Guest::new();
    submit(&mut g, &task(1));
    g.run(&task(3), "poll_caller", NONE, 13);
    assert_eq!(g.touched(13).after, [1, 10, 11]);
    // An interrupt does not own a request that was not announced to the device.
    let mut g = Guest::new();
    let a = task(1);
    g.enter(&a, "queue_caller", six(&[RQ]));
    start(&mut g, &a, RQ);
    g.touch(&a, 10);
    g.ret(&a, 0);
    g.run(&hardirq(2), "handler_caller", NONE, 13);
    assert!(g.touched(13).after.is_empty());
}

#[test]
fn one_bell_rings_for_all_who_had_the_lock_before() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(2));
    g.hooked(&a, "dma_alloc", &[4096], RING);
    let locked = |g: &mut Guest, who: &Who, rings: bool| {
        g.called(who, "_raw_spin_lock", &[LOCK], 0);
        // mov [rdi], eax
        g.block(who, &[0x89, 0x07], &[store(0, RING + u64::from(rings) * 64, 4)]);
        if rings {
            bell(g, who);
        }
        g.called(who, "_raw_spin_unlock", &[LOCK], 0);
    };
    g.enter(&a, "queue_caller", six(&[RQ]));
    start(&mut g, &a, RQ);
    g.touch(&a, 10);
    locked(&mut g, &a, false);
    g.touch(&a, 11);
    g.enter(&b, "queue_caller", six(&[NEXT]));
    g.touch(&b, 26);
    start(&mut g, &b, NEXT);
    locked(&mut g, &b, true);
    g.ret(&b, 0);
    g.run(&hardirq(2), "handler_caller", NONE, 12);
    g.run(&hardirq(4), "handler_caller", NONE, 27);
    assert_eq!(g.touched(12).after, [10]);
    assert!(g.touched(27).after.contains(&26) && !g.touched(27).after.contains(&11));
}

#[test]
fn a_batch_ends_what_its_handler_has_back() {
    let mut g = Guest::new();
    let (handler, next) = (hardirq(2), task(3));
    submit(&mut g, &task(1));
    g.enter(&handler, "handler_caller", NONE);
    g.touch(&handler, 13);
    g.called(&handler, "request_end_all", &[0x9000], 0);
    g.touch(&handler, 14);
    g.ret(&handler, 0);
    g.run(&next, "queue_caller", six(&[RQ]), 15);
    assert_eq!(g.touched(15).after, [1, 10, 11, 13]);
}

#[test]
fn the_kernel_has_requests_that_were_made_ready_and_those_that_could_not_be_queued() {
    let mut g = Guest::new();
    g.run(&task(1), "init_caller", six(&[RQ]), 10);
    let b = task(2);
    g.enter(&b, "queue_caller", six(&[NEXT]));
    g.touch(&b, 11);
    g.ret(&b, 9);
    g.run(&task(3), "queue_caller", six(&[NEXT]), 12);
    assert_eq!(g.touched(11).after, [10]);
    assert_eq!(g.touched(12).after, [10, 11]);
    // A request that another strand owns stays with that strand.
    g.run(&task(4), "vfs_read", NONE, 13);
    g.run(&task(5), "vfs_read", NONE, 14);
    assert!(g.touched(14).after.is_empty());
}

#[test]
fn requests_reach_as_far_as_the_next() {
    let mut g = Guest::new();
    let a = task(1);
    g.run(&a, "init_caller", six(&[HEAP + 64 * 12]), 1);
    g.run(&a, "init_caller", six(&[RQ]), 10);
    // These places lie behind both requests.
    g.run(&task(2), "queue_caller", six(&[NEXT]), 14);
    g.run(&task(3), "queue_caller", six(&[NEXT]), 13);
    assert!(g.touched(14).after.is_empty());
    assert_eq!(g.touched(13).after, [1]);
}

#[test]
fn a_request_ends_with_its_memory() {
    let mut g = Guest::new();
    let a = task(1);
    g.hooked(&a, "kmalloc", &[512], RQ);
    g.run(&a, "init_caller", six(&[RQ]), 10);
    g.hooked(&a, "kfree", &[RQ], 0);
    g.run(&task(2), "queue_caller", six(&[NEXT]), 11);
    assert!(g.touched(11).after.is_empty());
}

#[test]
fn both_edges_can_be_left_out() {
    let seen = |parts: Parts| {
        let mut g = Guest::with(parts);
        submit(&mut g, &task(1));
        let handler = hardirq(2);
        g.enter(&handler, "handler_caller", NONE);
        g.touch(&handler, 13);
        g.called(&handler, "request_end", &[RQ], 0);
        g.ret(&handler, 0);
        g.run(&task(3), "queue_caller", six(&[NEXT]), 15);
        (g.touched(13).after, g.touched(15).after)
    };
    assert_eq!(seen(Parts { states: false, ..Parts::default() }), (vec![1, 10, 11], vec![]));
    assert_eq!(seen(Parts { atomics: false, ..Parts::default() }), (vec![], vec![13]));
}
