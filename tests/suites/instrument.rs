//! Instrumenting a running kernel: code that changes, attaching and detaching by hand, clients of users.

use guardrail_tests::{Lab, ensure, guardrail, root};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const KERNELS: [&str; 3] = ["6.1", "6.12", "7.2"];
/// Functions whose code changes when tracing, probes and statistics are switched, and those of a module.
const SCOPE: &str = "function:vfs_*,seq_*,proc_*,__x64_sys_*,try_to_wake_up,ttwu_*,enqueue_*,dequeue_*,__schedule,kmem_cache_*,e1000_*";
const WORK: &str = "for i in 1 2; do cat /proc/self/stat /proc/modules >/dev/null; sleep 0.1; done";
/// What changes code: its name, the commands that change it, and those that restore it.
const CHANGES: [(&str, &str, &str); 4] = [
    (
        "function tracing",
        "mount -t tracefs t /sys/kernel/tracing; cd /sys/kernel/tracing; echo 'vfs_*' >set_ftrace_filter; \
         echo function >current_tracer; WORK; grep -q vfs_ trace",
        "echo nop >/sys/kernel/tracing/current_tracer",
    ),
    (
        "jump labels",
        "cd /sys/kernel/tracing; echo 1 >events/sched/enable; echo 1 >events/kmem/enable; \
         echo 1 >/proc/sys/kernel/sched_schedstats; WORK; grep -q sched_ trace",
        "cd /sys/kernel/tracing; echo 0 >events/sched/enable; echo 0 >events/kmem/enable; \
         echo 0 >/proc/sys/kernel/sched_schedstats",
    ),
    (
        "probes",
        "cd /sys/kernel/tracing; echo 'p:one vfs_read' >kprobe_events; echo 'r:two vfs_open' >>kprobe_events; \
         echo 1 >events/kprobes/enable; WORK; grep 'one  *[1-9]' kprobe_profile",
        "cd /sys/kernel/tracing; echo 0 >events/kprobes/enable; echo >kprobe_events",
    ),
    // The loader reuses the address; a smaller module there first makes the code differ.
    (
        "modules at the same address",
        "module=/guardrail/driver.ko; text=/sys/module/e1000/sections/.text; before=$(cat $text); \
         for i in 1 2 3; do rmmod e1000; insmod $module; sleep 0.2; done; [ $before = $(cat $text) ]",
        "rmmod e1000; insmod /guardrail/driver.ko",
    ),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for kernel in KERNELS {
        let name = format!("code that changes is instrumented as it is, on {kernel}");
        trials.push(Trial::test(name, move || changing_code(kernel)).with_ignored_flag(kernel != "7.2"));
    }
    trials.push(Trial::test("clients are attached and detached again and again", attached_and_detached));
    trials.push(Trial::test("a new client works", new_client));
    guardrail_tests::run(arguments, trials)
}

/// The counts of the client `code`: changed, compared, not compared, stale.
fn counts(results: &Value) -> Result<[u64; 4], Failed> {
    let table = &results["clients"][0]["tables"][0]["rows"];
    let count = |what: &str| {
        let rows = table.as_array().into_iter().flatten();
        let row = rows.into_iter().find(|row| row[0].as_str().is_some_and(|name| name.contains(what)));
        row.and_then(|row| row[1].as_u64()).ok_or_else(|| Failed::from(format!("no {what} in {results:#}")))
    };
    Ok([
        count("translations of other code than before")?,
        count("executions compared")?,
        count("executions not compared")?,
        count("executions of other code")?,
    ])
}

/// The counts once code has changed, of which no block may run any more as it was before.
///
/// While one vCPU writes code, another may run what was there until the writer has made it synchronize
/// (`text_poke_sync` in the kernel). QEMU drops a translation before it lets the write through, so that the
/// other vCPU can translate the old bytes once more: what is counted meanwhile depends on time.
fn settled(lab: &Lab, what: &str) -> Result<[u64; 4], Failed> {
    let changed = counts(&lab.results()?)?;
    lab.exec(WORK)?;
    let results = lab.results()?;
    let after = counts(&results)?;
    let stale = || format!("{what}: {changed:?}, then {after:?}: {:#}", results["clients"][0]);
    ensure(after[1] > changed[1] && after[2] == 0 && after[3] == changed[3], stale)?;
    Ok(after)
}

fn changing_code(kernel: &str) -> Result<(), Failed> {
    let lab = Lab::start("code", &["--client", "code", "--scope", SCOPE, "--kernel", kernel])?;
    // Alternatives and jump labels are patched while the kernel boots.
    let mut before = settled(&lab, "boot")?;
    for (what, change, restore) in CHANGES {
        lab.exec(&change.replace("WORK", WORK))?;
        settled(&lab, what)?;
        lab.exec(restore)?;
        let after = settled(&lab, &format!("{what}, restored"))?;
        let stale = || format!("{what}: {before:?}, then {after:?}");
        // The same module at the same address is the same code, except for what is written into it at run
        // time.
        ensure(after[0] > before[0] || what.starts_with("modules"), stale)?;
        before = after;
    }
    Ok(())
}

fn attached_and_detached() -> Result<(), Failed> {
    let lab = Lab::start("attach", &["--client", "count", "--detached"])?;
    let total = |lab: &Lab| -> Result<u64, Failed> {
        let results = lab.results()?;
        let rows = results["clients"][0]["tables"][0]["rows"].as_array().cloned().unwrap_or_default();
        Ok(rows.iter().flat_map(|row| row.as_array().into_iter().flatten()).filter_map(Value::as_u64).sum())
    };
    let attached = |lab: &Lab| -> Result<bool, Failed> {
        let list = guardrail(&["vm", "list"]).with(&[0])?.stdout;
        Ok(list.lines().any(|line| line.starts_with(&lab.0) && line.ends_with("yes")))
    };
    ensure(total(&lab)? == 0 && !attached(&lab)?, || "it counts although it is detached".into())?;
    for round in 0..8 {
        lab.ask("attach", &[])?;
        ensure(attached(&lab)?, || format!("round {round}: not attached"))?;
        let before = total(&lab)?;
        lab.exec("cat /proc/self/maps >/dev/null; true")?;
        ensure(total(&lab)? > before, || format!("round {round}: attached, and counts nothing"))?;
        lab.ask("detach", &[])?;
        let before = total(&lab)?;
        lab.exec("cat /proc/self/maps >/dev/null; true")?;
        ensure(total(&lab)? == before, || format!("round {round}: detached, and goes on counting"))?;
    }
    let failed = guardrail(&["vm", "exec", &lab.0, "--", "exit 3"]);
    ensure(failed.status == 3 && failed.stderr.contains("ended with status 3 in the guest"), || {
        failed.stderr
    })?;
    let twice = guardrail(&["vm", "start", &lab.0, "--client", "null"]);
    ensure(twice.status == 2 && twice.stderr.contains("runs already; stop it first"), || twice.stderr)?;
    let stopped = lab.ask("stop", &[])?;
    ensure(stopped.stdout.starts_with("count\n"), || stopped.stdout)?;
    let gone = guardrail(&["vm", "attach", &lab.0]);
    ensure(gone.status == 2 && gone.stderr.contains("no VM "), || gone.stderr)
}

/// The client that `client new` creates is built and runs, as its page says.
fn new_client() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let made = Command::new(guardrail_tests::program())
        .args(["client", "new", "my-client"])
        .current_dir(folder.path())
        .output()?;
    let printed = String::from_utf8_lossy(&made.stdout).into_owned();
    ensure(made.status.success(), || format!("{printed}{}", String::from_utf8_lossy(&made.stderr)))?;
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release"])
        .current_dir(folder.path().join("my-client"))
        .env_remove("CARGO_TARGET_DIR")
        .output()?;
    ensure(built.status.success(), || String::from_utf8_lossy(&built.stderr).into_owned())?;
    let library = printed.split_whitespace().find(|word| word.ends_with(".so")).unwrap_or_default();
    let library = folder.path().join(library);
    ensure(library.is_file(), || format!("{printed}\nthere is no {}", library.display()))?;
    let client = library.display().to_string();
    let run =
        guardrail(&["profile", "--client", &client, "--workload", "load", "--from", "load"]).with(&[0])?;
    let counts = |line: &str| line.contains(" blocks were executed, ") && !line.trim().starts_with("0 ");
    ensure(run.stdout.starts_with("my-client\n") && run.stdout.lines().any(counts), || run.stdout)?;
    // The page has the same client.
    let page = std::fs::read_to_string(Path::new(&root()).join("docs/start/write-a-client.md"))?;
    ensure(page.contains("block.add(&self.blocks, 1);"), || "the page shows another client".into())
}
