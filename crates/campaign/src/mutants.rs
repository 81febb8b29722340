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
use guardrail_host::{HostError, Progress, Signals, zoo};
use guardrail_mutate::{Description, Error, Kind, Subject};
use guardrail_vm::Cache;
use guardrail_vm::kernels;
use guardrail_vm::modules::ModuleFile;
use guardrail_vm::packages::Packages;

/// Makes the plan's mutants, and writes them to its folder.
pub fn make(plan: &MutantPlan) -> Result<Vec<Made>, HostError> {
    let kinds = Kind::list(&plan.kind)?;
    let _signals = Signals::install()?;
    let progress = Progress::shown();
    let cache = Cache::open()?;
    let packages = Packages::new(&cache);
    let folder = Folder::open(&plan.out)?;
    let module = module(&packages, plan, &progress)?;
    let subject = Subject::parse(&plan.driver, module.bytes)?;
    mutants(plan, &kinds, &subject, &folder, &progress)
}

/// Makes the mutants, and runs those that have not run yet.
pub fn run(plan: &MutantPlan) -> Result<Ended, HostError> {
    let kinds = Kind::list(&plan.kind)?;
    let signals = Signals::install()?;
    let progress = Progress::shown();
    let cache = Cache::open()?;
    let packages = Packages::new(&cache);
    let folder = Folder::open(&plan.out)?;
    signals.run_begins();
    campaign::run(plan, &kinds, &folder, &packages, &signals, &progress)
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

/// The driver's file, found without the things that only a run needs.
fn module(packages: &Packages, plan: &MutantPlan, progress: &Progress) -> Result<ModuleFile, HostError> {
    progress.step(&format!("kernel {}", plan.kernel));
    let kernel = kernels::find(packages, &plan.kernel)?;
    Ok(zoo::plan(packages, &kernel, &plan.driver)?.driver)
}
