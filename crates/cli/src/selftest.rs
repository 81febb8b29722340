//! `guardrail selftest containment`: plants faults in drivers of the zoo, and shows that what they would do to a disk or to the
//! network happens when they are let through and does not when they are contained.
//!
//! Every run is a `guardrail check` of its own, judged by its exit status, its report, and what it left outside of the guest.

mod faults;
mod machinery;
mod outcome;
mod processes;
mod subject;
mod trial;

use crate::args::{ContainmentArgs, ListFormat};
use crate::errors::{CliError, Status, tell};
use crate::output;
use crate::signals::Signals;
use crate::zoo;
use faults::Fault;
use guardrail_vm::Cache;
use machinery::Upset;
use outcome::{Outcome, Summary};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use subject::Subject;
use tempfile::TempDir;
use trial::{Mode, Trial};

/// Runs the experiment and prints its table.
pub fn containment(args: &ContainmentArgs) -> Result<Status, CliError> {
    let zoo = zoo::folder()?;
    let subjects = Subject::wanted(args.subject);
    let plan = plan(args, &zoo, &subjects)?;
    let signals = Signals::install()?;
    let folder = Folder::new(args.out.as_deref())?;
    signals.run_begins();

    let results: Mutex<Vec<Outcome>> = Mutex::default();
    let failure: Mutex<Option<CliError>> = Mutex::default();
    let (next, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    // A run dies with the thread that started it, so the threads stay until all is done.
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::SeqCst);
            let Some(trial) = plan.get(number).filter(|_| !over.load(Ordering::SeqCst)) else { return };
            match trial.run_planted(args, &zoo, folder.path(), number, &|| signals.interrupted()) {
                Ok(outcome) => {
                    tell("guardrail", &format!("{}/{}  {outcome}", number + 1, plan.len()));
                    results.lock().unwrap_or_else(|error| error.into_inner()).push(outcome);
                }
                Err(error) => {
                    over.store(true, Ordering::SeqCst);
                    failure.lock().unwrap_or_else(|error| error.into_inner()).get_or_insert(error);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        (0..args.jobs).for_each(|_| _ = scope.spawn(work));
    });
    if let Some(error) = failure.into_inner().unwrap_or_else(|error| error.into_inner()) {
        return Err(error);
    }
    let mut results = results.into_inner().unwrap_or_else(|error| error.into_inner());
    results.sort_by_key(|outcome| outcome.number);
    let summary = Summary::new(args, results);
    output::text(&match args.format {
        ListFormat::Text => summary.text(),
        ListFormat::Json => {
            let text = serde_json::to_string_pretty(&summary);
            text.map_err(|error| CliError::Run(error.to_string()))? + "\n"
        }
    })?;
    Ok(if summary.holds { Status::Clean } else { Status::Findings })
}

/// All runs: of each driver first one without a fault in each mode, then the faults, by turns over all kinds.
fn plan(args: &ContainmentArgs, zoo: &Path, subjects: &[Subject]) -> Result<Vec<Trial>, CliError> {
    let modes: Vec<Mode> = match args.let_through {
        true => vec![Mode::Permissive],
        false => vec![Mode::Permissive, Mode::Stringent],
    };
    let mut trials = Vec::new();
    let mut all: Vec<(Subject, Fault)> = Vec::new();
    for &subject in subjects {
        trials.extend(modes.iter().map(|&mode| Trial {
            subject,
            fault: None,
            seed: args.seed,
            mode,
            upset: None,
        }));
        all.extend(faults::of(zoo, subject.driver())?.into_iter().map(|fault| (subject, fault)));
    }
    let first: Vec<String> = all.iter().map(|(_, fault)| fault.fault.clone()).collect();
    if !args.fault.is_empty() {
        for wanted in &args.fault {
            if !all.iter().any(|(_, fault)| fault.fault == *wanted) {
                let mut names: Vec<&str> = all.iter().map(|(_, fault)| fault.fault.as_str()).collect();
                names.sort_unstable();
                names.dedup();
                return Err(CliError::Usage(format!(
                    "there is no fault named '{wanted}'; there are {}",
                    names.join(", ")
                )));
            }
        }
        all.retain(|(_, fault)| args.fault.contains(&fault.fault));
    }
    // Every kind in turn, those of one driver after those of the other; a few faults only are others with another seed.
    all.sort_by_key(|(_, fault)| first.iter().position(|name| *name == fault.fault));
    let turn = all.len().max(1);
    all.rotate_left(args.seed as usize % turn);
    for (number, (subject, fault)) in all.iter().cycle().take(args.faults as usize).enumerate() {
        let seed = args.seed.wrapping_add(number as u32);
        let trial = |mode| Trial { subject: *subject, fault: Some(fault.clone()), seed, mode, upset: None };
        trials.extend(modes.iter().copied().map(trial));
    }
    trials.extend((0..args.machinery as usize).filter_map(|number| {
        let (kind, round) = (number % Upset::ALL.len(), number / Upset::ALL.len());
        // In every other round nothing but the failure ends the run. In those between a fault is planted as well, for what a failure
        // lets through does harm; each of them moves on by one, so that every failure meets every fault.
        let (subject, fault) = all.get((kind + round / 2) % turn)?.clone();
        let fault = Some(fault).filter(|_| round % 2 == 1);
        let seed = args.seed.wrapping_add(number as u32);
        Some(Trial { subject, fault, seed, mode: Upset::MODE, upset: Some(Upset::ALL[kind]) })
    }));
    Ok(trials)
}

/// Where the runs leave their files.
enum Folder {
    Own(TempDir),
    Kept(PathBuf),
}

impl Folder {
    fn new(out: Option<&Path>) -> Result<Folder, CliError> {
        let runs = match out {
            Some(out) => std::path::absolute(out).map_err(CliError::io("find", out.display()))?,
            None => Cache::open()?.path("runs"),
        };
        std::fs::create_dir_all(&runs).map_err(CliError::io("create", runs.display()))?;
        if out.is_some() {
            return Ok(Folder::Kept(runs));
        }
        let own = TempDir::with_prefix_in("selftest-", &runs);
        Ok(Folder::Own(own.map_err(CliError::io("create a folder in", runs.display()))?))
    }

    fn path(&self) -> &Path {
        match self {
            Folder::Own(folder) => folder.path(),
            Folder::Kept(path) => path,
        }
    }
}
