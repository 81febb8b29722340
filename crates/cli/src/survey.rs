//! `guardrail survey`: many drivers with many kernels, each a run of its own, one table at the end.
//!
//! A survey is a folder: `survey.json` (settings), `cells/` (one file for each run that ended, written whole or not at
//! all), `runs/` (what each run left), and the table as `table.txt`, `table.json` and `table.html`. A survey that was
//! interrupted goes on where it stopped: cells that are there are not run again.

mod child;
mod folder;
mod matrix;

use crate::args::{SurveyArgs, TableFormat};
use crate::engine;
use crate::errors::{CliError, Status, tell};
use crate::output;
use crate::progress::Progress;
use crate::signals::Signals;
use child::{Child, Ended};
use folder::Folder;
use guardrail_report::survey::{CELL_SCHEMA, Cell, Place, Settings, State, Summary, diff};
use guardrail_vm::Cache;
use guardrail_vm::packages::Packages;
use matrix::Planned;
use std::collections::VecDeque;
use std::time::Duration;

/// How often children are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Runs a survey and prints its table.
pub fn run(args: &SurveyArgs) -> Result<Status, CliError> {
    let settings = Settings {
        tools: engine::tools(&args.tool)?,
        workload: args.workload.clone(),
        smp: args.smp,
        variables: args.variables.clone(),
    };
    args.workload.as_deref().map_or(Ok(()), matrix::refuse_workload)?;
    // What it is compared with is read first: a wrong name must not show after an hour.
    let earlier = args.against.as_deref().map(Folder::summary_of).transpose()?;
    let drivers = matrix::drivers(&args.driver, args.every_device)?;
    let kernels = matrix::kernels(&args.kernel);
    let folder = Folder::open(&args.out, &settings)?;
    let signals = Signals::install()?;
    let progress = Progress::shown();
    let cache = Cache::open()?;
    let planned = matrix::plan(&Packages::new(&cache), &drivers, &kernels, &progress)?;
    signals.run_begins();

    let mut survey =
        Survey { args, folder: &folder, signals: &signals, progress: &progress, done: Vec::new() };
    let interrupted = survey.run(&planned)?;
    progress.finish();

    let places: Vec<Place> = planned.into_iter().map(|planned| planned.place).collect();
    let mut summary = Summary::new(settings, &places, &survey.done);
    if let Some(earlier) = &earlier {
        let name = args.against.as_ref().map_or(String::new(), |path| path.display().to_string());
        summary.diff = Some(diff(earlier, &summary, &name));
    }
    folder.write_tables(&summary)?;
    if interrupted {
        let left = summary.missing.len();
        tell("guardrail", &format!("{left} runs are left; the same command goes on with them"));
        return Err(CliError::Interrupted);
    }
    let mut out = Vec::new();
    match args.format {
        TableFormat::Text => summary.write_text(&mut out),
        TableFormat::Json => summary.write_json(&mut out),
        TableFormat::Html => summary.write_html(&mut out),
    }
    .map_err(CliError::io("write", "the table"))?;
    output::text(&String::from_utf8_lossy(&out))?;
    judge(&summary)
}

/// The exit status: runs that failed come first, then findings; against an earlier survey only new ones count.
fn judge(summary: &Summary) -> Result<Status, CliError> {
    let failed = summary.count(State::Failed);
    if failed > 0 {
        let all = summary.cells.len();
        return Err(CliError::Run(format!("{failed} of {all} runs failed; the table says why")));
    }
    let found = match &summary.diff {
        Some(diff) => !diff.new.is_empty(),
        None => !summary.findings.is_empty(),
    };
    Ok(if found { Status::Findings } else { Status::Clean })
}

/// A survey under way.
struct Survey<'a> {
    args: &'a SurveyArgs,
    folder: &'a Folder,
    signals: &'a Signals,
    progress: &'a Progress,
    done: Vec<Cell>,
}

impl Survey<'_> {
    /// Runs what is not there yet; true where it was interrupted.
    fn run(&mut self, planned: &[Planned]) -> Result<bool, CliError> {
        let mut waiting = VecDeque::new();
        for one in planned {
            match (self.folder.cell(&one.place), &one.not_available) {
                (Some(cell), _) if cell.state != State::Failed || !self.args.retry => self.done.push(cell),
                (_, Some(why)) => self.keep(not_available(one, why))?,
                _ => waiting.push_back(one),
            }
        }
        let (all, there) = (planned.len(), self.done.len());
        self.progress.step(&format!("{all} runs, {there} of them done or not available"));
        let mut running: Vec<(&Planned, Child)> = Vec::new();
        loop {
            if self.signals.interrupted() {
                running.iter().for_each(|(_, child)| child.interrupt());
                running.into_iter().for_each(|(_, child)| child.end());
                return Ok(true);
            }
            while running.len() < usize::from(self.args.jobs)
                && let Some(one) = waiting.pop_front()
            {
                self.progress.step(&format!("[{}/{all}] {} …", all - waiting.len(), one.place));
                match Child::start(self.args, one, &self.folder.run(&one.place)) {
                    Ok(child) => running.push((one, child)),
                    Err(error) => {
                        self.keep(cell(one, Ended::failed(crate::errors::sentence(&error))))?;
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
                    // Somebody else's signal ended it: that is no result.
                    Some(ended) if ended.interrupted => waiting.push_back(one),
                    Some(ended) => self.keep(cell(one, ended))?,
                }
            }
            running = still;
            std::thread::sleep(LOOK);
        }
    }

    fn keep(&mut self, cell: Cell) -> Result<(), CliError> {
        self.folder.keep(&cell)?;
        if cell.state != State::NotAvailable {
            let found = match cell.findings().len() {
                0 => String::new(),
                n => format!(", {n} found"),
            };
            let why = cell.why.as_deref().map(|why| format!(": {}", why.lines().next().unwrap_or_default()));
            let word = cell.state.word();
            self.progress.step(&format!("{}: {word}{found}{}", cell.place, why.unwrap_or_default()));
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
        let place = Place { driver: "a".into(), device: None, kernel: "6.1".into() };
        let report = guardrail_report::Report {
            findings: vec![Default::default()],
            ..guardrail_report::Report::default()
        };
        let of = |state| {
            let cell = Cell { place: place.clone(), state, report: Some(report.clone()), ..Cell::default() };
            Summary::new(Settings::default(), std::slice::from_ref(&place), &[cell])
        };
        assert_eq!(judge(&of(State::Failed)).unwrap_err().status(), Status::RunFailed);
        let mut summary = of(State::Findings);
        assert_eq!(judge(&summary).unwrap(), Status::Findings);
        summary.diff = Some(Diff::default());
        assert_eq!(judge(&summary).unwrap(), Status::Clean);
    }
}
