//! Computes one job.

use crate::attempt::Attempt;
use crate::build;
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
    /// This machine cannot compute it now: it lacks space, memory, a program, or what goes into the job. The job is not to
    /// blame. A sentence says what is missing.
    Unfit(String),
    /// What goes into the job is another one on this machine than where the job was made, as a sentence says. Other jobs are
    /// none the worse.
    Foreign(String),
    /// The user interrupted the worker, so that the job has no result.
    Interrupted,
}

/// What a computation left: its exit status and its body.
type Left = (u8, Vec<u8>);

/// Why a computation left nothing.
enum Stopped {
    /// The job failed, with this log.
    Failed(String),
    /// The machine lacks something.
    Unfit(String),
    /// The user interrupted it.
    Interrupted,
}

impl Stopped {
    /// What the machine lacks, by the error of a call that no job can make fail.
    fn unfit(error: &HostError) -> Stopped {
        Stopped::Unfit(sentence(error))
    }
}

/// Computes jobs, one after another.
pub struct Computer<'a> {
    host: &'a Host,
    resolver: Resolver<'a>,
    worker: String,
    /// The state of the build's files when they were last known to be the build's; `None` where they cannot be found.
    state: Option<String>,
}

impl<'a> Computer<'a> {
    /// A computer in a worker of this name, for jobs of this build.
    pub fn new(host: &'a Host, build: &str, worker: &str) -> Computer<'a> {
        let (resolver, state) = (Resolver::new(host, build), build::state().ok());
        Computer { host, resolver, worker: worker.to_owned(), state }
    }

    /// Computes a job.
    pub fn compute(&mut self, job: &Job) -> Computed {
        // The machine that made the job has what goes in, so that it is this one which lacks it.
        if let Err(error) = self.resolver.refuse_other(job) {
            return match self.host.signals.interrupted() {
                true => Computed::Interrupted,
                false if error.is_of_machine() => Computed::Unfit(sentence(&error)),
                false => Computed::Foreign(sentence(&error)),
            };
        }
        let started = Instant::now();
        let computed = match &job.spec {
            Spec::Rehearsal(rehearsal) => self.rehearse(rehearsal),
            Spec::Check(check) => self.check(check),
        };
        match computed {
            Ok((status, body)) => Computed::Done(Outcome {
                key: job.key(),
                status,
                milliseconds: started.elapsed().as_millis() as u64,
                worker: self.worker.clone(),
                body,
            }),
            Err(Stopped::Failed(log)) => Computed::Failed(log),
            Err(Stopped::Unfit(why)) => Computed::Unfit(why),
            Err(Stopped::Interrupted) => Computed::Interrupted,
        }
    }

    /// Waits as long as the rehearsal says.
    fn rehearse(&self, job: &Rehearsal) -> Result<Left, Stopped> {
        let end = Instant::now() + Duration::from_millis(job.milliseconds);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(LOOK));
            if self.host.signals.interrupted() {
                return Err(Stopped::Interrupted);
            }
        }
        if job.fails {
            return Err(Stopped::Failed(format!("rehearsal {} was asked to fail", job.seed)));
        }
        let text = format!("{} {}", job.seed, job.milliseconds);
        let body = format!("{{\"rehearsal\":{},\"digest\":\"{}\"}}\n", job.seed, digest(&[text.as_bytes()]));
        Ok((Status::Clean as u8, body.into_bytes()))
    }

    /// Runs `guardrail check` in a process of its own, so that no failure of it can end the worker.
    fn check(&mut self, job: &Check) -> Result<Left, Stopped> {
        self.refuse_replaced()?;
        let unfit = |error: HostError| Stopped::unfit(&error);
        let folder = OwnedFolder::large("guardrail-fleet-")
            .map_err(HostError::io("create", "a folder for the run"))
            .map_err(unfit)?;
        let mut process =
            Process::start(command(job, folder.path()).map_err(unfit)?, folder.path()).map_err(unfit)?;
        let limit = Duration::from_secs(job.timeout) + BEYOND;
        let started = Instant::now();
        let mut asked = None;
        let status = loop {
            match process.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => {}
                Err(error) => return Err(unfit(HostError::io("wait for", "a run")(error))),
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
        };
        if self.host.signals.interrupted() {
            return Err(Stopped::Interrupted);
        }
        if asked.is_some() {
            return Err(Stopped::Failed(format!("the run did not end within {} s", limit.as_secs())));
        }
        let left = judged(status, folder.path())?;
        // The run may have used files of both builds.
        self.refuse_replaced()?;
        Ok(left)
    }

    /// Refuses to compute with files that are no longer those of the worker's build.
    fn refuse_replaced(&mut self) -> Result<(), Stopped> {
        let state = build::state().ok();
        if state != self.state && !build::is_still(self.resolver.build(), &self.host.cache) {
            let why = "guardrail was replaced since this worker began; start the worker again";
            return Err(Stopped::Unfit(why.to_owned()));
        }
        self.state = state;
        Ok(())
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
    match computer.compute(job) {
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
                store.fail(&key, job, &Attempt::begin(), &log)?;
            }
            Err(HostError::Run(format!("the job failed: {}", last_words(&log))))
        }
        Computed::Unfit(why) | Computed::Foreign(why) => {
            Err(HostError::Run(format!("this machine cannot compute the job: {}", last_words(&why))))
        }
        Computed::Interrupted => Err(HostError::Interrupted),
    }
}

/// The command of a check. Values stand behind `=`, so that none can become an option.
fn command(job: &Check, folder: &Path) -> Result<Command, HostError> {
    let mut command = Process::check()?;
    process::for_worker(&mut command);
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

/// The exit status and the report of a run that ended in order.
fn judged(status: ExitStatus, folder: &Path) -> Result<Left, Stopped> {
    const RESULTS: [Status; 5] =
        [Status::Clean, Status::Findings, Status::Contained, Status::Undecided, Status::NotExercised];
    let log = || {
        let text = String::from_utf8_lossy(&end_of(&folder.join("stderr"))).into_owned();
        match (status.code(), status.signal()) {
            (Some(code), _) => format!("{text}\nit ended with status {code}"),
            (None, signal) => format!("{text}\nit was ended by signal {}", signal.unwrap_or_default()),
        }
    };
    // Nothing of Guardrail kills a run that is in time: the system does, when memory is short, or a person.
    if status.code() == Some(Status::Unfit as i32) || status.signal() == Some(libc::SIGKILL) {
        return Err(Stopped::Unfit(log()));
    }
    let known =
        RESULTS.into_iter().map(|known| known as u8).find(|known| status.code() == Some((*known).into()));
    let Some(code) = known else { return Err(Stopped::Failed(log())) };
    let mut body = Vec::new();
    let read = File::open(folder.join("stdout"))
        .and_then(|file| file.take(MOST_BODY as u64 + 1).read_to_end(&mut body));
    if read.is_err() || body.len() > MOST_BODY || json::read(&body[..]).is_err() {
        return Err(Stopped::Failed(format!("{}\nit left no report", log())));
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
        let refused = computer.compute(&other);
        assert!(matches!(refused, Computed::Foreign(why) if why.starts_with("the job is for guardrail 1")));
    }

    #[test]
    fn what_this_machine_lacks_is_no_failure_of_the_job() {
        let (folder, host) = (tempfile::tempdir().unwrap(), Host::embedded().unwrap());
        let store = Store::create(folder.path()).unwrap();
        let inputs = BTreeMap::from([("driver".to_owned(), "1".to_owned())]);
        let job = Job { inputs, ..rehearsal(1, false) };
        for _ in 0..4 {
            let error = result(&job, &mut Computer::new(&host, "0", "w"), Some(&store)).unwrap_err();
            assert!(error.to_string().starts_with("this machine cannot compute the job: "), "{error}");
        }
        assert_eq!((store.failures(&job.key()), store.aside(&job.key())), (0, None));
    }

    #[test]
    fn a_program_that_was_replaced_computes_no_check() {
        let host = Host::embedded().unwrap();
        if let Ok(build) = build::identity("0", &host.cache) {
            let mut computer = Computer::new(&host, &build, "w");
            computer.state = Some("before".to_owned());
            assert!(computer.refuse_replaced().is_ok());
        }
        let mut computer = Computer::new(&host, "0", "w");
        assert!(computer.refuse_replaced().is_ok());
        computer.state = Some("before".to_owned());
        assert!(matches!(computer.refuse_replaced(), Err(Stopped::Unfit(why)) if why.contains("replaced")));
    }

    #[test]
    fn a_run_without_a_report_has_no_result() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("stderr"), "guardrail: QEMU\nerror: the guest hung\n").unwrap();
        let of = |status| match judged(ExitStatus::from_raw(status), folder.path()) {
            Err(Stopped::Failed(log)) => (true, log),
            Err(Stopped::Unfit(log)) => (false, log),
            _ => unreachable!(),
        };
        assert!(of(0).0 && of(0).1.ends_with("it left no report"));
        assert_eq!((of(3 << 8).0, last_words(&of(3 << 8).1)), (true, "the guest hung".to_owned()));
        assert!(of(11).0 && of(11).1.ends_with("signal 11"));
        // The system kills what takes too much memory, and a check says what its machine lacks.
        assert!(!of(9).0 && of(9).1.ends_with("signal 9"));
        assert_eq!((of(75 << 8).0, last_words(&of(75 << 8).1)), (false, "the guest hung".to_owned()));
        assert_eq!(last_words(""), "it left no log");
    }
}
