//! The page of a survey: a table of drivers and kernels, and each fault once.

use super::{above, color, place, severity};
use crate::html::Html;
use crate::site::{Route, Site, Survey};
use crate::when::minute;
use guardrail_report::survey::{Cell, Diff, Distinct, State};

/// The name of a survey for people.
pub(crate) fn title(survey: &Survey) -> String {
    if survey.place.is_empty() { "Survey".to_owned() } else { format!("Survey {}", survey.place) }
}

pub(crate) fn page(site: &Site, number: usize) -> String {
    let survey = &site.surveys[number];
    Html::page(&title(survey), &above(site, &[]), |page| {
        page.raw("<p>").text(&survey.headline).raw(".</p>\n");
        if !survey.complete {
            page.raw("<p>The survey goes on, or was interrupted: its table is not written yet.</p>\n");
        }
        facts(survey, page);
        table(site, survey, page);
        reasons(survey, page);
        findings(site, survey, page);
        if let Some(diff) = &survey.summary.diff {
            changes(site, survey, diff, page);
        }
    })
}

fn facts(survey: &Survey, page: &mut Html) {
    let settings = &survey.summary.settings;
    page.raw("<dl>\n").fact("checkers", settings.tools.join(", "));
    page.fact("workload", settings.workload.as_deref().unwrap_or("that of each class"));
    page.fact("guest CPUs", settings.smp).fact("mode", settings.mode.as_deref().unwrap_or_default());
    page.fact("variables", settings.variables.join(", ")).fact("written (UTC)", minute(survey.written));
    page.raw("</dl>\n");
}

fn table(site: &Site, survey: &Survey, page: &mut Html) {
    let summary = &survey.summary;
    page.raw("<h2>Drivers and kernels</h2>\n<div class=\"wide\"><table>\n");
    page.raw("<caption>Findings are counted without notes.</caption>\n<thead><tr>");
    page.raw("<th scope=\"col\">driver</th><th scope=\"col\">class</th>");
    for kernel in &summary.kernels {
        page.element("<th scope=\"col\">", kernel, "</th>");
    }
    page.raw("</tr></thead>\n<tbody>\n");
    for row in summary.rows() {
        let cells: Vec<Option<&Cell>> =
            summary.kernels.iter().map(|kernel| summary.cell(&row, kernel)).collect();
        let class = cells.iter().flatten().next().map_or("", |cell| &cell.class);
        page.raw("<tr>").element("<th scope=\"row\">", &row, "</th>").element("<td>", class, "</td>");
        for cell in cells {
            page.raw("<td>");
            self::cell(site, survey, cell, page);
            page.raw("</td>");
        }
        page.raw("</tr>\n");
    }
    page.raw("</tbody></table></div>\n");
}

fn cell(site: &Site, survey: &Survey, cell: Option<&Cell>, page: &mut Html) {
    let Some((cell, (words, run))) = cell.and_then(|cell| Some((cell, survey.cells.get(&cell.place)?)))
    else {
        page.raw("<span class=\"muted\">not run</span>");
        return;
    };
    let words = match cell.state {
        State::Clean => "clean".to_owned(),
        State::Findings => format!("{words} found"),
        _ => words.clone(),
    };
    page.raw(color(cell.state));
    match run {
        Some(run) => page.link(&site.path_below(Route::Run(*run)), words),
        None => page.text(words),
    };
    page.raw("</span>");
}

/// Why runs have no result.
fn reasons(survey: &Survey, page: &mut Html) {
    let with: Vec<(&Cell, &str)> =
        survey.summary.cells.iter().filter_map(|cell| Some((cell, cell.why.as_deref()?))).collect();
    let skipped = survey.summary.cells.iter().filter(|cell| !cell.skipped.is_empty());
    if !with.is_empty() {
        page.raw("<h2>Why runs have no result</h2>\n<ul>\n");
        for (cell, why) in with {
            page.raw("<li>")
                .text(&cell.place)
                .raw(", ")
                .text(cell.state.word())
                .raw(": ")
                .text(why)
                .raw("</li>\n");
        }
        page.raw("</ul>\n");
    }
    let skipped: Vec<&Cell> = skipped.collect();
    if !skipped.is_empty() {
        page.raw("<h2>Steps that were skipped</h2>\n<ul>\n");
        for cell in skipped {
            let steps = cell.skipped.iter().map(|step| format!("{} ({})", step.name, step.why));
            page.raw("<li>")
                .text(&cell.place)
                .raw(": ")
                .text(steps.collect::<Vec<_>>().join(", "))
                .raw("</li>\n");
        }
        page.raw("</ul>\n");
    }
}

fn findings(site: &Site, survey: &Survey, page: &mut Html) {
    if survey.summary.findings.is_empty() {
        return;
    }
    page.raw("<h2>Findings</h2>\n<table class=\"list\">\n<thead><tr><th scope=\"col\">severity</th>");
    page.raw("<th scope=\"col\">kind</th><th scope=\"col\">place</th><th scope=\"col\">what</th>");
    page.raw("<th scope=\"col\">runs</th></tr></thead>\n<tbody>\n");
    for distinct in &survey.summary.findings {
        let finding = &distinct.finding;
        page.raw("<tr>").begin_cell("severity");
        severity(page, finding.severity);
        page.raw("</td>").cell("kind", &finding.kind);
        page.begin_cell("place")
            .element("<code>", place(finding), "</code></td>")
            .cell("what", &finding.message);
        page.begin_cell("runs");
        runs(site, survey, distinct, page);
        page.raw("</td></tr>\n");
    }
    page.raw("</tbody></table>\n");
}

/// The cells of a fault, with links to its pages there.
fn runs(site: &Site, survey: &Survey, distinct: &Distinct, page: &mut Html) {
    for (at, place) in distinct.cells.iter().enumerate() {
        page.raw(if at == 0 { "" } else { ", " });
        let run = survey.cells.get(place).and_then(|(_, run)| *run);
        let finding = run.and_then(|run| Some((run, site.finding(run, &distinct.finding.id)?)));
        match finding {
            Some((run, finding)) => page.link(&site.path_below(Route::Finding(run, finding)), place),
            None => page.text(place),
        };
    }
}

fn changes(site: &Site, survey: &Survey, diff: &Diff, page: &mut Html) {
    page.raw("<h2>Since an earlier survey</h2>\n<p>Against <code>").text(&diff.against).raw("</code>: ");
    page.text(diff.new.len()).raw(" new, ").text(diff.gone.len()).raw(" gone, ").text(diff.same.len());
    page.raw(" the same, ").text(diff.unknown.len()).raw(" unknown.</p>\n<ul>\n");
    for id in &diff.new {
        page.raw("<li>new: ").text(id);
        if let Some(distinct) = survey.summary.findings.iter().find(|one| one.finding.id == *id) {
            page.raw(", ");
            runs(site, survey, distinct, page);
        }
        page.raw("</li>\n");
    }
    for (word, list) in [("gone", &diff.gone), ("unknown", &diff.unknown)] {
        for old in list {
            page.raw("<li>").text(word).raw(": ").text(&old.finding.id).raw(" ").text(&old.finding.kind);
            page.raw(" in <code>").text(place(&old.finding)).raw("</code></li>\n");
        }
    }
    for change in &diff.changed {
        page.raw("<li>").text(&change.place).raw(": ").text(change.now.word()).raw(", was ");
        page.text(change.before.word()).raw("</li>\n");
    }
    page.raw("</ul>\n");
}
