//! The page of a finding: what happened, where, in which order, and where else it was seen.

use super::{above, above_run, place, severity, stack, standing};
use crate::html::Html;
use crate::site::{Route, Run, Site};
use crate::when::minute;
use guardrail_finding::{AccessInfo, CallStack, ContextInfo, Finding, Frame, kinds};
use guardrail_report::text;
use guardrail_report::timeline::{self, Timeline};

/// The most other runs that are listed, the newest first.
const MOST_SEEN: usize = 100;

pub(crate) fn page(site: &Site, number: usize, at: usize) -> String {
    let run = &site.runs[number];
    let finding = &run.report.findings[at];
    let title = format!("{} in {}", finding.kind, place(finding));
    let mut routes = above_run(site, run);
    routes.push((Route::Run(number), run.title()));
    Html::page(&title, &above(site, &routes), |page| {
        page.raw("<p>");
        severity(page, finding.severity);
        page.raw(": ").text(&finding.message).raw("</p>\n");
        for note in &finding.notes {
            page.element("<p>", note, "</p>\n");
        }
        facts(run, finding, page);
        match timeline::of(finding) {
            Some(timeline) => race(finding, &timeline, page),
            None => stack::section(page, "Call trace", &finding.stack),
        }
        rest(finding, page);
        seen(site, number, finding, page);
        whole(finding, page);
    })
}

fn facts(run: &Run, finding: &Finding, page: &mut Html) {
    page.raw("<h2>Facts</h2>\n<dl>\n");
    if let Some(location) = &finding.location {
        page.fact("source", location);
    }
    page.fact("driver", &run.report.driver).fact("kernel", &run.report.kernel);
    page.fact("checker", &finding.checker);
    page.fact("triage", finding.triage.as_deref().unwrap_or_default());
    page.fact("gate", finding.action.as_deref().unwrap_or_default());
    if let Some(done) = &finding.confirmation {
        page.fact("confirmation", format!("{}: {}", done.outcome, done.detail));
        if let Some(then) = &done.consequence {
            page.fact("consequence", &then.detail);
        }
        if let Some(again) = &done.repeated {
            page.fact("reproducer", again);
        }
    }
    if let Some(access) = finding.access.as_ref().filter(|_| finding.other.is_none()) {
        page.fact("access", self::access(access));
    }
    // Those of a race stand at its two sides.
    if finding.other.is_none() {
        stack::context(page, &finding.context);
    }
    page.fact("variable", finding.variable.as_deref().unwrap_or_default());
    page.fact(
        "happened",
        if finding.count == 1 { "once".to_owned() } else { format!("{} times in this run", finding.count) },
    );
    page.fact("state", standing(finding));
    if let Some(by) = &finding.suppressed {
        page.fact("accepted", format!("{} ({}:{})", by.reason, by.file, by.line));
    }
    page.fact("fingerprint", &finding.id);
    if let Some(kind) = kinds::find(&finding.kind) {
        page.fact("meaning", format!("{}. {}", kind.short, kind.help));
    }
    page.raw("</dl>\n");
}

/// Such as `update of 8 bytes at 0x…`.
fn access(access: &AccessInfo) -> String {
    match access.size {
        0 => format!("{} at {}", access.what, access.address),
        1 => format!("{} of 1 byte at {}", access.what, access.address),
        size => format!("{} of {size} bytes at {}", access.what, access.address),
    }
}

/// The two accesses side by side: what happens in which order, then each with all that is known of it.
fn race(finding: &Finding, timeline: &Timeline, page: &mut Html) {
    let [left, right] = &timeline.heads;
    page.raw("<h2>The two accesses</h2>\n<table class=\"timeline\">\n<caption>");
    page.text(timeline.title()).raw("; time flows down.</caption>\n<thead><tr>");
    page.element("<th scope=\"col\">", left, "</th>").element("<th scope=\"col\">", right, "</th>");
    page.raw("</tr></thead>\n<tbody>\n");
    for (side, text) in &timeline.rows {
        page.raw(if *side == 0 { "<tr><td>" } else { "<tr><td></td><td>" }).text(text);
        page.raw(if *side == 0 { "</td><td></td></tr>\n" } else { "</td></tr>\n" });
    }
    page.raw("</tbody></table>\n<div class=\"sides\">\n");
    side(page, left, finding.access.as_ref(), &finding.context, &finding.stack);
    if let Some(other) = &finding.other {
        side(page, right, other.access.as_ref(), &other.context, &other.stack);
    }
    page.raw("</div>\n");
}

fn side(page: &mut Html, head: &str, made: Option<&AccessInfo>, context: &ContextInfo, frames: &[Frame]) {
    page.raw("<section>\n").element("<h3>", head, "</h3>\n<dl>\n");
    page.fact("access", made.map(access).unwrap_or_default());
    stack::context(page, context);
    page.raw("</dl>\n");
    stack::stack(page, frames);
    page.raw("</section>\n");
}

/// Further places: related events, the origin of a value, the object, and the bytes around.
fn rest(finding: &Finding, page: &mut Html) {
    for related in &finding.related {
        let by = related
            .context
            .as_ref()
            .map_or(String::new(), |context| format!(", by task {} on CPU {}", context.thread, context.cpu));
        stack::section(page, &format!("{}{by}", text::sentence(&related.what)), &related.stack);
    }
    if let Some(origin) = &finding.origin {
        stack::section(
            page,
            &format!("The undefined value comes from {}", origin.description),
            &origin.stack,
        );
    }
    if let Some(object) = &finding.object {
        page.raw("<h2>The object</h2>\n<dl>\n").fact("address", &object.address);
        page.fact("size", format!("{} bytes", object.size)).fact("memory", &object.class);
        page.fact("name", object.name.as_deref().unwrap_or_default());
        page.fact("offset", object.offset.map(|offset| offset.to_string()).unwrap_or_default());
        page.fact("member", object.field.as_deref().unwrap_or_default()).raw("</dl>\n");
        for (what, at) in [("Allocated by", &object.allocated), ("Freed by", &object.freed)] {
            if let Some(CallStack { stack: frames, context, .. }) = at {
                let by = context.as_ref().map_or(String::new(), |context| {
                    format!(" task {} on CPU {}", context.thread, context.cpu)
                });
                stack::part(page, &format!("{what}{by}"), frames);
            }
        }
    }
    if !finding.shadow.is_empty() {
        page.raw("<h2>The bytes around</h2>\n").element("<pre>", finding.shadow.join("\n"), "</pre>\n");
    }
}

/// The runs that found it, this one included.
fn seen(site: &Site, number: usize, finding: &Finding, page: &mut Html) {
    let all = site.with_id(&finding.id);
    page.raw("<h2>Seen in these runs</h2>\n<table class=\"list\">\n<thead><tr><th scope=\"col\">run</th>");
    page.raw("<th scope=\"col\">times</th><th scope=\"col\">state</th><th scope=\"col\">written (UTC)</th>");
    page.raw("</tr></thead>\n<tbody>\n");
    for &(run, at) in all.iter().rev().take(MOST_SEEN) {
        let other = &site.runs[run];
        let found = &other.report.findings[at];
        page.raw("<tr>").begin_cell("run");
        match run == number {
            true => page.text(other.title()).raw(" (this run)"),
            false => page.link(&site.path_below(Route::Finding(run, at)), other.title()),
        };
        page.raw("</td>").cell("times", found.count).cell("state", standing(found));
        page.cell("written (UTC)", minute(other.written)).raw("</tr>\n");
    }
    page.raw("</tbody></table>\n");
    if all.len() > MOST_SEEN {
        page.raw("<p>").text(all.len() - MOST_SEEN).raw(" older ones are not listed.</p>\n");
    }
}

/// The same as text, to be copied.
fn whole(finding: &Finding, page: &mut Html) {
    let mut whole = Vec::new();
    // Writing to memory does not fail.
    if text::findings(&[finding], &mut whole).is_ok() {
        page.raw("<details><summary>As text</summary>\n");
        page.element("<pre>", String::from_utf8_lossy(&whole), "</pre></details>\n");
    }
}
