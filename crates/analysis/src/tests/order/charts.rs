//! Order and protocol from charts.

use super::guest::*;
use crate::order::Parts;

const T: u64 = 0xffff_8880_0800_0000;

fn args(key: u64) -> [u64; 6] {
    six(&[key])
}

#[test]
fn a_timer_comes_after_what_armed_it_and_before_what_waited_for_it() {
    let mut g = Guest::new();
    let a = task(1);
    g.enter(&a, "vfs_read", NONE);
    g.touch(&a, 1);
    g.called(&a, "mod_timer", &[T], 0);
    g.touch(&a, 2);
    g.run(&softirq(2), "call_timer_fn.isra.0", args(T), 3);
    g.run(&softirq(3), "call_timer_fn.isra.0", args(T + 64), 4);
    g.called(&a, "del_timer", &[T], 0);
    g.touch(&a, 5);
    g.called(&a, "del_timer_sync", &[T], 0);
    g.touch(&a, 6);
    assert_eq!(g.touched(3).after, [1]);
    assert!(g.touched(4).after.is_empty());
    assert_eq!(g.touched(5).after, [1, 2]);
    assert_eq!(g.touched(6).after, [1, 2, 3, 5]);
    assert_eq!(g.touched(3).strand, format!("the callback function of timer {T:#x}"));
    assert_eq!(g.touched(3).states, ["timer idle"]);
    // The timer that was never armed counts as pending; its state is not certain.
    assert_eq!(g.steps(), ["timer idle→pending", "timer pending→idle", "timer pending→idle"]);
}

/// A work item that queues itself again while it is canceled is refused.
#[test]
fn what_waits_for_a_callback_has_the_last_word() {
    let mut g = Guest::new();
    let (queue, a, worker) = (0x7000, task(1), task(2));
    g.enter(&a, "vfs_read", NONE);
    g.called(&a, "queue_work", &[queue, T], 0);
    g.call(&a, "cancel_work_sync", &[T]);
    g.enter(&worker, "work_caller", args(T));
    g.called(&worker, "queue_work", &[queue, T], 0);
    g.ret(&worker, 0);
    g.back(&a, 1);
    assert_eq!(
        g.steps(),
        ["work idle→pending", "work pending→idle", "work idle→pending", "work pending→idle"]
    );
}

#[test]
fn runs_of_a_timer_are_one_strand_on_all_processors() {
    let mut g = Guest::new();
    g.run(&softirq(1), "call_timer_fn.isra.0", args(T), 1);
    g.run(&softirq(2), "call_timer_fn.isra.0", args(T), 2);
    assert_eq!(g.touched(2).after, [1]);
    let mut g = Guest::with(Parts { deferral: false, ..Parts::default() });
    g.run(&softirq(1), "call_timer_fn.isra.0", args(T), 1);
    g.run(&softirq(2), "call_timer_fn.isra.0", args(T), 2);
    assert!(g.touched(2).after.is_empty());
}

#[test]
fn an_interrupt_handler_runs_between_request_and_free() {
    let mut g = Guest::new();
    let a = task(1);
    let device = [17, T];
    g.enter(&a, "vfs_read", NONE);
    g.touch(&a, 1);
    g.call(&a, "request_irq", &device);
    // The handler runs before the call has returned.
    g.run(&hardirq(2), "__handle_irq_event_percpu", six(&device), 2);
    g.back(&a, 0);
    g.touch(&a, 3);
    g.run(&hardirq(2), "__handle_irq_event_percpu", six(&device), 4);
    g.call(&a, "free_irq", &device[..1]);
    g.run(&hardirq(2), "__handle_irq_event_percpu", six(&device), 5);
    g.back(&a, 0);
    g.touch(&a, 6);
    assert_eq!(g.touched(2).after, [1]);
    assert!(g.touched(3).after == [1] && g.touched(4).after == [1, 2]);
    assert_eq!(g.touched(6).after, [1, 2, 3, 4, 5]);
    assert_eq!(g.touched(4).states, ["irq used.on"]);
    assert_eq!(g.steps(), ["irq free→on", "irq on→free"]);
}

#[test]
fn states_can_be_left_out() {
    let mut g = Guest::with(Parts { states: false, ..Parts::default() });
    let a = task(1);
    let device = [17, T];
    g.enter(&a, "vfs_read", NONE);
    g.touch(&a, 1);
    g.called(&a, "request_irq", &device, 0);
    g.run(&hardirq(2), "__handle_irq_event_percpu", six(&device), 2);
    g.called(&a, "free_irq", &device[..1], 0);
    g.touch(&a, 3);
    assert!(g.touched(2).after.is_empty() && g.touched(3).after == [1]);
    // They are followed nevertheless.
    assert_eq!(g.steps(), ["irq free→on", "irq on→free"]);
}

#[test]
fn a_call_that_failed_moves_nothing() {
    let mut g = Guest::new();
    let a = task(1);
    g.enter(&a, "vfs_read", NONE);
    g.called(&a, "request_irq", &[17, T], (-16i64) as u64);
    assert!(g.steps().is_empty());
    g.called(&a, "request_irq", &[17, T], 0);
    g.called(&a, "request_irq", &[17, T], 0);
    assert_eq!(g.steps(), ["irq free→on", "!irq on→on"]);
    g.called(&a, "free_irq", &[17], 0);
    g.called(&a, "free_irq", &[17], 0);
    assert_eq!(g.steps(), ["irq on→free", "!irq free→free"]);
}

#[test]
fn an_object_ends_with_its_memory() {
    let mut g = Guest::new();
    let a = task(1);
    g.hooked(&a, "kmalloc", &[128], T);
    g.enter(&a, "vfs_read", NONE);
    g.touch(&a, 1);
    g.called(&a, "mod_timer", &[T + 16], 0);
    g.hooked(&a, "kfree", &[T], 0);
    g.hooked(&a, "kmalloc", &[128], T);
    g.run(&softirq(2), "call_timer_fn.isra.0", args(T + 16), 2);
    assert!(g.touched(2).after.is_empty());
}

#[test]
fn a_callback_that_ends_others_comes_after_them() {
    let mut g = Guest::new();
    let file = 0xffff_8880_0700_0000;
    g.run(&task(1), "vfs_read", args(file), 1);
    g.run(&task(2), "vfs_read", args(file), 2);
    // It names the file by its argument alone, and its result is a refusal, so that the file stays.
    let c = task(3);
    g.enter(&c, "up", six(&[0, file]));
    g.touch(&c, 3);
    g.ret(&c, 5);
    assert_eq!(g.touched(3).after, [1, 2]);
    assert_eq!(g.touched(3).states, ["file gone"]);
    assert_eq!(g.steps(), ["file open→gone", "file gone→open"]);
    // What it did comes before the callbacks that are allowed again.
    g.run(&task(4), "vfs_read", args(file), 4);
    assert_eq!(g.touched(4).after, [1, 2, 3]);
    // An argument that names no file has no effect.
    g.run(&task(5), "up", six(&[0, file + 64]), 5);
    assert!(g.touched(5).states.is_empty());
}

#[test]
fn hooked_calls_count_once_and_only_of_objects_that_are_known() {
    let mut g = Guest::new();
    let file = 0xffff_8880_0700_0000;
    let a = task(1);
    g.run(&task(2), "vfs_read", args(file), 1);
    g.enter(&a, "up", NONE);
    g.call(&a, "unregister_netdev", &[file]);
    let rsp = a.rsp - 8;
    g.hook(&a, "unregister_netdev", rsp, &[file]);
    g.hook_return(&a, "unregister_netdev", rsp, 0);
    g.back(&a, 0);
    g.touch(&a, 2);
    assert_eq!(g.touched(2).after, [1]);
    assert_eq!(g.steps(), ["file open→gone"]);
    g.hooked(&task(3), "unregister_netdev", &[file + 64], 0);
    assert!(g.steps().is_empty());
}

#[test]
fn a_call_that_a_function_ends_with_takes_effect() {
    let mut g = Guest::new();
    let a = task(1);
    g.enter(&a, "vfs_read", NONE);
    g.called(&a, "request_irq", &[17, T], 0);
    g.run(&hardirq(2), "__handle_irq_event_percpu", six(&[17, T]), 1);
    g.jump(&a, "free_irq", &[17]);
    assert_eq!(g.steps(), ["irq free→on"]);
    g.run(&a, "vfs_read", NONE, 2);
    assert_eq!(g.steps(), ["irq on→free"]);
    assert_eq!(g.touched(2).after, [1]);
}

#[test]
fn what_leaves_the_first_state_comes_before_all_callbacks() {
    let mut g = Guest::new();
    let a = task(1);
    g.enter(&a, "vfs_read", NONE);
    g.touch(&a, 1);
    g.called(&a, "ready_line", &[T], 0);
    g.touch(&a, 2);
    g.run(&hardirq(2), "handler_caller", args(T), 3);
    g.run(&task(4), "thread_caller", args(T), 4);
    // A callback comes before what it triggers.
    assert_eq!(g.touched(3).after, [1]);
    assert_eq!(g.touched(4).after, [1, 3]);
}

#[test]
fn functions_of_other_modules_call_and_are_called() {
    for known in [false, true] {
        let mut g = Guest::new();
        if known {
            g.load_other();
        }
        let a = task(1);
        g.enter(&a, "vfs_read", NONE);
        g.touch(&a, 1);
        g.called(&a, "core/ready_line", &[T], 0);
        g.run(&task(4), "core/thread_caller", args(T), 2);
        assert_eq!(g.touched(2).after, if known { vec![1] } else { vec![] });
    }
}

#[test]
fn many_objects_are_survived() {
    let mut g = Guest::new();
    let a = task(1);
    g.enter(&a, "vfs_read", NONE);
    for n in 0..10_000 {
        g.called(&a, "mod_timer", &[T + n * 64], 0);
        g.called(&a, "request_irq", &[n + 1, T], 0);
    }
    g.called(&a, "free_irq", &[9_999], 0);
    assert!(g.machine().statistics().segments > 0);
}

#[test]
fn a_module_goes_after_its_init_function_and_its_open_files() {
    let mut g = Guest::new();
    let (a, b, c, d) = (task(1), task(2), task(3), task(4));
    g.enter(&a, "do_one_initcall", NONE);
    g.touch(&a, 1);
    g.ret(&a, 0);
    g.run(&b, "vfs_read", args(T), 2);
    // Nothing shows that a driver's thread is over.
    g.run(&d, "kthread", args(T), 3);
    g.enter(&c, "__do_sys_delete_module", NONE);
    g.touch(&c, 4);
    assert_eq!(g.touched(4).after, [1, 2]);
    let mut g = Guest::with(Parts { states: false, ..Parts::default() });
    g.run(&a, "do_one_initcall", NONE, 1);
    g.enter(&c, "__do_sys_delete_module", NONE);
    g.touch(&c, 4);
    assert!(g.touched(4).after.is_empty());
}

#[test]
fn a_tasklet_that_no_call_has_initialized_is_known_by_its_address() {
    let mut g = Guest::new();
    let a = task(1);
    g.enter(&a, "vfs_read", NONE);
    g.touch(&a, 1);
    g.called(&a, "tasklet_schedule", &[T], 0);
    g.run(&softirq(2), "tasklet_action_common", args(T), 2);
    g.run(&softirq(2), "tasklet_action_common", args(T + 64), 3);
    g.called(&a, "tasklet_kill", &[T], 0);
    g.touch(&a, 4);
    assert_eq!(g.touched(2).after, [1]);
    assert_eq!(g.touched(4).after, [1, 2]);
}

#[test]
fn a_thread_is_waited_for_by_its_task() {
    let mut g = Guest::new();
    let (a, b, c) = (task(1), task(2), task(4));
    g.enter(&a, "vfs_read", NONE);
    g.touch(&a, 1);
    g.called(&a, "wake_up_process", &[b.task], 0);
    g.touch(&a, 2);
    g.run(&b, "kthread", args(T), 3);
    g.run(&c, "kthread", args(T), 4);
    g.called(&a, "kthread_stop", &[b.task], 0);
    g.touch(&a, 5);
    assert_eq!(g.touched(3).after, [1]);
    assert!(g.touched(4).after.is_empty());
    assert_eq!(g.touched(5).after, [1, 2, 3]);
}

#[test]
fn what_the_kernel_calls_on_behalf_of_the_driver_counts_wherever_its_task_went() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(3));
    g.enter(&a, "vfs_read", NONE);
    g.call(&a, "mod_timer", &[T]);
    // Another task runs on its processor now.
    g.run(&b, "vfs_read", args(T), 1);
    let there = Who { cpu: 0, ..task(1) };
    g.hook(&there, "unregister_netdev", a.rsp - 0x40, &[T + 64]);
    g.hook_return(&there, "unregister_netdev", a.rsp - 0x40, 0);
    assert_eq!(g.steps(), ["timer idle→pending", "file open→gone"]);
    // A task that is not out of the driver does nothing for it.
    g.hook(&task(5), "unregister_netdev", task(5).rsp, &[T + 128]);
    g.hook_return(&task(5), "unregister_netdev", task(5).rsp, 0);
    assert!(g.steps().is_empty());
}
