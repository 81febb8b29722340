//! Workers in processes of this machine. They end with the controller, and one that is killed is started again. One that is set
//! aside, since the machine lacks something, is not.

use crate::engine::{Engine, Run};
use guardrail_host::folders::program;
use guardrail_host::process::{self, Process};
use guardrail_host::{HostError, Status};
use guardrail_vm::OwnedFolder;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// The time between two looks at the workers.
const LOOK: Duration = Duration::from_millis(50);
/// How many times in a row workers may end by themselves without a result, before the run ends.
const VAIN: u32 = 20;
/// The longest wait for workers to end in order.
const GRACE: Duration = Duration::from_secs(25);

/// Where the workers get their jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// From the store.
    Store,
    /// From a server, which may be away for so long.
    Server(String, Duration),
}

/// A place for a worker.
enum Slot {
    /// It works.
    Works(Process),
    /// Nothing was left for it.
    Ended,
    /// It could not compute on this machine, and said this.
    Aside(String),
}

/// Processes of this machine.
pub struct Local {
    folder: OwnedFolder,
    work: Work,
    workers: Vec<Slot>,
    /// The jobs that were left when a worker ended by itself, and how often that happened since.
    vain: (usize, u32),
}

impl Local {
    /// An engine without workers.
    pub fn new(work: Work) -> Result<Local, HostError> {
        let folder = OwnedFolder::large("guardrail-workers-")
            .map_err(HostError::io("create", "a folder for workers"))?;
        Ok(Local { folder, work, workers: Vec::new(), vain: (usize::MAX, 0) })
    }

    fn spawn(&self, run: &Run<'_>, index: usize) -> Result<Process, HostError> {
        let mut command = Command::new(program()?);
        command.args(["fleet", "work"]).env("GUARDRAIL_CONFIG", "").env_remove("GUARDRAIL_PROFILE");
        command.arg(format!("--index={index}"));
        process::for_worker(&mut command);
        match &self.work {
            Work::Store => {
                command.arg(format!("--run={}", run.id)).arg(format!("--of={}", run.workers));
                command.arg("--store").arg(run.store.path());
            }
            Work::Server(address, outage) => {
                command.arg(format!("--engine={address}")).arg(format!("--outage={}", outage.as_secs()));
            }
        }
        let folder = self.folder.path().join(index.to_string());
        fs::create_dir_all(&folder).map_err(HostError::io("create", folder.display()))?;
        Process::start(command, &folder)
    }

    /// The last words of a worker.
    fn words(&self, index: usize) -> String {
        let bytes = fs::read(self.folder.path().join(index.to_string()).join("stderr")).unwrap_or_default();
        crate::compute::last_words(&String::from_utf8_lossy(&bytes))
    }
}

impl Local {
    /// Looks at a worker, and starts it again where it was killed.
    fn look(&mut self, run: &Run<'_>, index: usize) -> Result<(), HostError> {
        let Slot::Works(worker) = &mut self.workers[index] else { return Ok(()) };
        let ended = worker.try_wait().map_err(HostError::io("wait for", "a worker"))?;
        let Some(status) = ended else { return Ok(()) };
        self.workers[index] = match status.code() {
            // Others may still compute.
            Some(code) if code == Status::Clean as i32 => Slot::Ended,
            Some(code) if code == Status::Unfit as i32 => {
                let why = self.words(index);
                run.host.progress.step(&format!("worker {index} is set aside: {why}"));
                Slot::Aside(why)
            }
            _ => {
                // A person or the system kills with this signal; others are faults of the worker.
                if status.signal() != Some(libc::SIGKILL) {
                    self.vainly(run, index)?;
                }
                Slot::Works(self.spawn(run, index)?)
            }
        };
        Ok(())
    }

    /// Counts a worker that ended by itself; an error where that happened too often while nothing moved.
    fn vainly(&mut self, run: &Run<'_>, index: usize) -> Result<(), HostError> {
        let (left, times) = self.vain;
        self.vain = (run.left.len(), if left == run.left.len() { times + 1 } else { 1 });
        match self.vain.1 > VAIN {
            true => Err(HostError::Run(format!("workers end at once: {}", self.words(index)))),
            false => Ok(()),
        }
    }

    /// Starts the workers again that ended while jobs are left; an error where all are set aside.
    fn again(&mut self, run: &Run<'_>) -> Result<(), HostError> {
        let mut last = String::new();
        let mut started = false;
        for index in 0..self.workers.len() {
            match &self.workers[index] {
                Slot::Works(_) => started = true,
                Slot::Aside(why) => last.clone_from(why),
                Slot::Ended => {
                    self.workers[index] = Slot::Works(self.spawn(run, index)?);
                    started = true;
                }
            }
        }
        match started {
            true => Ok(()),
            false => Err(HostError::Run(format!(
                "all workers of this machine are set aside, and {} jobs are left: {last}",
                run.left.len()
            ))),
        }
    }
}

impl Slot {
    fn process(self) -> Option<Process> {
        if let Slot::Works(process) = self { Some(process) } else { None }
    }
}

impl Engine for Local {
    fn usual_workers(&self) -> u32 {
        std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
    }

    fn start(&mut self, run: &mut Run<'_>) -> Result<(), HostError> {
        self.workers = Vec::new();
        for index in 0..run.workers as usize {
            let worker = self.spawn(run, index)?;
            self.workers.push(Slot::Works(worker));
        }
        Ok(())
    }

    fn wait(&mut self, run: &mut Run<'_>, time: Duration) -> Result<(), HostError> {
        let end = Instant::now() + time;
        while Instant::now() < end && !run.host.signals.interrupted() {
            for index in 0..self.workers.len() {
                self.look(run, index)?;
            }
            // All have ended, but a result was refused meanwhile: the controller looks.
            if !self.workers.is_empty() && !self.workers.iter().any(|slot| matches!(slot, Slot::Works(_))) {
                run.left.retain(|(key, _)| !run.store.is_over(key));
                if run.left.is_empty() {
                    return Ok(());
                }
                self.again(run)?;
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn stop(&mut self, _: &Run<'_>) {
        let end = Instant::now() + GRACE;
        let mut workers: Vec<Process> = self.workers.drain(..).filter_map(Slot::process).collect();
        workers.iter().for_each(Process::interrupt);
        for worker in &mut workers {
            while matches!(worker.try_wait(), Ok(None)) && Instant::now() < end {
                std::thread::sleep(LOOK);
            }
        }
        // Those that are left are killed when they are dropped.
    }
}
