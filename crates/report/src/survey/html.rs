//! A survey as an HTML page that needs no other file and no script.

use super::{Cell, Distinct, State, Summary, location, shown};
use crate::html::{escaped, head};
use guardrail_finding::{CallStack, Frame, trace_lines};
use std::io::{self, Write};

/// What a survey looks like beside what all pages do.
const OWN_STYLE: &str = "td.clean{background:#e8f5e9}td.findings{background:#fdecea;font-weight:bold}td.failed{background:#fff4e0}td.cut-off{background:#f8d7f0;font-weight:bold}\
td.not-available,td.not-exercised,td.missing{color:#777}\
@media(prefers-color-scheme:dark){td.clean{background:#1b3a1e}td.findings{background:#4a1d1a}td.failed{background:#443311}td.cut-off{background:#4a1d40}}";

pub(super) fn write(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    head("Guardrail survey", OWN_STYLE, out)?;
    writeln!(out, "<h1>Guardrail survey</h1>\n<p>{}</p>", escaped(&summary.headline()))?;
    let settings = &summary.settings;
    let workload = settings.workload.as_deref().unwrap_or("of each class");
    writeln!(
        out,
        "<p>Checkers: {}; workload: {}; guest CPUs: {}.</p>",
        escaped(&settings.tools.join(", ")),
        escaped(workload),
        settings.smp
    )?;
    table(summary, out)?;
    if !summary.findings.is_empty() {
        writeln!(out, "<h2 id=\"findings\">Findings</h2>")?;
    }
    for found in &summary.findings {
        let new = summary.diff.as_ref().is_some_and(|diff| diff.new.contains(&found.finding.id));
        distinct(found, new, out)?;
    }
    diff(summary, out)?;
    runs(summary, out)?;
    writeln!(out, "</html>")
}

fn table(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "<table>\n<tr><th>driver</th><th>class</th>")?;
    for kernel in &summary.kernels {
        write!(out, "<th>{}</th>", escaped(kernel))?;
    }
    writeln!(out, "</tr>")?;
    for row in summary.rows() {
        let of_row: Vec<Option<&Cell>> =
            summary.kernels.iter().map(|kernel| summary.cell(&row, kernel)).collect();
        let class = of_row.iter().flatten().next().map_or("", |cell| &cell.class);
        write!(out, "<tr><td>{}</td><td>{}</td>", escaped(&row), escaped(class))?;
        for cell in of_row {
            let state = cell.map_or("missing".to_owned(), |cell| cell.state.word().replace(' ', "-"));
            let why = cell.and_then(|cell| cell.why.as_deref()).unwrap_or_default();
            write!(out, "<td class=\"{state}\" title=\"{}\">{}</td>", escaped(why), escaped(&shown(cell)))?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</table>")
}

fn distinct(found: &Distinct, new: bool, out: &mut dyn Write) -> io::Result<()> {
    let finding = &found.finding;
    writeln!(
        out,
        "<details id=\"{}\"><summary>{}<b>{}</b> ({}, {}) in <code>{}</code>: {}</summary>",
        escaped(&finding.id),
        if new { "new: " } else { "" },
        escaped(&finding.kind),
        escaped(&finding.checker),
        finding.severity.word(),
        escaped(&location(finding)),
        escaped(&finding.message)
    )?;
    let cells: Vec<String> = found.cells.iter().map(|place| escaped(&place.to_string())).collect();
    writeln!(out, "<p>{} · fingerprint <code>{}</code></p>", cells.join(", "), escaped(&finding.id))?;
    write!(out, "<pre>")?;
    stack("Call trace", &finding.stack, out)?;
    if let Some(other) = &finding.other {
        stack("The other side", &other.stack, out)?;
    }
    let object = finding.object.as_ref();
    for (title, part) in [
        ("Allocated by", object.and_then(|object| object.allocated.as_ref())),
        ("Freed by", object.and_then(|object| object.freed.as_ref())),
    ] {
        if let Some(CallStack { stack: frames, .. }) = part {
            stack(title, frames, out)?;
        }
    }
    if let Some(origin) = &finding.origin {
        stack(&format!("The undefined value comes from {}", origin.description), &origin.stack, out)?;
    }
    writeln!(out, "</pre></details>")
}

fn stack(title: &str, frames: &[Frame], out: &mut dyn Write) -> io::Result<()> {
    if frames.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}:", escaped(title))?;
    for line in trace_lines(frames) {
        writeln!(out, "  {}", escaped(&line))?;
    }
    Ok(())
}

fn diff(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let Some(diff) = &summary.diff else { return Ok(()) };
    writeln!(
        out,
        "<h2>Against {}</h2>\n<p>{} new, {} gone, {} the same, {} unknown.</p>\n<ul>",
        escaped(&diff.against),
        diff.new.len(),
        diff.gone.len(),
        diff.same.len(),
        diff.unknown.len()
    )?;
    for id in &diff.new {
        writeln!(out, "<li>new: <a href=\"#{0}\">{0}</a></li>", escaped(id))?;
    }
    for (word, list) in [("gone", &diff.gone), ("unknown", &diff.unknown)] {
        for old in list {
            let (kind, place) = (escaped(&old.finding.kind), escaped(&location(&old.finding)));
            writeln!(out, "<li>{word}: {} {kind} in <code>{place}</code></li>", escaped(&old.finding.id))?;
        }
    }
    for change in &diff.changed {
        let place = escaped(&change.place.to_string());
        writeln!(out, "<li>{place}: {}, was {}</li>", change.now.word(), change.before.word())?;
    }
    writeln!(out, "</ul>")
}

/// Writes the outcome and the skipped steps of each run.
fn runs(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<h2>Runs</h2>")?;
    for cell in &summary.cells {
        writeln!(
            out,
            "<details><summary>{}: {}, {:.0} s</summary><ul>",
            escaped(&cell.place.to_string()),
            cell.state.word(),
            cell.wall_seconds
        )?;
        if let Some(why) = &cell.why {
            writeln!(out, "<li>{}</li>", escaped(why))?;
        }
        if let Some(report) = &cell.report {
            let steps: Vec<String> = report.run.steps.iter().map(|step| escaped(&step.name)).collect();
            let device = report.run.device.as_deref().unwrap_or("none");
            writeln!(out, "<li>device: {}</li><li>steps: {}</li>", escaped(device), steps.join(", "))?;
            writeln!(
                out,
                "<li>{} driver blocks, {} accesses, {} events</li>",
                report.run.blocks, report.run.accesses, report.run.events
            )?;
        }
        for skipped in &cell.skipped {
            writeln!(out, "<li>skipped {}: {}</li>", escaped(&skipped.name), escaped(&skipped.why))?;
        }
        writeln!(out, "</ul></details>")?;
    }
    let failed = summary.cells.iter().filter(|cell| cell.state == State::Failed).count();
    writeln!(out, "<p>{} runs, {failed} failed.</p>", summary.cells.len())
}
