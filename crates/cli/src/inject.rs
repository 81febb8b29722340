//! `guardrail inject`: mutants of a driver's binary, and campaigns that run each in a guest of its own.
//!
//! A campaign is a folder: `campaign.json` (what every run has in common), `mutants/` (each with its description), `results.jsonl` (a
//! line for each run that ended), `runs/` (the console of each run) and the table as `table.txt`. One that was interrupted goes on
//! where it stopped: a mutant whose line is there is not run again.

mod campaign;
mod folder;
mod guest;
mod oops;
mod table;
mod verdict;

use crate::args::{InjectArgs, ListFormat};
use crate::errors::{CliError, Status};
use crate::output;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::zoo;
use folder::Folder;
use guardrail_mutate::{Description, Error, Kind, Subject};
use guardrail_vm::Cache;
use guardrail_vm::kernels;
use guardrail_vm::modules::ModuleFile;
use guardrail_vm::packages::Packages;

/// Makes mutants, and runs them if that is wanted.
pub fn run(args: &InjectArgs) -> Result<Status, CliError> {
    let kinds = Kind::list(&args.kind)?;
    let signals = Signals::install()?;
    let progress = Progress::shown();
    let cache = Cache::open()?;
    let packages = Packages::new(&cache);
    let folder = Folder::open(&args.out)?;
    if args.run {
        signals.run_begins();
        return campaign::run(args, &kinds, &folder, &packages, &signals, &progress);
    }
    let module = module(&packages, args, &progress)?;
    let subject = Subject::parse(&args.driver, module.bytes)?;
    let made = mutants(args, &kinds, &subject, &folder, &progress)?;
    progress.finish();
    output::text(&match args.format {
        ListFormat::Text => table::of_mutants(&made),
        ListFormat::Json => table::json(&made.iter().flat_map(Made::named).collect::<Vec<_>>())?,
    })?;
    Ok(Status::Clean)
}

/// The mutants of a kind.
struct Made {
    kind: Kind,
    places: usize,
    mutants: Vec<Description>,
}

/// A mutant with the name of its files.
#[derive(serde::Serialize)]
struct Named<'a> {
    name: String,
    #[serde(flatten)]
    description: &'a Description,
}

impl Made {
    fn named(&self) -> impl Iterator<Item = Named<'_>> {
        self.mutants.iter().map(|description| Named { name: description.name(), description })
    }
}

/// Makes the mutants that were asked for, and writes them to the folder. A driver need not have a place for every kind, but for one.
fn mutants(
    args: &InjectArgs,
    kinds: &[Kind],
    subject: &Subject,
    folder: &Folder,
    progress: &Progress,
) -> Result<Vec<Made>, CliError> {
    let mut all = Vec::new();
    for &kind in kinds {
        progress.step(&format!("mutants: {kind}"));
        let mutants = match subject.mutants(kind, args.seed, args.bugs as usize) {
            Ok(mutants) => mutants,
            Err(Error::NoPlace { .. }) if kinds.len() > 1 => {
                all.push(Made { kind, places: 0, mutants: Vec::new() });
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let mut made = Made { kind, places: mutants.places(), mutants: Vec::new() };
        for mutant in mutants.take(args.count as usize) {
            let mutant = mutant?;
            folder.keep_mutant(&mutant)?;
            made.mutants.push(mutant.description);
        }
        all.push(made);
    }
    if all.iter().all(|made| made.mutants.is_empty()) {
        let why = format!("{} has no place for any bug of these kinds", args.driver);
        return Err(CliError::Usage(why));
    }
    Ok(all)
}

/// The driver's file, found without anything that only a run needs.
fn module(packages: &Packages, args: &InjectArgs, progress: &Progress) -> Result<ModuleFile, CliError> {
    progress.step(&format!("kernel {}", args.kernel));
    let kernel = kernels::find(packages, &args.kernel)?;
    Ok(zoo::plan(packages, &kernel, &args.driver)?.driver)
}
