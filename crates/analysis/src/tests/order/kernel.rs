//! The kernel of these guests: locks, hooks, and charts of small classes.

use crate::tests::kernel::{Kernel, alloc, arg, free};
use guardrail_knowledge::effect::{Class, Effect, Key, Len, LockKind, LockMode, SyncOp, When, Zeroed};

/// Offset of `preempt_count` from the GS base.
pub const PREEMPT: u64 = 0x1234;

/// A table of the functions and what they do.
pub fn kernel() -> Kernel {
    use LockKind::{Mutex, Rcu, Rw, RwSem, Semaphore, Spin};
    use LockMode::{Exclusive, Shared};
    let (rtnl, rcu) = (|| Key::Global("rtnl"), || Key::Global("rcu"));
    let sync = |op| [Effect::Sync(op)];
    let always = When::Always;
    let lock = |kind, key, mode| Effect::Sync(SyncOp::Lock { kind, key, mode, when: always, tries: false });
    let unlock = |kind, key, mode| Effect::Sync(SyncOp::Unlock { kind, key, mode });
    let allocates = |class| [alloc(class, Len::Arg(0), Zeroed::Yes)];
    let acquire = |key| SyncOp::Acquire { key, when: always };
    let release = |key| SyncOp::Release { key, word: false };
    Kernel::new()
        .hook("kmalloc", allocates(Class::Slab))
        .hook("kfree", [free(0, Class::Slab)])
        .hook("dma_alloc", allocates(Class::Dma))
        .hook("alloc_percpu", allocates(Class::Percpu))
        .hook("rtnl_lock", [lock(Mutex, rtnl(), Exclusive)])
        .hook("rtnl_unlock", [unlock(Mutex, rtnl(), Exclusive)])
        .hook(
            "bus_probe",
            [
                SyncOp::Hold { kind: Mutex, key: arg(0) },
                SyncOp::Hold { kind: Spin, key: arg(2) },
                acquire(arg(1)),
            ]
            .map(Effect::Sync),
        )
        .hook("kernel_lock", [lock(Spin, arg(0), Exclusive)])
        .hook("kernel_unlock", [unlock(Spin, arg(0), Exclusive)])
        .hook("unregister_netdev", [])
        .hook("active_violated", [Effect::Violation { rule: 0, stack: 1, main: 3 }])
        .recording(4)
        .function("synchronize_irq", sync(acquire(Key::Global("handlers"))))
        .function("napi_complete_done", sync(SyncOp::Release { key: arg(0), word: true }))
        .function("iowrite32", sync(release(Key::Global("device"))))
        .function("_raw_spin_lock", [lock(Spin, arg(0), Exclusive)])
        .function("_raw_spin_unlock", [unlock(Spin, arg(0), Exclusive)])
        .function(
            "mutex_lock_interruptible",
            [
                SyncOp::Sleeps { gfp: None },
                SyncOp::Lock { kind: Mutex, key: arg(0), mode: Exclusive, when: When::Zero, tries: false },
            ]
            .map(Effect::Sync),
        )
        .function("_raw_read_lock", [lock(Rw, arg(0), Shared)])
        .function("_raw_read_unlock", [unlock(Rw, arg(0), Shared)])
        .function("_raw_write_lock", [lock(Rw, arg(0), Exclusive)])
        .function("_raw_write_unlock", [unlock(Rw, arg(0), Exclusive)])
        .function("down_read", [lock(RwSem, arg(0), Shared)])
        .function("up_read", [unlock(RwSem, arg(0), Shared)])
        .function("ww_mutex_lock", [lock(Mutex, arg(0), Exclusive)])
        .function("ww_mutex_unlock", [unlock(Mutex, arg(0), Exclusive)])
        .function("__mutex_init", [])
        .function("down", [lock(Semaphore, arg(0), Exclusive)])
        .function("up", [unlock(Semaphore, arg(0), Exclusive)])
        .function("complete", sync(release(arg(0))))
        .function("wait_for_completion", sync(acquire(arg(0))))
        .function("active_await", [release(arg(0)), acquire(arg(0))].map(Effect::Sync))
        .function("__rcu_read_lock", [lock(Rcu, rcu(), Shared)])
        .function("__rcu_read_unlock", [Effect::Sync(release(rcu())), unlock(Rcu, rcu(), Shared)])
        .function("synchronize_rcu", [release(Key::Global("grace")), acquire(rcu())].map(Effect::Sync))
        .idle(&["call_timer_fn.isra.0", "__handle_irq_event_percpu", "process_one_work", "vfs_read"])
        .idle(&["net_rx_action", "handler_caller", "thread_caller", "ready_line", "do_one_initcall"])
        .idle(&["__do_sys_delete_module", "tasklet_schedule", "tasklet_kill", "tasklet_action_common"])
        .idle(&["kthread", "wake_up_process", "kthread_stop", "probe_caller", "register_all"])
        .idle(&["request_irq", "free_irq", "request_threaded_irq", "mod_timer", "del_timer"])
        .idle(&["del_timer_sync", "lamp_setup", "lamp_on", "queue_work", "cancel_work_sync"])
        .idle(&["work_caller", "suspend_caller", "resume_caller", "queue_caller", "init_caller"])
        .idle(&["poll_caller", "request_start", "request_end", "request_end_all"])
        .idle(&["shelf_caller", "sweep_caller", "fill_shelves", "async_suspend"])
        .charts(CHARTS)
        .preempt_count(PREEMPT)
}

const CHARTS: &str = r#"
chart timer deferred ticks
  key timer
  state idle
  state pending busy "the timer is pending"
  callback function(timer) from call_timer_fn: in pending serial enters idle
  call mod_timer(timer): any -> pending wakes function
  call del_timer(timer): any -> idle nowait
  call del_timer_sync(timer): any -> idle waits function

chart irq
  key number device
  state free
  state used
    state on
  callback handler(number, device) from __handle_irq_event_percpu: in on serial
  call request_irq(number, device) if zero: free -> on
  call free_irq(number): on -> free

chart file pins
  key file
  state open
  state gone
  callback read(file) from vfs_read: in open
  # The argument alone identifies the file, and the callback ends what the others do.
  callback release(inode, file): in open enters gone leaves open if nonzero stops
  call unregister_netdev(file): open -> gone

# The line's initial state allows everything that may have been missed.
chart line
  key line
  state new
  state ready
  callback handler(line) from handler_caller: in any serial wakes thread
  callback thread(line) from thread_caller: in any serial
  call ready_line(line): new -> ready

chart tasklet deferred
  key tasklet data
  state idle
  state pending
  callback function(data) from tasklet_action_common: in any serial enters idle
  call tasklet_schedule(tasklet): any -> pending wakes function
  call tasklet_kill(tasklet): any -> idle waits function

chart kthread deferred
  key task
  state unborn
  state running
  callback main(;task=current) from kthread: in any enters running
  call wake_up_process(task): any wakes main
  call kthread_stop(task): any waits main

chart device
  key device
  state here
  callback probe(device, turn) from probe_caller: in any turns turn starts
  call register_all(): any wakes probe

chart lamp made
  key lamp
  state off
  state on busy "the lamp is on"
  call lamp_setup(lamp): any -> off
  call lamp_on(lamp): any -> on

# A sweep is about all shelves.
chart shelf
  key shelf
  state here
  call fill_shelves(): any wakes sweep
  callback fill(shelf) from shelf_caller: in any wakes sweep
  callback sweep(list) from sweep_caller: in any

# A wakeup of a device that does not sleep is a reset.
chart power
  key device
  state awake
  state asleep
  callback suspend(device) from suspend_caller: in any frozen leaves asleep stops
  callback resume(device) from resume_caller: in asleep frozen leaves awake starts
  callback reset(device) from resume_caller: in any

chart request
  key request
  state new
  callback queue(request) from queue_caller: in any takes
  callback init(request) from init_caller: in any drained gives
  callback poll(request) from poll_caller: in any completes
  call request_start(request): any lends
  call request_end(request): any gives
  call request_end_all(): any gives

chart work deferred
  key work wq
  state idle
  state pending
  callback fn(work) from work_caller: in any serial enters idle
  call queue_work(wq, work): any -> pending wakes fn
  call cancel_work_sync(work): any -> idle waits fn
"#;
