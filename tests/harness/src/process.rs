//! A step's process. Its output is in a file, and it has its own process group. It is killed with all its
//! descendants where it hangs.

use crate::kernels;
use crate::steps::Step;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a killed step may take to stop its guests before it is killed for good.
const GRACE: Duration = Duration::from_secs(10);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupt(_: libc::c_int) {
    INTERRUPTED.store(true, Relaxed);
}

/// From now on, signals that end the run only set a flag. The steps are in process groups of their own, which a terminal does not signal.
pub fn catch_signals() {
    let handler: extern "C" fn(libc::c_int) = interrupt;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// True once a signal asked the run to end.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Relaxed)
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With exit status 0.
    Passed,
    /// With another exit status, or by a signal.
    Failed,
    /// It took longer than its limit and was killed.
    Hung,
}

/// A step that has ended.
#[derive(Debug)]
pub struct Ended {
    /// How the step ended.
    pub end: End,
    /// The time from its start to its end.
    pub took: Duration,
    /// Standard output and standard error; bytes that are not UTF-8 are replaced.
    pub output: String,
}

/// A step that runs.
pub struct Running {
    child: Child,
    log: PathBuf,
    began: Instant,
    limit: Duration,
}

impl Running {
    /// Starts a step; its output is in a file of this folder, which is kept.
    pub fn start(step: &Step, logs: &Path) -> io::Result<Running> {
        let log = logs.join(format!("{}.log", step.name.replace(' ', "-")));
        let file = File::create(&log)?;
        let (program, arguments) = step.command.split_first().expect("a step has a command");
        let child = Command::new(program)
            .args(arguments)
            .env("GUARDRAIL_TEST_KERNELS", kernels::pinned())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("{program} does not start: {error}")))?;
        Ok(Running { child, log, began: Instant::now(), limit: step.limit })
    }

    /// The result of the step, once it has ended. A step over its limit is killed.
    pub fn ended(&mut self) -> io::Result<Option<Ended>> {
        let end = match self.child.try_wait()? {
            Some(status) if status.success() => End::Passed,
            Some(_) => End::Failed,
            None if self.began.elapsed() > self.limit => {
                self.kill();
                End::Hung
            }
            None => return Ok(None),
        };
        let output = String::from_utf8_lossy(&std::fs::read(&self.log)?).into_owned();
        Ok(Some(Ended { end, took: self.began.elapsed(), output }))
    }

    /// Ends the step and all processes below it: first with the signals of a user, then with SIGKILL.
    pub fn kill(&mut self) {
        let pid = self.child.id().cast_signed();
        let mut all = descendants(pid);
        all.push(pid);
        signal(&all, libc::SIGTERM);
        let deadline = Instant::now() + GRACE;
        while all.iter().any(|&pid| is_alive(pid)) && Instant::now() < deadline {
            let _ = self.child.try_wait();
            std::thread::sleep(Duration::from_millis(50));
        }
        signal(&all, libc::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Signals processes and the groups that they lead.
fn signal(pids: &[i32], signal: libc::c_int) {
    for &pid in pids.iter().filter(|&&pid| is_alive(pid)) {
        // SAFETY: kill takes no pointers.
        unsafe {
            libc::kill(pid, signal);
            libc::kill(-pid, signal);
        }
    }
}

/// The process's state and its parent, from `/proc/PID/stat`.
fn stat(pid: i32) -> Option<(char, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z')
}

/// All processes below one, in whatever group or session they are.
fn descendants(root: i32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let parents: Vec<(i32, i32)> = pids.filter_map(|pid| Some((pid, stat(pid)?.1))).collect();
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::Counts;

    fn step(name: &'static str, script: &str, limit: Duration) -> Step {
        Step {
            name,
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            counts: Counts::One,
            weight: 1,
            after: Vec::new(),
            builds: false,
            limit,
        }
    }

    fn run(name: &'static str, script: &str, limit: Duration) -> Ended {
        let logs = std::env::temp_dir();
        let mut running = Running::start(&step(name, script, limit), &logs).unwrap();
        loop {
            if let Some(ended) = running.ended().unwrap() {
                std::fs::remove_file(&running.log).unwrap();
                return ended;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn both_streams_and_the_status_are_kept() {
        let ended = run("harness test of output", "echo out; echo err >&2; exit 3", Duration::from_secs(60));
        assert_eq!((ended.end, ended.output.as_str()), (End::Failed, "out\nerr\n"));
        assert_eq!(run("harness test of status", "true", Duration::from_secs(60)).end, End::Passed);
    }

    #[test]
    fn a_step_that_hangs_is_killed_with_what_it_started() {
        let script = "setsid sleep 1000 & echo $!; wait";
        let ended = run("harness test of limits", script, Duration::from_millis(500));
        assert_eq!(ended.end, End::Hung);
        assert!(!is_alive(ended.output.trim().parse().unwrap()));
    }
}
