//! `guardrail confirm`: runs a driver again with the two accesses of a race held, one for the other.

mod manner;
mod points;
mod stored;
mod verdict;

use crate::args::{CheckArgs, ConfirmArgs, ListFormat};
use crate::check::{self, Around, Orders, RING_WORDS};
use crate::errors::{CliError, Status};
use crate::gate::Hooks;
use crate::output;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::{
    drivers,
    folders::{self, LogFolder},
};
use guardrail_finding::{Confirmation, Finding};
use guardrail_report::Report;
use guardrail_trace::config::{HoldPoint, Holds};
use guardrail_trace::event::Event;
use guardrail_trace::log::{Log, LogOptions, MergedReader};
use guardrail_trace::meet::{Meet, MeetOutcome};
use guardrail_trace::source::{Live, Source, Step};
use guardrail_vm::packages::Packages;
use guardrail_vm::prepare::Prepared;
use guardrail_vm::run::{Limits, Options, Outcome, Plugin, TcgThreads};
use guardrail_vm::{Cache, error::suggest};
use manner::Manner;
use std::time::Duration;
pub use stored::{load, store};
use tempfile::TempDir;
use verdict::Seen;

/// The kind of finding that can be confirmed.
const RACE: &str = "data-race";
/// Records that are kept of one run.
const MAX_MEETS: usize = 1 << 16;
/// The workload that only loads the driver, which is then done several times.
const SHORT: &str = "load";
/// How long the reader waits for the log before it looks whether the guest still runs.
const IDLE: Duration = Duration::from_millis(200);

/// How hard to try.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Holds of each race in each run.
    pub tries: u32,
    /// Runs at most.
    pub runs: u32,
}

/// Confirms findings of an earlier run and tells what came of it.
pub fn run(args: &ConfirmArgs) -> Result<Status, CliError> {
    let (again, mut report) = stored::load(&args.out)?;
    let chosen = choose(&report, &args.findings)?;
    let signals = Signals::install()?;
    let progress = Progress::shown();
    let cache = Cache::open()?;
    let packages = Packages::new(&cache);
    let check = again.args()?;
    let prepared = check::prepare(&check, &packages, &progress)?;
    again.same(&prepared, &report)?;
    let effort = Effort { tries: args.tries, runs: args.runs };
    signals.run_begins();
    let mut races: Vec<Finding> = chosen.iter().map(|&i| report.findings[i].clone()).collect();
    races_of_run(&check, &prepared, &mut races, effort, &cache, &signals, &progress)?;
    progress.finish();
    for (&i, race) in chosen.iter().zip(&races) {
        report.findings[i].confirmation = race.confirmation.clone();
    }
    stored::update(&args.out, &report)?;
    print(&races, args.format)?;
    let confirmed =
        races.iter().any(|race| race.confirmation.as_ref().is_some_and(|c| c.outcome == verdict::CONFIRMED));
    Ok(if confirmed { Status::Findings } else { Status::Clean })
}

/// The findings that the user names, by index; all races where none is named.
fn choose(report: &Report, names: &[String]) -> Result<Vec<usize>, CliError> {
    let races = || (0..report.findings.len()).filter(|&i| report.findings[i].kind == RACE);
    if names.is_empty() {
        return match races().next() {
            None => Err(CliError::Usage("the run found no data race; only those can be confirmed".into())),
            Some(_) => Ok(races().collect()),
        };
    }
    let mut chosen = Vec::new();
    for name in names {
        let matching: Vec<usize> = (0..report.findings.len())
            .filter(|&i| report.findings[i].id.starts_with(name.as_str()))
            .collect();
        let i = match matching[..] {
            [one] => one,
            [] => {
                let ids: Vec<&str> = races().map(|i| report.findings[i].id.as_str()).collect();
                let mut near = suggest(name, ids.iter().copied());
                if near.is_empty() {
                    near = ids.iter().take(8).map(|id| (*id).to_owned()).collect();
                }
                return Err(match near.is_empty() {
                    true => CliError::Usage(format!(
                        "no finding of the run is called '{name}', and it has no data race"
                    )),
                    false => {
                        guardrail_vm::Error::Unknown { what: "finding of the run", name: name.clone(), near }
                            .into()
                    }
                });
            }
            _ => {
                return Err(CliError::Usage(format!(
                    "{} findings of the run begin with '{name}'; give more of the one you mean",
                    matching.len()
                )));
            }
        };
        let finding = &report.findings[i];
        if finding.kind != RACE {
            return Err(CliError::Usage(format!(
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

/// Tries all data races among `findings` and adds to each what came of it.
pub fn races_of_run(
    args: &CheckArgs,
    prepared: &Prepared,
    findings: &mut [Finding],
    effort: Effort,
    cache: &Cache,
    signals: &Signals,
    progress: &Progress,
) -> Result<(), CliError> {
    let images = points::images(prepared)?;
    let mut open = Vec::new();
    let mut seen: Vec<Seen> = Vec::new();
    for (i, finding) in findings.iter_mut().enumerate().filter(|(_, finding)| finding.kind == RACE) {
        match points::of(finding, &images, seen.len() as u32) {
            Ok(points) => {
                open.push((i, points));
                seen.push(Seen::default());
            }
            Err(why) => finding.confirmation = Some(verdict::untried(why)),
        }
    }
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
        progress.step(&format!("holding accesses, run {run} of at most {}", effort.runs));
        let manner = Manner::of_run(run);
        let pairs = seen.iter().filter(|seen| seen.undecided()).count();
        let holds = manner.times(pairs, Holds { points, tries: effort.tries, ..Holds::default() });
        let (meets, outcome) = held_run(args, prepared, holds, manner, cache, signals, progress)?;
        for (pair, seen) in seen.iter_mut().enumerate().filter(|(_, seen)| seen.undecided()) {
            let of_pair = meets.iter().filter(|meet| meet.pair == Some(pair as u32));
            seen.add(of_pair, outcome.guest_seconds, manner.note());
        }
        if let Some(why) = outcome.failed {
            if seen.iter().all(|seen| seen.undecided()) {
                return Err(CliError::Run(why));
            }
            break;
        }
    }
    for ((i, _), seen) in open.iter().zip(&seen) {
        findings[*i].confirmation = Some(seen.confirmation());
    }
    Ok(())
}

/// How a run with holds ended.
struct Ended {
    guest_seconds: f64,
    failed: Option<String>,
}

/// One run of the guest with accesses held; what the tracer told of them.
fn held_run(
    args: &CheckArgs,
    prepared: &Prepared,
    holds: Holds,
    manner: Manner,
    cache: &Cache,
    signals: &Signals,
    progress: &Progress,
) -> Result<(Vec<Meet>, Ended), CliError> {
    let plugin = folders::library(check::TRACER)?;
    let mut variables = drivers::variables(&args.variables)?;
    variables.extend(manner.variables(args.smp));
    if prepared.workload.name == SHORT {
        variables.push(("TURNS".to_owned(), manner.turns().to_string()));
    }
    let runs = cache.path("runs");
    std::fs::create_dir_all(&runs).map_err(CliError::io("create", runs.display()))?;
    let folder = TempDir::with_prefix_in("confirm-", &runs)
        .map_err(CliError::io("create a folder in", runs.display()))?;
    let shared = LogFolder::new()?;
    let config = folder.path().join("config.json");
    check::write_config(prepared, &shared.log(), Orders { holds, gate: None }, &config)?;
    let options = LogOptions { words_per_ring: RING_WORDS, readers: 1, ..LogOptions::new(args.smp.into()) };
    let log = Log::create_with(shared.log(), &options)?;
    let reader = MergedReader::attach(&log)?;
    let meets = std::thread::spawn(move || collect(reader));
    let options = Options {
        cpus: args.smp,
        // What is held spins; the others need a thread of their own.
        threads: if args.smp > 1 { TcgThreads::Multi } else { TcgThreads::Single },
        plugins: vec![Plugin { library: plugin, config }],
        variables,
        limits: Limits { total: Duration::from_secs(args.timeout), ..Limits::default() },
        kaslr: !args.no_kaslr,
        iommu: args.iommu,
        kernel_arguments: [args.append.clone(), manner.kernel_arguments()].concat(),
        ..Options::new(folder.path())
    };
    let run = Around { log: &log, shared: &shared, signals, progress, outside: None, snapshots: None };
    let finished = check::guest(prepared, &options, None, &run, &mut Hooks::new(None));
    log.mark_producer_dead();
    let meets = meets.join().map_err(|_| CliError::Run("the reader of the log died".into()))?;
    let finished = finished?;
    let failed = match &finished.outcome {
        Outcome::Completed => None,
        Outcome::Interrupted => return Err(CliError::Interrupted),
        other => Some(other.to_string()),
    };
    Ok((meets?, Ended { guest_seconds: finished.wall.as_secs_f64(), failed }))
}

/// Reads the log to its end and keeps the records of held accesses.
fn collect(reader: MergedReader) -> Result<Vec<Meet>, CliError> {
    let mut live = Live { reader, timeout: IDLE };
    let mut meets = Vec::new();
    loop {
        match live.step().map_err(|error| CliError::Run(error.to_string()))? {
            Step::Segment(segment) => {
                for event in segment.events().map_while(Result::ok) {
                    if let Event::Record(head, operands) = event
                        && let Some(meet) = Meet::decode(head, operands)
                        && (meets.len() < MAX_MEETS || meet.outcome == MeetOutcome::Totals)
                    {
                        meets.push(meet);
                    }
                }
            }
            Step::Idle => {}
            Step::End(_) => return Ok(meets),
        }
    }
}

fn print(races: &[Finding], format: ListFormat) -> Result<(), CliError> {
    let text = match format {
        ListFormat::Json => {
            let object =
                |race: &Finding| serde_json::json!({ "id": race.id, "confirmation": race.confirmation });
            let objects: Vec<_> = races.iter().map(object).collect();
            format!("{:#}\n", serde_json::json!({ "schema": guardrail_report::SCHEMA, "findings": objects }))
        }
        ListFormat::Text => races.iter().map(line).collect(),
    };
    output::text(&text)
}

fn line(race: &Finding) -> String {
    let place = |function: &str, offset: u64| format!("{function}+{offset:#x}");
    let mut text = format!("{} {}", race.id, place(&race.function, race.offset));
    if let Some(frame) = race.other.as_ref().and_then(|other| other.stack.first()) {
        text.push_str(&format!(" / {}", place(&frame.function, frame.offset)));
    }
    match &race.confirmation {
        Some(Confirmation { outcome, detail, .. }) => format!("{text}: {outcome}: {detail}\n"),
        None => format!("{text}: not tried\n"),
    }
}
