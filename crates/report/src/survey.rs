//! A survey: many runs in one table.
//!
//! A survey is a folder of cells. Each cell is the run of one driver with one kernel. This module knows
//! their format, sums them up, compares two surveys, and prints the result as text, JSON or an HTML
//! page.

mod diff;
mod html;
mod text;

pub use diff::{Diff, diff};

use crate::model::Report;
use guardrail_finding::{Finding, Severity};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Name and version of the format of a cell.
pub const CELL_SCHEMA: &str = "guardrail-survey-cell/1";
/// Name and version of the format of a summary.
pub const SCHEMA: &str = "guardrail-survey/1";

/// Settings that every cell of a survey shares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Names of the checkers.
    pub tools: Vec<String>,
    /// The workload; `None` where each driver's class chooses it.
    pub workload: Option<String>,
    /// Number of vCPUs.
    pub smp: u8,
    /// What happened at a finding; `None` where it was only reported, without a gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Variables of the workload, as `NAME=VALUE`.
    #[serde(default)]
    pub variables: Vec<String>,
}

/// The position of a cell in the table: driver, device and kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// Name of the driver.
    pub driver: String,
    /// The device; `None` for the driver's usual one.
    #[serde(default)]
    pub device: Option<String>,
    /// Name of the kernel, as the user gave it.
    pub kernel: String,
}

/// The outcome of a cell's run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The run completed without findings.
    Clean,
    /// The run completed, or ended in a panic, and has findings.
    Findings,
    /// The device was cut off at a finding.
    CutOff,
    /// The run completed without findings, but the driver bound no device, or ran too little of its code.
    NotExercised,
    /// The run could not complete. Findings before its end are kept.
    #[default]
    Failed,
    /// The driver does not exist for this kernel, or cannot run with it.
    NotAvailable,
}

impl State {
    /// The word for the state in all formats.
    pub fn word(self) -> &'static str {
        match self {
            State::Clean => "clean",
            State::Findings => "findings",
            State::CutOff => "cut off",
            State::NotExercised => "not exercised",
            State::Failed => "failed",
            State::NotAvailable => "not available",
        }
    }
}

/// A step of the workload that a driver did not support.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Name of the step.
    pub name: String,
    /// The reason, as the guest printed it.
    pub why: String,
}

/// The run of one driver with one kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Name and version of the format: [`CELL_SCHEMA`].
    pub schema: String,
    /// Position of the cell in the table.
    #[serde(flatten)]
    pub place: Position,
    /// Class of the driver.
    #[serde(default)]
    pub class: String,
    /// What the run was made with: a digest of the kernel's image and of the modules; empty where it is not known.
    #[serde(default)]
    pub digest: String,
    /// Outcome of the run.
    pub state: State,
    /// Why the run did not complete; `None` where it did.
    #[serde(default)]
    pub why: Option<String>,
    /// Duration of the whole run, in seconds.
    #[serde(default)]
    pub wall_seconds: f64,
    /// Steps that the driver did not support.
    #[serde(default)]
    pub skipped: Vec<Skipped>,
    /// The report; `None` where the run has none.
    #[serde(default)]
    pub report: Option<Report>,
}

impl Cell {
    /// The findings in the report, without notes; empty without a report.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        let all = self.report.iter().flat_map(|report| &report.findings);
        all.filter(|finding| finding.severity != Severity::Note)
    }

    /// Whether the run advanced far enough for its findings to be complete.
    pub fn completed(&self) -> bool {
        matches!(self.state, State::Clean | State::Findings)
    }
}

impl Position {
    /// The name of the cell's row.
    pub fn row(&self) -> String {
        match &self.device {
            Some(device) => format!("{} ({device})", self.driver),
            None => self.driver.clone(),
        }
    }

    /// A name for files, made of characters without a meaning to file systems.
    pub fn file_stem(&self) -> String {
        let plain = |text: &str| -> String {
            text.chars()
                .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '+' })
                .collect()
        };
        let device = self.device.as_ref().map_or(String::new(), |device| format!("@{}", plain(device)));
        format!("{}{device}@{}", plain(&self.driver), plain(&self.kernel))
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.row(), self.kernel)
    }
}

/// A fault, with all cells that have it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distinct {
    /// The first finding of the fault, in the order of the table.
    pub finding: Finding,
    /// All cells that have the fault.
    pub cells: Vec<Position>,
}

/// The summary of a survey.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Name and version of the format: [`SCHEMA`].
    pub schema: String,
    /// Settings that all cells share.
    pub settings: Settings,
    /// Names of the kernels, in the order of the columns.
    pub kernels: Vec<String>,
    /// The cells, row by row.
    pub cells: Vec<Cell>,
    /// Requested cells without a run.
    pub missing: Vec<Position>,
    /// The distinct faults, in the order of the table.
    pub findings: Vec<Distinct>,
    /// Changes since an earlier survey; `None` without one.
    pub diff: Option<Diff>,
}

impl Summary {
    /// Sums up the cells. `places` has the requested cells, in the order of the table.
    pub fn new(settings: Settings, places: &[Position], cells: &[Cell]) -> Summary {
        let mut by_place: BTreeMap<&Position, &Cell> = cells.iter().map(|cell| (&cell.place, cell)).collect();
        let mut summary = Summary { schema: SCHEMA.to_owned(), settings, ..Summary::default() };
        for place in places {
            if !summary.kernels.contains(&place.kernel) {
                summary.kernels.push(place.kernel.clone());
            }
            match by_place.remove(place) {
                Some(cell) => summary.cells.push(cell.clone()),
                None => summary.missing.push(place.clone()),
            }
        }
        summary.findings = distinct(&summary.cells);
        summary
    }

    /// Number of cells in a state.
    pub fn count(&self, state: State) -> usize {
        self.cells.iter().filter(|cell| cell.state == state).count()
    }

    /// Names of the rows, in the order of the table.
    pub fn rows(&self) -> Vec<String> {
        let mut rows = Vec::new();
        for place in self.cells.iter().map(|cell| &cell.place).chain(&self.missing) {
            if !rows.contains(&place.row()) {
                rows.push(place.row());
            }
        }
        rows
    }

    /// The cell of a row and a kernel; `None` where it has not run.
    pub fn cell(&self, row: &str, kernel: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.place.kernel == kernel && cell.place.row() == row)
    }

    /// The one-line summary.
    pub fn headline(&self) -> String {
        let mut text = format!(
            "{} runs: {} clean, {} with findings, {} failed, {} not available",
            self.cells.len(),
            self.count(State::Clean),
            self.count(State::Findings),
            self.count(State::Failed),
            self.count(State::NotAvailable),
        );
        if self.settings.mode.is_some() {
            text += &format!(", {} cut off", self.count(State::CutOff));
        }
        match self.count(State::NotExercised) {
            0 => {}
            n => text += &format!(", {n} not exercised"),
        }
        if !self.missing.is_empty() {
            text += &format!(", {} not run yet", self.missing.len());
        }
        text += &match self.findings.len() {
            0 => "; no findings".to_owned(),
            1 => "; 1 distinct finding".to_owned(),
            n => format!("; {n} distinct findings"),
        };
        match self.suppressed() {
            0 => text,
            n => format!("{text}; {n} suppressed in all runs"),
        }
    }

    /// Number of suppressed findings, each counted in every run that has it.
    pub fn suppressed(&self) -> u64 {
        let reports = self.cells.iter().filter_map(|cell| cell.report.as_ref());
        reports
            .filter_map(|report| report.suppressions.as_ref())
            .fold(0, |all, did| all.saturating_add(did.suppressed))
    }

    /// Writes the summary as text.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        text::write(self, out)
    }

    /// Writes the summary as one HTML page that needs no other file.
    pub fn write_html(&self, out: &mut dyn Write) -> io::Result<()> {
        html::write(self, out)
    }

    /// Writes the summary as one JSON object.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        out.write_all(b"\n")
    }
}

/// Merges findings with the same fingerprint.
fn distinct(cells: &[Cell]) -> Vec<Distinct> {
    let mut all: Vec<Distinct> = Vec::new();
    let mut index: BTreeMap<&str, usize> = BTreeMap::new();
    for cell in cells {
        for finding in cell.findings() {
            match index.get(finding.id.as_str()) {
                Some(&at) if all[at].cells.last() == Some(&cell.place) => {}
                Some(&at) => all[at].cells.push(cell.place.clone()),
                None => {
                    index.insert(&finding.id, all.len());
                    all.push(Distinct { finding: finding.clone(), cells: vec![cell.place.clone()] });
                }
            }
        }
    }
    all
}

/// The text of a cell in the table; `None` is one that has not run.
pub fn shown(cell: Option<&Cell>) -> String {
    match cell {
        None => "-".to_owned(),
        Some(cell) => match (cell.state, cell.findings().count()) {
            (State::NotAvailable, _) => "n/a".to_owned(),
            (State::NotExercised, _) => "not exercised".to_owned(),
            (State::Failed, 0) => "failed".to_owned(),
            (State::Failed, n) => format!("failed, {n}"),
            (State::CutOff, n) => format!("cut off, {n}"),
            (_, n) => n.to_string(),
        },
    }
}

/// The location of a finding: its source line, or function and offset.
fn location(finding: &Finding) -> String {
    let module = if finding.module.is_empty() { String::new() } else { format!(" [{}]", finding.module) };
    format!("{}+{:#x}{module}", finding.function, finding.offset)
}

#[cfg(test)]
mod tests;
