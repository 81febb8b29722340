//! `bench/run verdicts`: how often DRCheck's triage is right, by races that were judged by hand.
//!
//! The runs are traces of `guardrail check --record`, or reports with `--format json`.

mod corpus;

use crate::common::Failure;
use crate::process;
use corpus::{Label, Race, Row};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The options.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Traces (.trace) and reports (.json), or folders of them
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Print every race
    #[arg(long)]
    races: bool,
}

/// The races of a run.
struct Run {
    driver: String,
    kernel: String,
    races: Vec<Race>,
}

/// How the verdicts compare with the labels.
#[derive(Debug, Default)]
struct Score {
    /// Races by label and verdict.
    races: BTreeMap<(Option<Label>, Verdict), usize>,
    /// For each harmful row, driver and kernel: whether one of its races was judged harmful.
    bugs: BTreeMap<(usize, String), bool>,
    /// Rows that name a race.
    used: BTreeSet<usize>,
    unlabeled: Vec<String>,
}

/// What triage said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Harmful,
    Undecided,
    Benign,
}

impl Verdict {
    fn of(triage: &str) -> Verdict {
        match triage {
            text if text.starts_with("harmful") => Verdict::Harmful,
            text if text.starts_with("likely benign") => Verdict::Benign,
            _ => Verdict::Undecided,
        }
    }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    compare(arguments).map_err(Failure::Usage)
}

fn compare(arguments: &Arguments) -> Result<(), String> {
    let rows = corpus::rows()?;
    let mut score = Score::default();
    let mut runs = Vec::new();
    for file in files(&arguments.runs)? {
        let run = read(&file)?;
        score.add(&rows, &run, arguments.races);
        runs.push(run);
    }
    score.print(&rows, &runs);
    Ok(())
}

/// The files of runs, in order.
fn files(given: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let is_run = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "trace" || ext == "json");
    let mut files = Vec::new();
    for path in given {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries =
            fs::read_dir(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_run).collect();
        // A trace says more than a report beside it.
        let traces: BTreeSet<PathBuf> =
            found.iter().filter(|path| path.extension().is_some_and(|ext| ext == "trace")).cloned().collect();
        found.retain(|path| traces.contains(path) || !traces.contains(&path.with_extension("trace")));
        found.sort();
        if found.is_empty() {
            return Err(format!("{} has no runs: no .trace and no .json", path.display()));
        }
        files.extend(found);
    }
    Ok(files)
}

fn read(file: &Path) -> Result<Run, String> {
    let text = if file.extension().is_some_and(|ext| ext == "trace") {
        analyze(file)?
    } else {
        fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?
    };
    let report: Value = serde_json::from_str(&text)
        .map_err(|error| format!("{} is no report in JSON: {error}", file.display()))?;
    run_of(&report).ok_or_else(|| format!("{} is no report of a run", file.display()))
}

fn analyze(trace: &Path) -> Result<String, String> {
    let output = process::guardrail()?
        .arg("analyze")
        .arg(trace)
        .args(["--tool", "drcheck", "--format", "json"])
        .output()
        .map_err(|error| format!("cannot start guardrail: {error}"))?;
    // Status 1 says that there are findings.
    if !matches!(output.status.code(), Some(0 | 1)) {
        return Err(format!("{}: {}", trace.display(), String::from_utf8_lossy(&output.stderr).trim()));
    }
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}

fn run_of(report: &Value) -> Option<Run> {
    let driver = report["driver"].as_str()?.replace('-', "_");
    let release = report["kernel"].as_str()?;
    let names = guardrail_vm::kernels::NAMES.iter();
    let kernel = names.filter(|name| release.strip_prefix(**name).is_some_and(|rest| rest.starts_with('.')));
    let kernel = kernel.copied().next().unwrap_or(release).to_owned();
    let races = report["findings"].as_array()?.iter().filter_map(race).collect();
    Some(Run { driver, kernel, races })
}

fn race(finding: &Value) -> Option<Race> {
    if finding["kind"] != "data-race" {
        return None;
    }
    let field = finding["message"].as_str()?.strip_prefix("data race on ")?.split(": ").next()?;
    let function = |stack: &Value| {
        let frame = stack.as_array()?.iter().find(|frame| frame["module"].is_string())?;
        // Parts that the compiler split off count as the function.
        Some(frame["function"].as_str()?.split('.').next()?.to_owned())
    };
    Some(Race {
        functions: [function(&finding["stack"])?, function(&finding["other"]["stack"])?],
        field: field.to_owned(),
        triage: finding["triage"].as_str()?.to_owned(),
    })
}

impl Score {
    fn add(&mut self, rows: &[Row], run: &Run, print: bool) {
        let name = format!("{}@{}", run.driver, run.kernel);
        for race in &run.races {
            let verdict = Verdict::of(&race.triage);
            let row = rows.iter().position(|row| row.is_about(&run.driver, &run.kernel) && row.names(race));
            let label = row.map(|row| rows[row].label);
            *self.races.entry((label, verdict)).or_default() += 1;
            let [a, b] = &race.functions;
            let text = format!("{name}: {a} against {b}, {}: {}", race.field, race.triage);
            if print {
                println!("{label:?} {text}");
            }
            match row {
                None => self.unlabeled.push(text),
                Some(row) => {
                    self.used.insert(row);
                    if label == Some(Label::Harmful) {
                        *self.bugs.entry((row, name.clone())).or_default() |= verdict == Verdict::Harmful;
                    }
                }
            }
        }
    }

    fn of(&self, label: Option<Label>, verdict: Verdict) -> usize {
        self.races.get(&(label, verdict)).copied().unwrap_or_default()
    }

    fn print(&self, rows: &[Row], runs: &[Run]) {
        println!("| label | harmful | undecided | likely benign |\n|---|---|---|---|");
        for (label, name) in LABELS {
            let cell = |verdict| self.of(label, verdict);
            let cells = [Verdict::Harmful, Verdict::Undecided, Verdict::Benign].map(cell);
            println!("| {name} | {} | {} | {} |", cells[0], cells[1], cells[2]);
        }
        let right = self.of(Some(Label::Harmful), Verdict::Harmful);
        let wrong: usize =
            [Label::Benign, Label::False].iter().map(|l| self.of(Some(*l), Verdict::Harmful)).sum();
        println!("\nPrecision of harmful: {}", share(right, right + wrong));
        let all: usize =
            self.races.iter().filter(|((l, _), _)| *l == Some(Label::Harmful)).map(|(_, n)| n).sum();
        println!("Recall, by races: {}", share(right, all));
        let found = self.bugs.values().filter(|found| **found).count();
        println!("Recall, by rows and runs: {}", share(found, self.bugs.len()));
        for ((row, run), _) in self.bugs.iter().filter(|(_, found)| !**found) {
            println!("Missed in {run}: {}", rows[*row].name(row + 1));
        }
        for text in &self.unlabeled {
            println!("No row names this race: {text}");
        }
        for (number, row) in (1..).zip(rows).filter(|(number, _)| !self.used.contains(&(number - 1))) {
            if let Some(run) = runs.iter().find(|run| row.is_about(&run.driver, &run.kernel)) {
                println!(
                    "{} names no race of the run of {} on {}; where no other run has it, remove the row",
                    row.name(number),
                    run.driver,
                    run.kernel
                );
            }
        }
    }
}

/// The rows of the table.
const LABELS: [(Option<Label>, &str); 4] = [
    (Some(Label::Harmful), "harmful"),
    (Some(Label::Benign), "benign"),
    (Some(Label::False), "false"),
    (None, "none"),
];

fn share(part: usize, whole: usize) -> String {
    match whole {
        0 => "0 of 0".to_owned(),
        _ => format!("{part} of {whole} ({} %)", part * 100 / whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(functions: [&str; 2], triage: &str) -> Value {
        let stack = |function: &str| serde_json::json!([{"function": "memset", "module": null}, {"function": function, "module": "tulip"}]);
        serde_json::json!({"driver": "tulip", "kernel": "6.1.0-56-amd64", "findings": [
            {"kind": "leak"},
            {"kind": "data-race", "triage": triage, "message": "data race on 0xf00: read of 8 bytes in x and y",
             "stack": stack(functions[0]), "other": {"stack": stack(functions[1])}},
        ]})
    }

    #[test]
    fn verdicts_are_compared_with_labels() {
        let rows = corpus::rows().unwrap();
        let mut score = Score::default();
        for (functions, triage) in [
            (["tulip_set_wolopts", "tulip_init_one.cold"], "harmful: x"),
            (["tulip_init_one", "tulip_set_wolopts"], "undecided: x"),
            (["no_such", "function"], "likely benign: x"),
        ] {
            score.add(&rows, &run_of(&report(functions, triage)).unwrap(), false);
        }
        assert_eq!(score.of(Some(Label::Harmful), Verdict::Harmful), 1);
        assert_eq!(score.of(Some(Label::Harmful), Verdict::Undecided), 1);
        assert_eq!(score.of(None, Verdict::Benign), 1);
        assert!(score.bugs.values().all(|found| *found) && score.bugs.len() == 1);
        assert_eq!(score.unlabeled, ["tulip@6.1: no_such against function, 0xf00: likely benign: x"]);
        assert_eq!(share(1, 3), "1 of 3 (33 %)");
    }

    #[test]
    fn what_is_no_run_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let empty = files(&[folder.path().to_owned()]).unwrap_err();
        assert!(empty.ends_with("has no runs: no .trace and no .json"), "{empty}");
        let file = folder.path().join("x.json");
        fs::write(&file, "{}").unwrap();
        assert!(read(&file).err().unwrap().ends_with("is no report of a run"));
    }
}
