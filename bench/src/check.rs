//! `bench/check`: what the tracer and DMCheck cost, as ratios to plain QEMU.
//!
//! Three ways to run the same guest take turns, so that a slow minute of the machine hits all of them:
//! plain QEMU, the tracer with nobody reading its log, the tracer with DMCheck. Each figure is the median
//! of its runs divided by plain QEMU's median, with the spread (lowest and highest ratio) behind it.

use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Stdio};

const OBSERVE: [&str; 3] = ["none", "trace", "check"];

/// What one run took, by the name of the row.
type Times = BTreeMap<String, f64>;

fn main() -> ExitCode {
    let mut runs = 3;
    let mut kernel = "6.1".to_owned();
    let mut download = "200".to_owned();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next();
        match (word.as_str(), value) {
            ("--runs", Some(value)) => runs = value.parse().unwrap_or(3).max(1),
            ("--kernel", Some(value)) => kernel = value,
            ("--download", Some(value)) => download = value,
            _ => {
                eprintln!(
                    "error: unknown or incomplete option {word}; known: --runs N, --kernel K, --download MB"
                );
                return ExitCode::from(2);
            }
        }
    }
    match measure(runs, &kernel, &download) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(3)
        }
    }
}

fn measure(runs: usize, kernel: &str, download: &str) -> Result<(), String> {
    let download = format!("DOWNLOAD_MB={download}");
    let network: &[&str] =
        &["--set", &download, "--set", "UNCHECKED=1", "--set", "REQUESTS=300", "--set", "PINGS=1"];
    let storage: &[&str] = &["--set", "UNCHECKED=1"];
    let mut all: Vec<Vec<Times>> = vec![Vec::new(); OBSERVE.len()];
    let mut rates = Vec::new();
    for run in 0..runs {
        for (index, observe) in OBSERVE.iter().enumerate() {
            eprintln!("run {} of {runs}: {observe}", run + 1);
            let mut times = Times::new();
            let first = check("e1000", kernel, observe, network)?;
            times.insert("boot".into(), number(&first, "boot_seconds"));
            for (step, row) in [("download", "200 MB download"), ("requests", "300 small requests")] {
                times.insert(row.into(), step_seconds(&first, step));
            }
            let second = check("sym53c8xx", kernel, observe, storage)?;
            let disk = ["read", "write", "verify"].iter().map(|step| step_seconds(&second, step)).sum();
            times.insert("64 MB disk read and write".into(), disk);
            if *observe == "check" {
                let events = number(&first, "events");
                rates.push(events / number(&first, "wall_seconds").max(0.001));
            }
            all[index].push(times);
        }
    }
    println!("{:<28} {:>10} {:>22} {:>22}", "", "plain QEMU", "tracer, no reader", "tracer and DMCheck");
    for row in ["boot", "200 MB download", "300 small requests", "64 MB disk read and write"] {
        let column = |index: usize| all[index].iter().map(|times: &Times| times[row]).collect::<Vec<f64>>();
        let base = median(column(0));
        let ratio = |index: usize| {
            let mut values: Vec<f64> = column(index).iter().map(|value| value / base).collect();
            values.sort_by(f64::total_cmp);
            let (low, high) = (values[0], values[values.len() - 1]);
            format!("{:.2} ({low:.2}-{high:.2})", median(values))
        };
        println!("{row:<28} {:>8.2} s {:>22} {:>22}", base, ratio(1), ratio(2));
    }
    println!("events per second of the run (tracer and DMCheck): {:.0}", median(rates));
    Ok(())
}

fn check(driver: &str, kernel: &str, observe: &str, more: &[&str]) -> Result<Value, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("guardrail");
    let output = Command::new(program)
        .args(["check", driver, "--kernel", kernel, "--observe", observe, "--smp", "1", "--format", "json"])
        .args(more)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start guardrail: {error}"))?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("{driver} under {observe}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let run = report["run"].clone();
    if run["outcome"] == "completed" {
        Ok(run)
    } else {
        Err(format!("{driver} under {observe}: {}", run["outcome"]))
    }
}

fn number(run: &Value, name: &str) -> f64 {
    run[name].as_f64().unwrap_or(0.0)
}

fn step_seconds(run: &Value, step: &str) -> f64 {
    let steps = run["steps"].as_array().into_iter().flatten();
    steps.filter(|entry| entry["name"] == step).filter_map(|entry| entry["seconds"].as_f64()).sum()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}
