//! The text report that fits a screen: the worst findings in full, and a line for each cause of more than notes.

use super::{clean, findings, rest, verdict};
use crate::causes::{Cause, causes};
use crate::columns::table;
use crate::model::Report;
use guardrail_finding::{Finding, Severity};
use std::io::{self, Write};

/// A report with up to this many findings has all of them in full.
const ALL_IN_FULL: usize = 3;
/// Most findings in full beside the table.
const MOST_IN_FULL: usize = 1;
/// Most lines of the table.
const MOST_LINES: usize = 24;

/// Writes a report with few findings whole, the worst first. With more, it writes the worst finding if that is
/// an error, a table of all causes of errors and warnings, and the number of notes.
pub fn screen(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    of_findings(report, out)?;
    rest(report, out)
}

/// Writes the findings as [`screen`] does, how a run ended that did not complete, and the number of findings.
pub fn brief(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    of_findings(report, out)?;
    verdict(report, out)
}

/// Writes the findings, as far as they fit a screen.
fn of_findings(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut few = report.shown();
    if few.len() <= ALL_IN_FULL {
        few.sort_by_key(|finding| finding.severity);
        return findings(&few, out);
    }
    let mut causes = causes(report);
    let notes: usize = causes.iter().filter(|cause| is_note(cause)).map(|cause| cause.findings.len()).sum();
    causes.retain(|cause| !is_note(cause));
    let errors = causes.iter().filter(|cause| cause.severity == Severity::Error);
    let worst: Vec<&Finding> = errors.take(MOST_IN_FULL).filter_map(|cause| first(report, cause)).collect();
    findings(&worst, out)?;
    let number = causes.len();
    match number {
        0 => {}
        1 => writeln!(out, "1 likely cause:")?,
        _ => writeln!(out, "{number} likely causes, the worst first:")?,
    }
    let rows: Vec<Vec<String>> = causes.iter().take(MOST_LINES).map(|cause| row(report, cause)).collect();
    for line in table(&rows).lines() {
        writeln!(out, " {line}")?;
    }
    if let Some(more @ 1..) = number.checked_sub(MOST_LINES) {
        writeln!(out, " and {more} more")?;
    }
    match notes {
        0 => {}
        1 => writeln!(out, "1 note is not listed")?,
        _ => writeln!(out, "{notes} notes are not listed")?,
    }
    match number {
        0 => writeln!(out, "'guardrail report --full' prints all of them")?,
        _ => writeln!(
            out,
            "'guardrail report FINGERPRINT' prints a finding, 'guardrail report --full' all of them"
        )?,
    }
    Ok(())
}

fn is_note(cause: &Cause) -> bool {
    cause.severity == Severity::Note
}

fn first<'a>(report: &'a Report, cause: &Cause) -> Option<&'a Finding> {
    report.findings.iter().find(|finding| cause.findings.first() == Some(&finding.id))
}

/// Severity, kinds, what is common, the source line, and the fingerprint of the worst.
fn row(report: &Report, cause: &Cause) -> Vec<String> {
    let line = first(report, cause).and_then(|finding| finding.location.as_ref()).map_or_else(
        String::new,
        |location| {
            let file = location.file.rsplit('/').next().unwrap_or_default();
            format!("{file}:{}", location.line)
        },
    );
    let more = match cause.findings.len() {
        0 | 1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    let id = cause.findings.first().map_or("", String::as_str);
    let cells = [cause.severity.word().to_owned(), cause.kinds.join(", "), cause.what.clone(), line];
    cells.into_iter().chain([format!("{id}{more}")]).map(|cell| clean(&cell)).collect()
}
