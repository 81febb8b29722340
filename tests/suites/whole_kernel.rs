//! Faults anywhere in the kernel: planted bugs outside of drivers, their twins, and workloads without any
//! fault.

use guardrail_host::zoo;
use guardrail_tests::{Checked, findings, guardrail, root};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::sync::Arc;

/// The kernels, and the class of `stress-ng` that always runs on each; the others run with `--ignored`.
const KERNELS: [(&str, &str); 3] = [("6.1", "memory"), ("6.12", "filesystem"), ("7.2", "memory")];
/// The classes of `stress-ng` that are run.
const CLASSES: &str = "memory filesystem network scheduler";
/// The number of guests without stress that run at a time.
const TOGETHER: usize = 2;

fn main() {
    let arguments = Arguments::from_args();
    let (mut trials, mut alone) = (Vec::new(), Vec::new());
    if !arguments.list {
        let bugs: Arc<[Bug]> = Bug::all().into();
        for (kernel, class) in KERNELS {
            memory_trials(kernel, &bugs, &mut trials);
            let stack = bugs.iter().filter(|bug| bug.client == "stackcheck").cloned().collect::<Vec<_>>();
            let name = format!("overflows of stacks are contained on {kernel}");
            trials.push(Trial::test(name, move || stacks(kernel, &stack)));
            for (rounds, classes, ignored, much) in
                [(3, class, false, ""), (50, CLASSES, true, " all kinds of")]
            {
                let name = format!("a sound kernel is silent in {rounds} rounds of churn on {kernel}");
                trials.push(Trial::test(name, move || churn(kernel, rounds)).with_ignored_flag(ignored));
                let name = format!("a sound kernel is silent under{much} stress on {kernel}");
                alone.push(Trial::test(name, move || stress(kernel, classes)).with_ignored_flag(ignored));
            }
        }
        trials.push(Trial::test(
            "an overflow in an interrupt is named before the kernel dies of it",
            in_interrupt,
        ));
    }
    let run = |threads, trials| {
        libtest_mimic::run(&Arguments { test_threads: Some(threads), ..arguments.clone() }, trials)
    };
    let together = run(arguments.test_threads.unwrap_or(TOGETHER), trials);
    // A guest under stress that has to share its processors seems to hang.
    let alone = run(1, alone);
    together.exit_if_failed();
    alone.exit();
}

/// The description of a folder of the zoo.
#[derive(Clone)]
struct Bug {
    name: String,
    client: String,
    kind: String,
    function: String,
    line: u64,
    /// True where code of the kernel, called from this place, makes the access.
    by_kernel: bool,
    /// True where any line of the function is right.
    anywhere: bool,
}

impl Bug {
    fn all() -> Vec<Bug> {
        let drivers = zoo::drivers(&root().join("zoo")).expect("the zoo is there");
        let mut bugs: Vec<Bug> = drivers.values().filter_map(|folder| Bug::read(folder)).collect();
        bugs.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(bugs.len() >= 12, "the zoo holds {} bugs outside of drivers", bugs.len());
        bugs
    }

    fn read(folder: &std::path::Path) -> Option<Bug> {
        let text = std::fs::read_to_string(folder.join("expect.json")).ok()?;
        let expect: Value = serde_json::from_str(&text).expect("expect.json is JSON");
        let name = folder.file_name()?.to_str()?.to_owned();
        let client = expect["client"].as_str()?.to_owned();
        let source = std::fs::read_to_string(folder.join(format!("{}.c", name.replace('-', "_")))).ok()?;
        let marker = expect["line_marker"].as_str().expect("line_marker");
        let line = source.lines().position(|line| line.contains(marker)).expect("the marker is there");
        Some(Bug {
            client,
            kind: expect["kind"].as_str().expect("kind").to_owned(),
            function: expect["function"].as_str().expect("function").to_owned(),
            line: line as u64 + 1,
            by_kernel: expect["by_kernel"] == true,
            anywhere: expect["line_in"] == "function",
            name,
        })
    }

    fn module(&self) -> String {
        self.name.replace('-', "_")
    }

    /// True where a finding is the planted bug.
    fn is_named_by(&self, finding: &Value) -> bool {
        let frames = finding["stack"].as_array().map(Vec::as_slice).unwrap_or_default();
        // Where the kernel's code accesses, the module's innermost stack frame counts.
        let frame = frames.iter().find(|frame| !self.by_kernel || frame["module"] == self.module().as_str());
        let line = |frame: &Value| frame["location"]["line"].as_u64();
        finding["kind"] == self.kind.as_str()
            && frame.is_some_and(|frame| {
                frame["function"] == self.function.as_str()
                    && (self.anywhere || line(frame) == Some(self.line))
            })
    }
}

fn profile(arguments: &[&str]) -> Checked {
    guardrail(&[&["profile", "--format", "json"], arguments].concat())
}

fn report(result: &Checked, statuses: &[i32]) -> Result<Value, Failed> {
    match statuses.contains(&result.status) {
        true => Ok(result.report()?.clone()),
        false => Err(format!("exit status {}\n{}\n{}", result.status, result.stdout, result.stderr).into()),
    }
}

/// All bugs of memory run in one guest, their twins in another.
fn memory_trials(kernel: &'static str, bugs: &Arc<[Bug]>, trials: &mut Vec<Trial>) {
    let bugs: Vec<Bug> = bugs.iter().filter(|bug| bug.client == "kaddrcheck").cloned().collect();
    let twins = bugs.clone();
    trials.push(Trial::test(format!("bugs outside of drivers are named on {kernel}"), move || {
        let drivers = bugs.iter().map(|bug| format!("zoo/{}", bug.name));
        let report = memory(kernel, drivers, &[1])?;
        let missed: Vec<&str> = bugs
            .iter()
            .filter(|bug| !findings(&report).any(|finding| bug.is_named_by(finding)))
            .map(|bug| bug.name.as_str())
            .collect();
        let other: Vec<String> = findings(&report)
            .filter(|finding| !bugs.iter().any(|bug| bug.is_named_by(finding)))
            .map(|finding| format!("{finding:#}"))
            .collect();
        match (missed.is_empty(), other.is_empty()) {
            (true, true) => Ok(()),
            _ => Err(format!("not named: {missed:?}; reported besides: {}", other.join("\n")).into()),
        }
    }));
    trials.push(Trial::test(format!("twins outside of drivers are silent on {kernel}"), move || {
        memory(kernel, twins.iter().map(|bug| format!("zoo/{}_ok", bug.name)), &[0]).map(drop)
    }));
}

fn memory(kernel: &str, drivers: impl Iterator<Item = String>, statuses: &[i32]) -> Result<Value, Failed> {
    let drivers: Vec<String> = drivers.flat_map(|driver| ["--driver".to_owned(), driver]).collect();
    let drivers: Vec<&str> = drivers.iter().map(String::as_str).collect();
    let result = profile(&[&["--kernel", kernel, "--client", "kaddrcheck"], drivers.as_slice()].concat());
    report(&result, statuses)
}

/// Threads that leave their stack are ended, and the guest continues: the module is unloaded, and the next
/// one does the same. Twins use much of the stack, and cause no report.
fn stacks(kernel: &str, bugs: &[Bug]) -> Result<(), Failed> {
    let own: Vec<&Bug> = bugs.iter().filter(|bug| bug.name != "kernel-softirq").collect();
    let mut drivers: Vec<String> = own.iter().map(|bug| format!("zoo/{}", bug.name)).collect();
    drivers.extend(bugs.iter().map(|bug| format!("zoo/{}_ok", bug.name)));
    let drivers: Vec<&str> = drivers.iter().flat_map(|driver| ["--driver", driver]).collect();
    let client = ["--kernel", kernel, "--client", "stackcheck:mode=stringent"];
    let report = report(&profile(&[&client, drivers.as_slice()].concat()), &[4])?;
    let found: Vec<&Value> = findings(&report).collect();
    let right =
        |bug: &&Bug| found.iter().any(|finding| bug.is_named_by(finding) && finding["action"] == "contained");
    match own.iter().all(right) && found.len() == own.len() && report["run"]["outcome"] == "completed" {
        true => Ok(()),
        false => Err(format!("{report:#}").into()),
    }
}

fn in_interrupt() -> Result<(), Failed> {
    let bugs = Bug::all();
    let bug = bugs.iter().find(|bug| bug.name == "kernel-softirq").ok_or("the zoo lacks kernel-softirq")?;
    let result = profile(&["--client", "stackcheck:mode=stringent", "--driver", "zoo/kernel-softirq"]);
    let report = report(&result, &[1])?;
    let named = findings(&report).any(|finding| bug.is_named_by(finding) && finding["action"].is_null());
    match named && report["run"]["outcome"] == "guest-panic" {
        true => Ok(()),
        false => Err(format!("{report:#}").into()),
    }
}

/// The client is attached when the kernel runs already: it finds earlier allocations in the kernel's own
/// structures.
fn churn(kernel: &str, rounds: u32) -> Result<(), Failed> {
    sound(kernel, &["churn", "--set", &format!("ROUNDS={rounds}"), "--from", "load"])
}

/// A sample of `stress`; the whole takes some minutes per kernel.
fn stress(kernel: &str, classes: &str) -> Result<(), Failed> {
    let classes = format!("CLASSES={classes}");
    sound(kernel, &["stress", "--set", "OPERATIONS=2", "--set", "SECONDS=1", "--set", &classes])
}

fn sound(kernel: &str, workload: &[&str]) -> Result<(), Failed> {
    let client = ["--kernel", kernel, "--client", "kaddrcheck,stackcheck", "--workload"];
    report(&profile(&[&client[..], workload].concat()), &[0]).map(drop)
}
