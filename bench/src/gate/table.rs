//! The tables that the benchmark prints.

use super::Arguments;
use super::run::Sample;
use super::setups::Setup;
use super::workloads::Workload;
use crate::common::{Slowdown, median};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What a row of the table is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    title: String,
    driver: String,
    unit: &'static str,
    /// Whether more is better.
    rate: bool,
}

impl Row {
    /// The row of a workload.
    pub fn of(workload: &Workload, driver: &str) -> Row {
        let (title, driver) = (workload.name.to_owned(), driver.to_owned());
        Row { title, driver, unit: workload.unit(), rate: workload.load.is_some() }
    }

    /// The name of the row.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// A row of times in this unit.
    pub fn time(title: &str, driver: &str, unit: &'static str) -> Row {
        Row { title: title.to_owned(), driver: driver.to_owned(), unit, rate: false }
    }
}

/// All results of the benchmark.
pub struct Table {
    kernel: String,
    cpus: u8,
    thread: String,
    gate: String,
    seconds: u32,
    setups: Vec<Setup>,
    rows: Vec<(Row, BTreeMap<&'static str, Vec<Sample>>)>,
}

impl Table {
    /// A table without results.
    pub fn new(arguments: &Arguments, setups: &[Setup]) -> Table {
        Table {
            kernel: arguments.common.kernel.clone(),
            cpus: arguments.common.smp,
            thread: arguments.thread.clone(),
            gate: arguments.gate.clone(),
            seconds: arguments.seconds,
            setups: setups.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds the result of a run.
    pub fn add(&mut self, row: Row, setup: &Setup, sample: Sample) {
        let index = self.rows.iter().position(|(known, _)| *known == row).unwrap_or_else(|| {
            self.rows.push((row, BTreeMap::new()));
            self.rows.len() - 1
        });
        self.rows[index].1.entry(setup.name).or_default().push(sample);
    }

    fn slowdown(&self, row: usize, setup: &Setup) -> Option<Slowdown> {
        let (row, samples) = &self.rows[row];
        let figures = |setup: &Setup| {
            Some(samples.get(setup.name)?.iter().map(|sample| sample.figure).collect::<Vec<_>>())
        };
        Slowdown::of(&figures(setup)?, median(figures(&self.setups[0])?), row.rate)
    }

    fn of(&self, row: usize, setup: &Setup, part: fn(&Sample) -> f64) -> Option<f64> {
        Some(median(self.rows[row].1.get(setup.name)?.iter().map(part).collect()))
    }

    /// Accesses in a second in the fastest of the setups that count them, as in the thesis.
    fn accesses(&self, row: usize) -> Option<f64> {
        let rates = self.setups.iter().filter_map(|setup| self.of(row, setup, |sample| sample.accesses));
        rates.filter(|rate| *rate > 0.0).max_by(f64::total_cmp)
    }

    /// The table as text for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let gate = if self.gate == "off" { "no gate".to_owned() } else { format!("gate {}", self.gate) };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "Times as slow as without Guardrail: kernel {}, {} CPU{}, {gate}, loads of {} s",
            self.kernel,
            self.cpus,
            match (self.cpus, self.thread.as_str()) {
                (1, _) => "",
                (_, "multi") => "s on a thread each",
                _ => "s by turns",
            },
            self.seconds
        );
        let _ = write!(text, "{:<40} {:>16}", "", self.setups[0].title);
        for setup in &self.setups[1..] {
            let _ = write!(text, " {:>18}", setup.title);
        }
        let _ = writeln!(text, " {:>12}", "accesses/s");
        for (index, (row, _)) in self.rows.iter().enumerate() {
            let base = self.of(index, &self.setups[0], |sample| sample.figure).unwrap_or(0.0);
            let title = format!("{} ({})", row.title, row.driver);
            let _ = write!(text, "{title:<40} {:>16}", format!("{base:.1} {}", row.unit));
            for setup in &self.setups[1..] {
                let cell = self.slowdown(index, setup).map_or(String::new(), |slowdown| slowdown.to_string());
                let _ = write!(text, " {cell:>18}");
            }
            let rate = self.accesses(index).map_or(String::new(), |rate| format!("{rate:.0}"));
            let _ = writeln!(text, " {rate:>12}");
        }
        self.processor_text(&mut text);
        if self.setups.iter().any(|setup| setup.gate(&self.gate).is_some()) {
            self.held_text(&mut text);
        }
        text
    }

    /// Prints how long accesses were held.
    fn held_text(&self, text: &mut String) {
        let _ = writeln!(text, "\nMicroseconds for which an access was held: on average, and the longest");
        for (index, (row, _)) in self.rows.iter().enumerate() {
            let _ = write!(text, "{:<40} {:>16}", format!("{} ({})", row.title, row.driver), "");
            for setup in &self.setups[1..] {
                let average = self.of(index, setup, |sample| sample.held.average).unwrap_or(0.0);
                let longest = self.of(index, setup, |sample| sample.held.longest).unwrap_or(0.0);
                let _ = write!(text, " {:>18}", format!("{average:.1} {longest:.0}"));
            }
            let _ = writeln!(text);
        }
    }

    /// Prints how much of the processor Guardrail takes, where time alone does not show it.
    fn processor_text(&self, text: &mut String) {
        let _ = writeln!(text, "\nProcessor time of the whole run (boot included)");
        for (index, (row, samples)) in self.rows.iter().enumerate().filter(|(_, (row, _))| row.unit != "ns") {
            let base = self.of(index, &self.setups[0], |sample| sample.processor).unwrap_or(0.0);
            let title = format!("{} ({})", row.title, row.driver);
            let _ = write!(text, "{title:<40} {:>16}", format!("{base:.1} s"));
            for setup in &self.setups[1..] {
                let ratio =
                    self.of(index, setup, |sample| sample.processor).map_or(0.0, |value| value / base);
                let _ = write!(text, " {ratio:>18.2}");
            }
            let underruns: u64 = samples.values().flatten().map(|sample| sample.underruns).sum();
            let _ = match underruns {
                0 => writeln!(text),
                _ => writeln!(text, "  the card ran out of sound {underruns} times"),
            };
        }
    }

    /// The table as JSON for programs.
    pub fn json(&self) -> Value {
        let setup = |index: usize, setup: &Setup| {
            let samples = self.rows[index].1.get(setup.name).map_or(&[][..], Vec::as_slice);
            let all = |part: fn(&Sample) -> f64| samples.iter().map(part).collect::<Vec<f64>>();
            let slowdown = self.slowdown(index, setup).filter(|_| *setup != self.setups[0]);
            json!({
                "name": setup.name,
                "tools": setup.tools,
                "figures": all(|sample| sample.figure),
                "slowdown": slowdown.map(|slowdown| slowdown.median),
                "lowest": slowdown.map(|slowdown| slowdown.lowest),
                "highest": slowdown.map(|slowdown| slowdown.highest),
                "processor_seconds": all(|sample| sample.processor),
                "accesses_per_second": all(|sample| sample.accesses),
                "held": all(|sample| sample.held.count),
                "held_microseconds": all(|sample| sample.held.average),
                "longest_held_microseconds": all(|sample| sample.held.longest),
                "underruns": samples.iter().map(|sample| sample.underruns).sum::<u64>(),
            })
        };
        let rows: Vec<Value> = (0..self.rows.len())
            .map(|index| {
                let row = &self.rows[index].0;
                let setups: Vec<Value> = self.setups.iter().map(|each| setup(index, each)).collect();
                json!({"workload": row.title, "driver": row.driver, "unit": row.unit, "ways": setups})
            })
            .collect();
        json!({
            "schema": "guardrail-bench-guard/1",
            "kernel": self.kernel,
            "cpus": self.cpus,
            "thread": self.thread,
            "gate": self.gate,
            "seconds": self.seconds,
            "rows": rows,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::setups;
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn table(rate: bool) -> Table {
        let setups = setups::chosen(&["three".to_owned()]).unwrap();
        let mut table = Table::new(&Program::parse_from(["bench/run gate"]).arguments, &setups);
        let row = Row { title: "web".into(), driver: "e1000".into(), unit: "/s", rate };
        for (setup, figures) in setups.iter().zip([[100.0, 90.0, 110.0], [50.0, 40.0, 80.0]]) {
            for figure in figures {
                let sample = Sample { figure, processor: 2.0, accesses: 1000.0, ..Sample::default() };
                table.add(row.clone(), setup, sample);
            }
        }
        table
    }

    #[test]
    fn rates_fall_and_times_rise_where_something_is_slower() {
        assert!(table(true).text().contains("2.00 (1.25-2.50)         1000"), "{}", table(true).text());
        assert!(table(false).text().contains("0.50 (0.40-0.80)"));
    }

    #[test]
    fn programs_get_every_figure() {
        let json = table(true).json();
        assert_eq!(json["rows"][0]["ways"][1]["slowdown"], 2.0);
        assert_eq!(json["rows"][0]["ways"][0]["slowdown"], Value::Null);
        assert_eq!(json["rows"][0]["ways"][0]["figures"].as_array().unwrap().len(), 3);
    }
}
