//! Mutants of a driver's binary, and campaigns that run each in a guest of its own.
//!
//! A campaign is a folder with these parts:
//!
//! - `campaign.json`: what every run has in common,
//! - `mutants/`: each mutant with its description,
//! - `results.jsonl`: a line for each run that ended,
//! - `runs/`: the console of each run,
//! - `table.txt`: the table.
//!
//! An interrupted campaign continues where it stopped: a mutant whose line exists is not run again.

mod campaign;
mod folder;
mod guest;
mod oops;
mod table;
mod verdict;

pub use table::{Row, of_mutants, text};

use crate::MutantPlan;
use folder::Folder;
use guardrail_guard::Confine;
use guardrail_host::folders::program;
use guardrail_host::process::kill_with_parent;
use guardrail_host::{HostError, Progress, Signals, Status, files, zoo};
use guardrail_mutate::{Description, Error, Kind, Subject};
use guardrail_vm::kernels;
use guardrail_vm::modules::Modules;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::{Given, Job, Known, Parser};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Makes the plan's mutants, and writes them to its folder. What it takes is fetched and built before `confine` is called,
/// and no module is read before that.
pub fn make(plan: &MutantPlan, confine: &Confine<'_>) -> Result<Vec<Made>, HostError> {
    let kinds = Kind::list(&plan.kind)?;
    let _signals = Signals::install()?;
    let progress = Progress::shown();
    let cache = guardrail_host::cache()?;
    let packages = Packages::new(&cache);
    let folder = Folder::open(&plan.out)?;
    progress.step(&format!("kernel {}", plan.kernel));
    let kernel = kernels::find(&packages, &plan.kernel)?;
    let driver = zoo::provide(&packages, &kernel, &plan.driver)?;
    let modules = Modules::of(&kernel, &Parser::here())?;
    // What a driver needs may be beside it.
    let file = Path::new(&driver).canonicalize().ok().filter(|driver| driver.is_file());
    let beside = file.and_then(|driver| driver.parent().map(Path::to_path_buf));
    let read: Vec<PathBuf> = files::linked(&kernel.modules).into_iter().chain(beside).collect();
    confine(&read, &[folder.path().to_path_buf()])?;
    let module = modules.plan(&driver)?.driver;
    let subject = Subject::parse(&plan.driver, module.bytes)?;
    mutants(plan, &kinds, &subject, &folder, &progress)
}

/// A mutant that was made by another process.
#[derive(Deserialize)]
struct Listed {
    name: String,
    kind: String,
}

/// Has another process make the plan's mutants, as this one starts guests and cannot confine itself. Returns the kind and
/// the name of each.
fn made_apart(plan: &MutantPlan) -> Result<Vec<(String, String)>, HostError> {
    let program = program()?;
    let mut command = Command::new(&program);
    command
        .arg("inject")
        .arg(&plan.driver)
        .arg("--kind")
        .arg(plan.kind.join(","))
        .arg("--out")
        .arg(&plan.out);
    command.arg("--kernel").arg(&plan.kernel).args(["--format", "json"]);
    for (option, number) in
        [("--seed", plan.seed), ("--count", plan.count.into()), ("--bugs", plan.bugs.into())]
    {
        command.arg(option).arg(number.to_string());
    }
    kill_with_parent(&mut command);
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let output = output.map_err(HostError::io("start", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let why = said.lines().rev().find_map(|line| line.strip_prefix("error: ")).unwrap_or("it was ended");
    match output.status.code() {
        Some(0) => {}
        Some(code) if code == Status::Usage as i32 => return Err(HostError::Usage(why.to_owned())),
        Some(code) if code == Status::Interrupted as i32 => return Err(HostError::Interrupted),
        _ => return Err(HostError::Run(format!("the mutants cannot be made: {why}"))),
    }
    let bad = |why: &str| HostError::Run(format!("the list of mutants is damaged: {why}"));
    let listed: Vec<Listed> =
        serde_json::from_slice(&output.stdout).map_err(|error| bad(&error.to_string()))?;
    let plain = |name: &str| !name.starts_with('-') && name.bytes().all(is_plain);
    match listed.iter().all(|one| plain(&one.name) && Kind::list(std::slice::from_ref(&one.kind)).is_ok()) {
        true => Ok(listed.into_iter().map(|one| (one.kind, one.name)).collect()),
        false => Err(bad("it has a name that no mutant has")),
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// The jobs of this crate and of those below, for the process that parses.
pub fn jobs() -> Vec<Known> {
    vec![Known::of::<Stock>(), Known::of::<guardrail_guard::Harden>()]
}

/// Reads a stock driver. The bytes of the answer are the driver in the form of mutants.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stock {
    what: String,
}

impl Job for Stock {
    const NAME: &'static str = "stock";
    type Answer = ();

    fn run(self, given: Given) -> Result<((), Vec<u8>), String> {
        let subject = Subject::parse(&self.what, given.bytes).map_err(|error| error.to_string())?;
        Ok(((), subject.stock().to_vec()))
    }
}

/// Makes the mutants, and runs those that have not run yet.
pub fn run(plan: &MutantPlan) -> Result<Ended, HostError> {
    Kind::list(&plan.kind)?;
    let signals = Signals::install()?;
    let progress = Progress::shown();
    let cache = guardrail_host::cache()?;
    let packages = Packages::new(&cache);
    let folder = Folder::open(&plan.out)?;
    signals.run_begins();
    campaign::run(plan, &folder, &packages, &signals, &progress)
}

/// A campaign that has ended.
pub struct Ended {
    /// The table: each kind in each way, then all kinds together.
    pub rows: Vec<Row>,
    /// The number of runs.
    pub runs: usize,
    /// The number of runs that failed, which show nothing of their mutants.
    pub failed: usize,
}

/// The mutants of a kind.
pub struct Made {
    /// The kind of bug.
    pub kind: Kind,
    /// The number of sites in the driver's code where the kind fits.
    pub places: usize,
    /// The mutants that were made.
    pub mutants: Vec<Description>,
}

/// A mutant with the name of its files.
#[derive(serde::Serialize)]
pub struct Named<'a> {
    name: String,
    #[serde(flatten)]
    description: &'a Description,
}

impl Made {
    /// The mutants with their names, for programs.
    pub fn named(&self) -> impl Iterator<Item = Named<'_>> {
        self.mutants.iter().map(|description| Named { name: description.name(), description })
    }
}

/// Makes the mutants of the plan, and writes them to the folder. A driver may lack sites for some kinds, but
/// not for all.
fn mutants(
    plan: &MutantPlan,
    kinds: &[Kind],
    subject: &Subject,
    folder: &Folder,
    progress: &Progress,
) -> Result<Vec<Made>, HostError> {
    let mut all = Vec::new();
    for &kind in kinds {
        progress.step(&format!("mutants: {kind}"));
        let mutants = match subject.mutants(kind, plan.seed, plan.bugs as usize) {
            Ok(mutants) => mutants,
            Err(Error::NoPlace { .. }) if kinds.len() > 1 => {
                all.push(Made { kind, places: 0, mutants: Vec::new() });
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let mut made = Made { kind, places: mutants.places(), mutants: Vec::new() };
        for mutant in mutants.take(plan.count as usize) {
            let mutant = mutant?;
            folder.keep_mutant(&mutant)?;
            made.mutants.push(mutant.description);
        }
        all.push(made);
    }
    if all.iter().all(|made| made.mutants.is_empty()) {
        let why = format!("{} has no place for any bug of these kinds", plan.driver);
        return Err(HostError::Usage(why));
    }
    Ok(all)
}
