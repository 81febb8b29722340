//! The tables that the benchmark prints.

use super::loads::{Bound, Load};
use super::run::{Sample, Samples};
use super::setups::Setup;
use crate::common::{Slowdown, median};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// All results of the benchmark.
pub struct Table {
    kernel: String,
    cpus: u8,
    memory_mib: u32,
    setups: Vec<Setup>,
    /// Benchmarks, in the order in which they ran first.
    rows: Vec<String>,
    loads: Vec<&'static str>,
    samples: BTreeMap<String, Samples>,
}

impl Table {
    /// A table without results.
    pub fn new(kernel: &str, cpus: u8, memory_mib: u32, setups: &[Setup]) -> Table {
        Table {
            kernel: kernel.to_owned(),
            cpus,
            memory_mib,
            setups: setups.to_vec(),
            rows: Vec::new(),
            loads: Vec::new(),
            samples: BTreeMap::new(),
        }
    }

    /// Adds the results of a run.
    pub fn add(&mut self, load: &Load, setup: &Setup, sample: Sample) {
        for (name, _) in &sample.seconds {
            if !self.rows.contains(name) {
                self.rows.push(name.clone());
            }
        }
        if !self.loads.contains(&load.name) {
            self.loads.push(load.name);
        }
        self.samples.entry(setup.name.clone()).or_default().add(load, sample);
    }

    fn seconds(&self, row: &str, setup: &Setup) -> Option<&Vec<f64>> {
        self.samples.get(&setup.name)?.seconds.get(row)
    }

    fn base(&self, row: &str) -> f64 {
        self.seconds(row, &self.setups[0]).map_or(0.0, |seconds| median(seconds.clone()))
    }

    fn slowdown(&self, row: &str, setup: &Setup) -> Option<Slowdown> {
        Slowdown::of(self.seconds(row, setup)?, self.base(row), false)
    }

    /// The geometric mean of the slowdowns of all benchmarks of a kind.
    fn mean(&self, bound: Bound, setup: &Setup) -> Option<f64> {
        let rows = self.rows.iter().filter(|row| Bound::of(row) == bound);
        let logs: Vec<f64> =
            rows.filter_map(|row| self.slowdown(row, setup)).map(|slowdown| slowdown.median.ln()).collect();
        (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
    }

    /// Bytes that QEMU had at most.
    fn memory(&self, load: &str, setup: &Setup) -> Option<f64> {
        Some(median(self.samples.get(&setup.name)?.memory.get(load)?.clone()))
    }

    /// How much more QEMU had than without a plugin, as a part of the guest's memory.
    fn growth(&self, load: &str, setup: &Setup) -> Option<f64> {
        let more = self.memory(load, setup)? - self.memory(load, &self.setups[0])?;
        Some(more / (u64::from(self.memory_mib) << 20) as f64)
    }

    fn line(&self, text: &mut String, title: &str, base: &str, cell: impl Fn(&Setup) -> Option<String>) {
        let _ = write!(text, "{title:<26} {base:>10}");
        for setup in &self.setups[1..] {
            let _ = write!(text, " {:>18}", cell(setup).unwrap_or_default());
        }
        let _ = writeln!(text);
    }

    /// The table as text for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let cpus = if self.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", self.cpus) };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "Times as slow as plain QEMU: kernel {}, {cpus} on a thread each, {} MiB",
            self.kernel, self.memory_mib
        );
        self.line(&mut text, "", &self.setups[0].name, |setup| Some(setup.name.clone()));
        for row in &self.rows {
            let title = format!("{row} ({})", Bound::of(row).word());
            let base = format!("{:.3} s", self.base(row));
            self.line(&mut text, &title, &base, |setup| Some(self.slowdown(row, setup)?.to_string()));
        }
        for bound in [Bound::Kernel, Bound::Mixed, Bound::User] {
            if self.setups.iter().any(|setup| *setup != self.setups[0] && self.mean(bound, setup).is_some()) {
                let title = format!("geometric mean, {}", bound.word());
                self.line(&mut text, &title, "", |setup| Some(format!("{:.2}", self.mean(bound, setup)?)));
            }
        }
        let _ = writeln!(
            text,
            "\nMost memory of QEMU, and what is more than plain as a part of the guest's memory"
        );
        for load in &self.loads {
            let base = self.memory(load, &self.setups[0]).unwrap_or(0.0);
            let base = format!("{:.0} MiB", base / f64::from(1 << 20));
            self.line(&mut text, load, &base, |setup| Some(format!("{:+.2}", self.growth(load, setup)?)));
        }
        text
    }

    /// The table as JSON for programs.
    pub fn json(&self) -> Value {
        let cell = |row: &str, setup: &Setup| {
            let slowdown = self.slowdown(row, setup).filter(|_| *setup != self.setups[0]);
            json!({
                "name": setup.name,
                "seconds": self.seconds(row, setup),
                "slowdown": slowdown.map(|slowdown| slowdown.median),
                "lowest": slowdown.map(|slowdown| slowdown.lowest),
                "highest": slowdown.map(|slowdown| slowdown.highest),
            })
        };
        let row = |row: &String| {
            let setups: Vec<Value> = self.setups.iter().map(|setup| cell(row, setup)).collect();
            json!({"benchmark": row, "bound": Bound::of(row).word(), "ways": setups})
        };
        let memory = |load: &&str| {
            let of = |setup: &Setup| json!({"name": setup.name, "bytes": self.memory(load, setup), "growth": self.growth(load, setup)});
            json!({"workload": load, "ways": self.setups.iter().map(of).collect::<Vec<_>>()})
        };
        json!({
            "schema": "guardrail-bench-kernel/1",
            "kernel": self.kernel,
            "cpus": self.cpus,
            "guest_memory": u64::from(self.memory_mib) << 20,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "memory": self.loads.iter().map(memory).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{loads, setups};
    use super::*;

    fn table() -> Table {
        let setups = setups::chosen(&[], &["count".to_owned()]).unwrap();
        let loads = loads::chosen(&[]).unwrap();
        let mut table = Table::new("6.1", 1, 512, &setups);
        for (setup, seconds, memory) in [(0, [1.0, 2.0, 3.0], 600), (1, [4.0, 4.0, 2.0], 728)] {
            for seconds in seconds {
                let seconds = vec![("fork-exit".to_owned(), seconds), ("user".to_owned(), 5.0)];
                table.add(&loads[0], &setups[setup], Sample { seconds, memory: memory << 20 });
            }
        }
        table
    }

    #[test]
    fn a_row_has_the_ratio_to_plain_in_the_same_run() {
        let text = table().text();
        let line = |start: &str| {
            let line = text.lines().find(|line| line.starts_with(start)).unwrap_or_default();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("fork-exit"), "fork-exit (kernel) 2.000 s 2.00 (1.00-2.00)");
        assert_eq!(line("user"), "user (user) 5.000 s 1.00 (1.00-1.00)");
        assert_eq!(line("geometric mean, kernel"), "geometric mean, kernel 2.00");
        assert_eq!(line("micro"), "micro 600 MiB +0.25");
    }

    #[test]
    fn programs_get_every_figure() {
        let json = table().json();
        assert_eq!(json["rows"][0]["ways"][1]["slowdown"], 2.0);
        assert_eq!(json["rows"][0]["ways"][0]["slowdown"], Value::Null);
        assert_eq!(json["rows"][1]["bound"], "user");
        assert_eq!(json["memory"][0]["ways"][1]["growth"], 0.25);
    }
}
