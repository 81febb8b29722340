//! One run of a guest, with the load that it asks for.

use super::Arguments;
use super::setups::Setup;
use super::workloads::Workload;
use crate::checkers::step_seconds;
use crate::process;
use guardrail_vm::software::Software;
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Child;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most seconds that a guest may take beyond its load.
const LIMIT: u32 = 400;
/// How long a guest that has connected may take to send its request.
const SPEECH: Duration = Duration::from_secs(10);

/// The results of one run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// The figure, in the workload's unit.
    pub figure: f64,
    /// Processor seconds of all that ran for the guest: QEMU and the analysis, without the program that made
    /// the load.
    pub processor: f64,
    /// Accesses of the driver to registers in a second of the load.
    pub accesses: f64,
    /// The accesses that the gate held.
    pub held: Held,
    /// How often a sound card ran out of sound.
    pub underruns: u64,
}

/// The accesses that the gate of a run held.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// How many accesses were held.
    pub count: f64,
    /// How long they were held on average, in microseconds.
    pub average: f64,
    /// How long the longest was held, in microseconds.
    pub longest: f64,
}

/// Runs a workload in one setup.
pub fn workload(
    arguments: &Arguments,
    workload: &Workload,
    setup: &Setup,
    software: &Software,
) -> Result<Sample, String> {
    let mut words: Vec<String> = ["--workload", workload.script].map(str::to_owned).into();
    for variable in workload.variables(arguments.seconds) {
        words.extend(["--set".to_owned(), variable]);
    }
    let control = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|control| control.set_nonblocking(true).map(|()| control))
        .map_err(|error| format!("cannot listen on the loopback address: {error}"))?;
    let mut port = 0;
    if let Some(load) = workload.load {
        let address = control.local_addr().map_err(|error| error.to_string())?;
        words.extend(["--set".to_owned(), format!("CONTROL={}", address.port())]);
        let (guest, udp) = load.port();
        port = process::free_port()?;
        for protocol in if udp { &["tcp", "udp"][..] } else { &["tcp"] } {
            // A server that only UDP reaches does not answer on TCP, which does no harm.
            words.extend(["--forward".to_owned(), format!("{protocol}:{port}:{guest}")]);
        }
    }
    let mut guest = Guest::start(arguments.drivers.of(workload.device), arguments, setup, &words, &[])?;
    let mut figure = None;
    if let Some(load) = workload.load {
        figure = guest.serve(&control, || load.give(software, port, arguments.seconds))?;
    }
    let (run, processor) = guest.finish(setup, arguments)?;
    let seconds = step_seconds(&run, "work");
    let figure = match (workload.load, figure) {
        (Some(_), None) => return Err("the guest never asked for its load".into()),
        (Some(_), Some(figure)) => figure,
        (None, _) => seconds,
    };
    if figure <= 0.0 || seconds <= 0.0 {
        return Err("nothing was measured".into());
    }
    Ok(Sample {
        figure,
        processor,
        accesses: accesses(&run) / seconds,
        held: held(&run),
        underruns: measured(&run, "underruns-").unwrap_or(0.0) as u64,
    })
}

/// A running `guardrail check`; dropping it ends it.
pub struct Guest {
    child: Child,
    output: Option<JoinHandle<String>>,
    errors: Option<JoinHandle<String>>,
    deadline: Instant,
}

impl Guest {
    /// Starts the program; it runs until [`Guest::finish`] or drop.
    pub fn start(
        driver: &str,
        arguments: &Arguments,
        setup: &Setup,
        words: &[String],
        environment: &[(&str, &str)],
    ) -> Result<Guest, String> {
        let limit = LIMIT + 10 * arguments.seconds;
        let mut command = process::guardrail()?;
        command
            .args(["check", driver, "--kernel", &arguments.common.kernel, "--format", "json"])
            .args(["--smp", &arguments.common.smp.to_string(), "--thread", &arguments.thread])
            .args(["--timeout", &limit.to_string()])
            .args(setup.options(&arguments.gate))
            .args(words)
            .envs(environment.iter().copied());
        let mut child = process::start(&mut command, "guardrail")?;
        let output = child.stdout.take().map(process::read_all);
        let errors = child.stderr.take().map(process::read_all);
        // The fetches of a first run have no limit of their own here.
        let deadline = Instant::now() + Duration::from_secs(u64::from(limit) + 1200);
        Ok(Guest { child, output, errors, deadline })
    }

    /// Waits for the guest's connection, runs the load, and reports its end to the guest. `None` where the
    /// guest ended before it connected.
    fn serve(
        &mut self,
        control: &TcpListener,
        give: impl FnOnce() -> Result<f64, String>,
    ) -> Result<Option<f64>, String> {
        loop {
            match control.accept() {
                Ok((stream, _)) => return answer(&stream, give).map(Some),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(format!("cannot take the guest's call: {error}")),
            }
            if self.child.try_wait().map_err(|error| error.to_string())?.is_some()
                || Instant::now() >= self.deadline
            {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the program's end; returns the report's `run` and the processor seconds that it took.
    pub fn finish(mut self, setup: &Setup, arguments: &Arguments) -> Result<(Value, f64), String> {
        let before = processor_seconds();
        while self.child.try_wait().map_err(|error| error.to_string())?.is_none() {
            if Instant::now() >= self.deadline {
                return Err("the guest did not end in time".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let processor = processor_seconds() - before;
        let text = |thread: Option<JoinHandle<String>>| thread.and_then(|thread| thread.join().ok());
        let output = text(self.output.take()).unwrap_or_default();
        let errors = text(self.errors.take()).unwrap_or_default();
        let last = errors.lines().last().unwrap_or("it said nothing");
        let last = last.strip_prefix("error: ").unwrap_or(last);
        let report: Value = serde_json::from_str(&output).map_err(|_| last.to_owned())?;
        let run = report["run"].clone();
        if run["outcome"] != "completed" {
            return Err(format!("{}: {last}", run["outcome"].as_str().unwrap_or("no outcome")));
        }
        if let Some(wanted) = setup.gate(&arguments.gate) {
            // A gate that did not hold an access was no gate.
            let gate = &run["gate"];
            if gate["kind"] != wanted || gate["ungated"] != 0 {
                return Err(format!("not every access was held: {gate}"));
            }
        }
        Ok((run, processor))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // SAFETY: the child has not been waited for, so the number is its.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        for _ in 0..500 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answer(stream: &TcpStream, give: impl FnOnce() -> Result<f64, String>) -> Result<f64, String> {
    let failed = |error: std::io::Error| format!("the guest's call broke off: {error}");
    stream.set_nonblocking(false).map_err(failed)?;
    stream.set_read_timeout(Some(SPEECH)).map_err(failed)?;
    let mut line = String::new();
    BufReader::new(stream.take(64)).read_line(&mut line).map_err(failed)?;
    if line.trim() != "ready" {
        return Err(format!("the guest called without being ready: {:?}", line.trim()));
    }
    let given = give();
    let mut stream = stream;
    // If the guest has ended, its run reports why.
    let _ = stream.write_all(if given.is_ok() { b"done\n" } else { b"failed\n" });
    given
}

/// Processor seconds of all children that were waited for, and of theirs.
fn processor_seconds() -> f64 {
    // SAFETY: `rusage` is plain data for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable and lives through the call.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Accesses to the device: those that the gate held, else those by instructions of the driver. The latter are
/// not all where kernel functions access the device for the driver.
fn accesses(run: &Value) -> f64 {
    let held = run["gate"]["held"].as_f64().filter(|held| *held > 0.0);
    held.or(run["device_accesses"].as_f64()).unwrap_or(0.0)
}

/// What the gate reports about its holds.
pub fn held(run: &Value) -> Held {
    let number = |name: &str| run["gate"][name].as_f64().unwrap_or(0.0);
    let count = number("held");
    Held {
        count,
        average: number("held_seconds") * 1e6 / (count - number("posted")).max(1.0),
        longest: number("longest_microseconds"),
    }
}

/// The number at the end of a step's name.
pub fn measured(run: &Value, prefix: &str) -> Option<f64> {
    let steps = run["steps"].as_array().into_iter().flatten();
    steps.filter_map(|step| step["name"].as_str()?.strip_prefix(prefix)?.parse().ok()).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_guest_is_answered_when_it_is_ready() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let call = |word: &'static str| {
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(word.as_bytes()).unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).unwrap();
                text
            })
        };
        let guest = call("ready\n");
        assert_eq!(answer(&listener.accept().unwrap().0, || Ok(7.0)), Ok(7.0));
        assert_eq!(guest.join().unwrap(), "done\n");
        let guest = call("hello\n");
        assert!(answer(&listener.accept().unwrap().0, || Ok(7.0)).is_err());
        assert_eq!(guest.join().unwrap(), "");
    }

    #[test]
    fn numbers_are_read_from_steps() {
        let run =
            json!({"steps": [{"name": "work", "seconds": 2.5}, {"name": "underruns-3", "seconds": 0.0}]});
        assert_eq!(step_seconds(&run, "work"), 2.5);
        assert_eq!(measured(&run, "underruns-"), Some(3.0));
        assert_eq!(measured(&run, "read-"), None);
    }
}
