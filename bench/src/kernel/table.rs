//! The tables that the benchmark prints.

use super::loads::{Bound, Load};
use super::run::{Sample, Samples};
use super::ways::Way;
use crate::common::{Slowdown, median};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// All results of the benchmark.
pub struct Table {
    kernel: String,
    cpus: u8,
    memory_mib: u32,
    ways: Vec<Way>,
    /// Benchmarks, in the order in which they ran first.
    rows: Vec<String>,
    loads: Vec<&'static str>,
    samples: BTreeMap<String, Samples>,
}

impl Table {
    /// A table without results.
    pub fn new(kernel: &str, cpus: u8, memory_mib: u32, ways: &[Way]) -> Table {
        Table {
            kernel: kernel.to_owned(),
            cpus,
            memory_mib,
            ways: ways.to_vec(),
            rows: Vec::new(),
            loads: Vec::new(),
            samples: BTreeMap::new(),
        }
    }

    /// Adds the results of a run.
    pub fn add(&mut self, load: &Load, way: &Way, sample: Sample) {
        for (name, _) in &sample.seconds {
            if !self.rows.contains(name) {
                self.rows.push(name.clone());
            }
        }
        if !self.loads.contains(&load.name) {
            self.loads.push(load.name);
        }
        self.samples.entry(way.name.clone()).or_default().add(load, sample);
    }

    fn seconds(&self, row: &str, way: &Way) -> Option<&Vec<f64>> {
        self.samples.get(&way.name)?.seconds.get(row)
    }

    fn base(&self, row: &str) -> f64 {
        self.seconds(row, &self.ways[0]).map_or(0.0, |seconds| median(seconds.clone()))
    }

    fn slowdown(&self, row: &str, way: &Way) -> Option<Slowdown> {
        Slowdown::of(self.seconds(row, way)?, self.base(row), false)
    }

    /// The geometric mean of the slowdowns of all benchmarks of a kind.
    fn mean(&self, bound: Bound, way: &Way) -> Option<f64> {
        let rows = self.rows.iter().filter(|row| Bound::of(row) == bound);
        let logs: Vec<f64> =
            rows.filter_map(|row| self.slowdown(row, way)).map(|slowdown| slowdown.median.ln()).collect();
        (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
    }

    /// Bytes that QEMU had at most.
    fn memory(&self, load: &str, way: &Way) -> Option<f64> {
        Some(median(self.samples.get(&way.name)?.memory.get(load)?.clone()))
    }

    /// How much more QEMU had than without a plugin, as a part of the guest's memory.
    fn growth(&self, load: &str, way: &Way) -> Option<f64> {
        let more = self.memory(load, way)? - self.memory(load, &self.ways[0])?;
        Some(more / (u64::from(self.memory_mib) << 20) as f64)
    }

    fn line(&self, text: &mut String, title: &str, base: &str, cell: impl Fn(&Way) -> Option<String>) {
        let _ = write!(text, "{title:<26} {base:>10}");
        for way in &self.ways[1..] {
            let _ = write!(text, " {:>18}", cell(way).unwrap_or_default());
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
        self.line(&mut text, "", &self.ways[0].name, |way| Some(way.name.clone()));
        for row in &self.rows {
            let title = format!("{row} ({})", Bound::of(row).word());
            let base = format!("{:.3} s", self.base(row));
            self.line(&mut text, &title, &base, |way| Some(self.slowdown(row, way)?.to_string()));
        }
        for bound in [Bound::Kernel, Bound::Mixed, Bound::User] {
            if self.ways.iter().any(|way| *way != self.ways[0] && self.mean(bound, way).is_some()) {
                let title = format!("geometric mean, {}", bound.word());
                self.line(&mut text, &title, "", |way| Some(format!("{:.2}", self.mean(bound, way)?)));
            }
        }
        let _ = writeln!(
            text,
            "\nMost memory of QEMU, and what is more than plain as a part of the guest's memory"
        );
        for load in &self.loads {
            let base = self.memory(load, &self.ways[0]).unwrap_or(0.0);
            let base = format!("{:.0} MiB", base / f64::from(1 << 20));
            self.line(&mut text, load, &base, |way| Some(format!("{:+.2}", self.growth(load, way)?)));
        }
        text
    }

    /// The table as JSON for programs.
    pub fn json(&self) -> Value {
        let cell = |row: &str, way: &Way| {
            let slowdown = self.slowdown(row, way).filter(|_| *way != self.ways[0]);
            json!({
                "name": way.name,
                "seconds": self.seconds(row, way),
                "slowdown": slowdown.map(|slowdown| slowdown.median),
                "lowest": slowdown.map(|slowdown| slowdown.lowest),
                "highest": slowdown.map(|slowdown| slowdown.highest),
            })
        };
        let row = |row: &String| {
            let ways: Vec<Value> = self.ways.iter().map(|way| cell(row, way)).collect();
            json!({"benchmark": row, "bound": Bound::of(row).word(), "ways": ways})
        };
        let memory = |load: &&str| {
            let of = |way: &Way| json!({"name": way.name, "bytes": self.memory(load, way), "growth": self.growth(load, way)});
            json!({"workload": load, "ways": self.ways.iter().map(of).collect::<Vec<_>>()})
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
    use super::super::{loads, ways};
    use super::*;

    fn table() -> Table {
        let ways = ways::chosen(&[], &["count".to_owned()]).unwrap();
        let loads = loads::chosen(&[]).unwrap();
        let mut table = Table::new("6.1", 1, 512, &ways);
        for (way, seconds, memory) in [(0, [1.0, 2.0, 3.0], 600), (1, [4.0, 4.0, 2.0], 728)] {
            for seconds in seconds {
                let seconds = vec![("fork-exit".to_owned(), seconds), ("user".to_owned(), 5.0)];
                table.add(&loads[0], &ways[way], Sample { seconds, memory: memory << 20 });
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
