//! A guarded driver in a kernel with the settings of real machines: mitigations and random addresses. It is
//! traced and probed at work, and loaded again many times.

use guardrail_tests::{Lab, guardrail};
use libtest_mimic::{Arguments, Failed, Trial};

const KERNELS: [&str; 3] = ["6.1", "6.12", "7.2"];
/// How often the driver is loaded again, always and with `--ignored`.
const ROUNDS: [(u32, bool); 2] = [(10, false), (1000, true)];
/// The time limit for a round, and for everything else, in seconds.
const ROUND: u32 = 3;
const REST: u32 = 120;

/// The kernel has its mitigations, and its address is random.
const HARDENED: &str = "grep -q 'Mitigation: .*' /sys/devices/system/cpu/vulnerabilities/spectre_v2 || exit 1; \
    ! grep -q '^ffffffff81000000 . _text$' /proc/kallsyms";

/// All functions of the driver are traced, with their stacks, and probed, while it works; its calls use
/// thunks nevertheless. The link is up some time after the device, and packets that are sent before are lost.
const TRACED: &str = "answered() { for try in 1 2 3 4 5 6 7 8 9 10; do ping -c 2 -W 2 10.0.2.2 && return; done; false; }; mount -t tracefs t /sys/kernel/tracing; cd /sys/kernel/tracing; echo ':mod:e1000' >set_ftrace_filter; \
    echo function_graph >current_tracer; echo 'p:one e1000:e1000_xmit_frame' >kprobe_events; echo 1 >events/kprobes/enable; \
    ip link set eth0 down; \
    ip address add 10.0.2.15/24 dev eth0; ip link set eth0 up; answered || exit 1; grep -q 'e1000_open' trace || exit 2; \
    grep -q 'one  *[1-9]' kprobe_profile || exit 3; echo 0 >events/kprobes/enable; echo >kprobe_events; echo nop >current_tracer; \
    echo 1 >options/func_stack_trace; echo function >current_tracer; ip link set eth0 down; ip link set eth0 up; answered; \
    echo nop >current_tracer; echo >set_ftrace_filter";

/// Loads the driver again and again. After it and the runtime are unloaded, nothing of them is left.
const AGAIN: &str = "used() { echo $(awk '/MemAvailable/ {print $2}' /proc/meminfo) $(grep -vc 'unpurged\\|vmap\\|bpf\\|clone\\|dup_task\\|copy_process' /proc/vmallocinfo); }; \
    rmmod e1000 && rmmod guardrail && insmod /guardrail/modules/*guardrail.ko && insmod /guardrail/driver.ko && rmmod e1000 && rmmod guardrail || exit 1; \
    sleep 1; before=$(used); insmod /guardrail/modules/*guardrail.ko || exit 2; round=0; \
    while [ $round -lt ROUNDS ]; do insmod /guardrail/driver.ko && rmmod e1000 || exit 3; round=$((round + 1)); done; \
    cat /sys/kernel/debug/guardrail/violations /sys/kernel/debug/guardrail/domains; rmmod guardrail || exit 4; sleep 1; after=$(used); \
    echo \"KiB and areas before: $before, after: $after\"; set -- $before $after; \
    [ $(($1 - $3)) -lt 4096 ] || exit 5; [ $4 -le $2 ] || exit 6";

/// Neither the runtime nor the kernel reported anything.
const SILENT: &str = "dmesg | grep guardrail; \
    ! dmesg | grep -E 'violation|allocations of [1-9]|WARNING|BUG|unwind|still has objects|objects remaining'";

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for kernel in KERNELS {
        for (rounds, long) in ROUNDS {
            let name = format!("a guarded driver endures {rounds} rounds on {kernel}");
            trials.push(
                Trial::test(name, move || endures(kernel, rounds)).with_ignored_flag(long || kernel != "7.2"),
            );
        }
    }
    guardrail_tests::run(arguments, trials)
}

fn endures(kernel: &str, rounds: u32) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().to_str().ok_or("a path")?;
    guardrail(&["guard", "e1000", "--kernel", kernel, "-o", out]).with(&[0])?;
    let driver = format!("{out}/e1000.ko");
    let limit = (rounds * ROUND + REST).to_string();
    let more = ["--append", "mitigations=auto log_buf_len=1M", "--timeout", &limit];
    let lab = Lab::with_driver("endurance", kernel, &driver, &more)?;
    let again = AGAIN.replace("ROUNDS", &rounds.to_string());
    let steps = [
        ("hardened", HARDENED),
        ("traced", TRACED),
        ("silent", SILENT),
        ("again", &again),
        ("silent still", SILENT),
    ];
    lab.each(&["--timeout", &limit], &steps)
}
