//! Code that the test suites share: to run the program and guests, and to read a report.
//!
//! The suites test the system from outside: they run the built program, or drive the engines as it does. A fact about one crate is
//! tested in that crate.

pub mod browser;
mod lab;
pub mod mutants;
pub mod neuter;
pub mod picture;
mod planted;
pub mod processes;
pub mod stores;
pub mod workshop;

pub use lab::Lab;
pub use planted::Planted;

use guardrail_vm::prepare::Prepared;
use guardrail_vm::progress::Progress;
use guardrail_vm::run::{Options, Outcome, TcgThreads, Watch};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// The number of guests that run at a time, unless the command line sets one. A guest waits for its devices
/// and its analysis for more than half of the time, so three of them use two processors better than two do.
const GUESTS: usize = 3;

/// Runs the tests, each of which has guests of its own.
pub fn run(arguments: Arguments, trials: Vec<Trial>) -> ! {
    let test_threads = arguments.test_threads.or(Some(GUESTS));
    libtest_mimic::run(&Arguments { test_threads, ..arguments }, trials).exit()
}

/// Applies the function to all of these, so many at a time, and returns the results in their order.
pub fn at_once<T: Sync, R: Send>(all: &[T], workers: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Relaxed));
        numbers.map_while(|number| Some((number, work(all.get(number)?)))).collect::<Vec<_>>()
    };
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("the work ends")).collect()
    });
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

/// A line in this format for each package that cargo builds for the packages and kinds of dependencies that the words
/// choose.
pub fn cargo_tree(format: &str, words: &[&str]) -> BTreeSet<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["tree", "--offline", "--prefix", "none", "--format", format]).args(words);
    let output = command.current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

/// The kernel whose headers, and source, the verifier's tests compile with: `GUARDRAIL_TEST_HEADERS`, or 6.1.
pub fn verified_kernel() -> String {
    std::env::var("GUARDRAIL_TEST_HEADERS").unwrap_or_else(|_| "6.1".to_owned())
}

/// A program for guests, compiled in `folder` from a C file of the fixtures.
pub fn compiled(name: &str, folder: &Path) -> Result<Vec<u8>, Failed> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let sources = ["guarded", "active"].map(|folder| fixtures.join(format!("{folder}/{name}.c")));
    let source = sources
        .iter()
        .find(|source| source.is_file())
        .ok_or(format!("no {name}.c is in {}", fixtures.display()))?;
    let made = folder.join(name);
    let ran = Command::new("gcc").args(["-O2", "-Wall", "-static", "-o"]).arg(&made).arg(source).output()?;
    match ran.status.success() {
        true => Ok(std::fs::read(made)?),
        false => Err(format!("{name}.c cannot be compiled: {}", String::from_utf8_lossy(&ran.stderr)).into()),
    }
}

/// A name for a VM that no other test uses, also not at the same time.
fn vm_name(what: &str) -> String {
    static NAMED: AtomicUsize = AtomicUsize::new(0);
    format!("test-{what}-{}-{}", std::process::id(), NAMED.fetch_add(1, Relaxed))
}

/// A network driver's workload that takes seconds.
pub const SHORT: [&str; 8] =
    ["--set", "DOWNLOAD_MB=1", "--set", "REQUESTS=3", "--set", "UPLOADS=1", "--set", "PINGS=1"];

/// A guest that has ended.
pub struct Ran {
    /// How the run ended.
    pub outcome: Outcome,
    /// The serial console, with bytes that are not UTF-8 replaced.
    pub console: String,
    /// Steps of the workload that the driver does not support, as `STEP: WHY`.
    pub skipped: Vec<String>,
}

/// Does something with a guest that nobody watches.
pub fn unobserved<T>(run: impl FnOnce(&mut Watch<'_>) -> T) -> T {
    run(&mut Watch {
        progress: &mut |_, _| {},
        stop: &mut || None,
        activity: &mut || 0,
        closed: &mut || None,
        save: None,
    })
}

/// Runs a guest without a plugin; only its own kernel observes it. A step may take longer than the limit of silence:
/// the guest reports every second that it lives.
pub fn unwatched(prepared: &Prepared, mut options: Options, seconds: u64) -> Result<Ran, Failed> {
    options.threads = TcgThreads::Multi;
    options.limits.total = Duration::from_secs(seconds);
    options.variables.push(("HEARTBEAT".to_owned(), "1".to_owned()));
    let finished = unobserved(|watch| guardrail_vm::run::run(prepared, &options, watch))?;
    let console = String::from_utf8_lossy(&std::fs::read(&finished.console)?).into_owned();
    let skipped = finished.progress.iter().filter_map(|(_, progress)| match progress {
        Progress::Skipped(step, why) => Some(format!("{step}: {why}")),
        _ => None,
    });
    let skipped: Vec<_> = skipped.collect();
    // The file helps to look into a guest that misbehaves.
    if let Ok(file) = std::env::var("GUARDRAIL_TEST_CONSOLE") {
        let steps = finished.progress.iter();
        let steps: String =
            steps.map(|(time, step)| format!("{:.1} s: {step}\n", time.as_secs_f64())).collect();
        std::fs::write(file, format!("{console}{steps}"))?;
    }
    Ok(Ran { outcome: finished.outcome, console, skipped })
}

/// A failure, unless the condition holds.
pub fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(why().into()) }
}

/// The trace satisfies the rules for every trace.
pub fn keeps_the_rules(trace: &str) -> Result<(), Failed> {
    guardrail(&["view", "--check", trace]).with(&[0]).map(drop)
}

/// The findings of a report.
pub fn findings(report: &Value) -> impl Iterator<Item = &Value> {
    report["findings"].as_array().into_iter().flatten()
}

/// The output of a run of the program.
pub struct Checked {
    /// The exit status; -1 where a signal ended the program.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    report: Option<Value>,
}

impl Checked {
    /// The same result, where the exit status is one of these.
    pub fn with(self, statuses: &[i32]) -> Result<Checked, Failed> {
        if statuses.contains(&self.status) { Ok(self) } else { Err(self.said().into()) }
    }

    /// The exit status, and all that the program printed.
    pub fn said(&self) -> String {
        format!("exit status {}\n{}\n{}", self.status, self.stdout, self.stderr)
    }

    /// The report; an error where the program printed none.
    pub fn report(&self) -> Result<&Value, Failed> {
        self.report.as_ref().ok_or_else(|| format!("no report; {}", self.said()).into())
    }
}

/// Runs `guardrail check` and reads its report.
pub fn check(arguments: &[&str]) -> Checked {
    guardrail(&[&["check", "--format", "json"], arguments].concat())
}

/// Runs the program.
pub fn guardrail(arguments: &[&str]) -> Checked {
    let mut command = Command::new(program());
    command.args(arguments).current_dir(root());
    ran(command)
}

/// Runs a command that ends in the program.
pub fn ran(mut command: Command) -> Checked {
    let output = command.stdin(Stdio::null()).output().expect("the program runs");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    Checked {
        status: output.status.code().unwrap_or(-1),
        report: serde_json::from_str(&stdout).ok(),
        stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The built program: `guardrail` in the profile's folder, above the `deps` folder with this test.
pub fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    let profile = test.ancestors().nth(2).expect("a test is built in target/PROFILE/deps");
    let program = profile.join("guardrail");
    let release = if profile.ends_with("release") { " --release" } else { "" };
    assert!(
        program.is_file(),
        "{} is missing; build it: cargo build{release} --workspace --lib --bins",
        program.display()
    );
    program
}

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
