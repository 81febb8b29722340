//! One run of a guest.

use super::Arguments;
use super::loads::Load;
use super::setups::{Setup, Watched};
use crate::process;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::{Options, Outcome, TcgThreads, Watch, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// The longest that a guest may take.
const LIMIT: Duration = Duration::from_secs(1200);
/// How much longer the fetches of a first run may take.
const FETCHES: Duration = Duration::from_secs(1200);
/// The time between two looks at the memory.
const EACH: Duration = Duration::from_millis(500);

/// The results of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Seconds of the guest's clock, by benchmark, in the order in which they ran.
    pub seconds: Vec<(String, f64)>,
    /// The most memory that QEMU had, in bytes.
    pub memory: u64,
}

/// Runs a load in one setup.
pub fn load(
    packages: &Packages,
    arguments: &Arguments,
    load: &Load,
    setup: &Setup,
) -> Result<Sample, String> {
    let (steps, memory) = match &setup.watch {
        Watched::Plain => alone(packages, arguments, load, &[])?,
        Watched::Plugin(plugin) => alone(packages, arguments, load, &["-plugin", plugin])?,
        Watched::Client(options) => watched(arguments, load, options)?,
    };
    let seconds: Vec<_> = steps.iter().filter_map(|step| measured(step)).collect();
    match seconds.is_empty() || memory == 0 {
        true => Err("nothing was measured".to_owned()),
        false => Ok(Sample { seconds, memory }),
    }
}

/// Runs the guest from here; returns the names of its steps, and the memory of its QEMU.
fn alone(
    packages: &Packages,
    arguments: &Arguments,
    load: &Load,
    words: &[&str],
) -> Result<(Vec<String>, u64), String> {
    let text = |error: guardrail_vm::Error| error.to_string();
    let request = Request {
        driver: load.driver,
        kernel: &arguments.common.kernel,
        workload: Some(load.script),
        ..Request::default()
    };
    let prepared = Prepared::new(packages, &Parser::here(), request, &mut |_| {}).map_err(text)?;
    let folder = tempfile::tempdir().map_err(|error| format!("cannot make a folder for the run: {error}"))?;
    let mut options = Options::new(folder.path());
    options.cpus = arguments.common.smp;
    options.threads = TcgThreads::Multi;
    options.memory_mib = arguments.memory;
    options.limits.total = LIMIT;
    options.variables.push(("PERCENT".to_owned(), arguments.percent().to_string()));
    options.qemu_arguments = words.iter().map(|&word| word.to_owned()).collect();
    let mut peak = Peak::of_child_of(std::process::id());
    let mut watch = Watch {
        progress: &mut |_, _| {},
        stop: &mut || {
            peak.look();
            None
        },
        activity: &mut || 0,
        closed: &mut || None,
        save: None,
    };
    let finished = run(&prepared, &options, &mut watch).map_err(text)?;
    match finished.outcome {
        Outcome::Completed => {
            Ok((finished.steps().iter().map(|(name, _)| (*name).to_owned()).collect(), peak.bytes))
        }
        other => Err(other.to_string()),
    }
}

/// Runs the guest under `guardrail profile`; returns the same.
fn watched(arguments: &Arguments, load: &Load, options: &[&str]) -> Result<(Vec<String>, u64), String> {
    let mut command = process::guardrail()?;
    command
        .args(["profile", "--from", "boot", "--format", "json"])
        .args(["--driver", load.driver, "--workload", load.script])
        .args(["--kernel", &arguments.common.kernel, "--smp", &arguments.common.smp.to_string()])
        .args(["--memory", &arguments.memory.to_string(), "--timeout", &LIMIT.as_secs().to_string()])
        .args(["--set", &format!("PERCENT={}", arguments.percent())])
        .args(options);
    let child = process::start(&mut command, "guardrail")?;
    let mut peak = Peak::of_child_of(child.id());
    let text = process::finish(child, LIMIT + FETCHES, "guardrail profile", &mut || peak.look())?;
    let report: Value =
        serde_json::from_str(&text).map_err(|error| format!("its report is malformed: {error}"))?;
    let steps = report["run"]["steps"].as_array().into_iter().flatten();
    Ok((steps.filter_map(|step| Some(step["name"].as_str()?.to_owned())).collect(), peak.bytes))
}

/// A benchmark and its seconds, from a step's name.
fn measured(step: &str) -> Option<(String, f64)> {
    let (name, nanoseconds) = step.strip_prefix("measured-")?.rsplit_once('-')?;
    let nanoseconds: u64 = nanoseconds.parse().ok().filter(|number| *number > 0)?;
    Some((name.to_owned(), nanoseconds as f64 / 1e9))
}

/// The most memory of the largest child that a process has.
#[derive(Debug)]
struct Peak {
    parent: u64,
    bytes: u64,
    looked: Option<Instant>,
}

impl Peak {
    fn of_child_of(parent: u32) -> Peak {
        Peak { parent: parent.into(), bytes: 0, looked: None }
    }

    /// Looks at the memory, but not too often.
    fn look(&mut self) {
        if self.looked.is_some_and(|time| time.elapsed() < EACH) {
            return;
        }
        self.looked = Some(Instant::now());
        // A process may end at any moment.
        let Ok(processes) = fs::read_dir("/proc") else { return };
        for entry in
            processes.flatten().filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit())
        {
            let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            if kibibytes(&status, "PPid:") == Some(self.parent) {
                self.bytes = self.bytes.max(kibibytes(&status, "VmHWM:").unwrap_or(0) << 10);
            }
        }
    }
}

/// The number behind a word, in KiB.
fn kibibytes(status: &str, word: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(word))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Samples of a setup: seconds by benchmark, and memory.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Seconds of each run, by benchmark.
    pub seconds: BTreeMap<String, Vec<f64>>,
    /// Bytes of each run, by load.
    pub memory: BTreeMap<&'static str, Vec<f64>>,
}

impl Samples {
    /// Adds the results of a run.
    pub fn add(&mut self, load: &Load, sample: Sample) {
        for (name, seconds) in sample.seconds {
            self.seconds.entry(name).or_default().push(seconds);
        }
        self.memory.entry(load.name).or_default().push(sample.memory as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_child_is_read() {
        assert_eq!(kibibytes("Name:\tx\nPPid:\t12\nVmHWM:\t  2048 kB\n", "VmHWM:"), Some(2048));
        assert_eq!(kibibytes("VmHWM:\n", "VmHWM:"), None);
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut peak = Peak::of_child_of(std::process::id());
        peak.look();
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(peak.bytes > 0);
    }

    #[test]
    fn figures_are_read_from_steps() {
        assert_eq!(measured("measured-fork-exit-2500000000"), Some(("fork-exit".to_owned(), 2.5)));
        assert_eq!(measured("measured-fork-exit-0"), None);
        assert_eq!(measured("build"), None);
    }
}
