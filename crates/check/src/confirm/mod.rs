//! Confirms races: the driver runs again, and each access of a race is held until the other occurs.
//!
//! Knows: which findings can be confirmed, how a run with held accesses differs from others, what follows from its records.
//!
//! Must not know: how the tracer holds an access, how checkers find races.

mod consequence;
pub(crate) mod points;
mod repeat;
mod scheduling;
mod verdict;

use crate::plan::{Effort, RING_WORDS, RunPlan};
use crate::run::guest::Guest;
use crate::run::prepare::drivers;
use crate::run::synthetic::Synthetic;
use crate::run::tracer::{self, Holding};
use crate::stored;
use consequence::{Met, Search};
use guardrail_finding::Finding;
use guardrail_host::error::sentence;
use guardrail_host::folders::{LogFolder, library};
use guardrail_host::{Host, HostError};
use guardrail_report::Report;
use guardrail_trace::config::{HoldPoint, Holds};
use guardrail_trace::event::Event;
use guardrail_trace::log::{Log, LogOptions, MergedReader};
use guardrail_trace::meet::{Meet, MeetOutcome};
use guardrail_trace::source::{Live, Source, Step};
use guardrail_vm::OwnedFolder;
use guardrail_vm::error::suggest;
use guardrail_vm::prepare::Prepared;
use guardrail_vm::run::{Limits, Options, Outcome, Plugin, TcgThreads};
use scheduling::Scheduling;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
pub use verdict::CONFIRMED;
use verdict::Seen;

/// The kind of finding that can be confirmed.
const RACE: &str = "data-race";
/// The most records that are kept of one run.
const MAX_MEETS: usize = 1 << 16;
/// Most races whose consequence is looked for, each in runs of its own.
const MOST_FOLLOWED: usize = 8;
/// The workload that only loads the driver, which a confirming run does several times.
const SHORT: &str = "load";
/// How long the reader waits for the log before it looks whether the guest still runs.
const IDLE: Duration = Duration::from_millis(200);

/// Confirms findings of an earlier run that was kept in `folder`, and adds the outcome to its report. `names`
/// holds the first characters of findings' ids; an empty list means all races. Returns the findings that were
/// tried.
pub fn confirm(
    folder: &Path,
    findings: &[String],
    effort: Effort,
    host: &Host,
) -> Result<Vec<Finding>, HostError> {
    let (again, mut report) = stored::load(folder)?;
    let before = report.clone();
    let chosen = choose(&report, findings)?;
    let plan = again.plan()?;
    let prepared = drivers(&plan, host)?;
    again.same(&prepared, &report)?;
    host.signals.run_begins();
    let mut races: Vec<Finding> = chosen.iter().map(|&i| report.findings[i].clone()).collect();
    let met = confirm_races(&plan, &prepared, &mut races, effort, host)?;
    // Each outcome is kept at once, so that a later run that fails or is interrupted costs none.
    let mut keep = |races: &[Finding]| {
        for (&i, race) in chosen.iter().zip(races) {
            report.findings[i].confirmation = race.confirmation.clone();
        }
        stored::keep_report(folder, &report)
    };
    keep(&races)?;
    if !effort.follow.is_zero() {
        let search = Search::new((&plan, &prepared, host), effort, &before)?;
        follow(search, &mut races, &met, &mut keep)?;
    }
    for met in met.iter().take(MOST_FOLLOWED).filter(|_| effort.repeat > 0) {
        if let Some(confirmation) = &mut races[met.race].confirmation {
            confirmation.repeated = Some(repeat::repeat((&plan, &prepared, host), effort, met)?);
        }
        keep(&races)?;
    }
    host.progress.finish();
    Ok(races)
}

/// Adds to races what follows where their order is forced. `keep` stores the races after each.
fn follow(
    mut search: Search<'_>,
    races: &mut [Finding],
    met: &[Met],
    keep: &mut dyn FnMut(&[Finding]) -> Result<(), HostError>,
) -> Result<(), HostError> {
    for confirmation in races.iter_mut().filter_map(|race| race.confirmation.as_mut()) {
        if confirmation.tries > 0 && confirmation.outcome != CONFIRMED {
            confirmation.consequence = Some(Box::new(consequence::not_forced(confirmation.tries, &[])));
        }
    }
    for met in met.iter().take(MOST_FOLLOWED) {
        let consequence = match search.consequence(met) {
            Err(HostError::Interrupted) => return Err(HostError::Interrupted),
            Err(error) => consequence::not_looked_for(&sentence(&error)),
            Ok(consequence) => consequence,
        };
        if let Some(confirmation) = &mut races[met.race].confirmation {
            confirmation.consequence = Some(Box::new(consequence));
        }
        keep(races)?;
    }
    Ok(())
}

/// The findings that the user names, by index; all races where none is named.
fn choose(report: &Report, names: &[String]) -> Result<Vec<usize>, HostError> {
    let races = || (0..report.findings.len()).filter(|&i| report.findings[i].kind == RACE);
    if names.is_empty() {
        return match races().next() {
            None => Err(HostError::Usage("the run found no data race; only those can be confirmed".into())),
            Some(_) => Ok(races().collect()),
        };
    }
    let mut chosen = Vec::new();
    for name in names {
        let i = find(report, name)?;
        let finding = &report.findings[i];
        if finding.kind != RACE {
            return Err(HostError::Usage(format!(
                "the finding {name} is a {}; only data races can be confirmed",
                finding.kind
            )));
        }
        if !chosen.contains(&i) {
            chosen.push(i);
        }
    }
    Ok(chosen)
}

/// The index of the finding whose id begins with these characters.
fn find(report: &Report, name: &str) -> Result<usize, HostError> {
    let matching: Vec<usize> =
        (0..report.findings.len()).filter(|&i| report.findings[i].id.starts_with(name)).collect();
    match matching[..] {
        [one] => Ok(one),
        [] => Err(unknown(report, name)),
        _ => Err(HostError::Usage(format!(
            "{} findings of the run begin with '{name}'; give more of the one you mean",
            matching.len()
        ))),
    }
}

fn unknown(report: &Report, name: &str) -> HostError {
    let races = report.findings.iter().filter(|finding| finding.kind == RACE);
    let ids: Vec<&str> = races.map(|finding| finding.id.as_str()).collect();
    let mut near = suggest(name, ids.iter().copied());
    if near.is_empty() {
        near = ids.iter().take(8).map(|id| (*id).to_owned()).collect();
    }
    match near.is_empty() {
        true => {
            HostError::Usage(format!("no finding of the run is called '{name}', and it has no data race"))
        }
        false => {
            guardrail_vm::Error::Unknown { what: "finding of the run", name: name.to_owned(), near }.into()
        }
    }
}

/// Tries to confirm all data races among `findings`, and adds the outcome to each. Returns those that met.
pub fn confirm_races(
    plan: &RunPlan,
    prepared: &Prepared,
    findings: &mut [Finding],
    effort: Effort,
    host: &Host,
) -> Result<Vec<Met>, HostError> {
    let races: Vec<&Finding> = findings.iter().filter(|finding| finding.kind == RACE).collect();
    let found = points::of(prepared, &races)?;
    let mut open = Vec::new();
    let mut seen: Vec<Seen> = Vec::new();
    let races = findings.iter_mut().enumerate().filter(|(_, finding)| finding.kind == RACE);
    for ((i, finding), points) in races.zip(found) {
        match points {
            Ok(points) => {
                open.push((i, points));
                seen.push(Seen::default());
            }
            Err(why) => finding.confirmation = Some(verdict::untried(why)),
        }
    }
    let (mut made, mut failures) = (0, Vec::new());
    for run in 1..=effort.runs {
        let wanted = |pair: usize| seen[pair].undecided();
        let points: Vec<HoldPoint> = open
            .iter()
            .enumerate()
            .filter(|(pair, _)| wanted(*pair))
            .flat_map(|(_, (_, points))| points.iter().cloned())
            .collect();
        if points.is_empty() {
            break;
        }
        host.progress.step(&format!("holding accesses, run {run} of at most {}", effort.runs));
        let scheduling = Scheduling::of_run(run);
        let pairs = seen.iter().filter(|seen| seen.undecided()).count();
        let holds = scheduling.times(pairs, Holds { points, tries: effort.tries, ..Holds::default() });
        made += 1;
        let (meets, outcome) = match held_run((plan, prepared, host), holds, scheduling, |_| false) {
            Err(HostError::Interrupted) => return Err(HostError::Interrupted),
            Err(error) => {
                failures.push(sentence(&error));
                continue;
            }
            Ok(ended) => ended,
        };
        for (pair, seen) in seen.iter_mut().enumerate().filter(|(_, seen)| seen.undecided()) {
            let of_pair = meets.iter().filter(|meet| meet.pair == Some(pair as u32));
            seen.add(of_pair, &outcome, scheduling);
        }
        failures.extend(outcome.failed);
    }
    if failures.len() == made && seen.iter().all(Seen::undecided) {
        // Nothing was learned.
        if let Some(why) = failures.pop() {
            return Err(HostError::Run(why));
        }
    }
    let mut met = Vec::new();
    for ((race, points), seen) in open.into_iter().zip(&seen) {
        findings[race].confirmation = Some(seen.confirmation());
        met.extend(seen.met().map(|(scheduling, held)| Met { race, points, scheduling, held }));
    }
    Ok(met)
}

/// How a run with holds ended.
#[derive(Clone, Debug, Default)]
struct Ended {
    guest_seconds: f64,
    /// Why it did not complete.
    failed: Option<String>,
}

/// One run of the guest with accesses held, to the end of the workload, or until a record of the tracer is `enough`.
/// Returns the tracer's records of the holds.
fn held_run(
    (plan, prepared, host): (&RunPlan, &Prepared, &Host),
    holds: Holds,
    scheduling: Scheduling,
    enough: impl Fn(&Meet) -> bool + Send + 'static,
) -> Result<(Vec<Meet>, Ended), HostError> {
    let tracer = library(tracer::LIBRARY)?;
    let folder =
        OwnedFolder::large("guardrail-run-").map_err(HostError::io("create", "a folder for the run"))?;
    let shared = LogFolder::new()?;
    let config = folder.path().join("config.json");
    tracer::write_config(prepared, &shared.log(), Holding { holds, gate: None }, &config)?;
    let log_options =
        LogOptions { words_per_ring: RING_WORDS, readers: 1, ..LogOptions::new(plan.cpus.into()) };
    let log = Log::create_with(shared.log(), &log_options)?;
    let mut options = Options {
        plugins: vec![Plugin { library: tracer, config }],
        reach: tracer::reach(&shared.log()),
        ..options(plan, prepared, scheduling, folder.path())
    };
    let synthetic = Synthetic::start(prepared, &mut options)?;
    let reader = MergedReader::attach(&log)?;
    let over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&over);
    let meets =
        std::thread::spawn(move || collect(reader, |meet| _ = enough(meet) && !ends.swap(true, Relaxed)));
    let guest = Guest {
        log: &log,
        shared: &shared,
        host,
        analysis: None,
        outside: None,
        synthetic: synthetic.as_ref(),
        snapshots: None,
        on_finding: None,
        until: Some(&mut || over.load(Relaxed).then(|| "it has what it is made for".to_owned())),
    };
    let finished = guest.run(prepared, &options);
    log.mark_producer_dead();
    let meets = meets.join().map_err(|_| HostError::Run("the reader of the log died".into()))?;
    let finished = finished?;
    let failed = match &finished.outcome {
        Outcome::Completed => None,
        _ if over.load(Relaxed) => None,
        Outcome::Interrupted => return Err(HostError::Interrupted),
        other => Some(other.to_string()),
    };
    Ok((meets?, Ended { guest_seconds: finished.wall.as_secs_f64(), failed }))
}

/// A held vCPU spins, so the others need threads of their own.
fn threads(plan: &RunPlan) -> TcgThreads {
    if plan.cpus > 1 { TcgThreads::Multi } else { TcgThreads::Single }
}

/// The variables of the guest by which a scheduling works.
fn variables(plan: &RunPlan, prepared: &Prepared, scheduling: Scheduling) -> Vec<(String, String)> {
    let mut variables = scheduling.variables(plan.cpus);
    if prepared.workload.name == SHORT {
        variables.push(("TURNS".to_owned(), scheduling.turns().to_string()));
    }
    variables
}

fn options(plan: &RunPlan, prepared: &Prepared, scheduling: Scheduling, folder: &Path) -> Options {
    Options {
        cpus: plan.cpus,
        threads: threads(plan),
        variables: [plan.variables.clone(), variables(plan, prepared, scheduling)].concat(),
        limits: Limits { total: plan.time_limit, ..Limits::default() },
        kaslr: plan.kaslr,
        iommu: plan.iommu,
        kernel_arguments: [plan.kernel_arguments.clone(), scheduling.kernel_arguments()].concat(),
        ..Options::new(folder)
    }
}

/// Reads the log to its end and keeps the records of held accesses. `seen` gets each at once.
fn collect(reader: MergedReader, mut seen: impl FnMut(&Meet)) -> Result<Vec<Meet>, HostError> {
    let mut live = Live { reader, timeout: IDLE };
    let mut meets = Vec::new();
    loop {
        match live.step().map_err(|error| HostError::Run(error.to_string()))? {
            Step::Segment(segment) => {
                for event in segment.events().map_while(Result::ok) {
                    if let Event::Record(head, operands) = event
                        && let Some(meet) = Meet::decode(head, operands)
                    {
                        seen(&meet);
                        if meets.len() < MAX_MEETS || meet.outcome == MeetOutcome::Totals {
                            meets.push(meet);
                        }
                    }
                }
            }
            Step::Idle => {}
            Step::End(_) => return Ok(meets),
        }
    }
}
