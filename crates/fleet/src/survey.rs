//! A run whose jobs are those of a survey, as the survey's table.

use crate::job::Job;
use crate::outcome::Outcome;
use crate::spec::{Check, Spec};
use crate::store::Store;
use guardrail_host::{HostError, Status};
use guardrail_report::json;
use guardrail_report::survey::{CELL_SCHEMA, Cell, Position, Settings, State, Summary};
use guardrail_vm::catalog;
use std::collections::BTreeSet;

/// The table of a run, the newest where none is named. Jobs that have no result yet are missing in it.
pub fn summary(store: &Store, run: Option<&str>) -> Result<Summary, HostError> {
    let id = match run {
        Some(run) => run.to_owned(),
        None => store
            .runs()
            .pop()
            .ok_or_else(|| HostError::Usage(format!("{} has no run yet", store.path().display())))?,
    };
    let jobs = store.run(&id)?;
    let no_survey = |why: &str| HostError::Usage(format!("run {id} is no survey: {why}"));
    let mut checks: Vec<(&Job, &Check)> = Vec::new();
    for job in &jobs {
        match &job.spec {
            Spec::Check(check) => checks.push((job, check)),
            Spec::Rehearsal(_) => return Err(no_survey("it has jobs other than checks")),
        }
    }
    let Some((_, first)) = checks.first() else { return Err(no_survey("it has no jobs")) };
    let common = settings(first);
    if checks.iter().any(|(_, check)| settings(check) != common) {
        return Err(no_survey("its checks differ in checkers, workload, variables, mode or CPUs"));
    }
    let places: Vec<Position> = checks.iter().map(|(_, check)| place(check)).collect();
    if places.iter().collect::<BTreeSet<_>>().len() < places.len() {
        return Err(no_survey("it has several jobs for a driver, device and kernel"));
    }
    let cells: Vec<Cell> = checks.iter().filter_map(|(job, check)| cell(store, job, check)).collect();
    Ok(Summary::new(common, &places, &cells))
}

fn settings(check: &Check) -> Settings {
    Settings {
        tools: check.checkers.clone(),
        workload: check.workload.clone(),
        smp: check.smp,
        mode: (check.mode != "permissive").then(|| check.mode.clone()),
        variables: check.variables.iter().map(|(name, value)| format!("{name}={value}")).collect(),
    }
}

fn place(check: &Check) -> Position {
    Position { driver: check.driver.clone(), device: check.device.clone(), kernel: check.kernel.clone() }
}

/// The cell of a job; `None` where it is not over.
fn cell(store: &Store, job: &Job, check: &Check) -> Option<Cell> {
    let key = job.key();
    let entry = catalog::entries().into_iter().find(|entry| entry.name == check.driver);
    let empty = Cell {
        schema: CELL_SCHEMA.to_owned(),
        place: place(check),
        class: entry.map_or(catalog::Class::None, |entry| entry.class).name().to_owned(),
        digest: key.to_string(),
        ..Cell::default()
    };
    if let Some(outcome) = store.result(&key) {
        return Some(of_result(empty, &outcome));
    }
    let aside = store.aside(&key)?;
    Some(Cell { state: State::Failed, why: Some(crate::compute::last_words(&aside.log)), ..empty })
}

fn of_result(cell: Cell, outcome: &Outcome) -> Cell {
    let mut report = json::read(&outcome.body[..]).ok();
    if let Some(report) = &mut report {
        report.findings.retain(|finding| finding.suppressed.is_none());
    }
    let states = [
        (Status::Clean, State::Clean),
        (Status::Findings, State::Findings),
        (Status::Contained, State::CutOff),
        (Status::NotExercised, State::NotExercised),
    ];
    let state = states.into_iter().find(|(status, _)| *status as u8 == outcome.status);
    Cell {
        state: state.map_or(State::Failed, |(_, state)| state),
        wall_seconds: (outcome.milliseconds as f64 / 1000.0).round(),
        report,
        ..cell
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const RUN: &str = "0123456789abcdef";

    fn job(driver: &str, kernel: &str, more: &str) -> Job {
        let text = format!(r#"{{"version":1,"kind":"check","driver":"{driver}","kernel":"{kernel}"{more}}}"#);
        let spec = Spec::read("x", &text).unwrap();
        Job { spec, inputs: BTreeMap::new(), build: "0".to_owned() }
    }

    #[test]
    fn results_become_cells() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let jobs = [job("e1000", "6.1", ""), job("e1000", "6.12", ""), job("tulip", "6.1", "")];
        store.keep_run(RUN, &jobs).unwrap();
        let report =
            guardrail_report::Report { schema: guardrail_report::SCHEMA.to_owned(), ..Default::default() };
        let mut body = Vec::new();
        json::write(&report, &mut body).unwrap();
        let outcome =
            Outcome { key: jobs[0].key(), status: 0, milliseconds: 1600, worker: "w".to_owned(), body };
        store.put(&outcome).unwrap();
        for _ in 0..3 {
            store.fail(&jobs[1].key(), &jobs[1], &crate::Attempt::begin(), "error: the guest hung").unwrap();
        }
        let summary = summary(&store, None).unwrap();
        assert_eq!((summary.count(State::Clean), summary.count(State::Failed)), (1, 1));
        assert_eq!(
            summary.missing,
            [place(match &jobs[2].spec {
                Spec::Check(check) => check,
                Spec::Rehearsal(_) => unreachable!(),
            })]
        );
    }

    #[test]
    fn other_runs_are_no_surveys() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        assert!(summary(&store, None).unwrap_err().to_string().ends_with("has no run yet"));
        for (number, more) in [",\"smp\":1", ",\"seed\":1"].into_iter().enumerate() {
            let id = format!("{number:016x}");
            store.keep_run(&id, &[job("e1000", "6.1", ""), job("e1000", "6.1", more)]).unwrap();
            let error = summary(&store, Some(&id)).unwrap_err().to_string();
            assert!(error.contains("is no survey"), "{error}");
        }
    }
}
