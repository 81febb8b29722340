//! Rewritten drivers in guests: they load, work as before, and the kernel finds its way in their code.

mod common;

use common::{check, findings, guardrail};
use guardrail_rewrite::checks::Checks;
use guardrail_rewrite::rewrite;
use guardrail_rewrite::spread::Spread;
use guardrail_vm::modules::Modules;
use guardrail_vm::{Cache, kernels, packages::Packages};
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};

const KERNELS: [&str; 3] = ["6.1", "6.12", "7.2"];

/// What the kernel does with code that it knows by its tables: tracing, probes, static branches, stacks, loading at one place again.
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

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for (driver, kernel) in [("e1000", "6.1"), ("nvme", "6.12"), ("e1000", "7.2")] {
        let name = format!("{driver} with code in front of every instruction is silent on {kernel}");
        trials.push(Trial::test(name, move || works(kernel, driver)));
    }
    for kernel in KERNELS {
        let name = format!("a guarded driver works, and what has no right is told, on {kernel}");
        trials.push(Trial::test(name, move || guarded(kernel)));
        trials
            .push(Trial::test(format!("the kernel knows rewritten code on {kernel}"), move || known(kernel)));
    }
    // Two guests at once would only fight for the processors.
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit();
}

/// A driver of a kernel, rewritten into a folder.
fn spread(kernel: &str, driver: &str, folder: &Path) -> Result<PathBuf, Failed> {
    let kernel = kernels::find(&Packages::new(&Cache::open()?), kernel)?;
    let module = Modules::of(&kernel)?.plan(driver)?.driver;
    let rewritten = rewrite(driver, module.bytes.clone(), &mut [&mut Spread])?;
    if rewrite(driver, module.bytes, &mut [&mut Spread])?.file != rewritten.file {
        return Err("rewriting twice gives two results".into());
    }
    let path = folder.join(format!("{driver}.ko"));
    std::fs::write(&path, rewritten.file)?;
    Ok(path)
}

/// The rewritten driver does its work, under the eyes of the checker of memory.
fn works(kernel: &str, driver: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = spread(kernel, driver, folder.path())?;
    let result = check(&["--kernel", kernel, &path.display().to_string()]);
    let report = result.report()?;
    let outcome = report["run"]["outcome"].as_str();
    if result.status != 0 || outcome != Some("completed") || findings(report).count() > 0 {
        return Err(format!("exit status {}\n{}\n{}", result.status, result.stdout, result.stderr).into());
    }
    Ok(())
}

/// A driver with all stores checked, and nothing granted but its own variables: it works while violations are only told, which are
/// those of memory that others gave it.
fn guarded(kernel: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let packages = Packages::new(&Cache::open()?);
    let found = kernels::find(&packages, kernel)?;
    let runtime = guardrail_vm::runtime::ensure(&packages, &found)?;
    std::fs::copy(&runtime.module, folder.path().join("guardrail.ko"))?;
    let symbols = std::fs::read_to_string(&runtime.symbols)?;
    let module = Modules::of(&found)?.plan("e1000")?.driver;
    let mut checks = Checks::new(1).guarded("e1000", &symbols);
    let rewritten = rewrite("e1000", module.bytes, &mut [&mut checks])?;
    if checks.stores.checked < 500 {
        return Err(format!("only {:?}", checks.stores).into());
    }
    let path = folder.path().join("e1000.ko");
    std::fs::write(&path, rewritten.file)?;
    let path = path.display().to_string();
    let result = check(&["--kernel", kernel, &path]);
    let report = result.report()?;
    if result.status != 0 || report["run"]["outcome"] != "completed" {
        return Err(format!("exit status {}\n{}\n{}", result.status, result.stdout, result.stderr).into());
    }
    let name = format!("test-guarded-{}", std::process::id());
    let start =
        ["vm", "start", &name, "--client", "null", "--detached", "--kernel", kernel, "--driver", &path];
    let started = guardrail(&start);
    let told = guardrail(&["vm", "exec", &name, "--", "ip link set eth0 up; dmesg | grep guardrail:"]).stdout;
    guardrail(&["vm", "stop", &name]);
    let violation =
        told.lines().any(|line| line.contains("violation: write") && line.contains("by e1000_probe+"));
    // The stack is walked through the check's own code.
    let walked = told.lines().any(|line| line.contains("local_pci_probe+"));
    let mut targets = told.lines().filter(|line| line.contains("target:"));
    let own = targets.any(|line| line.contains("[e1000]") && !line.contains("allocated at"));
    if started.status != 0 || !violation || !walked || own {
        return Err(format!("{}\n{told}", started.stderr).into());
    }
    Ok(())
}

/// The kernel patches, probes, traces and unwinds rewritten code.
fn known(kernel: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = spread(kernel, "e1000", folder.path())?.display().to_string();
    let name = format!("test-rewrite-{}", std::process::id());
    let start =
        ["vm", "start", &name, "--client", "null", "--detached", "--kernel", kernel, "--driver", &path];
    let started = guardrail(&start);
    let result = if started.status == 0 { uses(&name) } else { Err(started.stderr.into()) };
    guardrail(&["vm", "stop", &name]);
    result
}

fn uses(name: &str) -> Result<(), Failed> {
    for (what, script) in USES {
        let result = guardrail(&["vm", "exec", name, "--", script]);
        if result.status != 0 {
            return Err(format!("{what}: {}\n{}", result.stdout, result.stderr).into());
        }
    }
    Ok(())
}
