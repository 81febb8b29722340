//! `bench/run drcheck`: what each part of DRCheck takes away, on the traces of a survey that kept them (`guardrail survey --record`).
//!
//! The table, in Markdown, counts the races of the lockset alone, with deferred work, and with states and atomics; in brackets those
//! that triage judged harmful.

use crate::common::Failure;
use crate::reports;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The tools of the columns.
const TOOLS: [&str; 3] = ["drcheck:klockset", "drcheck:defer", "drcheck"];

/// The options.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The folder of the survey
    survey: PathBuf,
    /// The folder that keeps the reports, so that an interrupted run continues
    #[arg(long, value_name = "DIR", default_value = "target/drcheck")]
    out: PathBuf,
}

/// Races of one report, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Races {
    all: usize,
    harmful: usize,
}

impl std::fmt::Display for Races {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.all, self.harmful)
    }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    measure(arguments).map_err(Failure::Usage)
}

fn measure(arguments: &Arguments) -> Result<(), String> {
    let runs = arguments.survey.join("runs");
    let entries = fs::read_dir(&runs).map_err(|error| {
        format!("{} is no survey that ran with --record: {error}", arguments.survey.display())
    })?;
    let mut cells: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    cells.retain(|cell| cell.join("run.trace").is_file());
    cells.sort();
    fs::create_dir_all(&arguments.out)
        .map_err(|error| format!("cannot make {}: {error}", arguments.out.display()))?;
    let mut total = [Races::default(); TOOLS.len()];
    println!("| driver | kernel | lockset | with deferral | all |\n|---|---|---|---|---|");
    for cell in cells {
        let name = cell.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut words = name.split('@');
        let (driver, kernel) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut row = format!("| {driver} | {kernel} |");
        for (tool, total) in TOOLS.iter().zip(&mut total) {
            let races = races(&report(&cell.join("run.trace"), &name, tool, &arguments.out)?)?;
            total.all += races.all;
            total.harmful += races.harmful;
            row += &format!(" {races} |");
        }
        println!("{row}");
    }
    println!("| all | | {} | {} | {} |", total[0], total[1], total[2]);
    Ok(())
}

/// The report of one tool on one trace: the kept one, or a new one.
fn report(trace: &Path, name: &str, tool: &str, out: &Path) -> Result<String, String> {
    let file = out.join(format!("{name}.{}.json", tool.rsplit(':').next().unwrap_or(tool)));
    if let Ok(text) = fs::read_to_string(&file)
        && !text.is_empty()
    {
        return Ok(text);
    }
    let text = reports::analyze(trace, tool)?;
    fs::write(&file, &text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    Ok(text)
}

fn races(report: &str) -> Result<Races, String> {
    let report: Value =
        serde_json::from_str(report).map_err(|error| format!("a report is no JSON: {error}"))?;
    let findings = report["findings"].as_array().into_iter().flatten();
    let races = findings.filter(|finding| finding["kind"] == "data-race");
    Ok(races.fold(Races::default(), |races, race| Races {
        all: races.all + 1,
        harmful: races.harmful
            + usize::from(race["triage"].as_str().is_some_and(|triage| triage.starts_with("harmful"))),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn races_are_counted_by_triage() {
        let report = r#"{"findings":[{"kind":"data-race","triage":"harmful"},{"kind":"data-race","triage":"likely benign: x"},{"kind":"leak"}]}"#;
        assert_eq!(races(report).unwrap().to_string(), "2 (1)");
        assert!(races("no").is_err());
    }
}
