//! The first page: what a folder holds, in one of several orders.

use super::{numbers, seconds, survey, verdict};
use crate::html::{Html, counted};
use crate::order::Order;
use crate::site::{Route, Run, Site};
use crate::when::minute;
use std::cmp::Reverse;

/// Sorts runs. Those that are equal stay sorted by driver, kernel and file.
fn sort(order: Order, runs: &mut [(usize, &Run)]) {
    runs.sort_by(|(_, a), (_, b)| {
        let key = |run: &Run| (run.report.driver.clone(), version(&run.report.kernel), run.place.clone());
        key(a).cmp(&key(b))
    });
    match order {
        Order::Newest => runs.sort_by_key(|(_, run)| Reverse(run.written)),
        Order::Driver => {}
        Order::Kernel => runs.sort_by_key(|(_, run)| version(&run.report.kernel)),
        Order::Verdict => runs.sort_by_key(|(_, run)| run.state.word()),
        Order::Findings => runs.sort_by_key(|(_, run)| Reverse(run.found)),
        Order::Duration => {
            runs.sort_by(|(_, a), (_, b)| b.report.run.wall_seconds.total_cmp(&a.report.run.wall_seconds))
        }
    }
}

/// The numbers of a release, so that 6.12 follows 6.1 and 6.2.
fn version(release: &str) -> (Vec<u64>, String) {
    let numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok());
    (numbers.collect(), release.to_owned())
}

pub(crate) fn page(site: &Site, order: Order) -> String {
    let title = format!("Results in {}", site.title);
    Html::page(&title, &[], |page| {
        surveys(site, page);
        runs(site, order, page);
        problems(site, page);
    })
}

fn surveys(site: &Site, page: &mut Html) {
    if site.surveys.is_empty() {
        return;
    }
    page.raw("<h2>Surveys</h2>\n<table class=\"list\">\n<thead><tr><th scope=\"col\">survey</th>");
    page.raw("<th scope=\"col\">runs</th><th scope=\"col\">written (UTC)</th></tr></thead>\n<tbody>\n");
    for (number, one) in site.surveys.iter().enumerate() {
        page.raw("<tr>").begin_cell("survey");
        page.link(&site.path(Route::Survey(number)), survey::title(one)).raw("</td>");
        page.cell("runs", &one.headline).cell("written (UTC)", minute(one.written)).raw("</tr>\n");
    }
    page.raw("</tbody></table>\n");
}

fn runs(site: &Site, order: Order, page: &mut Html) {
    // Those of surveys are in their tables.
    let mut runs: Vec<(usize, &Run)> =
        site.runs.iter().enumerate().filter(|(_, run)| run.survey.is_none()).collect();
    if runs.is_empty() {
        return;
    }
    sort(order, &mut runs);
    page.raw("<h2>Runs</h2>\n<p>").text(counted(runs.len(), "run", "runs")).raw(". Sorted by:");
    for other in Order::ALL {
        page.raw(if other == order { " <strong aria-current=\"true\">" } else { " " });
        match other == order {
            true => page.text(other.word()).raw("</strong>"),
            false => page.link(other.path(), other.word()),
        };
        page.raw(if other == Order::Duration { ".</p>\n" } else { "," });
    }
    page.raw("<table class=\"list\">\n<thead><tr>");
    for (name, sorts) in COLUMNS {
        page.raw(match sorts {
            Some(sorts)
                if sorts == order && matches!(order, Order::Newest | Order::Findings | Order::Duration) =>
            {
                "<th scope=\"col\" aria-sort=\"descending\">"
            }
            Some(sorts) if sorts == order => "<th scope=\"col\" aria-sort=\"ascending\">",
            _ => "<th scope=\"col\">",
        });
        page.text(name).raw("</th>");
    }
    page.raw("</tr></thead>\n<tbody>\n");
    for (number, run) in runs {
        page.raw("<tr>")
            .begin_cell("driver")
            .link(&site.path(Route::Run(number)), &run.report.driver)
            .raw("</td>");
        page.cell("kernel", &run.report.kernel);
        page.begin_cell("verdict");
        verdict(page, run);
        page.raw("</td>").cell("findings", numbers(run)).cell("took", seconds(run.report.run.wall_seconds));
        page.cell("written (UTC)", minute(run.written)).cell("file", &run.place).raw("</tr>\n");
    }
    page.raw("</tbody></table>\n");
}

/// The columns, and the order that each stands for.
const COLUMNS: [(&str, Option<Order>); 7] = [
    ("driver", Some(Order::Driver)),
    ("kernel", Some(Order::Kernel)),
    ("verdict", Some(Order::Verdict)),
    ("findings", Some(Order::Findings)),
    ("took", Some(Order::Duration)),
    ("written (UTC)", Some(Order::Newest)),
    ("file", None),
];

fn problems(site: &Site, page: &mut Html) {
    if site.problems.is_empty() {
        return;
    }
    page.raw("<h2>Not shown</h2>\n<ul>\n");
    for (place, why) in &site.problems {
        page.raw("<li><code>").text(place).raw("</code>: ").text(why).raw(".</li>\n");
    }
    page.raw("</ul>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_sorted_by_their_numbers() {
        let mut all = ["7.2", "6.12.1", "6.1", "6.2"];
        all.sort_by_key(|release| version(release));
        assert_eq!(all, ["6.1", "6.2", "6.12.1", "7.2"]);
    }
}
