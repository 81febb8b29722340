//! A survey as text.

use super::{Cell, Distinct, State, Summary, location, shown};
use crate::text::clean;
use std::io::{self, Write};

pub(super) fn write(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let mut rows = vec![{
        let mut head = vec!["driver".to_owned()];
        head.extend(summary.kernels.iter().map(|kernel| clean(kernel)));
        head
    }];
    for row in summary.rows() {
        let cells = summary.kernels.iter().map(|kernel| shown(summary.cell(&row, kernel)));
        let cells: Vec<String> = cells.collect();
        rows.push(std::iter::once(clean(&row)).chain(cells).collect());
    }
    write_rows(&rows, out)?;
    writeln!(out, "\n{}", summary.headline())?;

    let titles = [
        (State::CutOff, "Cut off"),
        (State::Failed, "Failed"),
        (State::NotExercised, "Not exercised"),
        (State::NotAvailable, "Not available"),
    ];
    for (state, title) in titles {
        let cells: Vec<&Cell> = summary.cells.iter().filter(|cell| cell.state == state).collect();
        if !cells.is_empty() {
            writeln!(out, "\n{title}:")?;
        }
        for cell in cells {
            let why = cell.why.as_deref().unwrap_or("no reason given");
            writeln!(out, "  {}: {}", clean(&cell.place.to_string()), clean(first_line(why)))?;
        }
    }
    if !summary.findings.is_empty() {
        writeln!(out, "\nFindings:")?;
    }
    for distinct in &summary.findings {
        write_distinct(distinct, out)?;
    }
    write_diff(summary, out)
}

fn write_distinct(distinct: &Distinct, out: &mut dyn Write) -> io::Result<()> {
    let finding = &distinct.finding;
    writeln!(
        out,
        "  {} {}: {} {} in {}",
        finding.id,
        clean(&finding.checker),
        finding.severity.word(),
        clean(&finding.kind),
        clean(&location(finding)),
    )?;
    writeln!(out, "    {}", clean(&finding.message))?;
    let cells: Vec<String> = distinct.cells.iter().map(|place| clean(&place.to_string())).collect();
    writeln!(out, "    {}", cells.join(", "))
}

fn write_diff(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let Some(diff) = &summary.diff else { return Ok(()) };
    writeln!(
        out,
        "\nAgainst {}: {} new, {} gone, {} the same, {} unknown",
        clean(&diff.against),
        diff.new.len(),
        diff.gone.len(),
        diff.same.len(),
        diff.unknown.len()
    )?;
    let new = summary.findings.iter().filter(|distinct| diff.new.contains(&distinct.finding.id));
    let lists = [
        ("new", new.collect()),
        ("gone", diff.gone.iter().collect()),
        ("unknown", diff.unknown.iter().collect()),
    ];
    for (word, list) in lists {
        let list: Vec<&Distinct> = list;
        for distinct in list {
            let (finding, cells) = (&distinct.finding, &distinct.cells);
            let first = cells.first().map(ToString::to_string).unwrap_or_default();
            let place = clean(&location(finding));
            writeln!(
                out,
                "  {word}: {} {} in {place} ({})",
                finding.id,
                clean(&finding.kind),
                clean(&first)
            )?;
        }
    }
    for change in &diff.changed {
        let place = clean(&change.place.to_string());
        writeln!(out, "  {place}: {}, was {}", change.now.word(), change.before.word())?;
    }
    Ok(())
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Writes rows with aligned columns, two spaces apart.
fn write_rows(rows: &[Vec<String>], out: &mut dyn Write) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
