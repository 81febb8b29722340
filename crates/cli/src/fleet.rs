//! `guardrail job` and `guardrail fleet`.

use crate::args::fleet::{
    FleetCommand, FleetJobsArgs, FleetRunArgs, FleetStatusArgs, FleetWorkArgs, JobArgs,
};
use crate::args::version;
use crate::errors::{CliError, Status, print_line};
use crate::output;
use guardrail_check::survey;
use guardrail_fleet::build::identity;
use guardrail_fleet::engine::work_for;
use guardrail_fleet::spec::Check;
use guardrail_fleet::{Computer, Resolver, RunPlan, Spec, Store, WorkPlan};
use guardrail_fleet::{judge, run as run_jobs, status, work as work_on};
use guardrail_host::drivers::variables;
use guardrail_host::{Host, files};
use guardrail_vm::settings;
use std::collections::BTreeMap;

/// The most bytes of a specification.
const MOST_SPEC: u64 = 1 << 20;
/// The name of this machine's worker in results of `job`.
const ALONE: &str = "job";

/// Computes one job, and prints its result.
pub fn job(args: &JobArgs) -> Result<Status, CliError> {
    let text = files::text(&args.spec, MOST_SPEC, "a job, as TOML or JSON")?;
    let spec = Spec::read(&args.spec.display().to_string(), &text)?;
    let store = args.store.as_deref().filter(|_| !args.key).map(Store::create).transpose()?;
    let host = Host::open()?;
    let build = identity(version(), &host.cache)?;
    let job = Resolver::new(&host, &build).job(spec)?;
    if args.key {
        output::text(&format!("{}\n", job.key()))?;
        return Ok(Status::Clean);
    }
    host.signals.run_begins();
    let mut computer = Computer::new(&host, &build, ALONE);
    let outcome = guardrail_fleet::compute::result(&job, &mut computer, store.as_ref());
    let outcome = outcome.map_err(|error| host.signals.explain(error))?;
    host.progress.finish();
    output::text(&String::from_utf8_lossy(&outcome.body))?;
    Ok(status_of(outcome.status))
}

/// The exit status by its number.
fn status_of(number: u8) -> Status {
    let all = [Status::Findings, Status::Contained, Status::Undecided, Status::NotExercised];
    all.into_iter().find(|status| *status as u8 == number).unwrap_or(Status::Clean)
}

/// Runs, works, or shows how far runs are.
pub fn run(command: &FleetCommand) -> Result<Status, CliError> {
    match command {
        FleetCommand::Run(args) => controller(args),
        FleetCommand::Work(args) => worker(args),
        FleetCommand::Status(args) => show(args),
        FleetCommand::Jobs(args) => jobs(args),
    }
}

fn controller(args: &FleetRunArgs) -> Result<Status, CliError> {
    let plan: RunPlan = args.plan();
    let host = Host::open()?;
    let summary = run_jobs(&plan, &host, &identity(version(), &host.cache)?)?;
    output::text(&output::table(&summary.rows()))?;
    judge(&summary)
}

fn worker(args: &FleetWorkArgs) -> Result<Status, CliError> {
    let host = Host::open()?;
    let build = identity(version(), &host.cache)?;
    match args.for_server() {
        Some(plan) => work_for(&plan, &host, &build)?,
        None => {
            let plan = WorkPlan {
                store: args.store.clone().unwrap_or_default(),
                run: args.run.clone(),
                index: args.index.unwrap_or_default(),
                of: args.of,
            };
            work_on(&plan, &host, &build)?
        }
    };
    Ok(Status::Clean)
}

fn show(args: &FleetStatusArgs) -> Result<Status, CliError> {
    let store = Store::open(&args.store)?;
    if args.survey {
        let summary = guardrail_fleet::survey::summary(&store, args.run.as_deref())?;
        output::survey(&summary, args.format)?;
        return survey::judge(&summary);
    }
    let statuses = guardrail_fleet::statuses(&store)?;
    output::text(&output::table(&status::rows(&statuses)))?;
    let aside = statuses.iter().flat_map(|status| &status.aside);
    let lines = aside.map(|aside| {
        let why = guardrail_fleet::compute::last_words(&aside.log);
        format!("set aside: {}: {why}\n", aside.name)
    });
    output::text(&lines.collect::<String>())?;
    output::text(&status::unfit(&store))?;
    match store.refused() {
        0 => {}
        count => print_line("guardrail", &format!("{count} results did not match and were computed anew")),
    }
    Ok(Status::Clean)
}

fn jobs(args: &FleetJobsArgs) -> Result<Status, CliError> {
    let FleetJobsArgs { places, each, seeds } = args;
    let host = Host::open()?;
    let checkers = guardrail_check::tools(&each.tool)?;
    let variables: BTreeMap<String, String> = variables(&each.variables)?.into_iter().collect();
    if let Some(workload) = &each.workload {
        survey::refuse_workload(workload)?;
    }
    settings::refuse_unknown(each.workload.as_deref(), variables.keys().map(String::as_str))?;
    let found = survey::places(&places.driver, &places.kernel, places.every_device, &host)?;
    host.progress.finish();
    let mut text = String::new();
    for place in found {
        let check = Check {
            driver: place.driver,
            kernel: place.kernel,
            device: place.device,
            workload: each.workload.clone(),
            variables: variables.clone(),
            seed: None,
            checkers: checkers.clone(),
            mode: each.mode.word().to_owned(),
            smp: each.smp,
            timeout: each.timeout,
        };
        let seeds: Vec<Option<u64>> = if *seeds == 0 { vec![None] } else { (1..=*seeds).map(Some).collect() };
        for seed in seeds {
            let spec = Spec::Check(Check { seed, ..check.clone() });
            text += &serde_json::to_string(&spec).map_err(|error| CliError::Run(error.to_string()))?;
            text.push('\n');
        }
    }
    output::text(&text)?;
    Ok(Status::Clean)
}
