//! User processes are frozen while the system sleeps.

use super::guest::*;
use crate::order::Parts;
use guardrail_trace::event::{Global, Head, Kind, ThreadFlags};

const D: u64 = 0xffff_8880_0800_0000;

/// The log names a thread.
fn is(g: &mut Guest, who: &Context, flags: u8, name: &str) {
    let mut comm = [0; 8];
    comm[..name.len()].copy_from_slice(name.as_bytes());
    let head = Head::encode(Kind::Thread, flags, u64::from(who.pid));
    g.words(2, &[head, who.task, u64::from_le_bytes(comm), 0]);
}

#[test]
fn what_users_did_comes_before_the_system_sleeps_and_what_they_do_comes_after() {
    for states in [true, false] {
        let mut g = Guest::with(Parts { states, ..Parts::default() });
        let (a, b, worker) = (task(1), task(2), task(3));
        is(&mut g, &a, ThreadFlags::USER, "a/b");
        is(&mut g, &b, ThreadFlags::KERNEL, "b");
        is(&mut g, &worker, ThreadFlags::KERNEL, "worker");
        g.by(&a).run("vfs_read", &[], 1);
        g.by(&b).run("vfs_read", &[], 2);
        g.by(&softirq(2)).run("net_rx_action", &[], 3);
        g.by(&worker).run("suspend_caller", &[D], 4);
        g.by(&softirq(2)).run("net_rx_action", &[], 5);
        g.by(&b).run("vfs_read", &[], 6);
        g.by(&a).run("vfs_read", &[], 7);
        let late = task(5);
        is(&mut g, &late, ThreadFlags::USER, "late");
        g.by(&late).run("vfs_read", &[], 8);
        if !states {
            assert!(g.written(4).after.is_empty() && g.written(8).after.is_empty());
            continue;
        }
        assert_eq!(g.written(4).after, [1]);
        assert_eq!(g.written(5).after, [3]);
        assert_eq!(g.written(6).after, [2]);
        assert_eq!(g.written(7).after, [1, 4]);
        assert_eq!(g.written(8).after, [1, 4]);
    }
}

#[test]
fn what_runs_below_the_suspend_of_any_device_comes_before_what_resumes_one() {
    for states in [true, false] {
        let mut g = Guest::with(Parts { states, ..Parts::default() });
        g.by(&task(1)).enter_below(1, &["async_suspend"], "vfs_read", &[]).write(1).ret(0);
        g.by(&task(2)).run("vfs_read", &[], 2);
        g.by(&task(3)).run("suspend_caller", &[D], 3);
        g.by(&task(4)).run("resume_caller", &[D], 4);
        assert!(!g.written(3).after.contains(&1));
        let after = g.written(4).after;
        assert!(after.contains(&1) == states && !after.contains(&2), "{after:?}");
    }
}

#[test]
fn what_a_layer_waits_for_before_devices_are_suspended_comes_before_what_resumes_one() {
    for states in [true, false] {
        let mut g = Guest::with(Parts { states, ..Parts::default() });
        g.by(&task(1)).run("init_caller", &[D + 64], 1);
        g.by(&task(2)).run("queue_caller", &[D + 64], 2);
        g.by(&task(3)).enter("init_caller", &[D + 64]).write(3);
        g.by(&task(4)).run("suspend_caller", &[D], 4);
        g.by(&task(5)).run("resume_caller", &[D], 5);
        // Runs that have not ended are not waited for.
        g.by(&task(3)).ret(0);
        let after = g.written(5).after;
        assert!(after.contains(&1) == states && !after.contains(&2) && !after.contains(&3), "{after:?}");
    }
}

#[test]
fn what_resumes_a_device_comes_before_what_a_layer_sends_to_it() {
    for states in [true, false] {
        let mut g = Guest::with(Parts { states, ..Parts::default() });
        g.by(&task(1)).run("resume_caller", &[D], 1);
        g.by(&task(2)).run("queue_caller", &[D + 64], 2);
        g.by(&task(3)).run("init_caller", &[D + 64], 3);
        assert!(!g.written(2).after.contains(&1));
        assert_eq!(g.written(3).after.contains(&1), states);
    }
}

#[test]
fn logs_that_do_not_name_user_threads_have_their_names() {
    let mut g = Guest::new();
    for (n, name) in ["kworker", "kswapd0", "irq/9", "sh"].into_iter().enumerate() {
        is(&mut g, &task(n as u64 + 1), 0, if n == 0 { "kw/0:1" } else { name });
        g.by(&task(n as u64 + 1)).run("vfs_read", &[], n as u64 + 1);
    }
    // About a thread that the log does not name, nothing is known.
    g.by(&task(6)).run("vfs_read", &[], 5);
    g.by(&task(7)).run("suspend_caller", &[D], 6);
    assert_eq!(g.written(6).after, [4]);
}

#[test]
fn a_process_that_is_frozen_in_the_driver_goes_on_afterwards() {
    let mut g = Guest::new();
    let (a, worker) = (task(1), task(3));
    is(&mut g, &a, ThreadFlags::USER, "a");
    g.by(&a).enter("vfs_read", &[]).write(1).call("kthread", &[]);
    g.by(&worker).run("suspend_caller", &[D], 2);
    g.by(&a).back(0).write(3);
    g.by(&worker).run("vfs_read", &[], 4);
    assert_eq!(g.written(2).after, [1]);
    assert_eq!(g.written(3).after, [1, 2]);
    assert_eq!(g.written(4).after, [1, 2]);
}

#[test]
fn the_process_that_puts_the_system_to_sleep_is_not_ordered_with_workers_that_help() {
    let mut g = Guest::new();
    let (sleeper, worker) = (task(1), task(3));
    is(&mut g, &sleeper, ThreadFlags::USER, "sh");
    is(&mut g, &worker, ThreadFlags::KERNEL, "worker");
    g.by(&sleeper).run("vfs_read", &[], 1).run("suspend_caller", &[D], 2);
    g.by(&worker).run("suspend_caller", &[D + 64], 3);
    g.by(&sleeper).run("resume_caller", &[D], 4);
    g.by(&worker).run("resume_caller", &[D + 64], 5);
    g.by(&sleeper).run("vfs_read", &[], 6);
    assert_eq!(g.written(3).after, [1]);
    assert!(!g.written(4).after.contains(&3));
    assert_eq!(g.written(5).after, [1, 3]);
    assert_eq!(g.written(6).after, [1, 2, 3, 4, 5]);
}

#[test]
fn a_callback_is_the_one_that_its_state_allows() {
    let mut g = Guest::new();
    let (a, worker) = (task(1), task(3));
    is(&mut g, &a, ThreadFlags::USER, "a");
    g.by(&worker).run("suspend_caller", &[D], 1);
    g.by(&a).run("vfs_read", &[], 2);
    g.by(&task(4)).run("resume_caller", &[D], 3);
    g.by(&task(5)).run("resume_caller", &[D], 4);
    // The device was awake again: user processes run beside its reset.
    assert_eq!(g.written(3).after, [1, 2]);
    assert!(!g.written(4).after.contains(&2));
}

#[test]
fn work_on_a_freezable_queue_is_frozen() {
    let mut g = Guest::new();
    let (queue, other, a) = (0x7000, 0x8000, task(1));
    g.words(2, &[Head::encode(Kind::Global, Global::FreezableQueue as u8, 0), queue]);
    g.by(&a).enter("vfs_read", &[]);
    for (queue, item) in [(queue, D), (other, D + 64), (queue, D + 128), (other, D + 128)] {
        g.by(&a).called("queue_work", &[queue, item], 0);
    }
    for (n, item) in [(1, D), (2, D + 64), (3, D + 128)] {
        g.by(&task(2)).run("work_caller", &[item], n);
    }
    g.by(&task(3)).run("suspend_caller", &[D], 4);
    g.by(&task(2)).run("work_caller", &[D], 5).run("work_caller", &[D + 64], 6);
    assert_eq!(g.written(4).after, [1]);
    assert_eq!(g.written(5).after, [1, 4]);
    assert_eq!(g.written(6).after, [2]);
}
