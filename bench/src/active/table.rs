//! The tables that the benchmark prints.

use crate::common::{Resampled, median};
use serde_json::{Value, json};
use std::fmt::Write;

/// Figures beside their bases, pair by pair.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// The bases; as many as figures, or none.
    pub bases: Vec<f64>,
    /// The figures.
    pub figures: Vec<f64>,
}

/// A table.
pub struct Table {
    /// What it is of.
    pub head: String,
    /// The name of the bases.
    pub base: &'static str,
    /// The name of the figures.
    pub figure: &'static str,
    /// The unit of both.
    pub unit: &'static str,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Row {
    /// The row of a name, which is added if it is missing.
    pub fn named<'a>(rows: &'a mut Vec<Row>, name: &str) -> &'a mut Row {
        let at = rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            rows.push(Row { name: name.to_owned(), ..Row::default() });
            rows.len() - 1
        });
        &mut rows[at]
    }

    /// Figures over bases.
    fn ratio(&self) -> Option<Resampled> {
        Resampled::of(&self.figures, &self.bases)
    }
}

impl Table {
    /// The table as text for people.
    pub fn text(&self) -> String {
        // Writing to a string does not fail.
        let mut text = String::new();
        let _ = writeln!(text, "{}; ratio: median of pairs, and 95% interval by resampling", self.head);
        let (base, figure) =
            (format!("{}, {}", self.base, self.unit), format!("{}, {}", self.figure, self.unit));
        let _ = writeln!(
            text,
            "{:<36} {base:>16} {figure:>16} {:>26}",
            "",
            format!("{}/{}", self.figure, self.base)
        );
        for row in &self.rows {
            let ratio = match row.ratio() {
                Some(ratio) => format!("{:.3} ({:.3} to {:.3})", ratio.median, ratio.low, ratio.high),
                None => "-".to_owned(),
            };
            let (base, figure) = (median(row.bases.clone()), median(row.figures.clone()));
            let _ = writeln!(text, "{:<36} {base:>16.2} {figure:>16.2} {ratio:>26}", row.name);
        }
        text.push('\n');
        text
    }

    /// The table as an object.
    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let ratio = row.ratio();
            json!({
                "name": row.name, "bases": row.bases, "figures": row.figures,
                "ratio": ratio.map(|ratio| ratio.median), "low": ratio.map(|ratio| ratio.low),
                "high": ratio.map(|ratio| ratio.high),
            })
        };
        json!({
            "what": self.head, "base": self.base, "figure": self.figure, "unit": self.unit,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_pairs() {
        let rows =
            vec![Row { name: "ping".into(), bases: vec![10.0, 20.0, 40.0], figures: vec![11.0, 22.0, 44.0] }];
        let table = Table { head: "x".into(), base: "stock", figure: "active", unit: "us", rows };
        assert!(table.text().contains("1.100 (1.100 to 1.100)"), "{}", table.text());
        assert_eq!(table.json()["rows"][0]["bases"][2], 40.0);
    }
}
