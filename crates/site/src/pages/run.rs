//! The page of a run: what was checked, how it ended, what ran, and what was found.

use super::{above, above_run, numbers, place, seconds, severity, standing, verdict};
use crate::html::{Html, counted};
use crate::site::{Route, Run, Site};
use crate::when::minute;
use guardrail_report::causes::causes;

/// Up to so many findings, likely causes are looked for: that takes time by the square of their number.
const MOST_FOR_CAUSES: usize = 500;

pub(crate) fn page(site: &Site, number: usize) -> String {
    let run = &site.runs[number];
    Html::page(&run.title(), &above(site, &above_run(site, run)), |page| {
        page.raw("<p>");
        verdict(page, run);
        page.raw(": ").text(numbers(run)).raw(".</p>\n");
        if let Some(detail) = run.report.run.detail.as_ref().filter(|detail| !detail.is_empty()) {
            page.element("<pre>", detail, "</pre>\n");
        }
        facts(run, page);
        findings(site, number, page);
        grouped(site, number, page);
        coverage(run, page);
        steps(run, page);
        notes(run, page);
        others(site, number, page);
    })
}

fn facts(run: &Run, page: &mut Html) {
    let about = &run.report.run;
    page.raw("<h2>What was checked</h2>\n<dl>\n");
    page.fact("driver", &run.report.driver);
    for module in &about.modules {
        let parts = [
            ("version", &module.version),
            ("srcversion", &module.srcversion),
            ("build ID", &module.build_id),
        ];
        let parts = parts.iter().filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?)));
        let parts: Vec<String> = parts.collect();
        if !parts.is_empty() {
            page.fact("build", format!("{}: {}", module.name, parts.join(", ")));
        }
    }
    page.fact("kernel", &run.report.kernel);
    page.fact("device", about.device.as_deref().unwrap_or_default());
    page.fact("workload", about.workload.as_deref().unwrap_or_default());
    page.fact("checkers", run.report.tools.join(", ")).fact("mode", &run.report.mode);
    if let Some(gate) = &about.gate {
        page.fact("gate", &gate.kind).fact("cut off", gate.closed.as_deref().unwrap_or_default());
    }
    page.fact("outcome", &about.outcome).fact("took", seconds(about.wall_seconds));
    page.fact("written (UTC)", minute(run.written)).fact("file", &run.place);
    if about.events > 0 {
        let lost = about.lost_events;
        page.fact(
            "seen",
            format!(
                "{} blocks, {} accesses, {} events, {lost} lost",
                about.blocks, about.accesses, about.events
            ),
        );
    }
    if !about.command.is_empty() {
        page.raw("<dt>to repeat</dt><dd><code>guardrail ")
            .text(about.command.join(" "))
            .raw("</code></dd>\n");
    }
    page.raw("</dl>\n");
}

fn findings(site: &Site, number: usize, page: &mut Html) {
    let run = &site.runs[number];
    page.raw("<h2>Findings</h2>\n");
    if run.report.findings.is_empty() {
        page.raw("<p>No findings.</p>\n");
        return;
    }
    page.raw("<table class=\"list\">\n<thead><tr><th scope=\"col\">severity</th><th scope=\"col\">kind</th>");
    page.raw("<th scope=\"col\">place</th><th scope=\"col\">what</th><th scope=\"col\">times</th>");
    page.raw("<th scope=\"col\">state</th></tr></thead>\n<tbody>\n");
    for (at, finding) in run.report.findings.iter().enumerate() {
        page.raw("<tr>").begin_cell("severity");
        severity(page, finding.severity);
        page.raw("</td>").begin_cell("kind");
        page.link(&site.path_below(Route::Finding(number, at)), &finding.kind).raw("</td>");
        page.begin_cell("place").element("<code>", place(finding), "</code></td>");
        page.cell("what", &finding.message).cell("times", finding.count);
        page.cell("state", standing(finding)).raw("</tr>\n");
    }
    page.raw("</tbody></table>\n");
    if run.left_out > 0 {
        page.raw("<p>").text(counted(run.left_out, "further finding is", "further findings are"));
        page.raw(" not shown; <code>guardrail report --full --from</code> prints all of a report.</p>\n");
    }
}

/// The findings by likely cause, where they are many.
fn grouped(site: &Site, number: usize, page: &mut Html) {
    let run = &site.runs[number];
    if !(4..=MOST_FOR_CAUSES).contains(&run.report.findings.len()) {
        return;
    }
    page.raw("<h2>Likely causes</h2>\n<ul>\n");
    for cause in causes(&run.report) {
        page.raw("<li>");
        severity(page, cause.severity);
        page.raw(" ").text(cause.kinds.join(", ")).raw(": <code>").text(&cause.what).raw("</code>, ");
        for (at, id) in cause.findings.iter().enumerate() {
            page.raw(if at == 0 { "" } else { ", " });
            match site.finding(number, id) {
                Some(finding) => page.link(&site.path_below(Route::Finding(number, finding)), id),
                None => page.text(id),
            };
        }
        page.raw("</li>\n");
    }
    page.raw("</ul>\n");
}

fn coverage(run: &Run, page: &mut Html) {
    if run.report.run.coverage.is_empty() {
        return;
    }
    page.raw("<h2>Coverage</h2>\n<p>Code that did not run was not checked.</p>\n<table class=\"list\">\n<thead><tr>");
    page.raw(
        "<th scope=\"col\">module</th><th scope=\"col\">functions that ran</th><th scope=\"col\">part</th>",
    );
    page.raw("<th scope=\"col\">blocks</th></tr></thead>\n<tbody>\n");
    for row in &run.report.run.coverage {
        let part = u128::from(row.functions_run) * 100 / u128::from(row.functions.max(1));
        page.raw("<tr>").cell("module", &row.module);
        page.cell("functions that ran", format!("{} of {}", row.functions_run, row.functions));
        page.cell("part", format!("{part} %")).cell("blocks", row.blocks).raw("</tr>\n");
    }
    page.raw("</tbody></table>\n");
}

fn steps(run: &Run, page: &mut Html) {
    if run.report.run.steps.is_empty() {
        return;
    }
    page.raw("<h2>Steps of the workload</h2>\n<ol>\n");
    for step in &run.report.run.steps {
        page.raw("<li>")
            .text(&step.name)
            .raw(" <span class=\"muted\">")
            .text(seconds(step.seconds))
            .raw("</span></li>\n");
    }
    page.raw("</ol>\n");
}

fn notes(run: &Run, page: &mut Html) {
    let about = &run.report.run;
    let mut lines: Vec<String> = about.notes.clone();
    if !about.unknown_instructions.is_empty() {
        let all = about.unknown_instructions.iter().map(|(form, count)| format!("{form} ({count})"));
        lines.push(format!("Instructions without an exact rule: {}", all.collect::<Vec<_>>().join(", ")));
    }
    for (what, idle) in run.report.suppressions.iter().flat_map(|did| {
        did.unused.iter().map(|one| ("Unused", one)).chain(did.expired.iter().map(|one| ("Expired", one)))
    }) {
        lines.push(format!(
            "{what} suppression: {}, {} ({}:{})",
            idle.what, idle.reason, idle.file, idle.line
        ));
    }
    if lines.is_empty() {
        return;
    }
    page.raw("<h2>Notes</h2>\n<ul>\n");
    for line in lines {
        page.element("<li>", line, "</li>\n");
    }
    page.raw("</ul>\n");
}

/// Links to comparisons with other runs of the same drivers.
fn others(site: &Site, number: usize, page: &mut Html) {
    let pairs = site.comparisons(number);
    if pairs.is_empty() {
        return;
    }
    page.raw("<h2>Beside other runs of the driver</h2>\n<ul>\n");
    for (earlier, later) in pairs {
        let (other, word) = if earlier == number { (later, "later") } else { (earlier, "earlier") };
        let other = &site.runs[other];
        page.raw("<li>").link(
            &site.path_below(Route::Compare(earlier, later)),
            format!("{}, {}", other.report.kernel, minute(other.written)),
        );
        page.raw(" <span class=\"muted\">").text(word).raw(", ").text(&other.place).raw("</span></li>\n");
    }
    page.raw("</ul>\n");
}
