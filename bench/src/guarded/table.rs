//! The tables that the benchmark prints.

use super::run::{Sample, Table as Rights};
use super::workloads::{KMDF, Workload};
use crate::common::{Interval, median};
use serde_json::{Value, json};
use std::fmt::Write;

/// All results of the benchmark.
pub struct Table {
    kernel: String,
    cpus: u8,
    what: &'static str,
    rows: Vec<Row>,
}

struct Row {
    workload: Workload,
    driver: String,
    stock: Vec<Sample>,
    guarded: Vec<Sample>,
}

impl Row {
    fn figures(samples: &[Sample]) -> Vec<f64> {
        samples.iter().map(|sample| sample.instructions).collect()
    }

    /// Guarded against the stock run before it.
    fn more(&self) -> Option<Interval> {
        Interval::of(&Row::figures(&self.guarded), &Row::figures(&self.stock))
    }

    fn rights(&self) -> Option<Rights> {
        self.guarded.iter().rev().find_map(|sample| sample.table)
    }
}

/// A ratio as percent more.
fn percent(ratio: f64) -> f64 {
    100.0 * (ratio - 1.0)
}

/// An interval as percent more, in words.
fn in_percent(more: Interval) -> String {
    format!("{:.1} ({:.1} to {:.1})", percent(more.mean), percent(more.low), percent(more.high))
}

impl Table {
    /// A table without results. `what` says whose instructions are counted.
    pub fn new(kernel: &str, cpus: u8, what: &'static str) -> Table {
        Table { kernel: kernel.to_owned(), cpus, what, rows: Vec::new() }
    }

    /// Adds a run of each setup.
    pub fn add(&mut self, workload: &Workload, driver: &str, stock: Sample, guarded: Sample) {
        let at = self.rows.iter().position(|row| row.workload.name == workload.name).unwrap_or_else(|| {
            let (stock, guarded) = (Vec::new(), Vec::new());
            self.rows.push(Row { workload: *workload, driver: driver.to_owned(), stock, guarded });
            self.rows.len() - 1
        });
        self.rows[at].stock.push(stock);
        self.rows[at].guarded.push(guarded);
    }

    /// The table as text for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let cpus = if self.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", self.cpus) };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "Instructions of {}, counted, the idle task left out: kernel {}, {cpus}. BGI: CPU time of the kernel (Tables 5 and 6)",
            self.what, self.kernel
        );
        let _ = writeln!(
            text,
            "{:<28} {:>12} {:>12} {:>24}  {:<16} BGI",
            "", "stock", "guarded", "more, % (95%)", "for a"
        );
        for row in &self.rows {
            let title = format!("{} ({})", row.workload.name, row.driver);
            let spread = row.more().map_or("one run".to_owned(), in_percent);
            let paper: Vec<String> =
                row.workload.paper.iter().map(|(driver, more)| format!("{driver} {more:.1}")).collect();
            let _ = writeln!(
                text,
                "{title:<28} {:>12.1} {:>12.1} {spread:>24}  {:<16} {}",
                median(Row::figures(&row.stock)),
                median(Row::figures(&row.guarded)),
                row.workload.unit.word(),
                if paper.is_empty() { "-".to_owned() } else { paper.join(", ") }
            );
        }
        if let Some((average, worst)) = self.overall() {
            for (title, more, paper) in [("average", average, "6.4"), ("worst", worst, "16.1")] {
                let more = in_percent(more);
                let _ = writeln!(text, "{title:<28} {:>12} {:>12} {more:>24}  {:<16} {paper}", "", "", "");
            }
        }
        let kmdf: Vec<String> = KMDF.iter().map(|(size, less)| format!("{size}: {less}")).collect();
        let _ = writeln!(
            text,
            "BGI's kmdf (Table 7), which has no like here: transactions per second, %, by buffer: {}",
            kmdf.join(", ")
        );
        let _ = writeln!(text, "\nMemory of the rights table");
        for row in &self.rows {
            let Some(Rights { bytes, writable }) = row.rights() else { continue };
            let title = format!("{} ({})", row.workload.name, row.driver);
            let _ = writeln!(
                text,
                "{title:<28} {:>8.0} KiB, page tables included, for {:.0} KiB that the driver may write",
                bytes / 1024.0,
                writable / 1024.0
            );
        }
        text
    }

    /// Average and worst of all workloads.
    fn overall(&self) -> Option<(Interval, Interval)> {
        let all: Vec<Interval> = self.rows.iter().filter_map(Row::more).collect();
        let worst = all.iter().copied().max_by(|a, b| a.mean.total_cmp(&b.mean))?;
        Some((Interval::average(&all)?, worst))
    }

    /// The table as JSON for programs.
    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let more = row.more();
            json!({
                "workload": row.workload.name,
                "driver": row.driver,
                "unit": row.workload.unit.word(),
                "stock": Row::figures(&row.stock),
                "guarded": Row::figures(&row.guarded),
                "percent_more": more.map(|more| percent(more.mean)),
                "low": more.map(|more| percent(more.low)),
                "high": more.map(|more| percent(more.high)),
                "bgi": row.workload.paper.iter().map(|(driver, more)| json!({"driver": driver, "percent_more": more})).collect::<Vec<_>>(),
                "table_bytes": row.rights().map(|rights| rights.bytes),
                "writable_bytes": row.rights().map(|rights| rights.writable),
            })
        };
        let (average, worst) = self.overall().unzip();
        let interval = |more: Interval| [more.mean, more.low, more.high].map(percent);
        json!({
            "schema": "guardrail-bench-guarded/2",
            "kernel": self.kernel,
            "instructions_of": self.what,
            "cpus": self.cpus,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "average": average.map(interval),
            "worst": worst.map(interval),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::workloads;
    use super::*;

    #[test]
    fn costs_stand_beside_those_of_the_paper() {
        let workload = workloads::chosen(&["tcp-send".to_owned()]).unwrap()[0];
        let mut table = Table::new("6.1", 1, "the kernel");
        let rights = Some(Rights { bytes: 8192.0, writable: 4096.0 });
        for (stock, guarded) in [(100.0, 104.0), (100.0, 106.0), (100.0, 105.0)] {
            let stock = Sample { instructions: stock, table: None };
            table.add(&workload, "e1000", stock, Sample { instructions: guarded, table: rights });
        }
        let text = table.text();
        assert!(text.contains("5.0 (2.5 to 7.5)"), "{text}");
        assert!(text.contains("intelpro 13.6, xframe 11.9"), "{text}");
        assert!(text.contains("8 KiB, page tables included, for 4 KiB"), "{text}");
        let json = table.json();
        assert_eq!(
            (json["rows"][0]["stock"].as_array().map(Vec::len), &json["rows"][0]["table_bytes"]),
            (Some(3), &8192.0.into())
        );
        assert!((json["average"][0].as_f64().unwrap() - 5.0).abs() < 0.01, "{json:#}");
    }
}
