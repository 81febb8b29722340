//! Runs everything that must hold before a change lands: `make test`.
//!
//! Knows the steps (`steps`), and their order and which ones run in parallel (`schedule`). It also knows how
//! a command is started, limited and killed (`process`), and how cargo's output is counted (`count`). Knows
//! nothing of Guardrail itself: a step is a command.
//!
//! The last line on standard output is always `N passed, N failed`.

mod count;
mod kernels;
mod process;
mod report;
mod schedule;
mod steps;

use process::Running;
use report::Report;
use schedule::Schedule;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use steps::Step;

const USAGE: &str = "\
usage: scripts/test [--list] [STEP...]
Runs all steps, or those named and the builds that they need.
  STEP    a step's name, or a part of it
  --list  print the steps and end";

/// The time between two looks at the running steps.
const TICK: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let all = steps::all();
    match arguments.first().map(String::as_str) {
        Some("--help" | "-h") => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some("--list") => {
            for step in &all {
                println!("{}", step.name);
            }
            return ExitCode::SUCCESS;
        }
        Some(option) if option.starts_with('-') => {
            eprintln!("error: unknown option {option}\n{USAGE}");
            return ExitCode::from(2);
        }
        _ => {}
    }
    let chosen = match steps::choose(all, &arguments) {
        Ok(chosen) => chosen,
        Err(error) => {
            eprintln!("error: {error}; scripts/test --list names the steps");
            return ExitCode::from(2);
        }
    };
    match run(&chosen) {
        Ok(report) => report.end(),
        Err(error) => {
            eprintln!("error: {error}");
            println!("0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

/// Runs the steps, as many in parallel as the processors carry.
fn run(steps: &[Step]) -> std::io::Result<Report> {
    process::catch_signals();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut schedule = Schedule::new(steps, processors);
    let mut report = Report::default();
    let mut running: Vec<(usize, Running)> = Vec::new();
    let logs = logs();
    std::fs::create_dir_all(&logs)?;
    while !schedule.is_over() {
        for number in schedule.start() {
            running.push((number, Running::start(&steps[number], &logs)?));
        }
        for number in schedule.skipped() {
            report.skipped(&steps[number]);
        }
        std::thread::sleep(TICK);
        if process::interrupted() {
            running.iter_mut().for_each(|(_, step)| step.kill());
            report.interrupted();
            return Ok(report);
        }
        let mut going = Vec::new();
        for (number, mut step) in running {
            match step.ended()? {
                Some(ended) => schedule.ended(number, report.ended(&steps[number], &ended)),
                None => going.push((number, step)),
            }
        }
        running = going;
    }
    Ok(report)
}

/// The folder for the output of the steps: `test-logs` in cargo's target folder.
fn logs() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").filter(|folder| !folder.is_empty());
    target.map_or_else(|| PathBuf::from("target"), PathBuf::from).join("test-logs")
}
