//! Locks, and what is off.

use super::guest::*;
use crate::order::Off;

const LOCK: u64 = 0xffff_8880_0900_0000;

#[test]
fn a_lock_is_held_from_its_return_to_its_unlock() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(2));
    for (who, n) in [(a, 1), (b, 3)] {
        g.enter(&who, "vfs_read", NONE);
        g.called(&who, "_raw_spin_lock", &[LOCK], 0);
        g.touch(&who, n);
        g.called(&who, "_raw_spin_unlock", &[LOCK], 0);
        g.touch(&who, n + 1);
        g.ret(&who, 0);
    }
    assert_eq!(g.touched(3).common, [1]);
    assert!(g.touched(4).common.is_empty());
    // Full order counts the lock; hard order does not. What follows the unlock is not covered.
    assert_eq!((g.touched(3).after_fully, g.touched(3).after), (vec![1], vec![]));
    assert_eq!(g.told()[1..3], [format!("lock 0 Some((Spin, {LOCK}, None))"), "unlock 0".to_owned()]);
}

#[test]
fn a_lock_that_was_refused_is_not_held() {
    let mut g = Guest::new();
    let a = task(1);
    g.enter(&a, "vfs_read", NONE);
    g.called(&a, "mutex_lock_interruptible", &[LOCK], (-4i64) as u64);
    g.touch(&a, 1);
    g.called(&a, "mutex_lock_interruptible", &[LOCK], 0);
    g.touch(&a, 2);
    assert_eq!(g.touched(1).now.locks.0, 0);
    assert_ne!(g.touched(2).now.locks.0, 0);
}

#[test]
fn readers_share_and_writers_exclude() {
    let mut g = Guest::new();
    let mut section = |who: Who, mode: &str, n| {
        g.enter(&who, "vfs_read", NONE);
        g.called(&who, &format!("_raw_{mode}_lock"), &[LOCK], 0);
        g.touch(&who, n);
        g.called(&who, &format!("_raw_{mode}_unlock"), &[LOCK], 0);
        g.ret(&who, 0);
    };
    section(task(1), "write", 1);
    section(task(2), "read", 2);
    section(task(3), "read", 3);
    section(task(4), "write", 4);
    assert_eq!(g.touched(3).common, [1]);
    assert_eq!(g.touched(3).after_fully, [1]);
    assert_eq!(g.touched(4).common, [1, 2, 3]);
    assert_eq!(g.touched(4).after_fully, [1, 2, 3]);
}

#[test]
fn the_kernel_takes_a_lock_before_it_calls() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(2));
    // The lock is taken before the task is known.
    g.hooked(&a, "rtnl_lock", &[], 0);
    g.run(&a, "vfs_read", NONE, 1);
    g.hooked(&a, "rtnl_unlock", &[], 0);
    g.run(&a, "vfs_read", NONE, 2);
    // The lock is taken in a task that is known.
    g.run(&b, "vfs_read", NONE, 3);
    g.hooked(&b, "rtnl_lock", &[], 0);
    g.run(&b, "vfs_read", NONE, 4);
    g.hooked(&b, "rtnl_unlock", &[], 0);
    assert_eq!(g.touched(4).common, [1]);
    assert_eq!(g.touched(4).after_fully, [1, 3]);
    assert!(g.touched(2).common.is_empty());
    assert!(g.told()[0].ends_with("by kernel"));
}

#[test]
fn a_hooked_lock_that_the_driver_takes_counts_once() {
    let mut g = Guest::new();
    let a = task(1);
    g.enter(&a, "vfs_read", NONE);
    g.call(&a, "rtnl_lock", &[]);
    g.hook(&a, "rtnl_lock", a.rsp - 8, &[]);
    g.hook_return(&a, "rtnl_lock", a.rsp - 8, 0);
    g.back(&a, 0);
    g.touch(&a, 1);
    assert_eq!(g.told(), ["enter 1", "lock 0 Some((Mutex, 0, Some(\"rtnl\")))"]);
}

#[test]
fn a_lock_is_held_while_a_function_runs() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(2));
    let rsp = a.rsp + 0x40;
    g.hook(&a, "bus_probe", rsp, &[LOCK]);
    g.run(&a, "bus_probe", NONE, 1);
    g.hook_return(&a, "bus_probe", rsp, 0);
    g.run(&a, "vfs_read", NONE, 2);
    g.hook(&b, "bus_probe", b.rsp + 0x40, &[LOCK]);
    g.run(&b, "bus_probe", NONE, 3);
    assert_eq!(g.touched(3).common, [1]);
    assert_eq!(g.touched(3).after_fully, [1]);
}

#[test]
fn an_interrupt_does_not_hold_what_the_interrupted_function_runs_under() {
    let mut g = Guest::new();
    let a = task(1);
    g.hook(&a, "bus_probe", a.rsp + 0x40, &[LOCK]);
    let interrupt = Who { rsp: a.rsp - 0x100, ..hardirq(1) };
    let mut locks = |who: &Who, caller, n| {
        g.run(who, caller, NONE, n);
        g.told().iter().filter(|what| what.starts_with("lock ")).count()
    };
    assert_eq!(locks(&interrupt, "__handle_irq_event_percpu", 1), 0);
    assert_eq!(locks(&a, "bus_probe", 2), 1);
}

#[test]
fn memory_that_is_used_again_has_another_lock() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(2));
    for (who, n) in [(a, 1), (b, 2)] {
        g.hooked(&who, "kmalloc", &[64], LOCK);
        g.enter(&who, "vfs_read", NONE);
        g.called(&who, "_raw_spin_lock", &[LOCK + 8], 0);
        g.touch(&who, n);
        g.called(&who, "_raw_spin_unlock", &[LOCK + 8], 0);
        g.ret(&who, 0);
        g.hooked(&who, "kfree", &[LOCK], 0);
    }
    assert!(g.touched(2).common.is_empty());
    assert!(g.touched(2).after_fully.is_empty());
}

#[test]
fn unlocks_without_a_lock_are_told() {
    let mut g = Guest::new();
    let a = task(1);
    g.enter(&a, "vfs_read", NONE);
    g.called(&a, "_raw_spin_unlock", &[LOCK], 0);
    assert_eq!(g.told(), ["enter 1", "unlock 0 not held"]);
}

#[test]
fn another_task_at_the_same_address_holds_nothing() {
    let mut g = Guest::new();
    let a = task(1);
    g.enter(&a, "vfs_read", NONE);
    g.called(&a, "mutex_lock_interruptible", &[LOCK], 0);
    g.touch(&a, 1);
    let b = Who { pid: 99, ..a };
    g.run(&b, "vfs_read", NONE, 2);
    assert_eq!(g.touched(2).now.locks.0, 0);
    assert!(g.touched(2).after.is_empty());
}

#[test]
fn what_is_off_is_what_the_processor_says() {
    let mut g = Guest::new();
    let off = |irqs, softirqs, preemption| Off { irqs, softirqs, preemption };
    for (n, who, expected) in [
        (1, task(1), off(false, false, false)),
        (2, Who { preempt: 1, ..task(1) }, off(false, false, true)),
        (3, Who { preempt: 0x200, ..task(1) }, off(false, true, true)),
        (4, Who { irqs: false, ..task(1) }, off(true, true, true)),
        (5, softirq(1), off(false, true, true)),
        (6, hardirq(1), off(true, true, true)),
        // No task needs to be scheduled.
        (7, Who { preempt: 0x8000_0000, ..task(1) }, off(false, false, false)),
    ] {
        g.run(&who, "vfs_read", NONE, n);
        assert_eq!(g.touched(n).now.off, expected, "{n}");
    }
}

#[test]
fn the_drivers_own_instructions_count() {
    let mut g = Guest::new();
    let a = task(1);
    let touch = |insn, n: u64| store(insn, HEAP + n * 64, 1);
    g.enter(&a, "vfs_read", NONE);
    // cli; mov [rdi], al; sti; mov [rdi], al
    g.block(&a, &[0xfa, 0x88, 0x07, 0xfb, 0x88, 0x07], &[touch(1, 1), touch(3, 2)]);
    assert!(g.touched(1).now.off.irqs && !g.touched(2).now.off.irqs);
    // pushfq; cli; mov [rdi], al; popfq; mov [rdi], al
    let flags = [store(0, a.rsp - 8, 8), touch(2, 3), load(3, a.rsp - 8, 8), touch(4, 4)];
    g.block(&a, &[0x9c, 0xfa, 0x88, 0x07, 0x9d, 0x88, 0x07], &flags);
    assert!(g.touched(3).now.off.irqs && !g.touched(4).now.off.irqs);
    // incl %gs:PREEMPT; mov [rdi], al; decl; mov [rdi], al
    let mut code = vec![0x65, 0xff, 0x04, 0x25, 0x34, 0x12, 0, 0, 0x88, 0x07];
    code.extend([0x65, 0xff, 0x0c, 0x25, 0x34, 0x12, 0, 0, 0x88, 0x07]);
    let at = GS + PREEMPT;
    let update = |insn| [load(insn, at, 4), store(insn, at, 4)];
    let mut accesses = update(0).to_vec();
    accesses.push(touch(1, 5));
    accesses.extend(update(2));
    accesses.push(touch(3, 6));
    g.block(&a, &code, &accesses);
    assert!(g.touched(5).now.off.preemption && !g.touched(6).now.off.preemption);
}

#[test]
fn rcu_excludes_nobody_and_is_waited_for() {
    let mut g = Guest::new();
    let (reader, writer) = (task(1), task(2));
    g.enter(&reader, "vfs_read", NONE);
    g.called(&reader, "__rcu_read_lock", &[], 0);
    g.touch(&reader, 1);
    g.called(&reader, "__rcu_read_unlock", &[], 0);
    g.touch(&reader, 2);
    g.run(&softirq(3), "net_rx_action", NONE, 3);
    g.enter(&writer, "vfs_read", NONE);
    g.touch(&writer, 4);
    g.called(&writer, "synchronize_rcu", &[], 0);
    g.touch(&writer, 5);
    // A softirq is a read section as well; what follows a section is not waited for.
    assert!(g.touched(4).after.is_empty());
    assert_eq!(g.touched(5).after, [1, 3, 4]);
    // Readers that begin later see what came before.
    g.run(&softirq(4), "net_rx_action", NONE, 6);
    assert_eq!(g.touched(6).after, [4]);
}

#[test]
fn a_spin_lock_that_is_held_in_the_kernel_is_an_unlock_unseen() {
    let mut g = Guest::new();
    let a = task(1);
    g.enter(&a, "vfs_read", NONE);
    g.called(&a, "_raw_spin_lock", &[LOCK], 0);
    g.ret(&a, 0);
    g.run(&a, "vfs_read", NONE, 1);
    assert_eq!(g.touched(1).now.locks.0, 0);
}

const L: u64 = 0xffff_8880_0500_0000;

/// Returns what comes before the second section of a lock whose first section is `body`. Also returns what
/// comes before the code that follows the first section.
fn around(body: impl Fn(&mut Guest, &Who)) -> (Vec<u64>, Vec<u64>) {
    let mut g = Guest::new();
    let (a, b, c) = (task(1), task(2), task(3));
    let held = |g: &mut Guest, who: &Who, n: u64| {
        g.enter(who, "vfs_read", NONE);
        g.called(who, "_raw_spin_lock", &[L], 0);
        g.touch(who, n);
        g.called(who, "_raw_spin_unlock", &[L], 0);
    };
    held(&mut g, &a, 1);
    held(&mut g, &task(5), 5);
    g.enter(&b, "vfs_read", NONE);
    g.touch(&b, 2);
    g.called(&b, "_raw_spin_lock", &[L], 0);
    body(&mut g, &b);
    g.called(&b, "_raw_spin_unlock", &[L], 0);
    g.touch(&b, 3);
    held(&mut g, &c, 4);
    (g.touched(3).after, g.touched(4).after)
}

/// lock or [rdi], eax
fn locked(g: &mut Guest, who: &Who) {
    g.block(who, &[0xf0, 0x09, 0x07], &[load(0, L + 0x100, 4), store(0, L + 0x100, 4)]);
}

#[test]
fn a_section_that_protects_nothing_waits_for_the_lock() {
    let (after, later) = around(|g, who| {
        // mov [rdi], eax: the lock's owner.
        g.block(who, &[0x89, 0x07], &[store(0, L + 8, 4)]);
        locked(g, who);
    });
    assert_eq!((after, later), (vec![1, 2, 5], vec![1, 2, 5]));
    // A section that accesses what the lock may protect is not there to wait, nor is an empty one.
    let (after, later) = around(|g, who| {
        locked(g, who);
        g.block(who, &[0x89, 0x07], &[store(0, L + 0x200, 4)]);
    });
    assert_eq!((after, later), (vec![2], vec![]));
    assert_eq!(around(|_, _| {}), (vec![2], vec![]));
}

#[test]
fn a_lock_that_a_task_took_at_the_place_of_another_is_its_own() {
    let mut g = Guest::new();
    let a = task(1);
    g.run(&a, "vfs_read", NONE, 1);
    let b = Who { pid: a.pid + 1, ..task(1) };
    g.hooked(&b, "rtnl_lock", &[], 0);
    g.enter(&b, "vfs_read", NONE);
    g.touch(&b, 2);
    let c = task(3);
    g.hooked(&c, "rtnl_lock", &[], 0);
    g.enter(&c, "vfs_read", NONE);
    g.touch(&c, 3);
    assert_eq!(g.touched(3).common, [2]);
}
