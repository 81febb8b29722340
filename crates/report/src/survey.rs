//! A survey: many runs, one table.
//!
//! A survey is a folder of cells, each the run of one driver with one kernel. This module knows their shape, sums them
//! up, compares two surveys, and prints the result as text, JSON or a page.

mod diff;
mod html;
mod text;

pub use diff::{Diff, diff};

use crate::model::Report;
use guardrail_finding::Finding;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Name and version of the shape of a cell.
pub const CELL_SCHEMA: &str = "guardrail-survey-cell/1";
/// Name and version of the shape of a summary.
pub const SCHEMA: &str = "guardrail-survey/1";

/// What every cell of a survey has in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The checkers.
    pub tools: Vec<String>,
    /// The workload, where it is not that of the driver's class.
    pub workload: Option<String>,
    /// Number of guest CPUs.
    pub smp: u8,
    /// Variables of the workload, as `NAME=VALUE`.
    #[serde(default)]
    pub variables: Vec<String>,
}

/// Which run a cell is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The driver.
    pub driver: String,
    /// The device, where it is not the driver's usual one.
    #[serde(default)]
    pub device: Option<String>,
    /// The kernel's name as it was asked for.
    pub kernel: String,
}

/// How the run of a cell went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It completed, and nothing was found.
    Clean,
    /// It completed, or ended in a panic, and something was found.
    Findings,
    /// It could not be run to its end; what was found before is kept.
    #[default]
    Failed,
    /// The driver and this kernel do not go together.
    NotAvailable,
}

impl State {
    /// The word that every format uses.
    pub fn word(self) -> &'static str {
        match self {
            State::Clean => "clean",
            State::Findings => "findings",
            State::Failed => "failed",
            State::NotAvailable => "not available",
        }
    }
}

/// A step that a driver did not support.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Its name.
    pub name: String,
    /// What the guest said.
    pub why: String,
}

/// The run of one driver with one kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// [`CELL_SCHEMA`].
    pub schema: String,
    /// Which run it is.
    #[serde(flatten)]
    pub place: Place,
    /// The driver's class.
    #[serde(default)]
    pub class: String,
    /// How it went.
    pub state: State,
    /// Why, where it did not complete.
    #[serde(default)]
    pub why: Option<String>,
    /// Time of the whole run.
    #[serde(default)]
    pub wall_seconds: f64,
    /// Steps that the driver did not support.
    #[serde(default)]
    pub skipped: Vec<Skipped>,
    /// The report, where there is one.
    #[serde(default)]
    pub report: Option<Report>,
}

impl Cell {
    /// What was found.
    pub fn findings(&self) -> &[Finding] {
        self.report.as_ref().map_or(&[], |report| &report.findings)
    }

    /// True where the run went far enough for its findings to be all that there is.
    pub fn completed(&self) -> bool {
        matches!(self.state, State::Clean | State::Findings)
    }
}

impl Place {
    /// The name of the cell's row.
    pub fn row(&self) -> String {
        match &self.device {
            Some(device) => format!("{} ({device})", self.driver),
            None => self.driver.clone(),
        }
    }

    /// A name for files: no character in it means anything to a file system.
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

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.row(), self.kernel)
    }
}

/// A fault, wherever it was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distinct {
    /// The first of them, in the order of the table.
    pub finding: Finding,
    /// All cells in which it was found.
    pub cells: Vec<Place>,
}

/// A survey summed up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: String,
    /// What the cells have in common.
    pub settings: Settings,
    /// The kernels, in the order of the columns.
    pub kernels: Vec<String>,
    /// The cells, row by row.
    pub cells: Vec<Cell>,
    /// Cells that were asked for and have not been run.
    pub missing: Vec<Place>,
    /// The distinct findings, in the order of the table.
    pub findings: Vec<Distinct>,
    /// What changed against an earlier survey.
    pub diff: Option<Diff>,
}

impl Summary {
    /// Sums up: `places` is what was asked for, in the order of the table.
    pub fn new(settings: Settings, places: &[Place], cells: &[Cell]) -> Summary {
        let mut by_place: BTreeMap<&Place, &Cell> = cells.iter().map(|cell| (&cell.place, cell)).collect();
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

    /// How many cells are in a state.
    pub fn count(&self, state: State) -> usize {
        self.cells.iter().filter(|cell| cell.state == state).count()
    }

    /// The names of the rows, in order.
    fn rows(&self) -> Vec<String> {
        let mut rows = Vec::new();
        for place in self.cells.iter().map(|cell| &cell.place).chain(&self.missing) {
            if !rows.contains(&place.row()) {
                rows.push(place.row());
            }
        }
        rows
    }

    fn cell(&self, row: &str, kernel: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.place.kernel == kernel && cell.place.row() == row)
    }

    /// The line that sums everything up.
    pub fn headline(&self) -> String {
        let mut text = format!(
            "{} runs: {} clean, {} with findings, {} failed, {} not available",
            self.cells.len(),
            self.count(State::Clean),
            self.count(State::Findings),
            self.count(State::Failed),
            self.count(State::NotAvailable),
        );
        if !self.missing.is_empty() {
            text += &format!(", {} not run yet", self.missing.len());
        }
        text + &match self.findings.len() {
            0 => "; no findings".to_owned(),
            1 => "; 1 distinct finding".to_owned(),
            n => format!("; {n} distinct findings"),
        }
    }

    /// Writes it for people.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        text::write(self, out)
    }

    /// Writes it as one page that needs no other file.
    pub fn write_html(&self, out: &mut dyn Write) -> io::Result<()> {
        html::write(self, out)
    }

    /// Writes it as one JSON object.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        out.write_all(b"\n")
    }
}

/// Merges findings with one fingerprint.
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

/// What a table shows of a cell.
fn shown(cell: Option<&Cell>) -> String {
    match cell {
        None => "-".to_owned(),
        Some(cell) => match (cell.state, cell.findings().len()) {
            (State::NotAvailable, _) => "n/a".to_owned(),
            (State::Failed, 0) => "failed".to_owned(),
            (State::Failed, n) => format!("failed, {n}"),
            (_, n) => n.to_string(),
        },
    }
}

/// Where a finding lies.
fn location(finding: &Finding) -> String {
    let module = if finding.module.is_empty() { String::new() } else { format!(" [{}]", finding.module) };
    format!("{}+{:#x}{module}", finding.function, finding.offset)
}

#[cfg(test)]
mod tests;
