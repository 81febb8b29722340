//! `bench/run checkers`: what the tracer and the checkers cost, as ratios to plain QEMU.
//!
//! The setups of the guest are plain QEMU, the tracer without a reader of its log, the tracer with DMCheck, and with all
//! checkers. They take turns, so that a slow minute of the machine hits all of them. Each figure is the median of its
//! runs divided by plain QEMU's median, with the spread (lowest and highest ratio) behind it.

use crate::common::{Failure, median};
use crate::process;
use serde_json::Value;
use std::collections::BTreeMap;

/// A setup of the guest.
struct Setup {
    title: &'static str,
    observe: &'static str,
    tool: &'static str,
}

const SETUPS: [Setup; 4] = [
    Setup { title: "plain QEMU", observe: "none", tool: "dmcheck" },
    Setup { title: "tracer, no reader", observe: "trace", tool: "all" },
    Setup { title: "with DMCheck", observe: "check", tool: "dmcheck" },
    Setup { title: "with all checkers", observe: "check", tool: "all" },
];

/// What one run took, by the name of the row.
type Times = BTreeMap<String, f64>;

/// The options.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How often each workload is run in each setup
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// The kernel
    #[arg(long, default_value = guardrail_vm::kernels::DEFAULT)]
    kernel: String,
    /// How many MB are downloaded
    #[arg(long, value_name = "MB", default_value_t = 200)]
    download: u32,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    Ok(measure(arguments.runs, &arguments.kernel, arguments.download)?)
}

fn measure(runs: u32, kernel: &str, download: u32) -> Result<(), String> {
    let download = format!("DOWNLOAD_MB={download}");
    let network: &[&str] =
        &["--set", &download, "--set", "UNCHECKED=1", "--set", "REQUESTS=300", "--set", "PINGS=1"];
    let storage: &[&str] = &["--set", "UNCHECKED=1"];
    let mut all: Vec<Vec<Times>> = vec![Vec::new(); SETUPS.len()];
    let mut loads = Vec::new();
    for run in 0..runs {
        for (index, setup) in SETUPS.iter().enumerate() {
            eprintln!("run {} of {runs}: {}", run + 1, setup.title);
            let mut times = Times::new();
            let first = check("e1000", kernel, setup, network)?;
            times.insert("boot".into(), number(&first, "boot_seconds"));
            for (step, row) in [("download", "download"), ("requests", "300 small requests")] {
                times.insert(row.into(), step_seconds(&first, step));
            }
            let second = check("sym53c8xx", kernel, setup, storage)?;
            let disk = ["read", "write", "verify"].iter().map(|step| step_seconds(&second, step)).sum();
            times.insert("64 MB disk read and write".into(), disk);
            loads.push((index, number(&first, "events"), number(&first, "lag_seconds")));
            all[index].push(times);
        }
    }
    print!("{:<28} {:>12}", "", SETUPS[0].title);
    SETUPS[1..].iter().for_each(|setup| print!(" {:>20}", setup.title));
    println!();
    for row in ["boot", "download", "300 small requests", "64 MB disk read and write"] {
        let column = |index: usize| all[index].iter().map(|times: &Times| times[row]).collect::<Vec<f64>>();
        let base = median(column(0));
        print!("{row:<28} {base:>10.2} s");
        for index in 1..SETUPS.len() {
            let mut values: Vec<f64> = column(index).iter().map(|value| value / base).collect();
            values.sort_by(f64::total_cmp);
            let spread = format!("({:.2}-{:.2})", values[0], values[values.len() - 1]);
            print!(" {:>8.2} {spread:>11}", median(values));
        }
        println!();
    }
    for (index, setup) in SETUPS.iter().enumerate() {
        let of_setup = |number: fn(&(usize, f64, f64)) -> f64| {
            median(loads.iter().filter(|load| load.0 == index).map(number).collect())
        };
        if setup.observe == "check" {
            let (events, lag) = (of_setup(|load| load.1), of_setup(|load| load.2));
            println!(
                "{}: {events:.0} events of e1000, the analysis ended {lag:.1} s after the guest",
                setup.title
            );
        }
    }
    Ok(())
}

fn check(driver: &str, kernel: &str, setup: &Setup, more: &[&str]) -> Result<Value, String> {
    let output = process::guardrail()?
        .args(["check", driver, "--kernel", kernel, "--observe", setup.observe, "--tool", setup.tool])
        // `bench/run gate` measures what the gate costs.
        .args(["--smp", "1", "--format", "json", "--gate", "off"])
        .args(more)
        .output()
        .map_err(|error| format!("cannot start guardrail: {error}"))?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("{driver}, {}: {}", setup.title, String::from_utf8_lossy(&output.stderr)))?;
    let run = report["run"].clone();
    if run["outcome"] == "completed" {
        Ok(run)
    } else {
        Err(format!("{driver}, {}: {}", setup.title, run["outcome"]))
    }
}

fn number(run: &Value, name: &str) -> f64 {
    run[name].as_f64().unwrap_or(0.0)
}

pub fn step_seconds(run: &Value, step: &str) -> f64 {
    let steps = run["steps"].as_array().into_iter().flatten();
    steps.filter(|entry| entry["name"] == step).filter_map(|entry| entry["seconds"].as_f64()).sum()
}
