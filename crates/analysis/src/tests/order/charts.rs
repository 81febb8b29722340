//! Order and protocol from charts.

use super::guest::*;
use crate::order::Parts;

const T: u64 = 0xffff_8880_0800_0000;

#[test]
fn a_timer_comes_after_what_armed_it_and_before_what_waited_for_it() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).write(1).called("mod_timer", &[T], 0).write(2);
    g.by(&softirq(2)).run("call_timer_fn.isra.0", &[T], 3);
    g.by(&softirq(3)).run("call_timer_fn.isra.0", &[T + 64], 4);
    g.by(&a).called("del_timer", &[T], 0).write(5).called("del_timer_sync", &[T], 0).write(6);
    assert_eq!(g.written(3).after, [1]);
    assert!(g.written(4).after.is_empty());
    assert_eq!(g.written(5).after, [1, 2]);
    assert_eq!(g.written(6).after, [1, 2, 3, 5]);
    assert_eq!(g.written(3).strand, format!("the callback function of timer {T:#x}"));
    assert_eq!(g.written(3).states, ["timer idle"]);
    // The timer that was never armed counts as pending; its state is not certain.
    assert_eq!(g.steps(), ["timer idle→pending", "timer pending→idle", "timer pending→idle"]);
}

/// A work item that queues itself again while it is canceled is refused.
#[test]
fn what_waits_for_a_callback_has_the_last_word() {
    let mut g = Guest::new();
    let (queue, a, worker) = (0x7000, task(1), task(2));
    g.by(&a).enter("vfs_read", &[]).called("queue_work", &[queue, T], 0).call("cancel_work_sync", &[T]);
    g.by(&worker).enter("work_caller", &[T]).called("queue_work", &[queue, T], 0).ret(0);
    g.by(&a).back(1);
    assert_eq!(
        g.steps(),
        ["work idle→pending", "work pending→idle", "work idle→pending", "work pending→idle"]
    );
}

#[test]
fn runs_of_a_timer_are_one_strand_on_all_processors() {
    let mut g = Guest::new();
    g.by(&softirq(1)).run("call_timer_fn.isra.0", &[T], 1);
    g.by(&softirq(2)).run("call_timer_fn.isra.0", &[T], 2);
    assert_eq!(g.written(2).after, [1]);
    let mut g = Guest::with(Parts { deferral: false, ..Parts::default() });
    g.by(&softirq(1)).run("call_timer_fn.isra.0", &[T], 1);
    g.by(&softirq(2)).run("call_timer_fn.isra.0", &[T], 2);
    assert!(g.written(2).after.is_empty());
}

#[test]
fn an_interrupt_handler_runs_between_request_and_free() {
    let mut g = Guest::new();
    let a = task(1);
    let device = [17, T];
    g.by(&a).enter("vfs_read", &[]).write(1).call("request_irq", &device);
    // The handler runs before the call has returned.
    g.by(&hardirq(2)).run("__handle_irq_event_percpu", &device, 2);
    g.by(&a).back(0).write(3);
    g.by(&hardirq(2)).run("__handle_irq_event_percpu", &device, 4);
    g.by(&a).call("free_irq", &device[..1]);
    g.by(&hardirq(2)).run("__handle_irq_event_percpu", &device, 5);
    g.by(&a).back(0).write(6);
    assert_eq!(g.written(2).after, [1]);
    assert!(g.written(3).after == [1] && g.written(4).after == [1, 2]);
    assert_eq!(g.written(6).after, [1, 2, 3, 4, 5]);
    assert_eq!(g.written(4).states, ["irq used.on"]);
    assert_eq!(g.steps(), ["irq free→on", "irq on→free"]);
}

#[test]
fn states_can_be_left_out() {
    let mut g = Guest::with(Parts { states: false, ..Parts::default() });
    let a = task(1);
    let device = [17, T];
    g.by(&a).enter("vfs_read", &[]).write(1).called("request_irq", &device, 0);
    g.by(&hardirq(2)).run("__handle_irq_event_percpu", &device, 2);
    g.by(&a).called("free_irq", &device[..1], 0).write(3);
    assert!(g.written(2).after.is_empty() && g.written(3).after == [1]);
    // They are followed nevertheless.
    assert_eq!(g.steps(), ["irq free→on", "irq on→free"]);
}

#[test]
fn a_call_that_failed_moves_nothing() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).called("request_irq", &[17, T], (-16i64) as u64);
    assert!(g.steps().is_empty());
    g.by(&a).called("request_irq", &[17, T], 0).called("request_irq", &[17, T], 0);
    assert_eq!(g.steps(), ["irq free→on", "!irq on→on"]);
    g.by(&a).called("free_irq", &[17], 0).called("free_irq", &[17], 0);
    assert_eq!(g.steps(), ["irq on→free", "!irq free→free"]);
}

#[test]
fn an_object_ends_with_its_memory() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).hooked("kmalloc", &[128], T).enter("vfs_read", &[]).write(1).called("mod_timer", &[T + 16], 0);
    g.by(&a).hooked("kfree", &[T], 0).hooked("kmalloc", &[128], T);
    g.by(&softirq(2)).run("call_timer_fn.isra.0", &[T + 16], 2);
    assert!(g.written(2).after.is_empty());
}

#[test]
fn a_callback_that_ends_others_comes_after_them() {
    let mut g = Guest::new();
    let file = 0xffff_8880_0700_0000;
    g.by(&task(1)).run("vfs_read", &[file], 1);
    g.by(&task(2)).run("vfs_read", &[file], 2);
    // It names the file by its argument alone, and its result is a refusal, so that the file stays.
    let c = task(3);
    g.by(&c).enter("up", &[0, file]).write(3).ret(5);
    assert_eq!(g.written(3).after, [1, 2]);
    assert_eq!(g.written(3).states, ["file gone"]);
    assert_eq!(g.steps(), ["file open→gone", "file gone→open"]);
    // What it did comes before the callbacks that are allowed again.
    g.by(&task(4)).run("vfs_read", &[file], 4);
    assert_eq!(g.written(4).after, [1, 2, 3]);
    // An argument that names no file has no effect.
    g.by(&task(5)).run("up", &[0, file + 64], 5);
    assert!(g.written(5).states.is_empty());
}

#[test]
fn hooked_calls_count_once_and_only_of_objects_that_are_known() {
    let mut g = Guest::new();
    let file = 0xffff_8880_0700_0000;
    let a = task(1);
    g.by(&task(2)).run("vfs_read", &[file], 1);
    g.by(&a).enter("up", &[]).call("unregister_netdev", &[file]);
    let rsp = a.rsp - 8;
    g.by(&a).hook("unregister_netdev", rsp, &[file]).hook_return("unregister_netdev", rsp, 0).back(0);
    g.by(&a).write(2);
    assert_eq!(g.written(2).after, [1]);
    assert_eq!(g.steps(), ["file open→gone"]);
    g.by(&task(3)).hooked("unregister_netdev", &[file + 64], 0);
    assert!(g.steps().is_empty());
}

#[test]
fn a_call_that_a_function_ends_with_takes_effect() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).called("request_irq", &[17, T], 0);
    g.by(&hardirq(2)).run("__handle_irq_event_percpu", &[17, T], 1);
    g.by(&a).jump("free_irq", &[17]);
    assert_eq!(g.steps(), ["irq free→on"]);
    g.by(&a).run("vfs_read", &[], 2);
    assert_eq!(g.steps(), ["irq on→free"]);
    assert_eq!(g.written(2).after, [1]);
}

#[test]
fn what_leaves_the_first_state_comes_before_all_callbacks() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).write(1).called("ready_line", &[T], 0).write(2);
    g.by(&hardirq(2)).run("handler_caller", &[T], 3);
    g.by(&task(4)).run("thread_caller", &[T], 4);
    // A callback comes before what it triggers.
    assert_eq!(g.written(3).after, [1]);
    assert_eq!(g.written(4).after, [1, 3]);
}

#[test]
fn functions_of_other_modules_call_and_are_called() {
    for known in [false, true] {
        let mut g = Guest::new();
        if known {
            g.load_other();
        }
        let a = task(1);
        g.by(&a).enter("vfs_read", &[]).write(1).called("core/ready_line", &[T], 0);
        g.by(&task(4)).run("core/thread_caller", &[T], 2);
        assert_eq!(g.written(2).after, if known { vec![1] } else { vec![] });
    }
}

#[test]
fn many_objects_are_survived() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]);
    for n in 0..10_000 {
        g.by(&a).called("mod_timer", &[T + n * 64], 0).called("request_irq", &[n + 1, T], 0);
    }
    g.by(&a).called("free_irq", &[9_999], 0);
    assert!(g.machine().statistics().segments > 0);
}

#[test]
fn a_module_goes_after_its_init_function_and_its_open_files() {
    let mut g = Guest::new();
    let (a, b, c, d) = (task(1), task(2), task(3), task(4));
    g.by(&a).enter("do_one_initcall", &[]).write(1).ret(0);
    g.by(&b).run("vfs_read", &[T], 2);
    // Nothing shows that a driver's thread is over.
    g.by(&d).run("kthread", &[T], 3);
    g.by(&c).enter("__do_sys_delete_module", &[]).write(4);
    assert_eq!(g.written(4).after, [1, 2]);
    let mut g = Guest::with(Parts { states: false, ..Parts::default() });
    g.by(&a).run("do_one_initcall", &[], 1);
    g.by(&c).enter("__do_sys_delete_module", &[]).write(4);
    assert!(g.written(4).after.is_empty());
}

#[test]
fn a_module_goes_after_those_that_need_it() {
    let mut g = Guest::new();
    g.load_needed();
    let (a, b, c, d) = (task(1), task(2), task(3), task(4));
    g.by(&a).run("vfs_read", &[T], 1);
    // A driver's thread keeps no module loaded.
    g.by(&d).run("kthread", &[T], 2);
    g.by(&b).run("__do_sys_delete_module", &[], 3);
    g.place = CORE;
    g.by(&c).enter("__do_sys_delete_module", &[]).write(4);
    assert_eq!(g.written(4).after, [1, 3]);
    // One that needs it not says nothing about it.
    let mut g = Guest::new();
    g.load_needed();
    g.place = CORE;
    g.by(&a).run("vfs_read", &[T], 1);
    g.by(&b).run("__do_sys_delete_module", &[], 3);
    g.place = F;
    g.by(&c).enter("__do_sys_delete_module", &[]).write(4);
    assert!(g.written(4).after.is_empty());
}

#[test]
fn a_tasklet_that_no_call_has_initialized_is_known_by_its_address() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).write(1).called("tasklet_schedule", &[T], 0);
    g.by(&softirq(2)).run("tasklet_action_common", &[T], 2).run("tasklet_action_common", &[T + 64], 3);
    g.by(&a).called("tasklet_kill", &[T], 0).write(4);
    assert_eq!(g.written(2).after, [1]);
    assert_eq!(g.written(4).after, [1, 2]);
}

#[test]
fn a_thread_is_waited_for_by_its_task() {
    let mut g = Guest::new();
    let (a, b, c) = (task(1), task(2), task(4));
    g.by(&a).enter("vfs_read", &[]).write(1).called("wake_up_process", &[b.task], 0).write(2);
    g.by(&b).run("kthread", &[T], 3);
    g.by(&c).run("kthread", &[T], 4);
    g.by(&a).called("kthread_stop", &[b.task], 0).write(5);
    assert_eq!(g.written(3).after, [1]);
    assert!(g.written(4).after.is_empty());
    assert_eq!(g.written(5).after, [1, 2, 3]);
}

#[test]
fn what_the_kernel_calls_on_behalf_of_the_driver_counts_wherever_its_task_went() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(3));
    g.by(&a).enter("vfs_read", &[]).call("mod_timer", &[T]);
    // Another task runs on its processor now.
    g.by(&b).run("vfs_read", &[T], 1);
    let there = Context { cpu: 0, ..task(1) };
    g.by(&there).hook("unregister_netdev", a.rsp - 0x40, &[T + 64]);
    g.by(&there).hook_return("unregister_netdev", a.rsp - 0x40, 0);
    assert_eq!(g.steps(), ["timer idle→pending", "file open→gone"]);
    // A task that is not out of the driver does nothing for it.
    g.by(&task(5)).hook("unregister_netdev", task(5).rsp, &[T + 128]);
    g.by(&task(5)).hook_return("unregister_netdev", task(5).rsp, 0);
    assert!(g.steps().is_empty());
}
