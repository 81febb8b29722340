//! The tables that the benchmark prints.

use super::run::{Sample, Table as Rights};
use super::workloads::{KMDF, Workload};
use crate::common::{Slowdown, median};
use serde_json::{Value, json};
use std::fmt::Write;

/// All results of the benchmark.
pub struct Table {
    kernel: String,
    cpus: u8,
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

    /// Guarded against the median of stock.
    fn more(&self) -> Option<Slowdown> {
        Slowdown::of(&Row::figures(&self.guarded), median(Row::figures(&self.stock)), false)
    }

    fn rights(&self) -> Option<Rights> {
        self.guarded.iter().rev().find_map(|sample| sample.table)
    }
}

/// A ratio as percent more.
fn percent(ratio: f64) -> f64 {
    100.0 * (ratio - 1.0)
}

impl Table {
    /// A table without results.
    pub fn new(kernel: &str, cpus: u8) -> Table {
        Table { kernel: kernel.to_owned(), cpus, rows: Vec::new() }
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
            "Instructions of the kernel, counted, the idle task left out: kernel {}, {cpus}. BGI: CPU time of the kernel (Tables 5 and 6)",
            self.kernel
        );
        let _ = writeln!(
            text,
            "{:<28} {:>12} {:>12} {:>24}  {:<16} BGI",
            "", "stock", "guarded", "more, % (spread)", "for a"
        );
        for row in &self.rows {
            let Some(more) = row.more() else { continue };
            let title = format!("{} ({})", row.workload.name, row.driver);
            let spread = format!(
                "{:.1} ({:.1} to {:.1})",
                percent(more.median),
                percent(more.lowest),
                percent(more.highest)
            );
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
            let _ = writeln!(
                text,
                "{:<28} {:>12} {:>12} {:>24}  {:<16} 6.4 and 16.1",
                "average, and worst",
                "",
                "",
                format!("{average:.1} and {worst:.1}"),
                ""
            );
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

    /// Average and worst of all workloads, in percent more.
    fn overall(&self) -> Option<(f64, f64)> {
        let all: Vec<f64> = self.rows.iter().filter_map(Row::more).map(|more| percent(more.median)).collect();
        let worst = all.iter().copied().fold(f64::MIN, f64::max);
        (!all.is_empty()).then(|| (all.iter().sum::<f64>() / all.len() as f64, worst))
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
                "percent_more": more.map(|more| percent(more.median)),
                "lowest": more.map(|more| percent(more.lowest)),
                "highest": more.map(|more| percent(more.highest)),
                "bgi": row.workload.paper.iter().map(|(driver, more)| json!({"driver": driver, "percent_more": more})).collect::<Vec<_>>(),
                "table_bytes": row.rights().map(|rights| rights.bytes),
                "writable_bytes": row.rights().map(|rights| rights.writable),
            })
        };
        let (average, worst) = self.overall().unzip();
        json!({
            "schema": "guardrail-bench-guarded/1",
            "kernel": self.kernel,
            "cpus": self.cpus,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "average": average,
            "worst": worst,
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
        let mut table = Table::new("6.1", 1);
        let rights = Some(Rights { bytes: 8192.0, writable: 4096.0 });
        for (stock, guarded) in [(100.0, 104.0), (100.0, 106.0), (100.0, 105.0)] {
            let stock = Sample { instructions: stock, table: None };
            table.add(&workload, "e1000", stock, Sample { instructions: guarded, table: rights });
        }
        let text = table.text();
        assert!(text.contains("5.0 (4.0 to 6.0)"), "{text}");
        assert!(text.contains("intelpro 13.6, xframe 11.9"), "{text}");
        assert!(text.contains("8 KiB, page tables included, for 4 KiB"), "{text}");
        let json = table.json();
        assert_eq!(
            (json["rows"][0]["stock"].as_array().map(Vec::len), &json["rows"][0]["table_bytes"]),
            (Some(3), &8192.0.into())
        );
        assert!((json["average"].as_f64().unwrap() - 5.0).abs() < 1e-9);
    }
}
