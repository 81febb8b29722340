//! Prints the results. Everything is on standard output, and the counts are its last line.

use crate::count::{self, Count};
use crate::process::{End, Ended};
use crate::steps::{Counts, Step};
use std::process::ExitCode;
use std::time::Duration;

/// Lines of output of a failed step.
const LINES: usize = 300;
/// Characters of what a failed test said that stand beside its name.
const REASON: usize = 400;
/// Steps that are named as the slowest.
const SLOWEST: usize = 8;

/// What has run so far.
#[derive(Default)]
pub struct Report {
    count: Count,
    times: Vec<(Duration, &'static str)>,
    /// What failed, a line each.
    failures: Vec<String>,
    /// True where the user stopped the run.
    interrupted: bool,
}

impl Report {
    /// Prints and counts a step that ended; true where it passed.
    pub fn ended(&mut self, step: &Step, ended: &Ended) -> bool {
        let passed = ended.end == End::Passed;
        let count = match step.counts {
            Counts::One => Count { passed: usize::from(passed), failed: usize::from(!passed) },
            Counts::Tests => count::tests(&ended.output, passed),
        };
        self.count.add(count);
        self.times.push((ended.took, step.name));
        let word = if count.failed == 0 { "ok   " } else { "FAIL " };
        let seconds = ended.took.as_secs();
        match step.counts {
            Counts::One => println!("{word} {} ({seconds} s)", step.name),
            Counts::Tests => {
                println!(
                    "{word} {}: {} passed, {} failed ({seconds} s)",
                    step.name, count.passed, count.failed
                );
            }
        }
        let mut flaky = count::flaky(&ended.output).peekable();
        if flaky.peek().is_some() {
            flaky.for_each(|line| println!("{line}"));
            println!("      (these passed when they ran again)");
        }
        count::unchecked(&ended.output).for_each(|line| println!("      {line}"));
        if count.failed != 0 {
            count::tail(&ended.output, LINES).iter().for_each(|line| println!("{line}"));
            let failures = failures(step, ended);
            failures.iter().for_each(|line| println!("{line}"));
            self.failures.extend(failures);
        }
        count.failed == 0
    }

    /// Prints that a step does not run.
    pub fn skipped(&self, step: &Step) {
        println!("-     {}: not run, as a step before it failed", step.name);
    }

    /// Notes that the user stopped the run.
    pub fn interrupted(&mut self) {
        println!("FAIL  interrupted");
        self.count.failed += 1;
        self.interrupted = true;
    }

    /// Prints once more what failed, then the slowest steps and the counts.
    pub fn end(mut self) -> ExitCode {
        self.failures.iter().for_each(|line| println!("{line}"));
        self.times.sort();
        let slowest = self.times.iter().rev().take(SLOWEST);
        let slowest: Vec<_> = slowest.map(|(took, name)| format!("{name} {} s", took.as_secs())).collect();
        println!("slowest: {}", slowest.join(", "));
        println!("{} passed, {} failed", self.count.passed, self.count.failed);
        match self.count.failed {
            _ if self.interrupted => ExitCode::from(130),
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }
}

/// What failed in a step, a line each: its tests with their reasons, or the step itself.
fn failures(step: &Step, ended: &Ended) -> Vec<String> {
    let tests = count::failed_names(&ended.output).map(|name| {
        let reason: String = count::reason(&ended.output, name).chars().take(REASON).collect();
        format!("FAIL  {}: {name}{}{reason}", step.name, if reason.is_empty() { "" } else { ": " })
    });
    let mut lines: Vec<String> = tests.collect();
    if ended.end == End::Hung {
        lines.push(format!("FAIL  {} took longer than {} s and was killed", step.name, step.limit.as_secs()));
    } else if lines.is_empty() {
        lines.push(format!("FAIL  {}", step.name));
    }
    lines
}
