//! Plants faults in drivers of the zoo and shows two results. Faults that are let through harm a disk or the
//! network; faults that are contained do not.
//!
//! Every run is a `guardrail check` of its own, judged by its exit status, its report, and what it left outside of the guest.

mod faults;
mod machinery;
mod outcome;
mod processes;
mod trial;
mod zoo_driver;

use crate::{ContainmentPlan, jobs};
use faults::Fault;
use guardrail_host::error::print_line;
use guardrail_host::folders::RunFolder;
use guardrail_host::{HostError, Signals, zoo};
use machinery::Upset;
use outcome::Mode;
pub use outcome::Summary;
use std::path::Path;
use trial::Trial;
use zoo_driver::ZooDriver;

/// Runs the experiment.
pub fn run(wanted: &ContainmentPlan) -> Result<Summary, HostError> {
    let zoo = zoo::folder()?;
    let subjects = ZooDriver::wanted(wanted.subject);
    let plan = plan(wanted, &zoo, &subjects)?;
    let signals = Signals::install()?;
    let folder = RunFolder::new(wanted.out.as_deref())?;
    signals.run_begins();

    let one = |number: usize| {
        let stop = || signals.interrupted();
        let outcome = plan[number].run_planted(wanted, &zoo, folder.path(), number, &stop)?;
        print_line("guardrail", &format!("{}/{}  {outcome}", number + 1, plan.len()));
        Ok(outcome)
    };
    let results = jobs::run(plan.len(), wanted.jobs, one).map_err(|(_, error)| error)?;
    Ok(Summary::new(wanted, results))
}

/// All runs: of each driver first one without a fault in each mode, then the faults, alternating over all
/// kinds.
fn plan(wanted: &ContainmentPlan, zoo: &Path, subjects: &[ZooDriver]) -> Result<Vec<Trial>, HostError> {
    let modes: Vec<Mode> = match wanted.let_through {
        true => vec![Mode::Permissive],
        false => vec![Mode::Permissive, Mode::Stringent],
    };
    let mut trials = Vec::new();
    let mut all: Vec<(ZooDriver, Fault)> = Vec::new();
    for &subject in subjects {
        trials.extend(modes.iter().map(|&mode| Trial {
            subject,
            fault: None,
            seed: wanted.seed,
            mode,
            upset: None,
        }));
        all.extend(faults::of(zoo, subject.driver())?.into_iter().map(|fault| (subject, fault)));
    }
    let first: Vec<String> = all.iter().map(|(_, fault)| fault.fault.clone()).collect();
    if !wanted.fault.is_empty() {
        for wanted in &wanted.fault {
            if !all.iter().any(|(_, fault)| fault.fault == *wanted) {
                let mut names: Vec<&str> = all.iter().map(|(_, fault)| fault.fault.as_str()).collect();
                names.sort_unstable();
                names.dedup();
                return Err(HostError::Usage(format!(
                    "there is no fault named '{wanted}'; there are {}",
                    names.join(", ")
                )));
            }
        }
        all.retain(|(_, fault)| wanted.fault.contains(&fault.fault));
    }
    // The kinds of one driver follow those of the other. A few faults only are others with another seed.
    all.sort_by_key(|(_, fault)| first.iter().position(|name| *name == fault.fault));
    let turn = all.len().max(1);
    all.rotate_left(wanted.seed as usize % turn);
    for (number, (subject, fault)) in all.iter().cycle().take(wanted.faults as usize).enumerate() {
        let seed = wanted.seed.wrapping_add(number as u32);
        let trial = |mode| Trial { subject: *subject, fault: Some(fault.clone()), seed, mode, upset: None };
        trials.extend(modes.iter().copied().map(trial));
    }
    trials.extend((0..wanted.machinery as usize).filter_map(|number| {
        let (kind, round) = (number % Upset::ALL.len(), number / Upset::ALL.len());
        // In every other round only the failure ends the run. In the rounds between a fault is planted as
        // well, because what a failure lets through does harm. Each of these rounds shifts the faults by one,
        // so that every failure meets every fault.
        let (subject, fault) = all.get((kind + round / 2) % turn)?.clone();
        let fault = Some(fault).filter(|_| round % 2 == 1);
        let seed = wanted.seed.wrapping_add(number as u32);
        Some(Trial { subject, fault, seed, mode: Mode::Stringent, upset: Some(Upset::ALL[kind]) })
    }));
    Ok(trials)
}
