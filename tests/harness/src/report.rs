//! Prints the results. Everything is on standard output, and the counts are its last line.

use crate::count::{self, Count};
use crate::process::{End, Ended};
use crate::steps::{Counts, Step};
use std::process::ExitCode;
use std::time::Duration;

/// Lines of output of a failed step.
const LINES: usize = 300;
/// Steps that are named as the slowest.
const SLOWEST: usize = 8;

/// What has run so far.
#[derive(Default)]
pub struct Report {
    count: Count,
    times: Vec<(Duration, &'static str)>,
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
        if count.failed != 0 {
            count::tail(&ended.output, LINES).iter().for_each(|line| println!("{line}"));
            if ended.end == End::Hung {
                println!("FAIL  {} took longer than {} s and was killed", step.name, step.limit.as_secs());
            }
            count::failed_names(&ended.output).for_each(|name| println!("FAIL  {name}"));
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

    /// Prints the slowest steps and the counts.
    pub fn end(mut self) -> ExitCode {
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
