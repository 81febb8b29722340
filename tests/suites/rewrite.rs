//! Rewritten drivers in guests: they load, work as before, and the kernel's code tables stay valid.

use guardrail_rewrite::border::runtime::Exports;
use guardrail_rewrite::border::{Action, Interposition, Step, Value, When, Wrapper};
use guardrail_rewrite::passes::checks::Checks;
use guardrail_rewrite::passes::spread::Spread;
use guardrail_rewrite::passes::trace::{Event, Trace};
use guardrail_rewrite::{Pass, rewrite};
use guardrail_tests::{Lab, check, findings};
use guardrail_vm::modules::Modules;
use guardrail_vm::parser::Parser;
use guardrail_vm::{Cache, kernels, packages::Packages};
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};

const KERNELS: [&str; 3] = ["6.1", "6.12", "7.2"];

/// What the kernel does with code through its tables: tracing, probes, static branches, stacks, and loading
/// at the same address again.
const USES: [(&str, &str); 5] = [
    (
        "the driver is the rewritten one",
        "grep -q '^e1000 ' /proc/modules && ip link set eth0 down && ip link set eth0 up",
    ),
    (
        "static branches",
        "mount -t debugfs d /sys/kernel/debug; control=/sys/kernel/debug/dynamic_debug/control; [ -e $control ] || control=/proc/dynamic_debug/control; \
         echo 'module e1000 +p' >$control; grep -q 'e1000.*=p' $control || exit 1; ip link set eth0 down; ip link set eth0 up; \
         echo 'module e1000 -p' >$control; ip link set eth0 down; ip link set eth0 up",
    ),
    (
        "stacks",
        "mount -t tracefs t /sys/kernel/tracing; cd /sys/kernel/tracing; echo ':mod:e1000' >set_ftrace_filter; \
         echo 1 >options/func_stack_trace; echo function >current_tracer; ip link set eth0 down; ip link set eth0 up; \
         grep -A8 'e1000_up\\|e1000_configure\\|e1000_setup_all_tx' trace | head -40; \
         grep -A2 '=> e1000_open' trace | grep -q '=> __dev_open' || exit 1; \
         echo nop >current_tracer; echo >set_ftrace_filter",
    ),
    (
        "probes",
        "cd /sys/kernel/tracing; echo 'p:one e1000:e1000_open' >kprobe_events; echo 'r:two e1000:e1000_close' >>kprobe_events; \
         echo 1 >events/kprobes/enable; ip link set eth0 down; ip link set eth0 up; cat kprobe_profile; \
         grep -q 'one  *[1-9]' kprobe_profile && grep -q 'two  *[1-9]' kprobe_profile || exit 1; \
         echo 0 >events/kprobes/enable; echo >kprobe_events",
    ),
    (
        "loading again, and the kernel's opinion",
        "for i in 1 2 3; do rmmod e1000 && insmod /guardrail/driver.ko || exit 1; done; \
         ! dmesg | grep -iE 'WARNING|BUG:|unwind|jump_label|alternative'",
    ),
];

/// The observations of a module whose calls use thunks.
const CROSSED: [(&str, &str); 5] = [
    (
        "it works, and what it may not request is reported by function and argument",
        "mount -t debugfs d /sys/kernel/debug; ip link set eth0 down; ip link set eth0 up; cd /sys/kernel/debug/guardrail; cat violations; \
         grep -q 'dma_alloc_attrs, argument 3: write of 8 bytes at by e1000_setup_.*: domain 1 needs write' violations || exit 1; \
         ! grep -E 'vfree|dma_free' violations || exit 2; ! dmesg | grep -E 'WARNING|BUG:|unwind'",
    ),
    (
        "what it was given is its own",
        "cat /sys/kernel/debug/guardrail/domains; \
         grep -q 'domain 1 (e1000).* [1-9][0-9]* allocations of [1-9]' /sys/kernel/debug/guardrail/domains",
    ),
    (
        "stacks lead through thunks",
        "mount -t tracefs t /sys/kernel/tracing; cd /sys/kernel/tracing; echo e1000_setup_all_tx_resources dma_alloc_attrs >set_ftrace_filter; \
         echo 1 >options/func_stack_trace; echo function >current_tracer; ip link set eth0 down; ip link set eth0 up; \
         echo 0 >tracing_on; cp trace /tmp/trace; echo nop >current_tracer; echo 0 >options/func_stack_trace; \
         echo >set_ftrace_filter; echo 1 >tracing_on; cd /tmp; grep -v '^#' trace | head -40; \
         grep -A1 '=> e1000_open' trace | grep -q '=> guardrail_enter_e1000_open' || exit 1; \
         grep -A1 '=> guardrail_enter_e1000_open' trace | grep -q '=> __dev_open' || exit 2; \
         grep -A1 '=> guardrail_call_dma_alloc_attrs' trace | grep -q '=> e1000_setup' || exit 3",
    ),
    (
        "nobody is left in it",
        "for i in 1 2 3 4 5 6 7 8 9 10; do \
             n=$(sed -n 's/^tasks in modules: //p' /sys/kernel/debug/guardrail/stats); [ \"$n\" = 0 ] && exit 0; sleep 1; \
         done; cat /sys/kernel/debug/guardrail/stats; exit 1",
    ),
    (
        "it goes, gives back what it was given, and comes again",
        "dmesg -c >/dev/null; for i in 1 2 3; do rmmod e1000 && insmod /guardrail/driver.ko || exit 1; done; dmesg | tail -40; \
         ! grep -E 'vfree|dma_free' /sys/kernel/debug/guardrail/violations || exit 2; \
         ! dmesg | grep -E 'allocations of [1-9]|WARNING|BUG:|unwind'",
    ),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    // What does not run on a kernel each time runs there with `--ignored`.
    for (driver, kernel) in [("e1000", "6.1"), ("nvme", "6.12"), ("e1000", "7.2")] {
        let name = format!("{driver} with code in front of every instruction is silent on {kernel}");
        trials.push(Trial::test(name, move || works(kernel, driver)).with_ignored_flag(kernel != "7.2"));
    }
    for (kernel, sampled) in [("6.1", false), ("6.12", true), ("7.2", false)] {
        let name = format!("a driver logs all that it does on {kernel}");
        trials.push(Trial::test(name, move || traced(kernel)).with_ignored_flag(!sampled));
    }
    for kernel in KERNELS {
        let name = format!("stores and calls of each kind are checked on {kernel}");
        let trial = Trial::test(name, move || guardrail_tests::stores::checked(kernel));
        trials.push(trial.with_ignored_flag(kernel != "7.2"));
        let name = format!("a guarded driver works, and what has no right is reported, on {kernel}");
        let trial = Trial::test(name, move || guarded(kernel));
        trials.push(trial.with_ignored_flag(kernel != "6.12"));
        let name = format!("the kernel knows rewritten code on {kernel}");
        let trial = Trial::test(name, move || known(kernel));
        trials.push(trial.with_ignored_flag(kernel != "6.1"));
        let name = format!("calls between the kernel and a guarded driver go through thunks on {kernel}");
        let trial = Trial::test(name, move || crossed(kernel));
        trials.push(trial.with_ignored_flag(kernel != "7.2"));
    }
    guardrail_tests::run(arguments, trials)
}

/// A driver of a kernel, rewritten into a folder.
fn spread(kernel: &str, driver: &str, folder: &Path) -> Result<PathBuf, Failed> {
    let kernel = kernels::find(&Packages::new(&Cache::open()?), kernel)?;
    let module = Modules::of(&kernel, &Parser::here())?.plan(driver)?.driver;
    let rewritten = rewrite(driver, module.bytes.clone(), &mut [&mut Spread])?;
    if rewrite(driver, module.bytes, &mut [&mut Spread])?.file != rewritten.file {
        return Err("rewriting twice gives two results".into());
    }
    let path = folder.join(format!("{driver}.ko"));
    std::fs::write(&path, rewritten.file)?;
    Ok(path)
}

/// The rewritten driver does its work, observed by the checker of memory.
fn works(kernel: &str, driver: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = spread(kernel, driver, folder.path())?;
    let result = check(&["--tool", "quiet", "--kernel", kernel, &path.display().to_string()]);
    let report = result.report()?;
    let outcome = report["run"]["outcome"].as_str();
    if result.status != 0 || outcome != Some("completed") || findings(report).count() > 0 {
        return Err(result.said().into());
    }
    Ok(())
}

/// Rewrites the stock e1000 into a folder, with the runtime beside it. The passes are built from the
/// runtime's exports.
fn e1000<P: Pass>(
    kernel: &str,
    folder: &Path,
    pass: impl FnOnce(&Exports) -> P,
) -> Result<(String, P), Failed> {
    let packages = Packages::new(&Cache::open()?);
    let found = kernels::find(&packages, kernel)?;
    let runtime = guardrail_vm::runtime::ensure(&packages, &found)?;
    std::fs::copy(&runtime.module, folder.join("guardrail.ko"))?;
    let mut pass = pass(&Exports::read("guardrail.ko", std::fs::read(&runtime.module)?)?);
    let module = Modules::of(&found, &Parser::here())?.plan("e1000")?.driver;
    let rewritten = rewrite("e1000", module.bytes, &mut [&mut pass])?;
    let path = folder.join("e1000.ko");
    std::fs::write(&path, rewritten.file)?;
    Ok((path.display().to_string(), pass))
}

/// A driver that reports all its events: it works, and the runtime receives each kind of event.
fn traced(kernel: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (path, trace) = e1000(kernel, folder.path(), |runtime| Trace::new(Event::ALL, runtime))?;
    if trace.logged.iter().any(|&places| places < 100) || trace.silent > 20 {
        return Err(format!("{:?} sites log, {} do not", trace.logged, trace.silent).into());
    }
    let result = check(&["--tool", "quiet", "--kernel", kernel, &path]);
    let report = result.report()?;
    if result.status != 0 || report["run"]["outcome"] != "completed" || findings(report).count() > 0 {
        return Err(result.said().into());
    }
    let lab = Lab::with_driver("traced", kernel, &path, &[])?;
    let look = "mount -t debugfs d /sys/kernel/debug; ip link set eth0 up; sleep 2; ip link set eth0 down; \
                cat /sys/kernel/debug/guardrail/stats";
    let printed = lab.prints(look);
    let events = printed.lines().find_map(|line| line.strip_prefix("events: ")).unwrap_or_default();
    let counts: Vec<u64> = events.split(' ').filter_map(|word| word.parse().ok()).collect();
    let all = counts.len() == Event::ALL.len() && counts.iter().all(|&count| count > 100);
    // Each entry is left, except by a conditional jump.
    if !all || counts[4] > counts[3] || counts[4] < counts[3] / 10 * 9 {
        return Err(format!("{counts:?}\n{printed}").into());
    }
    Ok(())
}

/// A driver with all stores checked, and with rights to its own variables only. It works while violations are
/// only logged, which are those of memory that others gave it.
fn guarded(kernel: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (path, checks) = e1000(kernel, folder.path(), |runtime| Checks::new(1).guarded("e1000", runtime))?;
    if checks.stores.checked < 500 {
        return Err(format!("only {:?}", checks.stores).into());
    }
    let result = check(&["--tool", "quiet", "--kernel", kernel, &path]);
    let report = result.report()?;
    if result.status != 0 || report["run"]["outcome"] != "completed" {
        return Err(result.said().into());
    }
    // A thousand places are reported, each with its stack: the default log of a kernel loses the first of
    // them.
    let lab = Lab::with_driver("guarded", kernel, &path, &["--append", "log_buf_len=8M"])?;
    let look = "mount -t debugfs d /sys/kernel/debug; ip link set eth0 up; cat /sys/kernel/debug/guardrail/violations; dmesg | grep guardrail:";
    let printed = lab.prints(look);
    let violation = printed.lines().any(|line| line.contains("write of") && line.contains("by e1000_probe+"));
    // Stacks are walked through the check's own code and through thunks.
    let walked = ["e1000_open+", "guardrail_enter_e1000_open+", "__dev_open+"];
    let walked = walked.iter().all(|name| printed.lines().any(|line| line.contains(&format!(":   {name}"))));
    let mut targets = printed.lines().filter(|line| line.contains("target:"));
    let own = targets.any(|line| line.contains("[e1000]") && !line.contains("allocated at"));
    if !violation || !walked || own {
        return Err(printed.into());
    }
    Ok(())
}

/// The actions of a few functions; the names of allocators differ between kernels.
fn border() -> Interposition {
    let arg = Value::Arg;
    let given = |kind: u32, size: Value| Wrapper {
        after: [
            Action::Grant { pointer: Value::Result, size: size.clone() },
            Action::Own { pointer: Value::Result, size, kind },
        ]
        .map(|action| Step { when: When::ResultValid, action })
        .into(),
        ..Wrapper::default()
    };
    let released = |kind| Wrapper {
        before: vec![Action::Disown { pointer: Value::Arg(0), kind }.into()],
        ..Wrapper::default()
    };
    let mut border = Interposition::default();
    for name in ["vzalloc", "vzalloc_noprof"] {
        border.imports.insert(name.into(), given(1, arg(0)));
    }
    border.imports.insert("vfree".into(), released(1));
    border.imports.insert(
        "dma_alloc_attrs".into(),
        Wrapper {
            before: vec![Action::RequireWrite { pointer: arg(2), size: Value::Const(8) }.into()],
            ..given(2, arg(1))
        },
    );
    border.imports.insert(
        "dma_free_attrs".into(),
        Wrapper { before: vec![Action::Disown { pointer: arg(2), kind: 2 }.into()], ..Wrapper::default() },
    );
    // This function has a variable number of arguments.
    let format = Action::RequireWrite { pointer: arg(0), size: Value::Const(0) };
    border.imports.insert(
        "netdev_info".into(),
        Wrapper { before: vec![format.into()], variadic: true, ..Wrapper::default() },
    );
    border
}

/// Calls out of a driver and into it use thunks, which perform their actions. The kernel walks stacks through
/// them.
fn crossed(kernel: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (path, checks) = e1000(kernel, folder.path(), |runtime| {
        Checks::new(1).interposing(border()).guarded("e1000", runtime)
    })?;
    let done = &checks.done;
    if done.imports.len() != 5 || done.calls < 10 || done.entries.len() < 40 || !done.missed.is_empty() {
        return Err(format!("{done:?}").into());
    }
    let lab = Lab::with_driver("crossed", kernel, &path, &[])?;
    lab.each(&[], &CROSSED)
}

/// The kernel patches, probes, traces and unwinds rewritten code.
fn known(kernel: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = spread(kernel, "e1000", folder.path())?.display().to_string();
    let lab = Lab::with_driver("rewrite", kernel, &path, &[])?;
    lab.each(&[], &USES)
}
