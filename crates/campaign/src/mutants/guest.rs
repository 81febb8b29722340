//! One run of a mutant: a plain QEMU with the driver's device and workload.

use super::oops::Console;
use super::verdict::{Judged, Seen, judge};
use crate::standing::Standing;
use guardrail_guard::violations;
use guardrail_host::{HostError, files};
use guardrail_report::Report;
use guardrail_vm::prepare::Prepared;
use guardrail_vm::progress::Progress;
use guardrail_vm::run::{self, Limits, Options, Outcome, Start, Stop, TcgThreads, Watch};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A processor that runs no process for this time is stuck.
const STUCK: Duration = Duration::from_secs(30);
/// A guest that prints nothing at all for this time hangs.
const SILENCE: Duration = Duration::from_secs(40);

/// The settings of every run of a campaign.
pub struct GuestSettings<'a> {
    /// The prepared guest, with the stock driver.
    pub prepared: &'a Prepared,
    /// Modules that the driver needs and that share its domain: harm to these alone stays inside.
    pub with: Vec<String>,
    /// The workload's variables.
    pub variables: Vec<(String, String)>,
    /// Number of guest CPUs.
    pub smp: u8,
    /// The longest time of a run.
    pub timeout: Duration,
}

/// A module to run.
pub struct TestModule<'a> {
    /// The module that is loaded in place of the stock driver.
    pub module: Vec<u8>,
    /// What it needs in the guest, where it is guarded.
    pub standing: Option<Standing<'a>>,
    /// The saved guest in which it begins; `None` to boot one.
    pub saved: Option<&'a Path>,
}

/// The step that loads a driver again whose unload was ended.
const AGAIN: &str = "come-again";
/// The result of a run.
pub struct Ran {
    /// The verdict with its evidence.
    pub judged: Judged,
    /// The violations of a guarded driver that the run's kernel reported.
    pub report: Report,
    /// The shapes of the console's lines.
    pub shapes: HashSet<String>,
    /// The time from the start of QEMU to its end.
    pub wall: Duration,
}

/// The guest's progress so far.
#[derive(Default)]
struct Heard {
    /// The time of the last sign of life of each processor.
    alive: BTreeMap<u8, Instant>,
    step: String,
}

impl Heard {
    fn line(&mut self, line: &Progress) {
        match line {
            Progress::Alive(cpu) => _ = self.alive.insert(*cpu, Instant::now()),
            Progress::Begin(step) => self.step.clone_from(step),
            Progress::Done => "the end".clone_into(&mut self.step),
            _ => {}
        }
    }

    fn stuck(&self) -> Option<u8> {
        self.alive.iter().find(|(_, last)| last.elapsed() > STUCK).map(|(cpu, _)| *cpu)
    }
}

impl GuestSettings<'_> {
    /// The guest and its options.
    fn guest(&self, standing: Option<&Standing<'_>>, folder: &Path) -> (Prepared, Options) {
        let mut prepared = self.prepared.clone();
        let mut words = vec!["loglevel=5", "softlockup_panic=1"];
        let mut variables = self.variables.clone();
        variables.push(("HEARTBEAT".to_owned(), self.smp.to_string()));
        let mut files = Vec::new();
        if let Some(standing) = standing {
            let extras = standing.put(&mut prepared);
            variables.extend(extras.variables);
            (files, words[0]) = (extras.files, extras.loglevel);
        }
        let options = Options {
            cpus: self.smp,
            threads: TcgThreads::Multi,
            variables,
            limits: Limits { total: self.timeout, silence: SILENCE },
            // Runs of a mutant in different ways must not differ in anything else.
            kaslr: false,
            kernel_arguments: words.into_iter().map(str::to_owned).collect(),
            files,
            ..Options::new(folder)
        };
        (prepared, options)
    }

    /// Boots a guest until it is about to load a driver, and saves it. An error says why that is impossible.
    pub fn save(
        &self,
        standing: Option<&Standing<'_>>,
        folder: &Path,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<PathBuf, HostError> {
        let (prepared, options) = self.guest(standing, folder);
        let file = folder.join("saved");
        let mut watch = Watch {
            progress: &mut |_, _| {},
            stop: &mut || interrupted().then_some(Stop::Interrupted),
            activity: &mut || 0,
            closed: &mut || None,
            save: None,
        };
        let saved = run::save(&prepared, &options, &file, &mut watch);
        if interrupted() {
            return Err(HostError::Interrupted);
        }
        saved?;
        Ok(file)
    }

    /// Runs a module in place of the stock driver. Files are left in `folder`; `usual` holds the lines that
    /// the console prints without bugs.
    pub fn run(
        &self,
        subject: TestModule<'_>,
        folder: &Path,
        usual: &HashSet<String>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Ran, HostError> {
        let standing = subject.standing.as_ref();
        let (mut prepared, mut options) = self.guest(standing, folder);
        prepared.plan.driver.bytes = subject.module;
        if let Some(saved) = subject.saved {
            options.start = Start::Saved(saved.to_path_buf());
        }
        let heard = RefCell::new(Heard::default());
        let mut watch = Watch {
            progress: &mut |_, line| heard.borrow_mut().line(line),
            stop: &mut || match interrupted() {
                true => Some(Stop::Interrupted),
                false => {
                    heard.borrow().stuck().map(|cpu| Stop::Because(format!("CPU {cpu} runs no process")))
                }
            },
            activity: &mut || 0,
            closed: &mut || None,
            save: None,
        };
        let finished = run::run(&prepared, &options, &mut watch)?;
        if finished.outcome == Outcome::Interrupted {
            return Err(HostError::Interrupted);
        }
        let mut console = Console::new(&files::read(&finished.console).unwrap_or_default());
        if standing.is_some_and(|standing| standing.policy.ends_calls()) {
            console = console.without_ended_faults();
        }
        let heard = heard.into_inner();
        let failed = finished.progress.iter().find_map(|(_, line)| match line {
            Progress::Failed(step, why) => Some((step.as_str(), why.as_str())),
            _ => None,
        });
        let again = |line: &Progress| match line {
            Progress::Ok(step) if step == AGAIN => Some(true),
            Progress::Failed(step, _) if step == AGAIN => Some(false),
            _ => None,
        };
        let seen = Seen {
            outcome: &finished.outcome,
            began: finished.driver_began(),
            failed,
            again: finished.progress.iter().find_map(|(_, line)| again(line)),
            guarded: standing.map(|standing| standing.policy),
            stuck: heard.stuck().filter(|_| matches!(finished.outcome, Outcome::Stopped { .. })),
            step: if heard.step.is_empty() { "boot" } else { &heard.step },
            console: &console,
        };
        let driver = &prepared.plan.driver.name;
        let domain: Vec<&str> = [driver].into_iter().chain(&self.with).map(String::as_str).collect();
        let judged = judge(&seen, &domain, usual);
        let found = violations::findings(&console.text());
        let report = violations::report(driver, &prepared.kernel.release, finished.outcome.word(), found);
        Ok(Ran { judged, report, shapes: console.shapes(), wall: finished.wall })
    }
}
