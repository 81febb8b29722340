//! Logs of real guests, and texts of kernels with options that Debian's do not have.

use crate::{MARK, findings, instructions, splats};
use guardrail_finding::{Finding, Severity};

/// The console of a guest with kernel 7.2, in which a module did each of these things.
const LOG_7_2: &str = include_str!("../logs/7.2.txt");

fn found(text: &str) -> Vec<Finding> {
    findings(&format!("{MARK}demo\n{text}"), &["demo"])
}

/// The title among a finding's notes.
fn title(finding: &Finding) -> &str {
    finding.notes[0].strip_prefix("Title: ").unwrap()
}

#[test]
fn a_guest_with_kernel_7_2() {
    let all = findings(LOG_7_2, &["demo"]);
    let rows: Vec<_> = all
        .iter()
        .map(|one| {
            (one.kind.as_str(), title(one), one.function.as_str(), one.context.thread.as_str(), one.count)
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("kernel-warning", "WARNING in demo_warn", "demo_warn", "insmod/112", 1),
            ("kernel-warning", "WARNING in demo_warn_text", "demo_warn_text", "insmod/115", 1),
            ("refcount", "refcount bug in demo_refcount", "demo_refcount", "insmod/118", 1),
            ("refcount", "refcount bug in demo_refcount", "demo_refcount", "insmod/118", 1),
            (
                "sleep-in-atomic",
                "BUG: scheduling while atomic in demo_atomic",
                "demo_atomic",
                "insmod/122",
                1
            ),
            ("kernel-warning", "WARNING in do_one_initcall", "do_one_initcall", "insmod/122", 1),
            ("kernel-warning", "WARNING in demo_warn", "demo_warn", "swapper/0/0", 1),
            ("kfence", "KFENCE: use-after-free read in demo_kfence", "demo_kfence", "insmod/128", 1),
            ("lockup", "BUG: soft lockup in demo_lockup", "demo_lockup", "insmod/131", 2),
            ("hung-task", "INFO: task hung in demo_hung", "demo_hung", "insmod/134", 1),
            (
                "kernel-oops",
                "BUG: unable to handle kernel NULL pointer dereference in demo_init",
                "demo_init",
                "insmod/138",
                1
            ),
        ]
    );
    let warning = &all[0];
    assert_eq!(
        warning.message,
        "WARNING: klog-demo/demo.c:13 at demo_warn+0xe/0x20 [demo], CPU#0: insmod/112"
    );
    assert_eq!((warning.context.cpu, warning.context.level.as_str()), (0, "process"));
    assert_eq!(warning.stack.len(), 9);
    assert_eq!(warning.stack[1].to_string(), "demo_init+0x1f [demo]");
    assert_eq!(all[1].message, "the ring of demo is full: 7");
    assert_eq!(all[1].offset, 0x19);
    assert_eq!(all[2].message, "refcount_t: decrement hit 0; leaking memory.");
    assert_eq!(all[2].stack[0].function, "refcount_warn_saturate");
    // Two places of one function are two findings, as other checkers count them.
    assert_ne!(all[2].id, all[3].id);
    let of_the_kernel = &all[5];
    assert_eq!((of_the_kernel.module.as_str(), of_the_kernel.severity), ("vmlinux", Severity::Warning));
    assert!(all.iter().filter(|one| one.module == "demo").all(|one| one.severity == Severity::Error));
    assert_eq!(all[6].context.level, "softirq");
    let object = all[7].object.as_ref().unwrap();
    assert_eq!((object.size, object.name.as_deref()), (32, Some("kmalloc-32")));
    assert_eq!(object.allocated.as_ref().unwrap().stack[0].to_string(), "demo_kfence+0x22 [demo]");
    assert_eq!(object.freed.as_ref().unwrap().stack.len(), 9);
    assert_eq!(all[10].stack[0].to_string(), "demo_init+0xc4 [demo]");
}

#[test]
fn what_ran_before_the_driver_counts_for_nothing() {
    let late = LOG_7_2.replacen(&format!("{MARK}demo"), "x", 1);
    assert_eq!(findings(&late, &["demo"]), []);
}

#[test]
fn fingerprints_do_not_depend_on_addresses() {
    let id = |function: &str, at: &str| {
        let text = format!(
            "BUG: unable to handle page fault for address: ffff{at}\nRIP: 0010:{function}+0x{at}/0x90 [demo]"
        );
        found(&text)[0].id.clone()
    };
    assert_eq!(id("f", "1c"), id("f.isra.0", "2d"));
    assert_ne!(id("f", "1c"), id("g", "1c"));
    // The kernel's functions around the driver's are others in each version.
    let within = |kernel: &str| {
        found(&format!(
            "WARNING: CPU: 0 PID: 1 at a.c:1 {kernel}+0x1/0x2\nCall Trace:\n <TASK>\n f+0x1/0x2 [demo]"
        ))[0]
            .id
            .clone()
    };
    assert_eq!(within("one"), within("two"));
}

/// What kmemleak prints, and its list, which the guest's init writes to the log.
const LEAKED: &str = "kmemleak: 2 new suspected memory leaks (see /sys/kernel/debug/kmemleak)
unreferenced object 0xffff888107c0e8c0 (size 32):
  comm \"insmod\", pid 133, jiffies 4294676543
  hex dump (first 32 bytes):
    6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b a5  kkkkkkkkkkkkkkk.
  backtrace (crc 5c7a1f2b):
    [<0000000063a6b4ab>] __kmalloc_cache_noprof+0x280/0x360
    [<00000000a1b2c3d4>] 0xffffffffc0560021
unreferenced object 0xffff888107c0e900 (size 64):
  comm \"kworker/0:1\", pid 17, jiffies 4294676544
------------[ cut here ]------------
WARNING: CPU: 1 PID: 645 at a.c:28 f+0xd8/0xe0 [demo]";

#[test]
fn leaks_are_noted_with_their_threads() {
    let all = found(LEAKED);
    assert_eq!(all.len(), 2, "{all:#?}");
    let leak = &all[0];
    assert_eq!(
        (leak.kind.as_str(), leak.severity, title(leak)),
        ("kmemleak", Severity::Warning, "memory leak")
    );
    assert_eq!((leak.module.as_str(), leak.stack.len()), ("vmlinux", 0));
    assert!(leak.message.starts_with("kmemleak: 2 new suspected memory leaks"));
    assert_eq!(
        leak.notes[1..5],
        [
            "unreferenced object 0xffff888107c0e8c0 (size 32):",
            "comm \"insmod\", pid 133, jiffies 4294676543",
            "unreferenced object 0xffff888107c0e900 (size 64):",
            "comm \"kworker/0:1\", pid 17, jiffies 4294676544",
        ]
    );
    // The number of leaks differs from run to run.
    assert_eq!(leak.id, found(&LEAKED.replacen("2 new", "7 new", 1))[0].id);
}

#[test]
fn a_thread_that_hangs_is_one_finding_however_often_it_is_reported() {
    let report = |seconds: u32| {
        format!(
            "INFO: task insmod:134 blocked for more than {seconds} seconds.\n      Tainted: G O 6.1.0 #1\n\
             task:insmod          state:D stack:0     pid:134   ppid:110    flags:0x00000000\nCall Trace:\n <TASK>\n \
             __schedule+0x528/0x1060\n schedule+0x27/0xa0\n demo_wait+0x43/0x54 [demo]\n </TASK>\n"
        )
    };
    let all = found(&[report(45), report(90)].concat());
    let rows: Vec<_> =
        all.iter().map(|f| (f.kind.as_str(), f.function.as_str(), f.severity, f.count)).collect();
    assert_eq!(rows, [("hung-task", "demo_wait", Severity::Error, 2)]);
}

/// The old format of `WARN`, as 6.1 and 6.12 print it.
const WARNED: &str = "------------[ cut here ]------------
refcount_t: underflow; use-after-free.
WARNING: CPU: 1 PID: 645 at lib/refcount.c:28 refcount_warn_saturate+0xd8/0xe0
Modules linked in: demo(OE)
CPU: 1 PID: 645 Comm: kworker/0:2 Tainted: G           O       6.1.58 #244
Workqueue: events demo_work [demo]
RIP: 0010:refcount_warn_saturate+0xd8/0xe0
Call Trace:
 <TASK>
 ? __warn+0x81/0x130
 demo_put+0x1c/0x20 [demo]
 process_one_work+0x1c4/0x380
 </TASK>
---[ end trace 0000000000000000 ]---
";

#[test]
fn equal_splats_are_one_finding() {
    let all = found(&WARNED.repeat(3));
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].kind.as_str(), all[0].count, all[0].function.as_str()), ("refcount", 3, "demo_put"));
    assert_eq!(all[0].context.thread, "kworker/0:2/645");
    assert_eq!(
        all[0].notes[1],
        "WARNING: CPU: 1 PID: 645 at lib/refcount.c:28 refcount_warn_saturate+0xd8/0xe0"
    );
}

#[test]
fn the_driver_is_found_where_it_is_named() {
    let other = findings(&format!("{MARK}demo\n{WARNED}"), &["e1000"]);
    assert_eq!((other[0].module.as_str(), other[0].severity), ("demo", Severity::Error));
    assert!(other[0].stack[1].other);
    assert!(other[0].notes.last().unwrap().contains("the kernel's own fault, and as an error"));
    let warning = found("WARNING: CPU: 0 PID: 1 at a.c:1 f+0x1/0x2");
    assert_eq!((warning[0].module.as_str(), warning[0].severity), ("vmlinux", Severity::Warning));
    assert!(warning[0].notes.last().unwrap().ends_with("and as a warning; demo was loaded last."));

    let old = "------------[ cut here ]------------
NETDEV WATCHDOG: eth0 (demo): transmit queue 0 timed out
WARNING: CPU: 0 PID: 0 at net/sched/sch_generic.c:525 dev_watchdog+0x207/0x210
RIP: 0010:dev_watchdog+0x207/0x210
Call Trace:
 <IRQ>
 call_timer_fn+0x24/0x130
 __do_softirq+0xf0/0x2fe
 </IRQ>
";
    let new = "demo 0000:22:04.0 eth4: NETDEV WATCHDOG: CPU: 3: transmit queue 0 timed out 5010 ms";
    for text in [old, new] {
        let all = found(text);
        assert_eq!(
            (all.len(), all[0].kind.as_str(), all[0].module.as_str()),
            (1, "transmit-timeout", "demo")
        );
        assert_eq!(all[0].severity, Severity::Error);
    }
    assert_eq!(found(old)[0].context.level, "softirq");
    assert_eq!(found(&new.replace("demo", "e1000"))[0].severity, Severity::Warning);

    // KFENCE saw the kernel use what the driver has freed.
    let kfence = "BUG: KFENCE: use-after-free read in f+0x1/0x2

Use-after-free read at 0x00 (in kfence-#1):
 f+0x1/0x2

kfence-#1: 0x01-0x02, size=8, cache=kmalloc-8

allocated by task 1 on cpu 0 at 1.0s:
 g+0x1/0x2

freed by task 1 on cpu 0 at 1.0s:
 kfree_it+0x1/0x2
 demo_free+0x1/0x2 [demo]

CPU: 0 PID: 1 Comm: a Not tainted
==================================================================";
    let mut all = found(kfence);
    assert_eq!((all[0].module.as_str(), all[0].function.as_str()), ("demo", "demo_free"));
    assert_eq!(all[0].context.thread, "a/1");
    let offsets: Vec<_> =
        instructions(&mut all[0]).map(|(frame, offset)| (frame.function.clone(), offset)).collect();
    assert_eq!(offsets[0], ("f".to_owned(), 1));
    assert_eq!(offsets[3], ("demo_free".to_owned(), 0));
}

#[test]
fn a_corrupt_list_ends_the_kernel_with_one_finding() {
    let text = "list_del corruption, ffffffffc0a01000->next is LIST_POISON1 (dead000000000100)
------------[ cut here ]------------
kernel BUG at lib/list_debug.c:56!
invalid opcode: 0000 [#1] PREEMPT SMP NOPTI
CPU: 0 PID: 88 Comm: insmod Tainted: G           OE      6.1.0 #1  Debian
RIP: 0010:__list_del_entry_valid.cold+0xf/0x6f
Call Trace:
 <TASK>
 demo_list+0x36/0x60 [demo]
 do_one_initcall+0x56/0x220
 </TASK>
---[ end trace 0000000000000000 ]---
RIP: 0010:__list_del_entry_valid.cold+0xf/0x6f
Kernel panic - not syncing: Fatal exception
";
    let all = found(text);
    assert_eq!(all.len(), 1, "{all:#?}");
    assert_eq!((all[0].kind.as_str(), all[0].function.as_str()), ("list-corruption", "demo_list"));
    assert_eq!(title(&all[0]), "BUG: corrupted list in demo_list");
    assert_eq!(
        all[0].notes[1..],
        ["kernel BUG at lib/list_debug.c:56!", "invalid opcode: 0000 [#1] PREEMPT SMP NOPTI"]
    );
    // Newer kernels say `Oops:` first, and a BUG may have no text.
    let bug = "------------[ cut here ]------------
kernel BUG at a.c:1!
Oops: invalid opcode: 0000 [#1] SMP
RIP: 0010:demo_init+0xf/0x6f [demo]
Kernel panic - not syncing: stack-protector: Kernel stack is corrupted in: f+0x1/0x2 [demo]
";
    let all = found(bug);
    let titles: Vec<_> = all.iter().map(title).collect();
    assert_eq!(titles[0], "kernel BUG in demo_init");
    assert!(titles[1].starts_with("kernel panic: stack-protector"));
    assert_eq!(all[1].function, "f");
}

#[test]
fn debug_kernels() {
    let lockdep = "======================================================
WARNING: possible circular locking dependency detected
6.1.0 #1 Tainted: G           OE
------------------------------------------------------
insmod/109 is trying to acquire lock:
ffff8b1654603e08 (&demo.lock){++++}-{0:0}, at: demo_take+0x12a/0x140 [demo]

but task is already holding lock:
ffffffffba151dc0 (demo_mutex){+.+.}-{3:3}, at: demo_init+0x5/0x30 [demo]

the existing dependency chain (in reverse order) is:

-> #1 (demo_mutex){+.+.}-{3:3}:
       lock_acquire+0xbd/0x370
       demo_other+0x25/0x30 [demo]

stack backtrace:
CPU: 0 PID: 109 Comm: insmod Tainted: G           OE      6.1.0 #1
Call Trace:
 <TASK>
 dump_stack_lvl+0x57/0x7d
 check_noncircular+0x103/0x120
 __lock_acquire+0x1293/0x20b0
 lock_acquire+0xbd/0x370
 demo_take+0x12a/0x140 [demo]
 </TASK>
";
    let all = found(lockdep);
    assert_eq!(
        (all.len(), all[0].kind.as_str(), title(&all[0])),
        (1, "lockdep", "possible deadlock in demo_take")
    );
    assert!(all[0].notes.iter().any(|note| note == "insmod/109 is trying to acquire lock:"));

    let kasan = "==================================================================
BUG: KASAN: slab-use-after-free in demo_read+0x9e/0x2e0 [demo]
Read of size 4 at addr ff11000111932274 by task sh/823

CPU: 2 UID: 0 PID: 823 Comm: sh Tainted: G      D    O        6.19.0 #47 PREEMPT(lazy)
Call Trace:
 <TASK>
 dump_stack_lvl+0xc6/0x120
 print_report+0xce/0x660
 kasan_report+0xe0/0x110
 demo_read+0x9e/0x2e0 [demo]
 </TASK>

Allocated by task 12:
 kasan_save_stack+0x30/0x50
 demo_new+0x1/0x2 [demo]

Freed by task 823:
 kfree+0x1/0x2
==================================================================
";
    let all = found(kasan);
    assert_eq!((all.len(), all[0].kind.as_str()), (1, "kasan"));
    assert_eq!(title(&all[0]), "KASAN: slab-use-after-free in demo_read");
    assert_eq!(all[0].context.thread, "sh/823");
    let object = all[0].object.as_ref().unwrap();
    assert_eq!(object.allocated.as_ref().unwrap().stack[1].function, "demo_new");

    let ubsan = "UBSAN: array-index-out-of-bounds in drivers/demo.c:12:3
index 5 is out of range for type 'int [4]'
CPU: 0 PID: 1 Comm: a Not tainted
Call Trace:
 <TASK>
 dump_stack_lvl+0x1/0x2
 ubsan_epilogue+0x5/0x10
 __ubsan_handle_out_of_bounds+0x1/0x2
 demo_index+0x1/0x2 [demo]
 </TASK>
";
    let all = found(ubsan);
    assert_eq!(title(&all[0]), "UBSAN: array-index-out-of-bounds in demo_index");
    assert_eq!(all[0].notes[1], "index 5 is out of range for type 'int [4]'");
}

#[test]
fn lines_of_another_cpu_do_not_end_a_trace() {
    let text = "WARNING: CPU: 0 PID: 1 at a.c:1 f+0x1/0x2
Call Trace:
 <TASK>
 g+0x1/0x2
demo: a message of another CPU
 demo_call+0x1/0x2 [demo]
 </TASK>
 stray+0x1/0x2 [demo]
";
    let all = found(text);
    assert_eq!(all[0].function, "demo_call");
    assert_eq!(all[0].stack.len(), 3);
}

#[test]
fn any_text_gives_bounded_findings() {
    // A log that repeats its splats in thousands of functions, and a splat with thousands of lines.
    let many: String = (0..5000).map(|n| format!("WARNING: CPU: 0 PID: 1 at a.c:1 f{n}+0x1/0x2\n")).collect();
    assert_eq!(found(&many).len(), 256);
    let deep = format!("BUG: x\nCall Trace:\n <TASK>\n{}", " f+0x1/0x2 [demo]\n".repeat(100_000));
    assert!(found(&deep)[0].stack.len() <= 65);
    let lines = [
        "------------[ cut here ]------------",
        "Call Trace:",
        " <TASK>",
        " </TASK>",
        " <IRQ>",
        "==========",
        "RIP: 0010:",
        "RIP: 0010:0x0",
        "WARNING: CPU: ",
        "CPU: 1 PID: ",
        "BUG: ",
        "kernel BUG at ",
        "Oops: ",
        "allocated by task ",
        "kfence-#1: 0x1-0x2, size=, cache=",
        " f+0x1/0x2 [demo]",
        "CPU#",
        "[",
        "<",
        "]",
        "Kernel panic - not syncing",
        "\u{0}\u{1b}ä",
        "---[ end trace",
        "INFO: task :x blocked ",
        MARK,
    ];
    let mut seed = 1u64;
    let mut log = format!("{MARK}demo\n");
    for _ in 0..20_000 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        log.push_str(lines[(seed >> 33) as usize % lines.len()]);
        log.push_str(if seed & 4 == 0 { "" } else { "\n" });
    }
    assert!(splats(&log).len() <= 1024);
    assert!(findings(&log, &["demo"]).len() <= 256);
}
