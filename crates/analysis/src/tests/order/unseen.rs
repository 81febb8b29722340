//! Order from what is not seen: the kernel's own locks, libraries, devices.

use super::guest::*;

const LOCK: u64 = 0xffff_8880_0900_0000;
const T: u64 = 0xffff_8880_0800_0000;

#[test]
fn a_function_that_holds_a_lock_acquires_before_it_calls_and_gives_back_after() {
    let mut g = Guest::new();
    let (a, b, c) = (task(1), softirq(2), task(3));
    g.by(&a).enter("vfs_read", &[]).write(1).called("complete", &[0x7000], 0).write(2);
    g.by(&b).hook("bus_probe", b.rsp + 0x80, &[0, 0x7000, LOCK]).run("net_rx_action", &[], 3);
    // The function continues, and calls once more.
    g.by(&b).run("net_rx_action", &[], 4).hook_return("bus_probe", b.rsp + 0x80, 0);
    assert_eq!(g.written(3).after, [1]);
    assert_eq!(g.written(4).common, [3]);
    g.by(&c).hook("bus_probe", c.rsp + 0x80, &[0, 0, LOCK]).run("vfs_read", &[], 5);
    assert_eq!((g.written(5).after_fully, g.written(5).common), (vec![1, 3, 4], vec![3, 4]));
    assert!(g.written(5).after.is_empty());
}

#[test]
fn callbacks_that_take_turns_are_in_order() {
    let mut g = Guest::new();
    g.by(&task(1)).run("probe_caller", &[T, 0x9000], 1);
    g.by(&task(2)).run("probe_caller", &[T + 64, 0x9000], 2);
    g.by(&task(3)).run("probe_caller", &[T, 0x9100], 3);
    assert_eq!(g.written(2).after, [1]);
    assert!(g.written(3).after.is_empty());
}

#[test]
fn a_call_that_names_no_object_wakes_callbacks_of_objects_to_come() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).write(1).called("register_all", &[], 0).write(2);
    g.by(&task(2)).run("probe_caller", &[T, 0], 3);
    assert_eq!(g.written(3).after, [1]);
}

#[test]
fn a_callback_that_names_no_object_comes_after_what_wakes_it_for_any() {
    let mut g = Guest::new();
    g.by(&task(1)).run("shelf_caller", &[T], 1);
    g.by(&task(2)).run("shelf_caller", &[T + 64], 2);
    g.by(&task(3)).run("sweep_caller", &[0x5000], 3);
    g.by(&task(4)).run("shelf_caller", &[T], 4);
    assert_eq!(g.written(3).after, [1, 2]);
    assert!(g.written(4).after.is_empty());
}

#[test]
fn a_callback_that_names_no_object_may_be_the_first_of_its_class() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).write(1).called("fill_shelves", &[], 0).write(2);
    g.by(&task(2)).run("sweep_caller", &[0x5000], 3);
    assert_eq!(g.written(3).after, [1]);
}

#[test]
fn what_a_probe_passes_to_a_library_comes_before_what_that_calls_back() {
    let mut g = Guest::new();
    g.load_other();
    let a = task(1);
    g.by(&a).enter("probe_caller", &[T, 0]).write(1).called("core/ready_line", &[0x9000], 0).write(2);
    g.by(&task(2)).run("core/thread_caller", &[0x5000], 3);
    g.by(&task(3)).run("vfs_read", &[], 4);
    g.by(&a).ret(0);
    assert_eq!(g.written(3).after, [1]);
    assert!(g.written(4).after.is_empty());
    // Calls of other functions release nothing.
    let mut g = Guest::new();
    g.load_other();
    g.by(&a).enter("vfs_read", &[]).write(1).called("core/ready_line", &[0x9000], 0);
    g.by(&task(2)).run("core/thread_caller", &[0x5000], 2);
    assert!(g.written(2).after.is_empty());
}

#[test]
fn what_sets_a_device_going_comes_before_its_interrupts() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("probe_caller", &[T, 0]).write(1).called("iowrite32", &[1, 0x6000], 0).write(2);
    g.by(&hardirq(2)).run("up", &[], 3);
    g.by(&softirq(2)).run("net_rx_action", &[], 4);
    g.by(&a).ret(0);
    assert_eq!(g.written(3).after, [1]);
    assert!(g.written(4).after.is_empty());
    let mut g = Guest::new();
    g.by(&a).enter("vfs_read", &[]).write(1).called("iowrite32", &[1, 0x6000], 0);
    g.by(&hardirq(2)).run("up", &[], 2);
    assert!(g.written(2).after.is_empty());
}

#[test]
fn a_device_that_was_silenced_interrupts_after_its_registers_are_written() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]).write(1).called("synchronize_irq", &[17], 0).write(2);
    g.by(&hardirq(2)).run("up", &[], 3);
    g.by(&a).called("iowrite32", &[1, 0x6000], 0).write(4);
    g.by(&hardirq(2)).run("up", &[], 5);
    g.by(&a).ret(0);
    assert!(g.written(3).after.is_empty());
    assert_eq!(g.written(5).after, [1, 2, 3]);
    // The next entry has waited for nobody.
    g.by(&a).enter("vfs_read", &[]).write(6).called("iowrite32", &[1, 0x6000], 0);
    g.by(&hardirq(2)).run("up", &[], 7);
    assert!(!g.written(7).after.contains(&6));
}

#[test]
fn a_requested_handler_may_run_before_the_device_is_allowed_to() {
    let mut g = Guest::new();
    let a = task(1);
    g.by(&a).enter("probe_caller", &[T, 0]).write(1).called("iowrite32", &[1, 0x6000], 0);
    g.by(&a).called("request_threaded_irq", &[17, 0x9000, 0, 0, 0, T], 0).write(2);
    g.by(&a).called("iowrite32", &[1, 0x6000], 0);
    g.by(&hardirq(2)).run("up", &[], 3);
    g.by(&a).ret(0);
    assert_eq!(g.written(3).after, [1]);
}

#[test]
fn work_that_a_probe_leaves_the_rest_to_brings_the_device_up() {
    let mut g = Guest::new();
    g.load_other();
    let (a, worker) = (task(1), task(2));
    g.by(&a).enter("probe_caller", &[T, 0]).called("queue_work", &[0x100, T + 64], 0).ret(0);
    // Only the first run of the work does so, and not what that queues.
    for (mark, comes_before) in [(1, true), (2, false)] {
        g.by(&worker).enter("work_caller", &[T + 64]).write(mark).called("core/ready_line", &[0x9000], 0);
        g.by(&worker).called("queue_work", &[0x100, T + 64], 0).ret(0);
        g.by(&hardirq(3)).run("core/thread_caller", &[0x5000], mark + 10);
        assert_eq!(g.written(mark + 10).after.contains(&mark), comes_before, "{mark}");
        // What is no interrupt may run beside the work.
        g.by(&task(4)).run("core/thread_caller", &[0x5000], mark + 20);
        assert!(!g.written(mark + 20).after.contains(&mark), "{mark}");
    }
}

#[test]
fn a_handler_in_a_library_is_one_strand_and_can_be_waited_for() {
    let mut g = Guest::new();
    g.load_other();
    let a = task(1);
    g.by(&a).enter("vfs_read", &[]);
    let handler = g.kernel.address("core/ready_line");
    g.by(&a).called("request_threaded_irq", &[17, handler, 0, 0, 0, T], 0);
    g.by(&hardirq(2)).run("core/thread_caller", &[], 1);
    g.place = G;
    g.by(&hardirq(4)).run("core/thread_caller", &[], 2);
    g.place = F;
    g.by(&a).write(3).called("synchronize_irq", &[17], 0).write(4);
    assert_eq!(g.written(2).after, [1]);
    assert!(g.written(3).after.is_empty());
    assert_eq!(g.written(4).after, [1, 2, 3]);
    assert_eq!(g.written(2).strand, "the interrupt handler in core");
}

#[test]
fn who_reads_a_member_that_was_released_acquires_also_the_first() {
    let mut g = Guest::new();
    let (a, b) = (softirq(1), task(2));
    g.by(&a).enter("net_rx_action", &[]).write(1).called("napi_complete_done", &[T], 0).write(2);
    g.by(&b).enter("vfs_read", &[]).write(3);
    // mov rax, [rdi]
    g.by(&b).block(&[0x48, 0x8b, 0x07], &[load(0, T, 8)]).write(4);
    assert!(g.written(3).after.is_empty());
    assert_eq!(g.written(4).after, [1, 3]);
}
