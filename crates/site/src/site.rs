//! All pages of a folder: which there are, their addresses, and what links them.

use crate::error::SiteError;
use crate::folder::Folder;
use crate::names::Names;
use crate::order::Order;
use crate::read::{self, Found, FoundRun, FoundSurvey};
use guardrail_finding::{Finding, Severity};
use guardrail_report::fail_on::FailOn;
use guardrail_report::list::FindingList;
use guardrail_report::survey::{Position, State, Summary, shown};
use guardrail_report::{Report, RunEnd};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::SystemTime;

/// The most findings of a run that have pages; the worst come first.
const MAX_FINDINGS: usize = 2000;
/// With how many runs before it, in time, each run of a driver is compared.
const COMPARED: usize = 8;

/// The pages of a folder with results.
#[derive(Debug, Default)]
pub struct Site {
    /// The name of the folder, as its user wrote it.
    pub(crate) title: String,
    pub(crate) runs: Vec<Run>,
    pub(crate) surveys: Vec<Survey>,
    pub(crate) problems: Vec<(String, String)>,
    /// All addresses, relative to the index.
    routes: BTreeMap<String, Route>,
    /// The findings with a fingerprint: run and number in it, oldest run first.
    by_id: HashMap<String, Vec<(usize, usize)>>,
    /// Runs of the same drivers in order of time, and the place of each run in them.
    groups: Vec<Vec<usize>>,
}

/// How many things a site shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Runs, those of surveys included.
    pub runs: usize,
    /// Surveys, finished or not.
    pub surveys: usize,
    /// Files that cannot be shown.
    pub problems: usize,
}

/// A run with its names.
#[derive(Debug)]
pub(crate) struct Run {
    /// Its name in addresses.
    pub(crate) name: String,
    /// The file of its report, relative to the folder.
    pub(crate) place: String,
    pub(crate) written: SystemTime,
    pub(crate) report: Report,
    pub(crate) state: State,
    /// The survey that it belongs to; `None` for a run of its own.
    pub(crate) survey: Option<usize>,
    /// The names of the pages of its findings, which are in the order of `report.findings`.
    pub(crate) finding_names: Vec<String>,
    /// Number of findings that are left out.
    pub(crate) left_out: usize,
    /// Numbers of errors and warnings, and of notes, of all findings that are not suppressed.
    pub(crate) found: (usize, usize),
    /// All of its findings in short.
    pub(crate) list: FindingList,
    group: usize,
}

/// A survey with its names. Its cells have no reports: these are runs of the site.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) name: String,
    pub(crate) place: String,
    pub(crate) written: SystemTime,
    pub(crate) complete: bool,
    pub(crate) summary: Summary,
    pub(crate) headline: String,
    /// What each cell shows, and its run.
    pub(crate) cells: BTreeMap<Position, (String, Option<usize>)>,
}

/// What a page is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Index(Order),
    Run(usize),
    Finding(usize, usize),
    Survey(usize),
    /// The earlier run and the later one.
    Compare(usize, usize),
}

impl Site {
    /// Reads a folder. Files that cannot be shown are listed with the reasons; a folder without anything is an error.
    pub fn read(folder: &Path) -> Result<Site, SiteError> {
        let opened = Folder::open(folder).map_err(|source| unreadable(folder, source))?;
        Site::of_folder(&opened, folder)
    }

    /// The same for a folder that is open.
    pub(crate) fn of_folder(opened: &Folder, folder: &Path) -> Result<Site, SiteError> {
        let site = Site::of(folder.display().to_string(), read::read(opened));
        match site.runs.is_empty() && site.surveys.is_empty() && site.problems.is_empty() {
            true => Err(SiteError::Empty(folder.display().to_string())),
            false => Ok(site),
        }
    }

    /// The site of what was found.
    pub(crate) fn of(title: String, found: Found) -> Site {
        let mut site = Site { title, problems: found.problems, ..Site::default() };
        let (mut run_names, mut survey_names) = (Names::default(), Names::default());
        for FoundRun { place, report, written } in found.runs {
            let run = run(run_names.name(name_of(&place, &report)), place, written, report);
            site.runs.push(run);
        }
        for found in found.surveys {
            site.add_survey(found, &mut run_names, &mut survey_names);
        }
        site.group();
        let mut by_time: Vec<usize> = (0..site.runs.len()).collect();
        by_time.sort_by_key(|&run| site.runs[run].written);
        for run in by_time {
            for (number, finding) in site.runs[run].report.findings.iter().enumerate() {
                let seen = site.by_id.entry(finding.id.clone()).or_default();
                // A fingerprint that a report has twice counts once.
                if seen.last().is_none_or(|(last, _)| *last != run) {
                    seen.push((run, number));
                }
            }
        }
        site.routes = routes(&site);
        site
    }

    fn add_survey(&mut self, found: FoundSurvey, run_names: &mut Names, survey_names: &mut Names) {
        let FoundSurvey { place, mut summary, written, complete } = found;
        let headline = summary.headline();
        let name = survey_names.name(if place.is_empty() { "survey" } else { &place });
        let number = self.surveys.len();
        let mut cells = BTreeMap::new();
        for cell in &mut summary.cells {
            let words = shown(Some(cell));
            let own = cell.report.take().map(|report| {
                let stem = cell.place.file_stem();
                let at = if place.is_empty() { stem } else { format!("{place}/{stem}") };
                let new = run(run_names.name(&at), at, written, report);
                self.runs.push(Run { state: cell.state, survey: Some(number), ..new });
                self.runs.len() - 1
            });
            cells.insert(cell.place.clone(), (words, own));
        }
        self.surveys.push(Survey { name, place, written, complete, summary, headline, cells });
    }

    /// Puts runs of the same drivers together.
    fn group(&mut self) {
        let mut groups: BTreeMap<Vec<String>, Vec<usize>> = BTreeMap::new();
        for (number, run) in self.runs.iter().enumerate() {
            let mut drivers: Vec<String> =
                run.report.driver.split(',').map(|name| name.trim().replace('-', "_")).collect();
            drivers.sort();
            drivers.dedup();
            groups.entry(drivers).or_default().push(number);
        }
        for (number, (_, mut members)) in groups.into_iter().enumerate() {
            members.sort_by(|&a, &b| {
                let [a, b] = [a, b].map(|run| &self.runs[run]);
                (a.written, &a.place).cmp(&(b.written, &b.place))
            });
            members.iter().for_each(|&run| self.runs[run].group = number);
            self.groups.push(members);
        }
    }

    /// How many things it shows.
    pub fn counts(&self) -> Counts {
        Counts { runs: self.runs.len(), surveys: self.surveys.len(), problems: self.problems.len() }
    }

    /// The addresses of all pages, relative to the first one, which is `index.html`. Each names a file of its own.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.routes.keys().map(String::as_str)
    }

    /// What the page at an address is about.
    pub(crate) fn route(&self, path: &str) -> Option<Route> {
        self.routes.get(path).copied()
    }

    /// The address of a page, relative to the index.
    pub(crate) fn path(&self, route: Route) -> String {
        match route {
            Route::Index(order) => order.path().to_owned(),
            Route::Run(run) => format!("run/{}/index.html", self.runs[run].name),
            Route::Finding(run, finding) => {
                let run = &self.runs[run];
                format!("run/{}/{}.html", run.name, run.finding_names[finding])
            }
            Route::Survey(survey) => format!("survey/{}/index.html", self.surveys[survey].name),
            Route::Compare(earlier, later) => {
                format!("compare/{}/{}.html", self.runs[earlier].name, self.runs[later].name)
            }
        }
    }

    /// The address of a page from a page below the index, which are all two folders deep.
    pub(crate) fn path_below(&self, route: Route) -> String {
        format!("../../{}", self.path(route))
    }

    /// Where a fingerprint was found: runs and the numbers in them, oldest first.
    pub(crate) fn with_id(&self, id: &str) -> &[(usize, usize)] {
        self.by_id.get(id).map_or(&[], Vec::as_slice)
    }

    /// The number of the finding with a fingerprint in a run.
    pub(crate) fn finding(&self, run: usize, id: &str) -> Option<usize> {
        self.with_id(id).iter().find(|(other, _)| *other == run).map(|(_, number)| *number)
    }

    /// The pairs of an earlier and a later run of the same drivers that have a page and contain this run.
    pub(crate) fn comparisons(&self, run: usize) -> Vec<(usize, usize)> {
        let group = &self.groups[self.runs[run].group];
        let at = group.iter().position(|&member| member == run).unwrap_or_default();
        let before = group[at.saturating_sub(COMPARED)..at].iter().map(|&other| (other, run));
        let after = group[at + 1..].iter().take(COMPARED).map(|&other| (run, other));
        before.chain(after).collect()
    }
}

/// The error of a folder that cannot be opened.
pub(crate) fn unreadable(folder: &Path, source: std::io::Error) -> SiteError {
    SiteError::Folder { folder: folder.display().to_string(), source }
}

/// What a run's name is made of: its folder, or its file where the file is not the only one.
fn name_of<'a>(place: &'a str, report: &'a Report) -> &'a str {
    match place.strip_suffix("report.json").map(|folder| folder.trim_end_matches('/')) {
        Some("") => &report.driver,
        Some(folder) => folder,
        None => place.strip_suffix(".json").unwrap_or(place),
    }
}

fn run(name: String, place: String, written: SystemTime, mut report: Report) -> Run {
    let list = FindingList::of(&report);
    // The worst first; findings of one severity stay in their order.
    report.findings.sort_by_key(|finding| (finding.suppressed.is_some(), finding.severity));
    let (found, state) = (found(&report.findings), verdict(&report));
    let left_out = report.findings.len().saturating_sub(MAX_FINDINGS);
    report.findings.truncate(MAX_FINDINGS);
    report.findings.shrink_to_fit();
    let mut names = Names::default();
    let finding_names = report.findings.iter().map(|finding| names.name(&finding.id)).collect();
    Run { name, place, written, state, survey: None, finding_names, left_out, found, list, group: 0, report }
}

/// The verdict that `check` gives by its exit status without `--fail-on`, from the report alone.
fn verdict(report: &Report) -> State {
    let cut = report.run.gate.as_ref().is_some_and(|gate| gate.closed.is_some());
    let counts = report.findings.iter().any(|finding| FailOn::default().counts(finding));
    match report.run.end() {
        _ if cut => State::CutOff,
        _ if counts => State::Findings,
        RunEnd::Complete => State::Clean,
        RunEnd::TooLittle => State::NotExercised,
        RunEnd::Failed => State::Failed,
    }
}

impl Run {
    /// Its name for people.
    pub(crate) fn title(&self) -> String {
        format!("{} on {}", self.report.driver, self.report.kernel)
    }
}

/// Numbers of errors and warnings, and of notes; those that are suppressed count as neither.
fn found(findings: &[Finding]) -> (usize, usize) {
    let open = findings.iter().filter(|finding| finding.suppressed.is_none());
    let (notes, others): (Vec<_>, Vec<_>) = open.partition(|finding| finding.severity == Severity::Note);
    (others.len(), notes.len())
}

fn routes(site: &Site) -> BTreeMap<String, Route> {
    let mut all: Vec<Route> = Order::ALL.map(Route::Index).to_vec();
    all.extend((0..site.surveys.len()).map(Route::Survey));
    for run in 0..site.runs.len() {
        all.push(Route::Run(run));
        all.extend((0..site.runs[run].report.findings.len()).map(|finding| Route::Finding(run, finding)));
        let earlier = site.comparisons(run).into_iter().filter(|(_, later)| *later == run);
        all.extend(earlier.map(|(earlier, later)| Route::Compare(earlier, later)));
    }
    all.into_iter().map(|route| (site.path(route), route)).collect()
}
