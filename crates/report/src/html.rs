//! The report as an HTML page that needs no other file, no script and no network.

use crate::causes::{Cause, causes};
use crate::model::{Report, Run};
use crate::text::{self, clean};
use crate::timeline::{self, Timeline};
use guardrail_finding::{Finding, Severity};
use std::io::{self, Write};

/// What all pages look like.
pub(crate) const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222}\
table{border-collapse:collapse}th,td{border:1px solid #ccc;padding:.2rem .7rem;text-align:left;vertical-align:top}\
pre{background:#f6f6f6;padding:.7rem;overflow-x:auto}summary{cursor:pointer}code{background:#f0f0f0}details{margin:.4rem 0}\
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}a{color:#8bf}pre,code{background:#252525}th,td{border-color:#444}}";

/// What a report looks like beside that.
const OWN_STYLE: &str = "td.error,b.error{color:#b00020}td.warning,b.warning{color:#9a5b00}td.note,b.note{color:#777}\
table.timeline{width:100%;table-layout:fixed}table.timeline td{border-width:0 1px;padding-top:0;padding-bottom:0;font-family:monospace;white-space:pre-wrap}\
@media(prefers-color-scheme:dark){td.error,b.error{color:#ff8a80}td.warning,b.warning{color:#ffc46b}}";

/// Writes the page: how the run ended, a table of likely causes, and each finding that is not known or suppressed. Errors and
/// warnings are open.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let title = format!("guardrail: {} on {}", report.driver, report.kernel);
    head(&title, OWN_STYLE, out)?;
    writeln!(out, "<h1>{}</h1>", escaped(&title))?;
    run(report, out)?;
    table(&causes(report), out)?;
    for finding in report.shown() {
        self::finding(finding, out)?;
    }
    let mut rest = Vec::new();
    text::rest(report, &mut rest)?;
    writeln!(out, "<h2>The run</h2>\n<pre>{}</pre>\n</html>", escaped(&String::from_utf8_lossy(&rest)))
}

/// Begins a page that may load nothing.
pub(crate) fn head(title: &str, style: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<meta name=\"viewport\" content=\"width=device-width\">\n<style>{STYLE}{style}</style>",
        escaped(title)
    )
}

/// Facts about the run, a row each.
fn run(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Run { outcome, device, workload, .. } = &report.run;
    let ran: Vec<String> = report
        .run
        .coverage
        .iter()
        .map(|row| {
            format!(
                "{}: {} of {} functions, {} blocks",
                row.module, row.functions_run, row.functions, row.blocks
            )
        })
        .collect();
    let words = &report.run.command;
    let repeated = if words.is_empty() { String::new() } else { format!("guardrail {}", words.join(" ")) };
    writeln!(out, "<table>")?;
    for (name, value) in [
        ("outcome", outcome.clone()),
        ("device", device.clone().unwrap_or_default()),
        ("workload", workload.clone().unwrap_or_default()),
        ("checkers", report.tools.join(", ")),
        ("coverage", ran.join("; ")),
        ("to repeat", repeated),
    ] {
        if !value.is_empty() {
            writeln!(out, "<tr><th>{name}</th><td>{}</td></tr>", escaped(&value))?;
        }
    }
    writeln!(out, "</table>")
}

/// A row for each likely cause, with links to its findings.
fn table(causes: &[Cause], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<h2>Likely causes</h2>")?;
    if causes.is_empty() {
        return writeln!(out, "<p>No findings.</p>");
    }
    writeln!(out, "<table>\n<tr><th>severity</th><th>kind</th><th>what</th><th>findings</th></tr>")?;
    for cause in causes {
        let links: Vec<String> =
            cause.findings.iter().map(|id| format!("<a href=\"#{0}\">{0}</a>", escaped(id))).collect();
        writeln!(
            out,
            "<tr><td class=\"{0}\">{0}</td><td>{1}</td><td>{2}</td><td>{3}</td></tr>",
            cause.severity.word(),
            escaped(&cause.kinds.join(", ")),
            escaped(&cause.what),
            links.join(" ")
        )?;
    }
    writeln!(out, "</table>\n<h2>Findings</h2>")
}

/// A finding with its timeline, if it is a race, and its whole text.
fn finding(finding: &Finding, out: &mut dyn Write) -> io::Result<()> {
    let open = if finding.severity == Severity::Note { "" } else { " open" };
    writeln!(
        out,
        "<details id=\"{}\"{open}><summary><b class=\"{1}\">{1}</b> <b>{2}</b> {3}</summary>",
        escaped(&finding.id),
        finding.severity.word(),
        escaped(&finding.kind),
        escaped(&finding.message)
    )?;
    if let Some(timeline) = timeline::of(finding) {
        self::timeline(&timeline, out)?;
    }
    let mut whole = Vec::new();
    text::finding(finding, &mut whole)?;
    writeln!(out, "<pre>{}</pre></details>", escaped(&String::from_utf8_lossy(&whole)))
}

/// Two columns, in which time flows down.
fn timeline(timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    let [left, right] = timeline.heads.each_ref().map(|head| escaped(head));
    writeln!(out, "<p>{}.</p>", escaped(timeline.title()))?;
    writeln!(out, "<table class=\"timeline\">\n<tr><th>{left}</th><th>{right}</th></tr>")?;
    for (side, text) in &timeline.rows {
        let [left, right] = [0, 1].map(|column| if *side == column { escaped(text) } else { String::new() });
        writeln!(out, "<tr><td>{left}</td><td>{right}</td></tr>")?;
    }
    writeln!(out, "</table>")
}

/// Escapes text for the content of an element, or for an attribute in quotes. Line breaks stay, and other control
/// characters do not.
pub fn escaped(text: &str) -> String {
    let mut safe = String::new();
    for (i, line) in text.split('\n').enumerate() {
        if i > 0 {
            safe.push('\n');
        }
        for c in clean(line).chars() {
            match c {
                '<' => safe.push_str("&lt;"),
                '>' => safe.push_str("&gt;"),
                '&' => safe.push_str("&amp;"),
                '"' => safe.push_str("&quot;"),
                '\'' => safe.push_str("&#39;"),
                c => safe.push(c),
            }
        }
    }
    safe
}
