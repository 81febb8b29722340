//! Boots a kernel and runs a driver under its workload, without any tracer.
//!
//! `cargo run --example boot -- DRIVER [KERNEL [DEVICE]] [NAME=VALUE…]`

use guardrail_vm::packages::Packages;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::{Options, Stop, TcgThreads, Watch, run};
use guardrail_vm::{Cache, kernels};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (variables, words): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.contains('='));
    let word = |index: usize| words.get(index).map(String::as_str);
    let packages = Packages::new(&Cache::open()?);
    let request = Request {
        more: &[],
        driver: word(0).unwrap_or("e1000"),
        kernel: word(1).unwrap_or(kernels::DEFAULT),
        device: word(2),
        workload: std::env::var("WORKLOAD").ok().map(|s| &*s.leak()),
    };
    let prepared = match Prepared::new(&packages, request, &mut |what| eprintln!("getting {what}")) {
        Ok(prepared) => prepared,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(if error.is_usage() { 2 } else { 3 });
        }
    };
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&interrupted))?;
    let folder = tempfile::tempdir()?;
    let mut options = Options::new(folder.path());
    for (name, value) in variables.iter().filter_map(|variable| variable.split_once('=')) {
        match name {
            "CPUS" => options.cpus = value.parse()?,
            "THREADS" if value == "multi" => options.threads = TcgThreads::Multi,
            "LIMIT" => options.limits.total = std::time::Duration::from_secs(value.parse()?),
            "SILENCE" => options.limits.silence = std::time::Duration::from_secs(value.parse()?),
            "QEMU" => options.qemu_arguments.extend(value.split(' ').map(str::to_owned)),
            _ => options.variables.push((name.to_owned(), value.to_owned())),
        }
    }
    let finished = run(
        &prepared,
        &options,
        &mut Watch {
            progress: &mut |time, line| eprintln!("{:7.2} {line}", time.as_secs_f64()),
            stop: &mut || interrupted.load(Ordering::Relaxed).then_some(Stop::Interrupted),
            activity: &mut || 0,
            closed: &mut || None,
            save: None,
        },
    )?;
    println!(
        "{} {} {:?}: {} in {:.1} s",
        prepared.plan.driver.name,
        prepared.kernel.release,
        prepared.choice.device.map(|device| device.name),
        finished.outcome,
        finished.wall.as_secs_f64()
    );
    if let guardrail_vm::run::Outcome::GuestPanic { text } = &finished.outcome {
        println!("{text}");
    }
    if std::env::var_os("CONSOLE").is_some() {
        println!("{}", String::from_utf8_lossy(&std::fs::read(&finished.console)?));
    }
    Ok(())
}
