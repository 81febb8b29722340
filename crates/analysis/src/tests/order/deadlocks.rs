//! Reports of LockCheck and ProtoCheck.

use super::guest::*;

const A: u64 = 0xffff_8880_0900_0000;
const B: u64 = 0xffff_8880_0900_1000;
const GUARD: u64 = 0xffff_8880_0900_2000;
const MSLEEP: &str = "mutex_lock_interruptible";

/// Takes locks in order and releases them.
fn take(g: &mut Guest, who: Context, locks: &[u64]) {
    g.by(&who).enter("vfs_read", &[]);
    for &lock in locks {
        g.by(&who).called("_raw_spin_lock", &[lock], 0);
    }
    for &lock in locks.iter().rev() {
        g.by(&who).called("_raw_spin_unlock", &[lock], 0);
    }
    g.by(&who).ret(0);
}

#[test]
fn locks_in_opposite_orders() {
    let mut g = Guest::checked("lockcheck");
    take(&mut g, task(1), &[A, B]);
    take(&mut g, task(2), &[B, A]);
    let found = g.found();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with(&format!("lock-order: {A:#x} is taken while {B:#x} is held")), "{found:?}");
}

#[test]
fn locks_in_one_order_and_locks_under_a_guard() {
    let mut g = Guest::checked("lockcheck");
    take(&mut g, task(1), &[A, B]);
    take(&mut g, task(2), &[A, B]);
    take(&mut g, task(1), &[GUARD, A + 8, B + 8]);
    take(&mut g, task(2), &[GUARD, B + 8, A + 8]);
    assert_eq!(g.found(), [] as [&str; 0]);
}

#[test]
fn a_semaphore_that_another_context_gives_back_orders_nothing() {
    let orders = |counts: bool| {
        let mut g = Guest::checked("lockcheck");
        let (a, b) = (task(1), task(2));
        if counts {
            g.by(&a).enter("vfs_read", &[]).called("down", &[A], 0).ret(0);
            g.by(&b).enter("vfs_read", &[]).called("up", &[A], 0).ret(0);
        }
        g.by(&a).enter("vfs_read", &[]).called("down", &[A], 0).called("_raw_spin_lock", &[B], 0);
        g.by(&a).called("_raw_spin_unlock", &[B], 0).called("up", &[A], 0).ret(0);
        g.by(&b).enter("vfs_read", &[]).called("_raw_spin_lock", &[B], 0).called("down", &[A], 0);
        g.by(&b).called("up", &[A], 0).called("_raw_spin_unlock", &[B], 0).ret(0);
        g.found().iter().filter(|found| found.starts_with("lock-order")).count()
    };
    assert_eq!((orders(false), orders(true)), (1, 0));
}

/// Locks, each with the function that takes it.
type Locks<'a> = &'a [(&'a str, u64)];

/// A context takes locks with these functions, in order, and releases them with their counterparts.
fn take_by(g: &mut Guest, who: Context, locks: Locks<'_>) {
    g.by(&who).enter("vfs_read", &[]);
    for (function, lock) in locks {
        g.by(&who).called(function, &[*lock], 0);
    }
    for (function, lock) in locks.iter().rev() {
        let counterpart = if *function == "down_read" {
            "up_read".to_owned()
        } else {
            function.replace("_lock", "_unlock")
        };
        g.by(&who).called(&counterpart, &[*lock], 0);
    }
    g.by(&who).ret(0);
}

const SPIN: &str = "_raw_spin_lock";
const READ: &str = "_raw_read_lock";
const WRITE: &str = "_raw_write_lock";

/// The kinds of what is found where tasks take these locks one after the other.
fn kinds_of(takes: &[Locks<'_>]) -> Vec<String> {
    let mut g = Guest::checked("lockcheck");
    for (n, locks) in takes.iter().enumerate() {
        take_by(&mut g, task(n as u64), locks);
    }
    g.found().iter().map(|found| found.split(':').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn readers_of_a_rwlock_do_not_wait_for_each_other() {
    // One that reads A waits for B, whose holder reads A.
    assert_eq!(kinds_of(&[&[(READ, A), (SPIN, B)], &[(SPIN, B), (READ, A)]]), [] as [&str; 0]);
    assert_eq!(kinds_of(&[&[(READ, A), (SPIN, B)], &[(SPIN, B), (WRITE, A)]]), ["lock-order"]);
    // A cycle of three has a lock that is only read, or none.
    let [x, y, z] = [A, B, GUARD];
    let (first, second) = ([(WRITE, x), (WRITE, y)], [(READ, y), (READ, z)]);
    assert_eq!(kinds_of(&[&first, &second, &[(READ, z), (WRITE, x)]]), [] as [&str; 0]);
    assert_eq!(kinds_of(&[&first, &second, &[(WRITE, z), (READ, x)]]), ["lock-order"]);
}

#[test]
fn a_writer_follows_where_a_reader_was_before() {
    let takes: [Locks<'_>; 3] = [&[(READ, A), (SPIN, B)], &[(SPIN, B), (READ, A)], &[(SPIN, B), (WRITE, A)]];
    assert_eq!(kinds_of(&takes), ["lock-order"]);
}

#[test]
fn readers_of_a_rw_semaphore_wait_for_writers_between_them() {
    assert_eq!(
        kinds_of(&[&[("down_read", A), ("down_read", B)], &[("down_read", B), ("down_read", A)]]),
        ["lock-order"]
    );
    let mut g = Guest::checked("lockcheck");
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).called("down_read", &[A], 0).called("down_read", &[A], 0);
    g.by(&a).called("up_read", &[A], 0).called("up_read", &[A], 0).ret(0);
    let found = g.found();
    assert!(
        found.len() == 1 && found[0].starts_with("double-lock: down_read waits for the rw_semaphore"),
        "{found:?}"
    );
}

/// The kernel takes locks in order and releases them, in a task that has been in the driver.
fn take_in_kernel(g: &mut Guest, who: Context, locks: &[u64]) {
    g.by(&who).enter("vfs_read", &[]).ret(0);
    for &lock in locks {
        g.by(&who).hooked("kernel_lock", &[lock], 0);
    }
    for &lock in locks.iter().rev() {
        g.by(&who).hooked("kernel_unlock", &[lock], 0);
    }
}

#[test]
fn locks_that_the_kernel_alone_takes_in_opposite_orders() {
    let mut g = Guest::checked("lockcheck");
    take_in_kernel(&mut g, task(1), &[A, B]);
    take_in_kernel(&mut g, task(2), &[B, A]);
    assert_eq!(g.machine().findings(), 0);
    // The driver takes them in one of these orders, too.
    take(&mut g, task(3), &[A, B]);
    let found = g.found();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with(&format!("lock-order: {B:#x} is taken while {A:#x} is held")), "{found:?}");
}

#[test]
fn a_lock_in_an_interrupt_and_outside_with_interrupts_on() {
    for (irqs, expected) in [(true, 1), (false, 0)] {
        let mut g = Guest::checked("lockcheck");
        take(&mut g, hardirq(1), &[A]);
        take(&mut g, Context { irqs, ..task(2) }, &[A]);
        let found = g.found();
        assert_eq!(found.len(), expected, "{found:?}");
        assert!(found.iter().all(|f| f.starts_with("irq-inversion: ")), "{found:?}");
    }
}

#[test]
fn a_lock_that_an_interrupt_waits_for_by_way_of_another() {
    let off = Context { irqs: false, ..task(1) };
    // The interrupt takes A; who holds A waits for B, which is held with interrupts on.
    let steps: [(Context, Locks<'_>); 3] =
        [(hardirq(1), &[(SPIN, A)]), (off, &[(SPIN, A), (SPIN, B)]), (task(2), &[(SPIN, B)])];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut g = Guest::checked("lockcheck");
        for (who, locks) in order.map(|step: usize| steps[step]) {
            take_by(&mut g, who, locks);
        }
        let expected = format!(
            "irq-inversion: the spinlock {B:#x} is taken with interrupts on, and elsewhere under {A:#x}, which an \
             interrupt handler takes ({A:#x} -> {B:#x})"
        );
        assert_eq!(g.found(), [expected], "{order:?}");
    }
    let none: [[(Context, Locks<'_>); 3]; 3] = [
        // B is held with interrupts off, too.
        [steps[0], steps[1], (off, &[(SPIN, B)])],
        // B is only read, or a lock keeps its holders apart.
        [steps[0], (off, &[(SPIN, A), (READ, B)]), (task(2), &[(READ, B)])],
        [steps[0], (off, &[(SPIN, GUARD), (SPIN, A), (SPIN, B)]), (task(2), &[(SPIN, GUARD), (SPIN, B)])],
    ];
    for steps in none {
        let mut g = Guest::checked("lockcheck");
        for (who, locks) in steps {
            take_by(&mut g, who, locks);
        }
        assert_eq!(g.found(), [] as [&str; 0]);
    }
}

#[test]
fn a_lock_that_is_held_while_interrupts_are_enabled() {
    for (sti, expected) in [(true, 1), (false, 0)] {
        let mut g = Guest::checked("lockcheck");
        let off = Context { irqs: false, ..task(2) };
        take(&mut g, hardirq(1), &[A]);
        g.by(&off).enter("vfs_read", &[]).called(SPIN, &[A], 0);
        g.by(&off).block(if sti { &[0xfb] } else { &[0x90] }, &[]).called("_raw_spin_unlock", &[A], 0).ret(0);
        let found = g.found();
        assert_eq!(found.len(), expected, "{found:?}");
        assert!(
            found.iter().all(|f| f.contains("is held with interrupts on, and also in an interrupt handler"))
        );
    }
}

#[test]
fn a_lock_that_is_initialized_while_it_is_held() {
    for (function, kind) in [(SPIN, "spinlock"), (WRITE, "rwlock"), ("ww_mutex_lock", "mutex")] {
        let mut g = Guest::checked("lockcheck");
        let (a, unlock) = (task(1), function.replace("_lock", "_unlock"));
        let init = |g: &mut Guest| {
            if kind == "mutex" {
                g.by(&a).called("__mutex_init", &[A], 0);
            } else {
                g.by(&a).store_word(A);
            }
        };
        g.by(&a).enter("vfs_read", &[]);
        init(&mut g);
        g.by(&a).called(function, &[A], 0);
        init(&mut g);
        g.by(&a).called(&unlock, &[A], 0);
        init(&mut g);
        g.by(&a).ret(0);
        let expected = format!("init-locked: the {kind} {A:#x} is initialized, but this thread holds it");
        assert_eq!(g.found(), [expected]);
    }
}

#[test]
fn a_mutex_of_a_context_that_has_taken_it_already() {
    for (context, expected) in [(0, 1), (B, 0)] {
        let mut g = Guest::checked("lockcheck");
        let a = task(1);
        g.by(&a).enter("vfs_read", &[]).called("ww_mutex_lock", &[A, context], 0);
        g.by(&a).call("ww_mutex_lock", &[A, context]);
        let found = g.found();
        assert_eq!(found.iter().filter(|f| f.starts_with("double-lock")).count(), expected, "{found:?}");
    }
}

#[test]
fn a_lock_that_the_thread_holds_already() {
    let mut g = Guest::checked("lockcheck");
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).called("_raw_spin_lock", &[A], 0).call("_raw_spin_lock", &[A]);
    let found = g.found();
    assert_eq!(
        found,
        [format!(
            "double-lock: _raw_spin_lock waits for the spinlock {A:#x}, which this thread holds already"
        )]
    );
}

#[test]
fn a_lock_in_an_object_of_a_known_type_has_its_member_as_name() {
    let name = |offset: u64, size: u64| {
        let mut g = Guest::checked("lockcheck");
        let (a, lock) = (task(1), A + offset);
        g.by(&a).enter("vfs_read", &[]).call("kmalloc", &[size]).hook("kmalloc", a.rsp - 8, &[size]);
        g.by(&a).hook_return("kmalloc", a.rsp - 8, A).back(A);
        g.by(&a).called("_raw_spin_lock", &[lock], 0).call("_raw_spin_lock", &[lock]);
        let found = g.found();
        let name = found[0].split("the spinlock ").nth(1).and_then(|rest| rest.split(", which").next());
        name.unwrap_or(&found[0]).to_owned()
    };
    assert_eq!(name(64, 320), "device.table.lock");
    // No lock begins there, and no type has this size.
    assert_eq!(name(68, 320), "offset 68 of the 320-byte slab object allocated in f");
    assert_eq!(name(64, 256), "offset 64 of the 256-byte slab object allocated in f");
}

#[test]
fn a_lock_that_two_functions_report_is_taken_once() {
    let mut g = Guest::checked("lockcheck");
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).called("_raw_spin_lock", &[A], 0).called("_raw_spin_lock", &[A], 0);
    g.by(&a).called("_raw_spin_unlock", &[A], 0).ret(0);
    let found = g.found();
    assert!(!found.iter().any(|f| f.starts_with("lock-held-at-return")), "{found:?}");
}

#[test]
fn a_lock_that_the_driver_gives_back_for_its_caller_and_takes_again() {
    let mut g = Guest::checked("lockcheck");
    let a = task(1);
    g.by(&a).hook("bus_probe", a.rsp + 0x100, &[0, 0, A]).enter("vfs_read", &[]);
    g.by(&a).called("_raw_spin_unlock", &[A], 0).called("_raw_spin_lock", &[A], 0).ret(0);
    g.by(&a).hook_return("bus_probe", a.rsp + 0x100, 0);
    assert_eq!(g.found(), [] as [&str; 0]);
}

#[test]
fn a_lock_given_back_by_a_jump_to_a_function_that_is_watched() {
    let mut g = Guest::checked("lockcheck");
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).call("rtnl_lock", &[]).hook("rtnl_lock", a.rsp - 8, &[]);
    g.by(&a).hook_return("rtnl_lock", a.rsp - 8, 0).back(0).jump("rtnl_unlock", &[]);
    g.by(&a).hook("rtnl_unlock", a.rsp, &[]);
    assert_eq!(g.found(), [] as [&str; 0]);
}

#[test]
fn a_lock_given_back_twice() {
    let mut g = Guest::checked("lockcheck");
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).called("_raw_spin_lock", &[A], 0).called("_raw_spin_unlock", &[A], 0);
    g.by(&a).called("_raw_spin_unlock", &[A], 0).ret(0);
    assert_eq!(
        g.found(),
        [format!("unlock-unlocked: the spinlock {A:#x} is given back, but this thread does not hold it")]
    );
}

#[test]
fn a_lock_that_only_the_kernel_was_seen_to_need_is_not_judged() {
    let mut g = Guest::checked("lockcheck");
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).called("_raw_spin_unlock", &[A], 0).ret(0);
    assert_eq!(g.found(), [] as [&str; 0]);
}

#[test]
fn a_lock_that_the_kernel_took_unseen_is_its_own_to_give_back() {
    let mut g = Guest::checked("lockcheck");
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]);
    for name in ["rtnl_lock", "rtnl_unlock"] {
        g.by(&a).call(name, &[]).hook(name, a.rsp - 8, &[]).hook_return(name, a.rsp - 8, 0).back(0);
    }
    g.by(&a).ret(0).hooked("rtnl_unlock", &[], 0);
    assert_eq!(g.found(), [] as [&str; 0]);
}

#[test]
fn a_return_with_a_lock_held() {
    let mut g = Guest::checked("lockcheck");
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).called("_raw_spin_lock", &[A], 0).ret(0);
    assert_eq!(
        g.found(),
        [format!("lock-held-at-return: the spinlock {A:#x} is still held when f returns to vfs_read")]
    );
}

#[test]
fn sleeping_where_that_is_not_allowed() {
    let atomic: [(Context, &str); 4] = [
        (hardirq(1), "in an interrupt handler"),
        (softirq(1), "in a softirq"),
        (Context { irqs: false, ..task(1) }, "with interrupts off"),
        (Context { preempt: 1, ..task(1) }, "with preemption off"),
    ];
    for (who, why) in atomic {
        let mut g = Guest::checked("lockcheck");
        g.by(&who).enter("vfs_read", &[]).called(MSLEEP, &[A], 1);
        let found = g.found();
        let expected = format!("sleep-in-atomic: {MSLEEP}, which may sleep, is called {why}");
        assert_eq!(found, [expected]);
    }
    let mut g = Guest::checked("lockcheck");
    g.by(&task(1)).enter("vfs_read", &[]).called(MSLEEP, &[A], 1);
    assert_eq!(g.found(), [] as [&str; 0]);
}

#[test]
fn a_call_in_a_state_that_does_not_allow_it() {
    let mut g = Guest::checked("protocheck");
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).called("request_irq", &[11, A], 0).called("free_irq", &[11], 0);
    g.by(&a).called("free_irq", &[11], 0).ret(0);
    let found = g.found();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with(
            "protocol-order: free_irq of the irq at 0xb while it is free; this is for one that is used.on"
        ),
        "{found:?}"
    );
}

#[test]
fn a_rule_that_an_active_driver_breaks() {
    let stack = 0xffff_8880_0500_0000;
    let words = |text: &[u8; 16]| [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|i| text[at + i])));
    let [message, states] = words(b"it ends\npci u\xffp\0");
    let own = Context { rsp: stack + 0x3f00, ..task(1) };
    let mut g = Guest::checked("protocheck");
    g.by(&own).enter("vfs_read", &[]).write(1).call("active_await", &[0x7000]);
    // A worker finds that it has waited for too long: the finding has the stack of the driver.
    let worker = task(2);
    g.by(&worker).hook("active_violated", worker.rsp, &[4, stack, 0, F, message, states]);
    // Text that says nothing, and a rule that there is not.
    g.by(&worker).hook("active_violated", worker.rsp, &[5, 0, 0, F, 0, 0]);
    g.by(&worker).hook("active_violated", worker.rsp, &[7, stack, 0, F, message, states]);
    let findings = g.machine().findings();
    assert_eq!(findings, 2);
    let found = g.finish();
    assert_eq!(found[0].kind, "protocol-rule-4");
    assert_eq!(found[0].message, "an active driver breaks rule 4: it ends");
    assert_eq!(found[0].notes, ["The states of its protocols: pci u?p"]);
    assert_eq!((found[0].function.as_str(), found[0].stack.len()), ("f", 2));
    assert_eq!((found[1].kind.as_str(), found[1].function.as_str()), ("protocol-rule-5", "f"));
}

#[test]
fn memory_that_is_freed_while_its_timer_is_pending() {
    for pending in [true, false] {
        let mut g = Guest::checked("protocheck");
        let a = task(1);
        g.by(&a).hooked("kmalloc", &[64], HEAP).enter("vfs_read", &[]).called("mod_timer", &[HEAP + 16], 0);
        if !pending {
            g.by(&a).called("del_timer_sync", &[HEAP + 16], 0);
        }
        g.by(&a).call("kfree", &[HEAP]).hook("kfree", a.rsp - 8, &[HEAP]);
        let found = g.found();
        let expected = ["protocol-order: the memory of a timer is freed while the timer is pending"];
        assert_eq!(found, expected[..usize::from(pending)]);
    }
}

#[test]
fn an_object_that_others_made_is_theirs_to_end() {
    for own in [true, false] {
        let mut g = Guest::checked("protocheck");
        let a = task(1);
        g.by(&a).hooked("kmalloc", &[64], HEAP).enter("vfs_read", &[]);
        if own {
            g.by(&a).called("lamp_setup", &[HEAP + 16], 0);
        }
        g.by(&a).called("lamp_on", &[HEAP + 16], 0).called("lamp_on", &[HEAP + 16], 0);
        g.by(&a).call("kfree", &[HEAP]).hook("kfree", a.rsp - 8, &[HEAP]);
        let expected = ["protocol-order: the memory of a lamp is freed while the lamp is on"];
        assert_eq!(g.found(), expected[..usize::from(own)]);
    }
}
