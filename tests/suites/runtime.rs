//! The runtime of guarded modules, in guests: its own tests, its reports, how it ends
//! threads, that it leaves nothing behind, and that it survives what is written into its files.

#[path = "runtime/writes.rs"]
mod writes;

use guardrail_tests::{Ran, ensure};
use guardrail_vm::kernels::NAMES;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::{Options, Outcome};
use guardrail_vm::{Cache, kernels, runtime};
use libtest_mimic::{Arguments, Failed, Trial};

/// Prints the kernel's log and the runtime's files for the host.
const LOGS: &str = "\
logs() {
    dmesg | sed 's/^/dmesg: /' >/dev/console
    for file in domains violations stats; do
        sed \"s/^/debugfs $file: /\" /sys/kernel/debug/guardrail/$file >/dev/console
    done
}
step logs logs
";

/// Loads and unloads everything again and again. All memory is free afterwards, except for 8 MiB. One
/// run of the tests uses 16 MiB.
const AGAIN: &str = "\
free_kib() { sync; echo 3 >/proc/sys/vm/drop_caches; sed -n 's/^MemFree: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo; }
come() { insmod /guardrail/modules/000-guardrail.ko && insmod /guardrail/driver.ko quick=1; }
go() { rmmod guardrail_test && rmmod guardrail; }
turn() { come && go; }
alone() {
    # KFENCE takes an allocation of each interval; not every kernel has it.
    interval=/sys/module/kfence/parameters/sample_interval
    [ ! -e $interval ] || echo 1 >$interval || return 1
    for turn in 1 2 3 4 5 6 7 8 9 10; do
        insmod /guardrail/modules/000-guardrail.ko && rmmod guardrail || return 1
    done
    [ ! -e $interval ] || echo 100 >$interval
}
all_free() {
    for turn in 1 2 3 4 5 6 7 8 9 10; do
        after=$(free_kib)
        echo \"$before KiB were free before, and $after after\"
        # Some of the kernel's memory is freed a while later; what is lost never is.
        [ $((before - after)) -ge 8192 ] || return 0
        sleep 1
    done
    return 1
}
step go go
before=$(free_kib)
for number in 1 2; do step turn-$number turn; done
step alone alone
step free all_free
step come come
logs() { dmesg | sed 's/^/dmesg: /' >/dev/console; }
step logs logs
";

/// The first violation of the tests, done again, ends the thread. A policy that does not exist is refused before.
const OOPS: &str = "\
policy=/sys/module/guardrail/parameters/policy
set_policy() { ! echo other >$policy && grep -q log $policy && echo oops >$policy; }
step policy set_policy
step end sh -c 'rmmod guardrail_test && insmod /guardrail/driver.ko'
";

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for kernel in NAMES {
        let trial = Trial::test(format!("the runtime passes its tests on {kernel}"), move || passes(kernel));
        trials.push(trial.with_ignored_flag(kernel != "7.2"));
    }
    trials.push(Trial::test("the runtime passes its tests with five levels of page tables", five_levels));
    for kernel in ["6.1", "7.2"] {
        let trial =
            Trial::test(format!("the runtime goes without a trace on {kernel}"), move || goes(kernel));
        trials.push(trial.with_ignored_flag(kernel == "6.1"));
    }
    for kernel in NAMES {
        let name = format!("a few texts in the runtime's files are survived on {kernel}");
        let trial = Trial::test(name, move || writes::survived(kernel, 1..2, 60));
        trials.push(trial.with_ignored_flag(kernel != "6.12"));
        let name = format!("many texts in the runtime's files are survived on {kernel}");
        let trial = Trial::test(name, move || writes::survived(kernel, 2..7, 500));
        trials.push(trial.with_ignored_flag(true));
    }
    trials.push(Trial::test("a violation ends the thread where that is the policy", ends_thread));
    // Processors that guests fight for run neither timers nor loops as the tests expect, so each guest is alone.
    let test_threads = arguments.test_threads.or(Some(1));
    guardrail_tests::run(Arguments { test_threads, ..arguments }, trials)
}

/// Loads the runtime with its tests in a guest.
fn guest(kernel: &str, script: &str, qemu: &[&str]) -> Result<Ran, Failed> {
    let packages = Packages::new(&Cache::open()?);
    let tests = runtime::ensure_tests(&packages, &kernels::find(&packages, kernel)?)?;
    let folder = tempfile::tempdir()?;
    let workload = folder.path().join("workload.sh");
    std::fs::write(&workload, script)?;
    let request = Request {
        driver: tests.to_str().ok_or("a plain path")?,
        kernel,
        workload: workload.to_str(),
        ..Request::default()
    };
    let prepared = Prepared::new(&packages, &Parser::here(), request, &mut |_| {})?;
    let mut options = Options::new(folder.path());
    options.kernel_arguments.push("log_buf_len=1M".to_owned());
    options.qemu_arguments = qemu.iter().map(|&word| word.to_owned()).collect();
    // Races need CPUs that run at the same time.
    guardrail_tests::unwatched(&prepared, options, 180)
}

/// The lines of TAP: all planned tests ran, and passed.
fn all_passed(ran: &Ran) -> Result<(), Failed> {
    let lines: Vec<&str> = lines(ran)
        .filter_map(|line| line.split_once("guardrail_test: ").map(|(_, text)| text.trim_end()))
        .collect();
    let ok = lines.iter().filter(|line| line.starts_with("ok ")).count();
    let plan = lines.iter().find_map(|line| line.strip_prefix("1..")?.parse::<usize>().ok());
    let wrong: Vec<&&str> =
        lines.iter().filter(|line| line.starts_with("not ok ") || line.starts_with("# not met")).collect();
    ensure(ran.outcome == Outcome::Completed && wrong.is_empty() && plan == Some(ok) && ok >= 30, || {
        format!("{}; {ok} passed of {plan:?}: {wrong:#?}\n{}", ran.outcome, ran.console)
    })
}

/// The workload's lines of log and files. The kernel prints parts of its log itself, before these.
fn lines(ran: &Ran) -> impl Iterator<Item = &str> {
    ran.console.lines().filter(|line| line.starts_with("dmesg: ") || line.starts_with("debugfs "))
}

/// Checks that these reports exist: parts of one line each, in this order.
fn says(ran: &Ran, wanted: &[&[&str]]) -> Result<(), Failed> {
    let mut lines = lines(ran);
    for parts in wanted {
        if !lines.any(|line| parts.iter().all(|part| line.contains(part))) {
            return Err(format!("nothing, or not in this place, says {parts:?}:\n{}", ran.console).into());
        }
    }
    Ok(())
}

fn passes(kernel: &str) -> Result<(), Failed> {
    let ran = guest(kernel, LOGS, &[])?;
    all_passed(&ran)?;
    // What is contained is no oops.
    ensure(!ran.console.contains("Oops") && !ran.console.contains("BUG: "), || ran.console.clone())?;
    // A place is reported once with the description of its target, and counted.
    let place = |n: u32| format!("report+0x{n:x}/");
    let [first, second, third, fourth, fifth] = [1, 2, 3, 4, 5].map(place);
    let needs = "domain 1 holds read, needs write";
    // The tests offer a module of the next version.
    let refused = format!("guarded for version {} of the interface", guardrail_abi::ABI + 1);
    says(
        &ran,
        &[
            &["call of", "domain 1 holds read, needs icall"],
            &["guardrail: violation: write of 8 bytes at ", &first, needs],
            &["guardrail: target: slab kmalloc-128 ", "offset 16 "],
            &["guardrail: call trace of insmod["],
            &["guardrail:   report+0x", "[guardrail_test]"],
            &["guardrail:   test_init+0x"],
            &["violation: write of 4 bytes at ", &second, needs],
            &["target: 1-page vmalloc region "],
            &["violation: write of 4 bytes at ", &third, needs],
            &["target: data.", "[guardrail_test]"],
            &["violation: write of 4 bytes at 0000000000001234 ", &fourth, needs],
            &["target: user memory"],
            &["violation: write of 8 bytes at ", &fifth, needs],
            &["domain 2 () holds write there"],
            &[
                "module guarded_test is gone, and domain 1 still held 32 writable bytes in 1 ranges, 0 call targets, 1 objects, 1 allocations of 48 bytes",
            ],
            &["leaked: allocation of kind 6, 48 bytes"],
            &["it was not made by guardrail"],
            &[&refused],
            &["debugfs domains: table: "],
            &["debugfs domains: side tables: 0 conflicts, 0 objects"],
            &[
                "debugfs violations: 5 times: write of 8 bytes at by report+0x1/",
                "[guardrail_test]: domain 1 needs write",
            ],
            &["debugfs stats: slow write checks: "],
        ],
    )?;
    if lines(&ran).filter(|line| line.contains(" still held ")).count() != 1 {
        return Err(format!("not exactly one module is reported to leak:\n{}", ran.console).into());
    }
    let times = lines(&ran).filter(|line| line.contains(&format!("by {first}"))).count();
    match times {
        2 => Ok(()),
        _ => Err(format!("a site appears {times} times in log and list, instead of once in each").into()),
    }
}

fn five_levels() -> Result<(), Failed> {
    let ran = guest("6.1", LOGS, &["-cpu", "max"])?;
    all_passed(&ran)?;
    // Only in this kernel, the kernel's memory has such addresses.
    says(&ran, &[&["violation: write of 8 bytes at ff"]])?;
    match ran.console.contains("write of 8 bytes at ffff8") {
        true => Err("the guest has four levels".into()),
        false => Ok(()),
    }
}

fn goes(kernel: &str) -> Result<(), Failed> {
    let ran = guest(kernel, AGAIN, &[])?;
    match ran.outcome {
        Outcome::Completed => says(&ran, &[&["guardrail_test: 1.."], &["guardrail_test: # 0 failed"]]),
        _ => Err(format!("{}\n{}", ran.outcome, ran.console).into()),
    }
}

fn ends_thread() -> Result<(), Failed> {
    let ran = guest("6.1", OOPS, &[])?;
    let said = [
        "the policy is 'log', 'oops', 'fail' or 'recover', not 'other'",
        "the thread is ended",
        "kernel BUG at",
    ];
    // The guest's kernel panics where a thread is ended so.
    match &ran.outcome {
        Outcome::GuestPanic { .. } if said.iter().all(|line| ran.console.contains(line)) => Ok(()),
        other => Err(format!("{other}, or one of {said:?} was not said\n{}", ran.console).into()),
    }
}
