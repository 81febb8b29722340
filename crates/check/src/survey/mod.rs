//! A survey: many drivers with many kernels, each combination in a run of its own, with one table at the end.
//!
//! A survey is a folder with these parts:
//!
//! - `survey.json`: the settings,
//! - `cells/`: one file for each run that ended, written whole or not at all,
//! - `runs/`: the files of each run,
//! - `table.txt`, `table.json` and `table.html`: the table.
//!
//! An interrupted survey continues where it stopped: the runs of its cells are not repeated.
//!
//! Knows: which runs make up a survey, how a run ended.
//!
//! Must not know: how one run works. Each is a `guardrail check` of its own, so that no run can end the
//! survey.

mod child;
mod folder;
mod matrix;

use crate::plan::Mode;
use crate::run::tracer;
use child::{Child, Ended};
use folder::Folder;
use guardrail_host::drivers::variables;
use guardrail_host::error::{print_line, sentence};
use guardrail_host::folders::{library, program};
use guardrail_host::{Host, HostError, Status};
use guardrail_report::survey::{CELL_SCHEMA, Cell, Position, Settings, State, Summary, diff};
use guardrail_vm::packages::Packages;
use guardrail_vm::settings;
use matrix::Planned;
pub use matrix::refuse_workload;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

/// The time between two looks at the children.
const LOOK: Duration = Duration::from_millis(100);

/// The plan of a survey: which runs, and how.
#[derive(Clone, Debug)]
pub struct SurveyPlan {
    /// The drivers by name; empty for all of the catalog.
    pub drivers: Vec<String>,
    /// The kernels by name; empty for all that have a short name.
    pub kernels: Vec<String>,
    /// True for a run with each device that a driver binds, not only with the default.
    pub every_device: bool,
    /// True where modules that the catalog does not list run on synthetic devices.
    pub synthetic: bool,
    /// The number of guests that run at a time.
    pub jobs: u8,
    /// The checkers by name, as [`tools`](crate::tools) gives them.
    pub tools: Vec<String>,
    /// What happens at a finding. With another mode than permissive, device accesses are held.
    pub mode: Mode,
    /// A workload for all drivers; `None` for that of each driver's class.
    pub workload: Option<String>,
    /// Number of each guest's CPUs, 1 to 4.
    pub cpus: u8,
    /// Variables of the workload, each `NAME=VALUE`.
    pub variables: Vec<String>,
    /// The longest duration of each guest. Whole seconds.
    pub time_limit: Duration,
    /// The folder of the survey.
    pub out: PathBuf,
    /// True to keep the trace of each run in its folder.
    pub record: bool,
    /// True to repeat runs that failed before.
    pub retry: bool,
    /// The folder of an earlier survey to compare with; `None` for no comparison.
    pub against: Option<PathBuf>,
}

/// Runs a survey, and writes its tables to its folder.
pub fn survey(plan: &SurveyPlan, host: &Host) -> Result<Summary, HostError> {
    let settings = Settings {
        tools: plan.tools.clone(),
        workload: plan.workload.clone(),
        smp: plan.cpus,
        mode: (plan.mode != Mode::Permissive).then(|| plan.mode.word().to_owned()),
        variables: plan.variables.clone(),
    };
    plan.workload.as_deref().map_or(Ok(()), matrix::refuse_workload)?;
    let given = variables(&plan.variables)?;
    // What no run can do without is missed once, not by each run.
    program()?;
    library(tracer::LIBRARY)?;
    settings::refuse_unknown(plan.workload.as_deref(), given.iter().map(|(name, _)| name.as_str()))?;
    // The earlier survey is read first, so that a wrong name is reported at once.
    let earlier = plan.against.as_deref().map(Folder::summary_of).transpose()?;
    let drivers = matrix::drivers(&plan.drivers, plan.every_device, plan.synthetic)?;
    let kernels = matrix::kernels(&plan.kernels);
    let folder = Folder::open(&plan.out, &settings)?;
    let planned = matrix::plan(&Packages::new(&host.cache), &drivers, &kernels, &host.progress)?;
    host.signals.run_begins();

    let mut survey = Survey { plan, folder: &folder, host, done: Vec::new() };
    let interrupted = survey.run(&planned)?;
    host.progress.finish();

    let places: Vec<Position> = planned.into_iter().map(|planned| planned.place).collect();
    let mut summary = Summary::new(settings, &places, &survey.done);
    if let Some(earlier) = &earlier {
        let name = plan.against.as_ref().map_or(String::new(), |path| path.display().to_string());
        summary.diff = Some(diff(earlier, &summary, &name));
    }
    folder.write_tables(&summary)?;
    if interrupted {
        let left = summary.missing.len();
        print_line("guardrail", &format!("{left} runs are left; the same command goes on with them"));
        return Err(HostError::Interrupted);
    }
    Ok(summary)
}

/// The places of a survey that can run: drivers by name with kernels by name, all where a list is empty. What cannot run is
/// left out, and said on standard error.
pub fn places(
    drivers: &[String],
    kernels: &[String],
    every_device: bool,
    host: &Host,
) -> Result<Vec<Position>, HostError> {
    let (drivers, kernels) = (matrix::drivers(drivers, every_device, false)?, matrix::kernels(kernels));
    let planned = matrix::plan(&Packages::new(&host.cache), &drivers, &kernels, &host.progress)?;
    let mut places = Vec::new();
    for Planned { place, not_available, .. } in planned {
        match not_available {
            Some(why) => host.progress.note(&format!("{place}: not available: {why}")),
            None => places.push(place),
        }
    }
    Ok(places)
}

/// The exit status: failed runs have precedence over findings. With an earlier survey, only new ones count.
pub fn judge(summary: &Summary) -> Result<Status, HostError> {
    let failed = summary.count(State::Failed);
    if failed > 0 {
        let all = summary.cells.len();
        return Err(HostError::Run(format!("{failed} of {all} runs failed; the table says why")));
    }
    let found = match &summary.diff {
        Some(diff) => !diff.new.is_empty(),
        None => !summary.findings.is_empty(),
    };
    Ok(match summary.count(State::NotExercised) {
        _ if found => Status::Findings,
        0 => Status::Clean,
        _ => Status::NotExercised,
    })
}

/// A survey that runs.
struct Survey<'a> {
    plan: &'a SurveyPlan,
    folder: &'a Folder,
    host: &'a Host,
    done: Vec<Cell>,
}

impl Survey<'_> {
    /// Runs the missing cells; true where it was interrupted.
    fn run(&mut self, planned: &[Planned]) -> Result<bool, HostError> {
        let mut waiting = VecDeque::new();
        for one in planned {
            match (self.folder.cell(&one.place, &one.digest), &one.not_available) {
                (Some(cell), _) if cell.state != State::Failed || !self.plan.retry => self.done.push(cell),
                (_, Some(why)) => self.keep(not_available(one, why))?,
                _ => waiting.push_back(one),
            }
        }
        let (all, there) = (planned.len(), self.done.len());
        self.host.progress.step(&format!("{all} runs, {there} of them done or not available"));
        let mut running: Vec<(&Planned, Child)> = Vec::new();
        loop {
            if self.host.signals.interrupted() {
                running.iter().for_each(|(_, child)| child.interrupt());
                running.into_iter().for_each(|(_, child)| child.end());
                return Ok(true);
            }
            while running.len() < usize::from(self.plan.jobs)
                && let Some(one) = waiting.pop_front()
            {
                self.host.progress.step(&format!("[{}/{all}] {} …", all - waiting.len(), one.place));
                match Child::start(self.plan, one, &self.folder.run(&one.place)) {
                    Ok(child) => running.push((one, child)),
                    Err(error) => {
                        self.keep(cell(one, Ended::failed(sentence(&error))))?;
                    }
                }
            }
            if running.is_empty() {
                return Ok(false);
            }
            let mut still = Vec::new();
            for (one, mut child) in running {
                match child.look() {
                    None => still.push((one, child)),
                    // A signal from outside ended the run, so it has no result.
                    Some(ended) if ended.interrupted => waiting.push_back(one),
                    Some(ended) => self.keep(cell(one, ended))?,
                }
            }
            running = still;
            std::thread::sleep(LOOK);
        }
    }

    fn keep(&mut self, cell: Cell) -> Result<(), HostError> {
        self.folder.keep(&cell)?;
        if cell.state != State::NotAvailable {
            let found = match cell.findings().count() {
                0 => String::new(),
                n => format!(", {n} found"),
            };
            let why = cell.why.as_deref().map(|why| format!(": {}", why.lines().next().unwrap_or_default()));
            let word = cell.state.word();
            self.host.progress.step(&format!("{}: {word}{found}{}", cell.place, why.unwrap_or_default()));
        }
        self.done.push(cell);
        Ok(())
    }
}

fn not_available(planned: &Planned, why: &str) -> Cell {
    Cell {
        schema: CELL_SCHEMA.to_owned(),
        place: planned.place.clone(),
        class: planned.class.clone(),
        digest: planned.digest.clone(),
        state: State::NotAvailable,
        why: Some(why.to_owned()),
        ..Cell::default()
    }
}

fn cell(planned: &Planned, ended: Ended) -> Cell {
    Cell {
        schema: CELL_SCHEMA.to_owned(),
        place: planned.place.clone(),
        class: planned.class.clone(),
        digest: planned.digest.clone(),
        state: ended.state,
        why: ended.why,
        wall_seconds: ended.wall.as_secs_f64().round(),
        skipped: ended.skipped,
        report: ended.report,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_report::survey::Diff;

    #[test]
    fn a_failed_run_outweighs_findings_and_known_findings_are_forgiven() {
        let place = Position { driver: "a".into(), device: None, kernel: "6.1".into() };
        let report = guardrail_report::Report {
            findings: vec![Default::default()],
            ..guardrail_report::Report::default()
        };
        let of = |state| {
            let cell = Cell { place: place.clone(), state, report: Some(report.clone()), ..Cell::default() };
            Summary::new(Settings::default(), std::slice::from_ref(&place), &[cell])
        };
        assert_eq!(judge(&of(State::Failed)).unwrap_err().status(), Status::RunFailed);
        let hardly = Cell { place: place.clone(), state: State::NotExercised, ..Cell::default() };
        let hardly = Summary::new(Settings::default(), std::slice::from_ref(&place), &[hardly]);
        assert_eq!(judge(&hardly).unwrap(), Status::NotExercised);
        let mut summary = of(State::Findings);
        assert_eq!(judge(&summary).unwrap(), Status::Findings);
        summary.diff = Some(Diff::default());
        assert_eq!(judge(&summary).unwrap(), Status::Clean);
    }
}
