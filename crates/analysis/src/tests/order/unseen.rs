//! Order from what is not seen: the kernel's own locks, libraries, devices.

use super::guest::*;

const LOCK: u64 = 0xffff_8880_0900_0000;
const T: u64 = 0xffff_8880_0800_0000;

#[test]
fn a_function_that_holds_a_lock_acquires_before_it_calls_and_gives_back_after() {
    let mut g = Guest::new();
    let (a, b, c) = (task(1), softirq(2), task(3));
    g.enter(&a, "vfs_read", NONE);
    g.touch(&a, 1);
    g.called(&a, "complete", &[0x7000], 0);
    g.touch(&a, 2);
    g.hook(&b, "bus_probe", b.rsp + 0x80, &[0, 0x7000, LOCK]);
    g.run(&b, "net_rx_action", NONE, 3);
    // The function continues, and calls once more.
    g.run(&b, "net_rx_action", NONE, 4);
    g.hook_return(&b, "bus_probe", b.rsp + 0x80, 0);
    assert_eq!(g.touched(3).after, [1]);
    assert_eq!(g.touched(4).common, [3]);
    g.hook(&c, "bus_probe", c.rsp + 0x80, &[0, 0, LOCK]);
    g.run(&c, "vfs_read", NONE, 5);
    assert_eq!((g.touched(5).after_fully, g.touched(5).common), (vec![1, 3, 4], vec![3, 4]));
    assert!(g.touched(5).after.is_empty());
}

#[test]
fn callbacks_that_take_turns_are_in_order() {
    let mut g = Guest::new();
    g.run(&task(1), "probe_caller", six(&[T, 0x9000]), 1);
    g.run(&task(2), "probe_caller", six(&[T + 64, 0x9000]), 2);
    g.run(&task(3), "probe_caller", six(&[T, 0x9100]), 3);
    assert_eq!(g.touched(2).after, [1]);
    assert!(g.touched(3).after.is_empty());
}

#[test]
fn a_call_that_names_no_object_wakes_callbacks_of_objects_to_come() {
    let mut g = Guest::new();
    let a = task(1);
    g.enter(&a, "vfs_read", NONE);
    g.touch(&a, 1);
    g.called(&a, "register_all", &[], 0);
    g.touch(&a, 2);
    g.run(&task(2), "probe_caller", six(&[T, 0]), 3);
    assert_eq!(g.touched(3).after, [1]);
}

#[test]
fn what_a_probe_tells_a_library_comes_before_what_that_calls_back() {
    let mut g = Guest::new();
    g.load_other();
    let a = task(1);
    g.enter(&a, "probe_caller", six(&[T, 0]));
    g.touch(&a, 1);
    g.called(&a, "core/ready_line", &[0x9000], 0);
    g.touch(&a, 2);
    g.run(&task(2), "core/thread_caller", six(&[0x5000]), 3);
    g.run(&task(3), "vfs_read", NONE, 4);
    g.ret(&a, 0);
    assert_eq!(g.touched(3).after, [1]);
    assert!(g.touched(4).after.is_empty());
    // Calls of other functions release nothing.
    let mut g = Guest::new();
    g.load_other();
    g.enter(&a, "vfs_read", NONE);
    g.touch(&a, 1);
    g.called(&a, "core/ready_line", &[0x9000], 0);
    g.run(&task(2), "core/thread_caller", six(&[0x5000]), 2);
    assert!(g.touched(2).after.is_empty());
}

#[test]
fn what_sets_a_device_going_comes_before_its_interrupts() {
    let mut g = Guest::new();
    let a = task(1);
    g.enter(&a, "probe_caller", six(&[T, 0]));
    g.touch(&a, 1);
    g.called(&a, "iowrite32", &[1, 0x6000], 0);
    g.touch(&a, 2);
    g.run(&hardirq(2), "up", NONE, 3);
    g.run(&softirq(2), "net_rx_action", NONE, 4);
    g.ret(&a, 0);
    assert_eq!(g.touched(3).after, [1]);
    assert!(g.touched(4).after.is_empty());
    let mut g = Guest::new();
    g.enter(&a, "vfs_read", NONE);
    g.touch(&a, 1);
    g.called(&a, "iowrite32", &[1, 0x6000], 0);
    g.run(&hardirq(2), "up", NONE, 2);
    assert!(g.touched(2).after.is_empty());
}

#[test]
fn a_requested_handler_may_run_before_the_device_is_told_to() {
    let mut g = Guest::new();
    let a = task(1);
    g.enter(&a, "probe_caller", six(&[T, 0]));
    g.touch(&a, 1);
    g.called(&a, "iowrite32", &[1, 0x6000], 0);
    g.called(&a, "request_threaded_irq", &[17, 0x9000, 0, 0, 0, T], 0);
    g.touch(&a, 2);
    g.called(&a, "iowrite32", &[1, 0x6000], 0);
    g.run(&hardirq(2), "up", NONE, 3);
    g.ret(&a, 0);
    assert_eq!(g.touched(3).after, [1]);
}

#[test]
fn a_handler_in_a_library_is_one_strand_and_can_be_waited_for() {
    let mut g = Guest::new();
    g.load_other();
    let a = task(1);
    g.enter(&a, "vfs_read", NONE);
    g.called(&a, "request_threaded_irq", &[17, g.kernel.address("core/ready_line"), 0, 0, 0, T], 0);
    g.run(&hardirq(2), "core/thread_caller", NONE, 1);
    g.place = G;
    g.run(&hardirq(4), "core/thread_caller", NONE, 2);
    g.place = F;
    g.touch(&a, 3);
    g.called(&a, "synchronize_irq", &[17], 0);
    g.touch(&a, 4);
    assert_eq!(g.touched(2).after, [1]);
    assert!(g.touched(3).after.is_empty());
    assert_eq!(g.touched(4).after, [1, 2, 3]);
    assert_eq!(g.touched(2).strand, "the interrupt handler in core");
}

#[test]
fn who_reads_a_member_that_was_released_acquires_also_the_first() {
    let mut g = Guest::new();
    let (a, b) = (softirq(1), task(2));
    g.enter(&a, "net_rx_action", NONE);
    g.touch(&a, 1);
    g.called(&a, "napi_complete_done", &[T], 0);
    g.touch(&a, 2);
    g.enter(&b, "vfs_read", NONE);
    g.touch(&b, 3);
    // mov rax, [rdi]
    g.block(&b, &[0x48, 0x8b, 0x07], &[load(0, T, 8)]);
    g.touch(&b, 4);
    assert!(g.touched(3).after.is_empty());
    assert_eq!(g.touched(4).after, [1, 3]);
}
