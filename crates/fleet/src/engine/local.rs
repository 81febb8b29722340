//! Workers in processes of this machine. They end with the controller, and one that is killed is started again.

use crate::engine::{Engine, Run};
use guardrail_host::folders::program;
use guardrail_host::process::Process;
use guardrail_host::{HostError, Status};
use guardrail_vm::OwnedFolder;
use std::fs;
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
    /// From a server.
    Server(String),
}

/// Processes of this machine.
pub struct Local {
    folder: OwnedFolder,
    work: Work,
    workers: Vec<Option<Process>>,
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
        match &self.work {
            Work::Store => {
                command.arg(format!("--run={}", run.id)).arg(format!("--of={}", run.workers));
                command.arg("--store").arg(run.store.path());
            }
            Work::Server(address) => _ = command.arg(format!("--engine={address}")),
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

impl Engine for Local {
    fn usual_workers(&self) -> u32 {
        std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
    }

    fn start(&mut self, run: &mut Run<'_>) -> Result<(), HostError> {
        self.workers = (0..run.workers as usize).map(|_| None).collect();
        for index in 0..self.workers.len() {
            self.workers[index] = Some(self.spawn(run, index)?);
        }
        Ok(())
    }

    fn wait(&mut self, run: &mut Run<'_>, time: Duration) -> Result<(), HostError> {
        let end = Instant::now() + time;
        while Instant::now() < end && !run.host.signals.interrupted() {
            for index in 0..self.workers.len() {
                let ended = match &mut self.workers[index] {
                    Some(worker) => worker.try_wait().map_err(HostError::io("wait for", "a worker"))?,
                    None => continue,
                };
                match ended.map(|status| status.code()) {
                    None => {}
                    // Nothing is left for it; others may still compute.
                    Some(Some(code)) if code == Status::Clean as i32 => {
                        self.workers[index] = None;
                    }
                    Some(code) => {
                        if code.is_some() {
                            let (left, times) = self.vain;
                            self.vain = (run.left.len(), if left == run.left.len() { times + 1 } else { 1 });
                            if self.vain.1 > VAIN {
                                return Err(HostError::Run(format!(
                                    "workers end at once: {}",
                                    self.words(index)
                                )));
                            }
                        }
                        self.workers[index] = Some(self.spawn(run, index)?);
                    }
                }
            }
            // All have ended, but a result was refused meanwhile: the controller looks.
            if !self.workers.is_empty() && self.workers.iter().all(Option::is_none) {
                run.left.retain(|(key, _)| !run.store.is_over(key));
                if run.left.is_empty() {
                    return Ok(());
                }
                self.start(run)?;
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn stop(&mut self, _: &Run<'_>) {
        let end = Instant::now() + GRACE;
        self.workers.iter().flatten().for_each(Process::interrupt);
        for worker in self.workers.iter_mut().flatten() {
            while matches!(worker.try_wait(), Ok(None)) && Instant::now() < end {
                std::thread::sleep(LOOK);
            }
        }
        // Those that are left are killed.
        self.workers.clear();
    }
}
