//! `bench/run verdicts`: how often DRCheck's triage is right, by races that were judged by hand.
//!
//! The runs are traces of `guardrail check --record`, or reports with `--format json`.

use crate::common::Failure;
use crate::reports;
use guardrail_corpus::{Label, Race, Row};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The options.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Traces (.trace) and reports (.json), or folders of them
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Print every race
    #[arg(long)]
    races: bool,
    /// Fail where fewer of the races that are called harmful are, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    min_precision: usize,
    /// Fail where fewer of the harmful causes are found in the runs that have them, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    min_recall: usize,
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
    let score = compare(arguments).map_err(Failure::Usage)?;
    for (what, (part, whole), least) in [
        ("precision", score.precision(), arguments.min_precision),
        ("recall", score.recall(), arguments.min_recall),
    ] {
        if part * 100 < least * whole {
            return Err(Failure::Run(format!("the {what} is {}, less than {least} %", share(part, whole))));
        }
    }
    Ok(())
}

fn compare(arguments: &Arguments) -> Result<Score, String> {
    let rows = guardrail_corpus::rows()?;
    let mut score = Score::default();
    let mut runs = Vec::new();
    for file in reports::files(&arguments.runs)? {
        let report = reports::read(&file, "drcheck")?;
        let run = run_of(&report).ok_or_else(|| format!("{} is no report of a run", file.display()))?;
        score.add(&rows, &run, arguments.races);
        runs.push(run);
    }
    score.print(&rows, &runs);
    Ok(score)
}

fn run_of(report: &Value) -> Option<Run> {
    let driver = report["driver"].as_str()?.replace('-', "_");
    let kernel = guardrail_corpus::kernel(report["kernel"].as_str()?).to_owned();
    let races = report["findings"].as_array()?.iter().filter_map(guardrail_corpus::race).collect();
    Some(Run { driver, kernel, races })
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

    /// How many of the races that are called harmful are, of those with a label.
    fn precision(&self) -> (usize, usize) {
        let of = |label| self.of(Some(label), Verdict::Harmful);
        let right = of(Label::Harmful);
        (right, right + of(Label::Benign) + of(Label::False))
    }

    /// How many harmful causes are found, each once in each run that has it.
    fn recall(&self) -> (usize, usize) {
        (self.bugs.values().filter(|found| **found).count(), self.bugs.len())
    }

    fn print(&self, rows: &[Row], runs: &[Run]) {
        println!("| label | harmful | undecided | likely benign |\n|---|---|---|---|");
        for (label, name) in LABELS {
            let cell = |verdict| self.of(label, verdict);
            let cells = [Verdict::Harmful, Verdict::Undecided, Verdict::Benign].map(cell);
            println!("| {name} | {} | {} | {} |", cells[0], cells[1], cells[2]);
        }
        let (right, called) = self.precision();
        println!("\nPrecision of harmful: {}", share(right, called));
        let all: usize =
            self.races.iter().filter(|((l, _), _)| *l == Some(Label::Harmful)).map(|(_, n)| n).sum();
        println!("Recall, by races: {}", share(right, all));
        let (found, causes) = self.recall();
        println!("Recall, by rows and runs: {}", share(found, causes));
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
        let rows = guardrail_corpus::rows().unwrap();
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
        assert_eq!((score.precision(), score.recall()), ((1, 1), (1, 1)));
        assert_eq!(share(1, 3), "1 of 3 (33 %)");
    }
}
