//! Locks, and what is off.

use super::guest::*;
use crate::order::Off;

const LOCK: u64 = 0xffff_8880_0900_0000;

#[test]
fn a_lock_is_held_from_its_return_to_its_unlock() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(2));
    for (who, n) in [(a, 1), (b, 3)] {
        g.by(&who).enter("vfs_read", &[]).called("_raw_spin_lock", &[LOCK], 0).write(n);
        g.by(&who).called("_raw_spin_unlock", &[LOCK], 0).write(n + 1).ret(0);
    }
    assert_eq!(g.written(3).common, [1]);
    assert!(g.written(4).common.is_empty());
    // Full order counts the lock; hard order does not. What follows the unlock is not covered.
    assert_eq!((g.written(3).after_fully, g.written(3).after), (vec![1], vec![]));
    assert_eq!(g.log()[1..3], [format!("lock 0 Some((Spin, {LOCK}, None))"), "unlock 0".to_owned()]);
}

#[test]
fn a_release_that_is_inlined_is_a_store() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(2));
    let clears = [0xc6, 0x07, 0];
    let stored = |size| [store(0, LOCK, size)];
    for (who, n) in [(a, 1), (b, 3)] {
        g.by(&who).enter("vfs_read", &[]).called("_raw_spin_lock", &[LOCK], 0).write(n);
        // mov byte [rdi], 0; mov [rdi], al: what follows in the block is not covered.
        let slot = store(1, HEAP + (n + 1) * 64, 1);
        g.by(&who).block(&[0xc6, 0x07, 0, 0x88, 0x07], &[stored(1)[0], slot]).ret(0);
    }
    assert_eq!(g.written(3).common, [1]);
    assert!(g.written(4).common.is_empty());
    // A store of another thread's, or of more than the byte, releases nothing.
    g.by(&a).enter("vfs_read", &[]).called("_raw_spin_lock", &[LOCK], 0);
    g.by(&b).enter("vfs_read", &[]).block(&clears, &stored(1)).ret(0);
    g.by(&a).block(&[0xc7, 0x07, 0, 0, 0, 0], &stored(4)).write(5).ret(0);
    assert_eq!(g.written(5).common, [1, 3]);
}

#[test]
fn an_inlined_release_of_a_reader_is_atomic() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(2));
    g.by(&a).enter("vfs_read", &[]).called("_raw_write_lock", &[LOCK], 0).write(1);
    g.by(&a).block(&[0xc6, 0x07, 0], &[store(0, LOCK, 1)]).write(2).ret(0);
    g.by(&b).enter("vfs_read", &[]).called("_raw_read_lock", &[LOCK], 0).write(3);
    // lock sub dword [rdi], 0x200
    g.by(&b).block(&[0xf0, 0x81, 0x2f, 0, 2, 0, 0], &[load(0, LOCK, 4), store(0, LOCK, 4)]).write(4).ret(0);
    assert_eq!((g.written(3).common, g.written(4).common), (vec![1], vec![]));
    assert!(g.written(2).common.is_empty());
}

#[test]
fn a_lock_that_was_refused_is_not_held() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).called("mutex_lock_interruptible", &[LOCK], (-4i64) as u64).write(1);
    g.by(&a).called("mutex_lock_interruptible", &[LOCK], 0).write(2);
    assert_eq!(g.written(1).now.locks.0, 0);
    assert_ne!(g.written(2).now.locks.0, 0);
}

#[test]
fn readers_share_and_writers_exclude() {
    let mut g = Guest::new();
    let mut section = |who: Context, mode: &str, n| {
        g.by(&who).enter("vfs_read", &[]).called(&format!("_raw_{mode}_lock"), &[LOCK], 0).write(n);
        g.by(&who).called(&format!("_raw_{mode}_unlock"), &[LOCK], 0).ret(0);
    };
    section(task(1), "write", 1);
    section(task(2), "read", 2);
    section(task(3), "read", 3);
    section(task(4), "write", 4);
    assert_eq!(g.written(3).common, [1]);
    assert_eq!(g.written(3).after_fully, [1]);
    assert_eq!(g.written(4).common, [1, 2, 3]);
    assert_eq!(g.written(4).after_fully, [1, 2, 3]);
}

#[test]
fn the_kernel_takes_a_lock_before_it_calls() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(2));
    // The lock is taken before the task is known.
    g.by(&a).hooked("rtnl_lock", &[], 0).run("vfs_read", &[], 1).hooked("rtnl_unlock", &[], 0);
    g.by(&a).run("vfs_read", &[], 2);
    // The lock is taken in a task that is known.
    g.by(&b).run("vfs_read", &[], 3).hooked("rtnl_lock", &[], 0).run("vfs_read", &[], 4);
    g.by(&b).hooked("rtnl_unlock", &[], 0);
    assert_eq!(g.written(4).common, [1]);
    assert_eq!(g.written(4).after_fully, [1, 3]);
    assert!(g.written(2).common.is_empty());
    assert!(g.log()[0].ends_with("by kernel"));
}

#[test]
fn a_hooked_lock_that_the_driver_takes_counts_once() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).call("rtnl_lock", &[]).hook("rtnl_lock", a.rsp - 8, &[]);
    g.by(&a).hook_return("rtnl_lock", a.rsp - 8, 0).back(0).write(1);
    assert_eq!(g.log(), ["enter 1", "lock 0 Some((Mutex, 0, Some(\"rtnl\")))"]);
}

#[test]
fn a_lock_is_held_while_a_function_runs() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(2));
    let rsp = a.rsp + 0x40;
    g.by(&a).hook("bus_probe", rsp, &[LOCK]).run("bus_probe", &[], 1).hook_return("bus_probe", rsp, 0);
    g.by(&a).run("vfs_read", &[], 2);
    g.by(&b).hook("bus_probe", b.rsp + 0x40, &[LOCK]).run("bus_probe", &[], 3);
    assert_eq!(g.written(3).common, [1]);
    assert_eq!(g.written(3).after_fully, [1]);
}

#[test]
fn an_interrupt_does_not_hold_what_the_interrupted_function_runs_under() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).hook("bus_probe", a.rsp + 0x40, &[LOCK]);
    let interrupt = Context { rsp: a.rsp - 0x100, ..hardirq(1) };
    let mut locks = |who: &Context, caller, n| {
        g.by(who).run(caller, &[], n);
        g.log().iter().filter(|what| what.starts_with("lock ")).count()
    };
    assert_eq!(locks(&interrupt, "__handle_irq_event_percpu", 1), 0);
    assert_eq!(locks(&a, "bus_probe", 2), 1);
}

#[test]
fn memory_that_is_used_again_has_another_lock() {
    let mut g = Guest::new();
    let (a, b) = (task(1), task(2));
    for (who, n) in [(a, 1), (b, 2)] {
        g.by(&who).hooked("kmalloc", &[64], LOCK).enter("vfs_read", &[]);
        g.by(&who).called("_raw_spin_lock", &[LOCK + 8], 0).write(n);
        g.by(&who).called("_raw_spin_unlock", &[LOCK + 8], 0).ret(0).hooked("kfree", &[LOCK], 0);
    }
    assert!(g.written(2).common.is_empty());
    assert!(g.written(2).after_fully.is_empty());
}

#[test]
fn unlocks_without_a_lock_are_reported() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).called("_raw_spin_unlock", &[LOCK], 0);
    assert_eq!(g.log(), ["enter 1", "unlock 0 not held"]);
}

#[test]
fn another_task_at_the_same_address_holds_nothing() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).called("mutex_lock_interruptible", &[LOCK], 0).write(1);
    let b = Context { pid: 99, ..a };
    g.by(&b).run("vfs_read", &[], 2);
    assert_eq!(g.written(2).now.locks.0, 0);
    assert!(g.written(2).after.is_empty());
}

#[test]
fn what_is_off_is_what_the_processor_says() {
    let mut g = Guest::new();
    let off = |irqs, softirqs, preemption| Off { irqs, softirqs, preemption };
    for (n, who, expected) in [
        (1, task(1), off(false, false, false)),
        (2, Context { preempt: 1, ..task(1) }, off(false, false, true)),
        (3, Context { preempt: 0x200, ..task(1) }, off(false, true, true)),
        (4, Context { irqs: false, ..task(1) }, off(true, true, true)),
        (5, softirq(1), off(false, true, true)),
        (6, hardirq(1), off(true, true, true)),
        // No task needs to be scheduled.
        (7, Context { preempt: 0x8000_0000, ..task(1) }, off(false, false, false)),
    ] {
        g.by(&who).run("vfs_read", &[], n);
        assert_eq!(g.written(n).now.off, expected, "{n}");
    }
}

#[test]
fn the_drivers_own_instructions_count() {
    let mut g = Guest::new();
    let a = task(1);
    let write = |insn, n: u64| store(insn, HEAP + n * 64, 1);
    g.by(&a).enter("vfs_read", &[]);
    // cli; mov [rdi], al; sti; mov [rdi], al
    g.by(&a).block(&[0xfa, 0x88, 0x07, 0xfb, 0x88, 0x07], &[write(1, 1), write(3, 2)]);
    assert!(g.written(1).now.off.irqs && !g.written(2).now.off.irqs);
    // pushfq; cli; mov [rdi], al; popfq; mov [rdi], al
    let flags = [store(0, a.rsp - 8, 8), write(2, 3), load(3, a.rsp - 8, 8), write(4, 4)];
    g.by(&a).block(&[0x9c, 0xfa, 0x88, 0x07, 0x9d, 0x88, 0x07], &flags);
    assert!(g.written(3).now.off.irqs && !g.written(4).now.off.irqs);
    // incl %gs:PREEMPT; mov [rdi], al; decl; mov [rdi], al
    let mut code = vec![0x65, 0xff, 0x04, 0x25, 0x34, 0x12, 0, 0, 0x88, 0x07];
    code.extend([0x65, 0xff, 0x0c, 0x25, 0x34, 0x12, 0, 0, 0x88, 0x07]);
    let at = GS + PREEMPT;
    let update = |insn| [load(insn, at, 4), store(insn, at, 4)];
    let mut accesses = update(0).to_vec();
    accesses.push(write(1, 5));
    accesses.extend(update(2));
    accesses.push(write(3, 6));
    g.by(&a).block(&code, &accesses);
    assert!(g.written(5).now.off.preemption && !g.written(6).now.off.preemption);
}

#[test]
fn rcu_excludes_nobody_and_is_waited_for() {
    let mut g = Guest::new();
    let (reader, writer) = (task(1), task(2));
    g.by(&reader).enter("vfs_read", &[]).called("__rcu_read_lock", &[], 0).write(1);
    g.by(&reader).called("__rcu_read_unlock", &[], 0).write(2);
    g.by(&softirq(3)).run("net_rx_action", &[], 3);
    g.by(&writer).enter("vfs_read", &[]).write(4).called("synchronize_rcu", &[], 0).write(5);
    // A softirq is a read section as well; what follows a section is not waited for.
    assert!(g.written(4).after.is_empty());
    assert_eq!(g.written(5).after, [1, 3, 4]);
    // Readers that begin later see what came before.
    g.by(&softirq(4)).run("net_rx_action", &[], 6);
    assert_eq!(g.written(6).after, [4]);
}

#[test]
fn a_spin_lock_that_is_held_in_the_kernel_is_an_unlock_unseen() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).called("_raw_spin_lock", &[LOCK], 0).ret(0).run("vfs_read", &[], 1);
    assert_eq!(g.written(1).now.locks.0, 0);
}

const L: u64 = 0xffff_8880_0500_0000;

/// Returns what comes before the second section of a lock whose first section is `body`. Also returns what
/// comes before the code that follows the first section.
fn around(body: impl Fn(&mut Guest, &Context)) -> (Vec<u64>, Vec<u64>) {
    let mut g = Guest::new();
    let (a, b, c) = (task(1), task(2), task(3));
    let held = |g: &mut Guest, who: &Context, n: u64| {
        g.by(who).enter("vfs_read", &[]).called("_raw_spin_lock", &[L], 0).write(n);
        g.by(who).called("_raw_spin_unlock", &[L], 0);
    };
    held(&mut g, &a, 1);
    held(&mut g, &task(5), 5);
    g.by(&b).enter("vfs_read", &[]).write(2).called("_raw_spin_lock", &[L], 0);
    body(&mut g, &b);
    g.by(&b).called("_raw_spin_unlock", &[L], 0).write(3);
    held(&mut g, &c, 4);
    (g.written(3).after, g.written(4).after)
}

/// lock or [rdi], eax
fn locked(g: &mut Guest, who: &Context) {
    g.by(who).block(&[0xf0, 0x09, 0x07], &[load(0, L + 0x100, 4), store(0, L + 0x100, 4)]);
}

#[test]
fn a_section_that_protects_nothing_waits_for_the_lock() {
    let (after, later) = around(|g, who| {
        // The lock's owner.
        g.by(who).store_word(L + 8);
        locked(g, who);
    });
    assert_eq!((after, later), (vec![1, 2, 5], vec![1, 2, 5]));
    // A section that accesses what the lock may protect is not there to wait, nor is an empty one.
    let (after, later) = around(|g, who| {
        locked(g, who);
        g.by(who).store_word(L + 0x200);
    });
    assert_eq!((after, later), (vec![2], vec![]));
    assert_eq!(around(|_, _| {}), (vec![2], vec![]));
    // An inlined release ends it in the middle of a block: mov byte [rdi], 0; mov [rsi], eax.
    let waits = around(|g, who| {
        locked(g, who);
        g.by(who).block(&[0xc6, 0x07, 0, 0x89, 0x06], &[store(0, L, 1), store(1, L + 0x200, 4)]);
    });
    assert_eq!(waits, (vec![1, 2, 5], vec![1, 2, 5]));
}

#[test]
fn a_lock_that_a_task_took_at_the_place_of_another_is_its_own() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).run("vfs_read", &[], 1);
    let b = Context { pid: a.pid + 1, ..task(1) };
    g.by(&b).hooked("rtnl_lock", &[], 0).enter("vfs_read", &[]).write(2);
    let c = task(3);
    g.by(&c).hooked("rtnl_lock", &[], 0).enter("vfs_read", &[]).write(3);
    assert_eq!(g.written(3).common, [2]);
}
