//! Computes one job.

use crate::canonical::digest;
use crate::job::{Job, Key, Resolver};
use crate::outcome::{MOST_BODY, Outcome};
use crate::spec::{Check, Rehearsal, Spec};
use crate::store::MOST_LOG;
use guardrail_host::error::sentence;
use guardrail_host::process::{self, BEYOND, GRACE, Process};
use guardrail_host::{Host, HostError, Status};
use guardrail_report::json;
use guardrail_report::text::clean;
use guardrail_vm::OwnedFolder;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// The time between two looks at a job.
const LOOK: Duration = Duration::from_millis(50);

/// What came of a job.
#[derive(Debug)]
pub enum Computed {
    /// It has a result.
    Done(Outcome),
    /// The attempt failed; the log says why.
    Failed(String),
    /// The user interrupted the worker, so that the job has no result.
    Interrupted,
}

/// Computes jobs, one after another.
pub struct Computer<'a> {
    host: &'a Host,
    resolver: Resolver<'a>,
    worker: String,
}

impl<'a> Computer<'a> {
    /// A computer in a worker of this name, for jobs of this build.
    pub fn new(host: &'a Host, build: &str, worker: &str) -> Computer<'a> {
        Computer { host, resolver: Resolver::new(host, build), worker: worker.to_owned() }
    }

    /// Computes a job. `tick` is called many times a second meanwhile.
    pub fn compute(&mut self, job: &Job, tick: &mut dyn FnMut()) -> Computed {
        if let Err(error) = self.resolver.refuse_other(job) {
            return Computed::Failed(sentence(&error));
        }
        let started = Instant::now();
        let computed = match &job.spec {
            Spec::Rehearsal(rehearsal) => self.rehearse(rehearsal, tick),
            Spec::Check(check) => self.check(check, tick),
        };
        match computed {
            Ok(Some((status, body))) => Computed::Done(Outcome {
                key: job.key(),
                status,
                milliseconds: started.elapsed().as_millis() as u64,
                worker: self.worker.clone(),
                body,
            }),
            Ok(None) => Computed::Interrupted,
            Err(log) => Computed::Failed(log),
        }
    }

    /// Waits; `None` where the user interrupts it.
    fn rehearse(&self, job: &Rehearsal, tick: &mut dyn FnMut()) -> Result<Option<(u8, Vec<u8>)>, String> {
        let end = Instant::now() + Duration::from_millis(job.milliseconds);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(LOOK));
            tick();
            if self.host.signals.interrupted() {
                return Ok(None);
            }
        }
        if job.fails {
            return Err(format!("rehearsal {} was asked to fail", job.seed));
        }
        let text = format!("{} {}", job.seed, job.milliseconds);
        let body = format!("{{\"rehearsal\":{},\"digest\":\"{}\"}}\n", job.seed, digest(&[text.as_bytes()]));
        Ok(Some((Status::Clean as u8, body.into_bytes())))
    }

    /// Runs `guardrail check` in a process of its own, so that no failure of it can end the worker.
    fn check(&self, job: &Check, tick: &mut dyn FnMut()) -> Result<Option<(u8, Vec<u8>)>, String> {
        let why = |error: HostError| sentence(&error);
        let folder = OwnedFolder::large("guardrail-fleet-")
            .map_err(HostError::io("create", "a folder for the run"))
            .map_err(why)?;
        let mut process =
            Process::start(command(job, folder.path()).map_err(why)?, folder.path()).map_err(why)?;
        let limit = Duration::from_secs(job.timeout) + BEYOND;
        let started = Instant::now();
        let mut asked = None;
        let status = loop {
            match process.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => {}
                Err(error) => return Err(format!("the run cannot be waited for: {error}")),
            }
            let late = started.elapsed() > limit;
            if asked.is_none() && (late || self.host.signals.interrupted()) {
                asked = Some(Instant::now());
                process.interrupt();
            }
            if asked.is_some_and(|since| since.elapsed() > GRACE) {
                process.kill();
            }
            std::thread::sleep(LOOK);
            tick();
        };
        if self.host.signals.interrupted() {
            return Ok(None);
        }
        if asked.is_some() {
            return Err(format!("the run did not end within {} s", limit.as_secs()));
        }
        judged(status, folder.path()).map(Some)
    }
}

/// The result of a job that is computed in this process, or from the store where it is there.
pub fn result(
    job: &Job,
    computer: &mut Computer<'_>,
    store: Option<&crate::Store>,
) -> Result<Outcome, HostError> {
    let key: Key = job.key();
    if let Some(known) = store.and_then(|store| store.result(&key)) {
        return Ok(known);
    }
    match computer.compute(job, &mut || {}) {
        Computed::Done(outcome) => {
            if let Some(store) = store {
                store.put(&outcome)?;
                // Of two that compute a job, both return the one that is stored.
                return Ok(store.result(&key).unwrap_or(outcome));
            }
            Ok(outcome)
        }
        Computed::Failed(log) => {
            if let Some(store) = store {
                store.fail(&key, job, &log)?;
            }
            Err(HostError::Run(format!("the job failed: {}", last_words(&log))))
        }
        Computed::Interrupted => Err(HostError::Interrupted),
    }
}

/// The command of a check. Values stand behind `=`, so that none can become an option.
fn command(job: &Check, folder: &Path) -> Result<Command, HostError> {
    let mut command = Process::check()?;
    match job.mode.as_str() {
        // Where nothing is contained, a gate would only take time.
        "permissive" => command.arg("--gate=off"),
        mode => command.arg(format!("--mode={mode}")),
    };
    command.arg(format!("--kernel={}", job.kernel)).arg(format!("--tool={}", job.checkers.join(",")));
    command.arg(format!("--smp={}", job.smp)).arg(format!("--timeout={}", job.timeout)).arg("--format=json");
    command.arg("--out").arg(folder);
    for (option, value) in [("--device", &job.device), ("--workload", &job.workload)] {
        command.args(value.iter().map(|value| format!("{option}={value}")));
    }
    let seed = job.seed.map(|seed| format!("--offer=SEED={seed}"));
    command.args(job.variables.iter().map(|(name, value)| format!("--offer={name}={value}")));
    command.args(seed).arg("--").arg(&job.driver);
    Ok(command)
}

/// The exit status and the report of a run that ended in order; otherwise a log.
fn judged(status: ExitStatus, folder: &Path) -> Result<(u8, Vec<u8>), String> {
    const RESULTS: [Status; 5] =
        [Status::Clean, Status::Findings, Status::Contained, Status::Undecided, Status::NotExercised];
    let log = || {
        let text = String::from_utf8_lossy(&end_of(&folder.join("stderr"))).into_owned();
        match (status.code(), status.signal()) {
            (Some(code), _) => format!("{text}\nit ended with status {code}"),
            (None, signal) => format!("{text}\nit was ended by signal {}", signal.unwrap_or_default()),
        }
    };
    let known =
        RESULTS.into_iter().map(|known| known as u8).find(|known| status.code() == Some((*known).into()));
    let Some(code) = known else { return Err(log()) };
    let mut body = Vec::new();
    let read = File::open(folder.join("stdout"))
        .and_then(|file| file.take(MOST_BODY as u64 + 1).read_to_end(&mut body));
    if read.is_err() || body.len() > MOST_BODY || json::read(&body[..]).is_err() {
        return Err(format!("{}\nit left no report", log()));
    }
    Ok((code, body))
}

fn end_of(file: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(file) {
        let length = file.metadata().map_or(0, |data| data.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(MOST_LOG as u64)));
        let _ = file.take(MOST_LOG as u64).read_to_end(&mut bytes);
    }
    bytes
}

/// The error in a log, or its last line.
pub fn last_words(log: &str) -> String {
    // Logs come from other machines, and hold what guests print.
    clean(process::last_words(log).unwrap_or("it left no log"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use std::collections::BTreeMap;

    fn rehearsal(seed: u64, fails: bool) -> Job {
        let spec = Spec::Rehearsal(Rehearsal { milliseconds: 60, seed, fails });
        Job { spec, inputs: BTreeMap::new(), build: "0".to_owned() }
    }

    #[test]
    fn a_result_that_is_stored_is_not_computed_again() {
        let (folder, host) = (tempfile::tempdir().unwrap(), Host::embedded().unwrap());
        let store = Store::create(folder.path()).unwrap();
        let by = |worker: &str| {
            let mut computer = Computer::new(&host, "0", worker);
            result(&rehearsal(1, false), &mut computer, Some(&store)).unwrap()
        };
        let first = by("one");
        assert!(first.milliseconds >= 60 && first.worker == "one");
        assert_eq!(by("two"), first);
    }

    #[test]
    fn a_failure_is_one_sentence_and_is_counted() {
        let (folder, host) = (tempfile::tempdir().unwrap(), Host::embedded().unwrap());
        let store = Store::create(folder.path()).unwrap();
        let job = rehearsal(1, true);
        for count in 1..=3 {
            let mut computer = Computer::new(&host, "0", "w");
            let error = result(&job, &mut computer, Some(&store)).unwrap_err();
            assert_eq!(error.to_string(), "the job failed: rehearsal 1 was asked to fail");
            assert_eq!((store.failures(&job.key()), store.aside(&job.key()).is_some()), (count, count == 3));
        }
        let other = Job { build: "1".to_owned(), ..job };
        let mut computer = Computer::new(&host, "0", "w");
        let refused = computer.compute(&other, &mut || {});
        assert!(matches!(refused, Computed::Failed(log) if log.starts_with("the job is for guardrail 1")));
    }

    #[test]
    fn a_run_without_a_report_has_no_result() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("stderr"), "guardrail: QEMU\nerror: the guest hung\n").unwrap();
        let log = judged(ExitStatus::from_raw(0), folder.path()).unwrap_err();
        assert!(log.ends_with("it left no report"));
        let log = judged(ExitStatus::from_raw(3 << 8), folder.path()).unwrap_err();
        assert_eq!(last_words(&log), "the guest hung");
        assert!(judged(ExitStatus::from_raw(9), folder.path()).unwrap_err().ends_with("signal 9"));
        assert_eq!(last_words(""), "it left no log");
    }
}
