//! Memory of requests: from the kernel to a driver, its device, its handler, and back.

use super::guest::*;
use crate::order::Parts;
use guardrail_trace::event::Access;

/// A request whose size is not known: places 10 to 25. The next one is at places 26 to 41.
const RQ: u64 = HEAP + 64 * 10;
const NEXT: u64 = HEAP + 64 * 26;
const LOCK: u64 = 0xffff_8880_0900_0000;
const RING: u64 = 0xffff_8880_0500_0000;

fn bell(g: &mut Guest, who: &Context) {
    let io = Access { io: true, ..store(0, 0xffff_c900_0300_0000, 4) };
    g.by(who).block(&[0x89, 0x07], &[io]);
}

fn start(g: &mut Guest, who: &Context, request: u64) {
    g.by(who).called("request_start", &[request], 0);
}

/// A task starts the request, and announces it to the device between places 11 and 12.
fn submit(g: &mut Guest, who: &Context) {
    g.by(who).enter("queue_caller", &[RQ]).write(1).write(10);
    start(g, who, RQ);
    g.by(who).write(11);
    bell(g, who);
    g.by(who).write(12).write(2).ret(0);
}

#[test]
fn a_request_goes_to_the_device_and_comes_back_in_its_interrupt() {
    let mut g = Guest::new();
    let (handler, next) = (hardirq(2), task(3));
    submit(&mut g, &task(1));
    g.by(&handler).enter("handler_caller", &[]).write(3).write(13).called("request_end", &[RQ], 0);
    g.by(&handler).write(14).ret(0);
    g.by(&next).enter("queue_caller", &[NEXT]).write(4).write(15).ret(0);
    // Accesses to other memory order nothing, and what followed the doorbell is not ordered.
    assert!(g.written(3).after.is_empty());
    assert_eq!(g.written(13).after, [1, 3, 10, 11]);
    assert!(g.written(4).after.is_empty());
    // What the handler did after it had ended the request is not ordered either.
    assert_eq!(g.written(15).after, [1, 3, 4, 10, 11, 13]);
}

#[test]
fn an_access_after_the_bell_is_a_race() {
    let mut g = Guest::checked("drcheck");
    let handler = hardirq(2);
    submit(&mut g, &task(1));
    g.place = G;
    g.by(&handler).enter("handler_caller", &[]).write(10).write(11).write(12).ret(0);
    let found = g.found();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("data-race"));
}

#[test]
fn who_has_no_answer_of_the_device_does_not_have_the_request() {
    for (who, caller, object) in [
        (task(3), "vfs_read", 0),
        (task(3), "queue_caller", NEXT),
        (softirq(2), "call_timer_fn.isra.0", LOCK),
    ] {
        let mut g = Guest::new();
        submit(&mut g, &task(1));
        g.by(&who).run(caller, &[object], 13);
        assert!(g.written(13).after.is_empty(), "{caller}");
    }
    let mut g = Guest::new();
    submit(&mut g, &task(1));
    g.by(&task(3)).run("poll_caller", &[], 13);
    assert_eq!(g.written(13).after, [1, 10, 11]);
    // An interrupt does not own a request that was not announced to the device.
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("queue_caller", &[RQ]);
    start(&mut g, &a, RQ);
    g.by(&a).write(10).ret(0);
    g.by(&hardirq(2)).run("handler_caller", &[], 13);
    assert!(g.written(13).after.is_empty());
}

#[test]
fn one_bell_rings_for_all_who_had_the_lock_before() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(2));
    g.by(&a).hooked("dma_alloc", &[4096], RING);
    let locked = |g: &mut Guest, who: &Context, rings: bool| {
        g.by(who).called("_raw_spin_lock", &[LOCK], 0);
        g.by(who).store_word(RING + u64::from(rings) * 64);
        if rings {
            bell(g, who);
        }
        g.by(who).called("_raw_spin_unlock", &[LOCK], 0);
    };
    g.by(&a).enter("queue_caller", &[RQ]);
    start(&mut g, &a, RQ);
    g.by(&a).write(10);
    locked(&mut g, &a, false);
    g.by(&a).write(11);
    g.by(&b).enter("queue_caller", &[NEXT]).write(26);
    start(&mut g, &b, NEXT);
    locked(&mut g, &b, true);
    g.by(&b).ret(0);
    g.by(&hardirq(2)).run("handler_caller", &[], 12);
    g.by(&hardirq(4)).run("handler_caller", &[], 27);
    assert_eq!(g.written(12).after, [10]);
    assert!(g.written(27).after.contains(&26) && !g.written(27).after.contains(&11));
}

#[test]
fn a_batch_ends_what_its_handler_has_back() {
    let mut g = Guest::new();
    let (handler, next) = (hardirq(2), task(3));
    submit(&mut g, &task(1));
    g.by(&handler).enter("handler_caller", &[]).write(13).called("request_end_all", &[0x9000], 0).write(14);
    g.by(&handler).ret(0);
    g.by(&next).run("queue_caller", &[RQ], 15);
    assert_eq!(g.written(15).after, [1, 10, 11, 13]);
}

#[test]
fn the_kernel_has_requests_that_were_made_ready_and_those_that_could_not_be_queued() {
    let mut g = Guest::new();
    g.by(&task(1)).run("init_caller", &[RQ], 10);
    let b = task(2);
    g.by(&b).enter("queue_caller", &[NEXT]).write(11).ret(9);
    g.by(&task(3)).run("queue_caller", &[NEXT], 12);
    assert_eq!(g.written(11).after, [10]);
    assert_eq!(g.written(12).after, [10, 11]);
    // A request that another strand owns stays with that strand.
    g.by(&task(4)).run("vfs_read", &[], 13);
    g.by(&task(5)).run("vfs_read", &[], 14);
    assert!(g.written(14).after.is_empty());
}

#[test]
fn requests_reach_as_far_as_the_next() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).run("init_caller", &[HEAP + 64 * 12], 1).run("init_caller", &[RQ], 10);
    // These places lie behind both requests.
    g.by(&task(2)).run("queue_caller", &[NEXT], 14);
    g.by(&task(3)).run("queue_caller", &[NEXT], 13);
    assert!(g.written(14).after.is_empty());
    assert_eq!(g.written(13).after, [1]);
}

#[test]
fn a_request_ends_with_its_memory() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).hooked("kmalloc", &[512], RQ).run("init_caller", &[RQ], 10).hooked("kfree", &[RQ], 0);
    g.by(&task(2)).run("queue_caller", &[NEXT], 11);
    assert!(g.written(11).after.is_empty());
}

#[test]
fn both_edges_can_be_left_out() {
    let seen = |parts: Parts| {
        let mut g = Guest::with(parts);
        submit(&mut g, &task(1));
        let handler = hardirq(2);
        g.by(&handler).enter("handler_caller", &[]).write(13).called("request_end", &[RQ], 0).ret(0);
        g.by(&task(3)).run("queue_caller", &[NEXT], 15);
        (g.written(13).after, g.written(15).after)
    };
    assert_eq!(seen(Parts { states: false, ..Parts::default() }), (vec![1, 10, 11], vec![]));
    assert_eq!(seen(Parts { atomics: false, ..Parts::default() }), (vec![], vec![13]));
}
