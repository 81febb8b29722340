//! Strands and entries.

use super::guest::*;

#[test]
fn a_task_is_a_strand_and_what_interrupts_it_is_not() {
    let mut g = Guest::new();
    let a = task(1);
    g.enter(&a, "vfs_read", NONE);
    g.touch(&a, 1);
    g.interrupt(&a);
    g.run(&hardirq(1), "up", NONE, 2);
    g.back(&a, 0);
    g.touch(&a, 3);
    g.ret(&a, 0);
    // The same task runs elsewhere.
    g.run(&Who { cpu: 0, ..a }, "vfs_read", NONE, 4);
    assert!(g.touched(2).after.is_empty());
    assert_eq!(g.touched(3).after, [1]);
    assert_eq!(g.touched(4).after, [1, 3]);
    assert_eq!(g.touched(4).strand, "the thread ?/41");
    assert_eq!(g.touched(2).strand, "f in hardirqs on CPU 1");
}

#[test]
fn interrupts_are_strands_by_cpu_and_function() {
    let mut g = Guest::new();
    g.run(&softirq(1), "net_rx_action", NONE, 1);
    g.run(&softirq(2), "net_rx_action", NONE, 2);
    g.run(&softirq(3), "net_rx_action", NONE, 3);
    g.place = G;
    g.run(&softirq(3), "net_rx_action", NONE, 4);
    assert!(g.touched(2).after.is_empty());
    assert_eq!(g.touched(3).after, [1]);
    assert!(g.touched(4).after.is_empty());
}

#[test]
fn work_is_not_ordered_by_its_worker() {
    let mut g = Guest::new();
    let worker = task(1);
    g.run(&worker, "process_one_work", six(&[0xa000]), 1);
    g.run(&worker, "process_one_work", six(&[0xb000]), 2);
    g.run(&task(2), "process_one_work", six(&[0xa000]), 3);
    assert!(g.touched(2).after.is_empty());
    assert_eq!(g.touched(3).after, [1]);
    assert_eq!(g.touched(3).strand, "the work f of 0xa000");
}

#[test]
fn calls_back_stay_on_the_outer_strand() {
    let mut g = Guest::new();
    let a = softirq(1);
    let inner = Who { rsp: a.rsp - 0x100, ..a };
    g.enter(&a, "net_rx_action", NONE);
    g.touch(&a, 1);
    g.call(&a, "vfs_read", &[]);
    g.place = G;
    g.run(&inner, "vfs_read", NONE, 2);
    g.place = F;
    g.back(&a, 0);
    g.touch(&a, 3);
    g.ret(&a, 0);
    assert_eq!(g.touched(2).now.strand, g.touched(1).now.strand);
    assert_eq!(g.touched(3).after, [1, 2]);
    assert_eq!(g.told(), ["enter 1", "enter 2", "leave 2", "leave 1"]);
}

#[test]
fn an_activation_ends_without_a_word_when_its_stack_is_used_again() {
    let mut g = Guest::new();
    let a = task(1);
    g.enter(&a, "vfs_read", NONE);
    g.enter(&a, "vfs_read", NONE);
    g.jump(&a, "up", &[]);
    g.enter(&a, "vfs_read", NONE);
    assert_eq!(g.told(), ["enter 1", "leave 1", "enter 1", "leave 1", "enter 1"]);
    let seen = g.seen.borrow();
    assert_eq!(seen.entries[0].caller, "vfs_read");
    assert_eq!((seen.entries[0].function, seen.entries[2].serial), (F, 3));
}

#[test]
fn a_completion_orders() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(2));
    g.enter(&a, "vfs_read", NONE);
    g.touch(&a, 1);
    g.called(&a, "complete", &[0x7000], 0);
    g.touch(&a, 2);
    g.enter(&b, "vfs_read", NONE);
    g.touch(&b, 3);
    g.called(&b, "wait_for_completion", &[0x7000], 0);
    g.touch(&b, 4);
    assert_eq!((g.touched(3).after, g.touched(4).after), (vec![], vec![1, 3]));
}

#[test]
fn very_many_tasks_are_survived() {
    let mut g = Guest::new();
    g.run(&task(1), "vfs_read", NONE, 1);
    for n in 0..3000 {
        g.run(&Who { pid: 1000 + n as u32, ..task(n % 50 + 2) }, "vfs_read", NONE, 2);
    }
    g.run(&task(60), "vfs_read", NONE, 3);
    // A forgotten strand causes no alarm.
    assert!(g.touched(3).after.contains(&1));
    assert!(!g.touched(3).after.contains(&2));
}
