//! The page of two runs of the same drivers: which findings are new, gone and the same.

use super::{above, verdict};
use crate::html::Html;
use crate::site::{Route, Site};
use crate::when::minute;
use guardrail_report::compare::compare;
use guardrail_report::marks::{KnownFinding, Source};

/// The most findings of each sort that are listed.
const MOST: usize = 2000;

pub(crate) fn page(site: &Site, earlier: usize, later: usize) -> String {
    let [from, to] = [earlier, later].map(|run| &site.runs[run]);
    let comparison = compare(&from.list, &to.list, &from.place, Source::Report);
    let title = format!("{}: {} beside {}", to.report.driver, from.report.kernel, to.report.kernel);
    Html::page(&title, &above(site, &[(Route::Run(later), to.title())]), |page| {
        page.raw(
            "<table class=\"list\">\n<thead><tr><th scope=\"col\">run</th><th scope=\"col\">kernel</th>",
        );
        page.raw(
            "<th scope=\"col\">verdict</th><th scope=\"col\">builds</th><th scope=\"col\">written (UTC)</th>",
        );
        page.raw("<th scope=\"col\">file</th></tr></thead>\n<tbody>\n");
        for (word, number) in [("earlier", earlier), ("later", later)] {
            let run = &site.runs[number];
            page.raw("<tr>").begin_cell("run").link(&site.path_below(Route::Run(number)), word).raw("</td>");
            page.cell("kernel", &run.report.kernel).begin_cell("verdict");
            verdict(page, run);
            let builds = run.report.run.modules.iter().filter_map(|module| module.build_id.clone());
            page.raw("</td>").cell("builds", builds.collect::<Vec<_>>().join(", "));
            page.cell("written (UTC)", minute(run.written)).cell("file", &run.place).raw("</tr>\n");
        }
        page.raw("</tbody></table>\n<p>");
        page.text(comparison.new.len()).raw(" new, ").text(comparison.gone.len()).raw(" gone, ");
        page.text(comparison.same.len())
            .raw(" the same, ")
            .text(comparison.unknown.len())
            .raw(" unknown.</p>\n");
        let parts = [
            ("New", "The earlier run does not have them.", &comparison.new, later),
            (
                "Gone",
                "Only the earlier run has them, although the later one could have found them.",
                &comparison.gone,
                earlier,
            ),
            ("Same", "Both runs have them.", &comparison.same, later),
            (
                "Unknown",
                "The later run could not find them: it did not complete, or the checker did not run.",
                &comparison.unknown,
                earlier,
            ),
        ];
        for (title, meaning, findings, run) in
            parts.into_iter().filter(|(_, _, findings, _)| !findings.is_empty())
        {
            page.element("<h2>", title, "</h2>\n").element("<p>", meaning, "</p>\n");
            table(site, run, findings, page);
        }
    })
}

fn table(site: &Site, run: usize, findings: &[KnownFinding], page: &mut Html) {
    page.raw("<table class=\"list\">\n<thead><tr><th scope=\"col\">severity</th><th scope=\"col\">kind</th>");
    page.raw("<th scope=\"col\">place</th><th scope=\"col\">fingerprint</th></tr></thead>\n<tbody>\n");
    for finding in findings.iter().take(MOST) {
        page.raw("<tr>").begin_cell("severity");
        super::severity(page, finding.severity);
        page.raw("</td>").begin_cell("kind");
        match site.finding(run, &finding.id) {
            Some(at) => page.link(&site.path_below(Route::Finding(run, at)), &finding.kind),
            None => page.text(&finding.kind),
        };
        page.raw("</td>").begin_cell("place").raw("<code>").text(&finding.function);
        if !finding.module.is_empty() {
            page.raw(" [").text(&finding.module).raw("]");
        }
        page.raw("</code></td>").cell("fingerprint", &finding.id).raw("</tr>\n");
    }
    page.raw("</tbody></table>\n");
    if findings.len() > MOST {
        page.raw("<p>")
            .text(findings.len() - MOST)
            .raw(" more are not listed; <code>guardrail diff</code> prints all.</p>\n");
    }
}
