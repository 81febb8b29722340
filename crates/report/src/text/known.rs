//! The part of a text report about findings that are known, gone or suppressed.

use super::clean;
use crate::marks::{Comparison, Idle, KnownFinding, Source};
use crate::model::Report;
use guardrail_finding::BaselineState;
use std::io::{self, Write};

/// The numbers of new, known and suppressed findings for the last line; empty where nothing decides that.
pub(super) fn counts(report: &Report) -> String {
    let suppressed = report.findings.iter().filter(|finding| finding.suppressed.is_some()).count();
    let mut parts = Vec::new();
    if report.comparison.is_some() {
        let of = |state| {
            let open = report.findings.iter().filter(|finding| finding.suppressed.is_none());
            open.filter(|finding| finding.baseline == Some(state)).count()
        };
        parts.push(format!("{} new", of(BaselineState::New)));
        parts.push(format!("{} known", of(BaselineState::Unchanged)));
    }
    if report.suppressions.is_some() {
        parts.push(format!("{suppressed} suppressed"));
    }
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// Writes what suppressions and the earlier run say.
pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for finding in &report.findings {
        if let Some(by) = &finding.suppressed {
            let finding = place(&finding.into());
            writeln!(out, "Suppressed: {finding}: {} ({}:{})", clean(&by.reason), clean(&by.file), by.line)?;
        }
    }
    for idle in report.suppressions.iter().flat_map(|did| &did.unused) {
        writeln!(out, "Unused suppression: {}", self::idle(idle))?;
    }
    for idle in report.suppressions.iter().flat_map(|did| &did.expired) {
        let last = clean(idle.expires.as_deref().unwrap_or_default());
        writeln!(out, "Expired suppression: {}; its last day was {last}", self::idle(idle))?;
    }
    let Some(comparison) = &report.comparison else { return Ok(()) };
    if comparison.kernel != report.kernel {
        let (file, kernel) = (clean(&comparison.against), clean(&comparison.kernel));
        writeln!(out, "Note: {file} is of kernel {kernel}, and this run is of {}", clean(&report.kernel))?;
    }
    match comparison.source {
        Source::Report => self::comparison(comparison, out),
        Source::Baseline => {
            match report.findings.iter().filter(|finding| report.hides(finding)).count() {
                0 => {}
                1 => writeln!(out, "1 known finding is not shown")?,
                n => writeln!(out, "{n} known findings are not shown")?,
            }
            lines("Gone", &comparison.gone, out)?;
            lines("Unknown, since this run could not find it", &comparison.unknown, out)
        }
    }
}

/// Writes a comparison: its numbers, and a line for each finding.
pub fn comparison(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let Comparison { against, new, gone, same, unknown, .. } = comparison;
    writeln!(
        out,
        "Against {}: {} new, {} gone, {} the same, {} unknown",
        clean(against),
        new.len(),
        gone.len(),
        same.len(),
        unknown.len()
    )?;
    lines("  new", new, out)?;
    lines("  gone", gone, out)?;
    lines("  same", same, out)?;
    lines("  unknown", unknown, out)
}

fn lines(word: &str, findings: &[KnownFinding], out: &mut dyn Write) -> io::Result<()> {
    findings.iter().try_for_each(|finding| writeln!(out, "{word}: {}", place(finding)))
}

/// Text such as `f01828d22485721b error leak in probe [drv]`.
fn place(finding: &KnownFinding) -> String {
    let KnownFinding { id, kind, function, severity, module, .. } = finding;
    let module = if module.is_empty() { String::new() } else { format!(" [{}]", clean(module)) };
    format!("{} {} {} in {}{module}", clean(id), severity.word(), clean(kind), clean(function))
}

/// Text such as `accepted.toml:3: kind leak: it is fixed in 6.13`.
fn idle(idle: &Idle) -> String {
    format!("{}:{}: {}: {}", clean(&idle.file), idle.line, clean(&idle.what), clean(&idle.reason))
}
