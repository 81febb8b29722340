//! Strands and entries.

use super::guest::*;

#[test]
fn a_task_is_a_strand_and_what_interrupts_it_is_not() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).write(1).interrupt();
    g.by(&hardirq(1)).run("up", &[], 2);
    g.by(&a).back(0).write(3).ret(0);
    // The same task runs elsewhere.
    g.by(&Context { cpu: 0, ..a }).run("vfs_read", &[], 4);
    assert!(g.written(2).after.is_empty());
    assert_eq!(g.written(3).after, [1]);
    assert_eq!(g.written(4).after, [1, 3]);
    assert_eq!(g.written(4).strand, "the thread ?/41");
    assert_eq!(g.written(2).strand, "f in hardirqs on CPU 1");
}

#[test]
fn interrupts_are_strands_by_cpu_and_function() {
    let mut g = Guest::new();
    g.by(&softirq(1)).run("net_rx_action", &[], 1);
    g.by(&softirq(2)).run("net_rx_action", &[], 2);
    g.by(&softirq(3)).run("net_rx_action", &[], 3);
    g.place = G;
    g.by(&softirq(3)).run("net_rx_action", &[], 4);
    assert!(g.written(2).after.is_empty());
    assert_eq!(g.written(3).after, [1]);
    assert!(g.written(4).after.is_empty());
}

#[test]
fn work_is_not_ordered_by_its_worker() {
    let mut g = Guest::new();
    let worker = task(1);
    g.by(&worker).run("process_one_work", &[0xa000], 1).run("process_one_work", &[0xb000], 2);
    g.by(&task(2)).run("process_one_work", &[0xa000], 3);
    assert!(g.written(2).after.is_empty());
    assert_eq!(g.written(3).after, [1]);
    assert_eq!(g.written(3).strand, "the work f of 0xa000");
}

#[test]
fn calls_back_stay_on_the_outer_strand() {
    let mut g = Guest::new();
    let a = softirq(1);
    let inner = Context { rsp: a.rsp - 0x100, ..a };
    g.by(&a).enter("net_rx_action", &[]).write(1).call("vfs_read", &[]);
    g.place = G;
    g.by(&inner).run("vfs_read", &[], 2);
    g.place = F;
    g.by(&a).back(0).write(3).ret(0);
    assert_eq!(g.written(2).now.strand, g.written(1).now.strand);
    assert_eq!(g.written(3).after, [1, 2]);
    assert_eq!(g.log(), ["enter 1", "enter 2", "leave 2", "leave 1"]);
}

#[test]
fn an_activation_ends_without_a_word_when_its_stack_is_used_again() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).enter("vfs_read", &[]).jump("up", &[]).enter("vfs_read", &[]);
    assert_eq!(g.log(), ["enter 1", "leave 1", "enter 1", "leave 1", "enter 1"]);
    let seen = g.seen.borrow();
    assert_eq!(seen.entries[0].caller, "vfs_read");
    assert_eq!((seen.entries[0].function, seen.entries[2].serial), (F, 3));
}

#[test]
fn a_completion_orders() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(2));
    g.by(&a).enter("vfs_read", &[]).write(1).called("complete", &[0x7000], 0).write(2);
    g.by(&b).enter("vfs_read", &[]).write(3).called("wait_for_completion", &[0x7000], 0).write(4);
    assert_eq!((g.written(3).after, g.written(4).after), (vec![], vec![1, 3]));
}

#[test]
fn a_driver_on_a_stack_of_its_own_is_one_strand_in_all_tasks() {
    let mut g = Guest::new();
    let (stack, domain) = (0xffff_8880_0500_0000, [0x7000]);
    let own = |who: Context| Context { rsp: stack + 0x3f00, ..who };
    // A task starts it, and later a softirq and another task go on with it.
    g.by(&task(1)).enter("vfs_read", &[]).write(1).call("probe_caller", &[]);
    g.by(&own(task(1))).enter("probe_caller", &[]).write(2).call("active_await", &domain);
    g.by(&own(softirq(2))).back(7).write(3).interrupt();
    g.by(&hardirq(2)).run("up", &[], 4);
    g.by(&own(softirq(2))).back(0).write(5).call("active_await", &domain);
    g.by(&own(task(3))).back(8).write(6);
    // The first task has gone on meanwhile.
    g.by(&task(1)).back(0).write(7).ret(0);
    assert_eq!((g.written(3).after, g.written(4).after), (vec![1, 2], vec![]));
    assert_eq!((g.written(5).after, g.written(6).after), (vec![1, 2, 3], vec![1, 2, 3, 5]));
    assert_eq!(g.written(7).after, [1, 2]);
    assert_eq!(g.written(6).strand, format!("the driver on its own stack at {stack:#x}"));
    // Another driver has the stack later: until it waits, it is a part of the thread that starts it.
    g.by(&own(task(4))).enter("probe_caller", &[]).write(8);
    assert!(g.written(8).after.is_empty());
    assert_eq!(g.written(8).strand, "the thread ?/44");
}

#[test]
fn a_task_carries_what_it_knows_onto_own_stacks_and_back() {
    let mut g = Guest::new();
    let on =
        |stack: u64, who: Context| Context { rsp: 0xffff_8880_0500_0000 + (stack << 20) + 0x3f00, ..who };
    let (first, second) = ([0x7000], [0x7008]);
    g.by(&on(1, task(1))).enter("probe_caller", &[]).write(1).call("active_await", &first);
    g.by(&on(2, task(2))).enter("probe_caller", &[]).write(2).call("active_await", &second);
    g.by(&task(3)).enter("vfs_read", &[]).write(3).call("probe_caller", &[]);
    g.by(&on(1, task(3))).back(7).write(4).call("active_await", &first);
    g.by(&task(3)).back(0).write(5).call("probe_caller", &[]);
    g.by(&on(2, task(3))).back(7).write(6);
    g.by(&on(1, task(4))).back(7).write(7);
    assert_eq!((g.written(4).after, g.written(5).after), (vec![1, 3], vec![1, 3, 4]));
    assert_eq!(g.written(6).after, [1, 2, 3, 4, 5]);
    // What the second driver does is not ordered with what the first one does later in another task.
    assert_eq!(g.written(7).after, [1, 3, 4]);
}

#[test]
fn very_many_tasks_are_survived() {
    let mut g = Guest::new();
    g.by(&task(1)).run("vfs_read", &[], 1);
    for n in 0..3000 {
        g.by(&Context { pid: 1000 + n as u32, ..task(n % 50 + 2) }).run("vfs_read", &[], 2);
    }
    g.by(&task(60)).run("vfs_read", &[], 3);
    // A forgotten strand causes no alarm.
    assert!(g.written(3).after.contains(&1));
    assert!(!g.written(3).after.contains(&2));
}
