//! Faults anywhere in the kernel: planted bugs outside of drivers, their twins, and workloads without any
//! fault.

use guardrail_tests::{Checked, Planted, ensure, findings, guardrail};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::sync::Arc;

/// The kernels, and the class of `stress-ng` that runs on each. An ordinary run has one of them; all classes run
/// with `--ignored`.
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
            trials.push(Trial::test(name, move || stacks(kernel, &stack)).with_ignored_flag(kernel != "7.2"));
            for (rounds, classes, whole, much) in
                [(3, class, false, ""), (50, CLASSES, true, " all kinds of")]
            {
                let name = format!("a sound kernel is silent in {rounds} rounds of churn on {kernel}");
                let trial = Trial::test(name, move || churn(kernel, rounds));
                trials.push(trial.with_ignored_flag(whole || kernel != "6.12"));
                let name = format!("a sound kernel is silent under{much} stress on {kernel}");
                let trial = Trial::test(name, move || stress(kernel, classes));
                alone.push(trial.with_ignored_flag(whole || kernel != "6.12"));
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
        let bugs: Vec<Bug> = Planted::all().iter().filter_map(Bug::of).collect();
        assert!(bugs.len() >= 12, "the zoo holds {} bugs outside of drivers", bugs.len());
        bugs
    }

    fn of(planted: &Planted) -> Option<Bug> {
        Some(Bug {
            client: planted.word("client")?,
            name: planted.name.clone(),
            kind: planted.word("kind").expect("kind"),
            function: planted.word("function").expect("function"),
            line: planted.line("line_marker").expect("line_marker"),
            by_kernel: planted.expect["by_kernel"] == true,
            anywhere: planted.expect["line_in"] == "function",
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
    Ok(result.with(statuses)?.report()?.clone())
}

/// Threads that leave their stack are ended, and the guest continues: the module is unloaded, and the next
/// one does the same. Twins use much of the stack, and cause no report.
fn stacks(kernel: &str, bugs: &[Bug]) -> Result<(), Failed> {
    let own: Vec<&Bug> = bugs.iter().filter(|bug| bug.name != "kernel-softirq").collect();
    let mut drivers: Vec<String> = own.iter().map(|bug| format!("zoo/{}", bug.name)).collect();
    drivers.extend(bugs.iter().map(|bug| format!("zoo/{}_ok", bug.name)));
    let drivers: Vec<&str> = drivers.iter().flat_map(|driver| ["--driver", driver]).collect();
    let client = ["--kernel", kernel, "--client", "stackcheck:mode=stringent"];
    let result = profile(&[&client, drivers.as_slice()].concat()).with(&[4])?;
    let report = result.report()?;
    let found: Vec<&Value> = findings(report).collect();
    let right =
        |bug: &&Bug| found.iter().any(|finding| bug.is_named_by(finding) && finding["action"] == "contained");
    ensure(
        own.iter().all(right) && found.len() == own.len() && report["run"]["outcome"] == "completed",
        || format!("{report:#}"),
    )
}

fn in_interrupt() -> Result<(), Failed> {
    let bugs = Bug::all();
    let bug = bugs.iter().find(|bug| bug.name == "kernel-softirq").ok_or("the zoo lacks kernel-softirq")?;
    let arguments = ["--client", "stackcheck:mode=stringent", "--driver", "zoo/kernel-softirq"];
    let result = profile(&arguments).with(&[1])?;
    let report = result.report()?;
    let named = findings(report).any(|finding| bug.is_named_by(finding) && finding["action"].is_null());
    ensure(named && report["run"]["outcome"] == "guest-panic", || format!("{report:#}"))
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
    profile(&[&client[..], workload].concat()).with(&[0]).map(drop)
}
