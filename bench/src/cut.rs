//! `bench/run cut`: how long it takes to cut a device off while the analysis hangs.
//!
//! Each run boots a guest with a stock driver behind the gate. While the driver works, the analysis is stopped (SIGSTOP).
//! An access is then held for the longest time that is allowed, the gate closes, and the device has to be cut off.
//! The example `cut` of the crate guardrail-gate does the same where QEMU or the gate's process hangs, without a driver.

use crate::common::Failure;
use crate::process;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long an access may be held, in seconds.
const HELD: &str = "1";
/// How long the analysis stays stopped: until the device is cut off.
const STOPPED: Duration = Duration::from_millis(2500);
/// The longest time of one run.
const LIMIT: Duration = Duration::from_secs(180);
/// What a run says when the driver works.
const WORKS: &str = "up …";

/// The options.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How often
    #[arg(long, value_name = "N", default_value_t = 20)]
    runs: usize,
    /// The driver; its workload must have a step `up`, as that of network drivers has
    #[arg(default_value = "e1000")]
    driver: String,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (mut times, mut idle) = (Vec::new(), 0);
    while times.len() < arguments.runs {
        // The moments are spread over the step.
        let pause = Duration::from_millis((times.len() + idle) as u64 * 37 % 400);
        match one(&arguments.driver, pause).map_err(Failure::Run)? {
            Ok(took) => times.push(took),
            // The driver did not reach for its device while the analysis was stopped.
            Err(_) if idle < arguments.runs => idle += 1,
            Err(why) => return Err(Failure::Run(why)),
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    let (median, p99, most) = (at(0.5), at(0.99), at(1.0));
    println!(
        "{} runs: median {median:.1} ms, p99 {p99:.1}, maximum {most:.1}; {idle} more without an access to hold",
        times.len()
    );
    Ok(())
}

/// The milliseconds that one cut took, or what the run said instead.
fn one(driver: &str, pause: Duration) -> Result<Result<f64, String>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let said = folder.path().join("said");
    let errors = fs::File::create(&said).map_err(|error| error.to_string())?;
    let mut command = process::guardrail()?;
    command.args(["check", driver, "--mode", "stringent", "--gate-timeout", HELD]);
    command.stdout(Stdio::null()).stderr(errors);
    let mut child = process::start(&mut command, "guardrail")?;
    let begun = Instant::now();
    let measured = hang(&mut child, &said, pause);
    // SAFETY: kill takes plain numbers, and nobody has waited for the process.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        if begun.elapsed() > LIMIT {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    measured?;
    let text = fs::read_to_string(&said).map_err(|error| error.to_string())?;
    let number = text.split("cut off in ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    Ok(number.ok_or_else(|| format!("the device was not cut off: {}", process::last_words(&text))))
}

/// Stops the analysis while the driver works, until the device is cut off.
fn hang(child: &mut Child, said: &Path, pause: Duration) -> Result<(), String> {
    let deadline = Instant::now() + LIMIT;
    while !fs::read_to_string(said).unwrap_or_default().contains(WORKS) {
        if Instant::now() > deadline || child.try_wait().ok().flatten().is_some() {
            return Err(format!("the run has no step '{WORKS}'"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(pause);
    let analysis = analysis_of(child.id()).ok_or("the run has no analysis")?;
    // SAFETY: kill takes plain numbers; the run, which waits for the analysis, goes on.
    unsafe { libc::kill(analysis, libc::SIGSTOP) };
    std::thread::sleep(STOPPED);
    // SAFETY: as above.
    unsafe { libc::kill(analysis, libc::SIGCONT) };
    Ok(())
}

/// The number of a run's analysis.
fn analysis_of(supervisor: u32) -> Option<i32> {
    let threads = fs::read_dir(format!("/proc/{supervisor}/task")).ok()?.flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<String> =
        lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    let is_analysis = |child: &&String| {
        fs::read_to_string(format!("/proc/{child}/cmdline"))
            .is_ok_and(|line| line.contains("internal-analysis"))
    };
    children.iter().find(is_analysis)?.parse().ok()
}
