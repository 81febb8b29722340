//! Real guests with their devices behind the gate: stock kernels, unmodified drivers, stock device models.
//!
//! The trials that are not sampled are marked as ignored; `cargo test --release -p guardrail-gate --test out_of_process --
//! --include-ignored` runs all.

mod common;

use common::{Guest, Policy, Step};
use guardrail_vm::run::Outcome;
use libtest_mimic::{Arguments, Failed, Trial};
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Drivers whose devices must work behind the gate, with the kind of their interrupts.
const DRIVERS: [&str; 9] =
    ["e1000", "nvme", "e1000e", "igb", "pcnet32", "8139cp", "sym53c8xx", "ahci", "snd_ens1370"];
/// The first few are tested each time.
const SAMPLED: usize = 2;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(common::GATE) {
        return guardrail_gate::process::serve(common::policy);
    }
    if std::env::args().nth(1).as_deref() == Some(common::LEADERLESS) {
        leaderless();
    }
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for (index, driver) in DRIVERS.into_iter().enumerate() {
        let trial = Trial::test(format!("{driver} works behind the gate"), move || works(driver));
        trials.push(trial.with_ignored_flag(index >= SAMPLED));
    }
    trials.push(Trial::test("a process with a thread left is not gone", thread_left));
    trials.push(Trial::test("the gate and its device are jailed", jailed));
    trials.push(Trial::test("a closed gate lets nothing through", closed));
    trials.push(Trial::test("a dead gate lets nothing through", || dead(Step::KillGate)));
    trials.push(
        Trial::test("a dead device lets nothing through", || dead(Step::KillDevice)).with_ignored_flag(true),
    );
    trials.push(
        Trial::test("a hung device does not keep the gate open", || dead(Step::StopDevice))
            .with_ignored_flag(true),
    );
    trials.push(Trial::test("whatever happens at any moment", random).with_ignored_flag(true));
    trials.push(Trial::test("a silent policy closes the gate", silent).with_ignored_flag(true));
    // Two guests at once would only compete for the processors.
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit_code()
}

/// The workload ends well, with its checksums. Every access that the device received passed the gate, and
/// every access that passed reached the device.
fn works(driver: &str) -> Result<(), Failed> {
    let mut guest = Guest::new(driver, Policy::Open)?;
    let trace = guest.trace();
    let (finished, state) = guest.run(Step::Nothing)?;
    if finished.outcome != Outcome::Completed {
        return Err(format!("{}\n{}", finished.outcome, finished.trouble).into());
    }
    if let Some(why) = state.failure.or(state.counts.contained.clone()) {
        return Err(format!("the gate closed: {why}").into());
    }
    trace.compare(driver, &state.counts)?;
    guest.nothing_left()
}

/// Ends the first thread of this process while another runs on for as long as standard input is open.
fn leaderless() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    // SAFETY: this ends the calling thread alone (exit(2)); the other one borrows nothing of it.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// A process that is killed writes until its last thread ends, which may be long after its first.
fn thread_left() -> Result<(), Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.arg(common::LEADERLESS).stdin(Stdio::piped()).spawn()?;
    let left = common::gone(child.id());
    drop(child.stdin.take());
    common::gone(child.id())?;
    child.wait()?;
    left.err().map(|_| ()).ok_or_else(|| "a process with a running thread counted as gone".into())
}

/// Neither the gate nor the device's QEMU has capabilities, and the QEMU ends with the gate. No guest runs.
fn jailed() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let mut process = common::without_guest(folder.path())?;
    let _driver_vm = std::os::unix::net::UnixStream::connect(folder.path().join("gate.sock"))?;
    let deadline = Instant::now() + Duration::from_secs(30);
    let device = loop {
        let state = process.state()?;
        if let Some(why) = state.failure {
            return Err(why.into());
        }
        match state.device {
            Some(device) => break device,
            None if Instant::now() > deadline => return Err("the device never started".into()),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let gate = process.id();
    for process in [gate, device] {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
            if !status.lines().any(|found| found == line) {
                return Err(format!("process {process} has no line {line:?}:\n{status}").into());
            }
        }
    }
    // The jail has not undone that the device ends with its gate.
    // SAFETY: the process is ours and has not been waited for.
    unsafe { libc::kill(gate as i32, libc::SIGKILL) };
    common::gone(device)
}

/// From the moment that the gate is closed the device receives nothing, and the disk stays as it is.
fn closed() -> Result<(), Failed> {
    let mut guest = Guest::new("nvme", Policy::Open)?;
    let trace = guest.trace();
    let (finished, state) = guest.run(Step::Contain)?;
    if finished.outcome == Outcome::Completed {
        return Err("the workload ended well without its device".into());
    }
    if state.counts.contained.as_deref() != Some(common::REASON) {
        return Err(format!("contained: {:?}", state.counts.contained).into());
    }
    trace.compare("nvme", &state.counts)?;
    guest.disk_unchanged()?;
    guest.nothing_left()
}

/// Whatever dies, the disk stays as it is, and nothing continues.
fn dead(step: Step) -> Result<(), Failed> {
    let mut guest = Guest::new("nvme", Policy::Open)?;
    let (finished, _) = guest.run(step)?;
    if finished.outcome == Outcome::Completed {
        return Err("the workload ended well without its device".into());
    }
    guest.disk_unchanged()?;
    guest.nothing_left()
}

/// Does the same at random moments; `GUARDRAIL_GATE_ROUNDS` sets the number of rounds.
fn random() -> Result<(), Failed> {
    let rounds = std::env::var("GUARDRAIL_GATE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    for round in 0..rounds {
        let step = [Step::Contain, Step::KillGate, Step::KillDevice][round % 3];
        let mut guest = Guest::new("nvme", Policy::Open)?;
        guest.enlarge();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        guest.moment = Duration::from_millis(u64::from(now.subsec_micros()) % 300);
        eprintln!("{step:?} after {:?}", guest.moment);
        let (finished, _) = guest.run(step)?;
        if finished.outcome == Outcome::Completed {
            return Err(format!("{step:?} after {:?}: the workload ended well", guest.moment).into());
        }
        guest.disk_unchanged()?;
        guest.nothing_left()?;
    }
    Ok(())
}

/// A policy that never answers ends in containment after the limit, not in waiting.
fn silent() -> Result<(), Failed> {
    let mut guest = Guest::new("e1000", Policy::Silent { after: 500 })?;
    guest.hold_limit = Duration::from_secs(2);
    let (finished, state) = guest.run(Step::Nothing)?;
    if finished.outcome == Outcome::Completed {
        return Err("the workload ended well without its device".into());
    }
    match state.counts.contained {
        Some(why) if why.starts_with("an access was held for 2 s") => guest.nothing_left(),
        other => Err(format!("contained: {other:?}").into()),
    }
}
