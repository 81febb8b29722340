//! The pages, a module for each kind.

pub(crate) mod compare;
pub(crate) mod finding;
pub(crate) mod index;
pub(crate) mod run;
pub(crate) mod stack;
pub(crate) mod survey;

use crate::html::{Html, counted};
use crate::order::Order;
use crate::site::{Route, Run, Site};
use guardrail_finding::{BaselineState, Finding, Frame, Severity};
use guardrail_report::survey::State;

impl Site {
    /// The page at an address; `None` for an address that [`paths`](Site::paths) does not have.
    pub fn page(&self, path: &str) -> Option<String> {
        Some(match self.route(path)? {
            Route::Index(order) => index::page(self, order),
            Route::Run(run) => run::page(self, run),
            Route::Finding(run, finding) => finding::page(self, run, finding),
            Route::Survey(survey) => survey::page(self, survey),
            Route::Compare(earlier, later) => compare::page(self, earlier, later),
        })
    }
}

/// The pages above a page: the index, then these.
fn above(site: &Site, routes: &[(Route, String)]) -> Vec<(String, String)> {
    let index = (site.path_below(Route::Index(Order::Newest)), "Results".to_owned());
    let rest = routes.iter().map(|(route, name)| (site.path_below(*route), name.clone()));
    std::iter::once(index).chain(rest).collect()
}

/// The pages above a page of a run.
fn above_run(site: &Site, run: &Run) -> Vec<(Route, String)> {
    run.survey
        .map(|survey| (Route::Survey(survey), survey::title(&site.surveys[survey])))
        .into_iter()
        .collect()
}

/// A word with the color of a severity.
fn severity(page: &mut Html, of: Severity) {
    page.raw(match of {
        Severity::Error => "<span class=\"error\">",
        Severity::Warning => "<span class=\"warning\">",
        Severity::Note => "<span class=\"note\">",
    });
    page.text(of.word()).raw("</span>");
}

/// A verdict with its color.
fn verdict(page: &mut Html, run: &Run) {
    page.raw(color(run.state)).text(run.state.word()).raw("</span>");
    if !matches!(run.report.run.outcome.as_str(), "completed" | "") {
        page.raw(" (").text(&run.report.run.outcome).raw(")");
    }
}

/// The beginning of an element with the color of a state.
fn color(state: State) -> &'static str {
    match state {
        State::Clean => "<span class=\"good\">",
        State::Findings | State::CutOff => "<span class=\"error\">",
        State::Failed | State::NotExercised => "<span class=\"warning\">",
        State::NotAvailable => "<span class=\"muted\">",
    }
}

/// The findings of a run in a few words.
fn numbers(run: &Run) -> String {
    let (findings, notes) = run.found;
    let findings = counted(findings, "finding", "findings");
    if notes == 0 { findings } else { format!("{findings}, {}", counted(notes, "note", "notes")) }
}

/// The place of a finding, such as `probe+0x1c [e1000]`.
fn place(finding: &Finding) -> String {
    let module = Some(finding.module.clone()).filter(|module| !module.is_empty());
    let (function, offset) = (finding.function.clone(), finding.offset);
    let mut text = Frame { function, module, offset, ..Frame::default() }.to_string();
    if let Some(frame) = finding.other.as_ref().and_then(|other| other.stack.first()) {
        text += &format!(" / {}", Frame { location: None, ..frame.clone() });
    }
    text
}

/// Whether a finding is new, known or accepted; empty where nothing says so.
fn standing(finding: &Finding) -> String {
    match (&finding.suppressed, finding.baseline) {
        (Some(_), _) => "suppressed".to_owned(),
        (None, Some(BaselineState::New)) => "new".to_owned(),
        (None, Some(BaselineState::Unchanged)) => "known".to_owned(),
        (None, None) => String::new(),
    }
}

/// A number of seconds, such as `7.5 s` or `3 min 20 s`.
fn seconds(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() || s <= 0.0 => String::new(),
        s if s < 60.0 => format!("{s:.1} s"),
        s => format!("{:.0} min {:.0} s", (s / 60.0).floor(), (s % 60.0).floor()),
    }
}
