//! Tables that are shown in another form than their rows: sums, flame graphs, coverage.

use crate::charts::{self, Frame, Stack};
use crate::coverage;
use crate::names::Names;
use guardrail_finding::Location;
use guardrail_trace::client::{Cell, Chart, Report, Results, Table};
use serde_json::Value;
use std::collections::HashMap;

/// A table in the form that is shown, with its files.
pub struct Rendered {
    /// The table's head, without rows.
    pub table: Table,
    /// The rows to show.
    pub cells: Vec<Vec<Value>>,
    /// Further sentences for the report.
    pub notes: Vec<String>,
    /// Names and contents of the table's files.
    pub files: Vec<(String, Vec<u8>)>,
}

/// Renders a table of a client. `cells`: its rows, with names instead of addresses.
pub fn of(
    names: &Names,
    report: &Report,
    result: &Results,
    table: &Table,
    cells: impl FnOnce() -> Vec<Vec<Value>>,
) -> Rendered {
    let bare = || Table { rows: Vec::new(), ..table.clone() };
    let mut rendered = Rendered { table: bare(), cells: Vec::new(), notes: Vec::new(), files: Vec::new() };
    let file = |suffix: &str, content: Vec<u8>| (format!("{}.{suffix}", result.client), content);
    match table.chart {
        Chart::Table => rendered.cells = cells(),
        Chart::Sums => rendered.cells = sums(cells()),
        Chart::Flames => {
            let stacks = stacks(names, table);
            let title = format!("{}: {}", result.client, table.name);
            let firefox = serde_json::to_vec(&charts::firefox("Guardrail", &stacks)).unwrap_or_default();
            rendered.files = vec![
                file("folded", charts::folded(&stacks).into_bytes()),
                file("svg", charts::flames(&title, &stacks).into_bytes()),
                file("firefox.json", firefox),
            ];
            // The file has the time of each sample.
            rendered.cells = by_samples(cells());
            rendered.table.columns.truncate(SHOWN);
        }
        Chart::Coverage => {
            let functions = coverage::functions(names, table);
            rendered.notes = coverage::notes(&functions);
            (rendered.table, rendered.cells) = coverage::table(&functions);
            rendered.files = vec![
                file("lcov", coverage::lcov(&functions).into_bytes()),
                file("drcov", coverage::drcov(report, names, table)),
            ];
        }
    }
    rendered
}

/// The columns of a table of stacks that are shown: stack, samples, CPU.
const SHOWN: usize = 3;

fn by_samples(mut cells: Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    cells.iter_mut().for_each(|row| row.truncate(SHOWN));
    cells.sort_by_key(|row| std::cmp::Reverse(row.get(1).and_then(Value::as_u64)));
    cells
}

/// Sums up rows that begin with the same cell, the largest sum first.
fn sums(cells: Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    let mut rows: Vec<Vec<Value>> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for row in cells {
        let Some(first) = row.first() else { continue };
        match known.get(&first.to_string()) {
            None => {
                known.insert(first.to_string(), rows.len());
                rows.push(row);
            }
            Some(&at) => rows[at].iter_mut().zip(&row).skip(1).for_each(|(sum, more)| add(sum, more)),
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.iter().find_map(Value::as_u64)));
    rows
}

fn add(sum: &mut Value, more: &Value) {
    if let (Some(one), Some(other)) = (sum.as_u64(), more.as_u64()) {
        *sum = one.saturating_add(other).into();
    } else if let (Some(one), Some(other)) = (sum.as_f64(), more.as_f64()) {
        *sum = (one + other).into();
    }
}

fn stacks(names: &Names, table: &Table) -> Vec<Stack> {
    let mut known: HashMap<u64, Frame> = HashMap::new();
    let stack = |row: &Vec<Cell>| {
        let mut stack = Stack { frames: Vec::new(), samples: 0, cpu: 0, times: Vec::new() };
        let mut counts =
            row.iter().filter_map(|cell| if let Cell::Count(count) = cell { Some(*count) } else { None });
        stack.samples = counts.next().unwrap_or(1);
        stack.cpu = counts.next().unwrap_or(0);
        for cell in row {
            match cell {
                Cell::Stack(addresses) => {
                    let frame =
                        |addr: &u64| known.entry(*addr).or_insert_with(|| frame(names, *addr)).clone();
                    stack.frames = addresses.iter().rev().map(frame).collect();
                }
                Cell::Text(times) => {
                    stack.times =
                        times.split_ascii_whitespace().filter_map(|time| time.parse().ok()).collect();
                }
                _ => {}
            }
        }
        stack
    };
    table.rows.iter().map(stack).collect()
}

fn frame(names: &Names, addr: u64) -> Frame {
    let frame = names.frame(addr, 0);
    let line = |location: Location| Some((location.file, location.line));
    let begin = names.frame(addr.wrapping_sub(frame.offset), 0);
    Frame {
        function: frame.function,
        module: frame.module,
        line: frame.location.and_then(line),
        begin: begin.location.and_then(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_of_one_name_are_one_row() {
        let row = |name: &str, count: u64, share: f64| vec![json!(name), json!(count), json!(share)];
        let rows = vec![row("a", 5, 0.5), row("b", 9, 1.0), row("a", 6, 0.25)];
        assert_eq!(sums(rows), [row("a", 11, 0.75), row("b", 9, 1.0)]);
    }

    #[test]
    fn stacks_are_shown_without_their_times() {
        let row = |count: u64| vec![json!(["f"]), json!(count), json!(0), json!("1 2 3")];
        assert_eq!(by_samples(vec![row(1), row(7)])[0], [json!(["f"]), json!(7), json!(0)]);
    }
}
