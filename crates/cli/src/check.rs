//! `guardrail check`: one run of a driver under guard.

use crate::analysis_process::RUN_KEY;
use crate::analyze::OTHERS_KEY;
use crate::args::{CheckArgs, Gate, Mode, Observe, Thread};
use crate::child::Analysis;
use crate::confirm::{self, Effort};
use crate::drivers::{debug_file, digest, drivers, names, no_device, others, ran, seconds, variables};
use crate::engine;
use crate::errors::{CliError, Status, tell};
use crate::folders::{LogFolder, RunFolder, absolute, library};
use crate::gate::{self, Hooks};
use crate::output;
use crate::outside::{self, Outside};
use crate::progress::Progress;
use crate::signals::Signals;
use crate::snapshots::{self, Snapshots};
use crate::wire::{Analyzed, Job, ModuleFile, Subject};
use crate::zoo;
use guardrail_binfmt::KernelImage;
use guardrail_kernel::gate as gate_config;
use guardrail_kernel::{SummaryTable, tracer_config};
use guardrail_report::{Report, Run, SCHEMA};
use guardrail_trace::config::{self, Holds, Samples, TracerConfig};
use guardrail_trace::file::TraceMeta;
use guardrail_trace::log::{Closed, FailReason, Log, LogOptions};
use guardrail_vm::Cache;
use guardrail_vm::packages::Packages;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::rerun::Rerun;
use guardrail_vm::run::{Finished, Limits, Options, Outcome, Plugin, Save, Stop, TcgThreads, Watch};
use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Name of the tracer's library; it lies beside the program.
pub const TRACER: &str = "libguardrail_tracer.so";
/// Words in each ring of the log (16 MiB).
pub const RING_WORDS: u64 = 1 << 21;

/// Runs a driver and prints the report.
pub fn run(args: &CheckArgs) -> Result<Status, CliError> {
    let started = Instant::now();
    let tools = refuse_early(args)?;
    let policy = gate::policy(args)?.filter(|_| args.observe == Observe::Check);
    let signals = Signals::install()?;
    let progress = Progress::shown();
    let cache = Cache::open()?;
    let packages = Packages::new(&cache);
    let prepared = prepare(args, &packages, &progress)?;
    outside::refuse(args, &prepared)?;
    let plugin = library(TRACER)?;
    let folder = RunFolder::new(args.out.as_deref(), &cache)?;
    if let RunFolder::Kept(path) = &folder {
        confirm::store(path, args, &prepared)?;
    }

    // From here on there is something to clean up.
    signals.run_begins();
    progress.step("reading the kernel");
    let mut modules = Vec::new();
    for driver in drivers(&prepared) {
        let path = folder.path().join(format!("{}.ko", driver.name));
        fs::write(&path, &driver.bytes).map_err(CliError::io("write", path.display()))?;
        let debug = debug_file(&cache, &prepared.kernel, &driver.name);
        modules.push(ModuleFile { name: driver.name.clone(), path, debug });
    }
    let other = |module: &guardrail_vm::modules::ModuleFile| ModuleFile {
        name: module.name.clone(),
        path: module.path.clone(),
        debug: None,
    };
    let shared = LogFolder::new()?;
    let config = folder.path().join("config.json");
    let mut options = Options {
        cpus: args.smp,
        threads: match args.thread {
            Thread::Single => TcgThreads::Single,
            Thread::Multi => TcgThreads::Multi,
        },
        plugins: match args.observe {
            Observe::None => Vec::new(),
            _ => vec![Plugin { library: plugin, config: config.clone() }],
        },
        variables: variables(&args.variables)?,
        limits: Limits { total: Duration::from_secs(args.timeout), ..Limits::default() },
        kaslr: !args.no_kaslr,
        iommu: args.iommu,
        kernel_arguments: args.append.clone(),
        forwards: args.forwards.clone(),
        rerun: rerun(args)?,
        qemu_arguments: args.qemu.clone(),
        containable: policy.is_some(),
        ..Options::new(folder.path())
    };
    let orders = Orders {
        holds: samples(args, &tools),
        gate: policy.as_ref().map(|policy| GateOrders {
            memory: options.memory(),
            limit: args.gate_timeout * 1000,
            strict: policy.mode != Mode::Permissive,
        }),
    };
    let hooks = write_config(&prepared, &shared.log(), orders, &config)?;
    let subject = Subject {
        kernel: prepared.kernel.vmlinuz.clone(),
        modules,
        others: others(&prepared).map(other).collect(),
        tools: tools.clone(),
        hooks: hooks.clone(),
    };
    let log_options = LogOptions {
        words_per_ring: args.log_words,
        // Whoever waits for room in the log holds the next access, too.
        wait_limit: Duration::from_secs(if policy.is_some() { args.gate_timeout } else { 60 }),
        readers: match args.observe {
            Observe::Check => 1 + u32::from(args.record.is_some()),
            Observe::None | Observe::Trace => 0,
        },
        ..LogOptions::new(args.smp.into())
    };
    let log = Log::create_with(shared.log(), &log_options)?;
    let record = args.record.as_deref().map(absolute).transpose()?;
    let meta = meta(args, &prepared, &tools, hooks);
    let strict = policy.as_ref().map(|policy| policy.mode != Mode::Permissive);
    let snapshots = match args.snapshot_on_finding {
        Some(_) => Some(Snapshots::new(folder.path(), &subject, options.memory_mib)?),
        None => None,
    };
    let saves = snapshots::saves(args);
    let job = Job { log: shared.log(), record, subject, meta, policy, schedule: gate::schedule(args), saves };
    let mut analysis = match args.observe {
        Observe::Check => Some(Analysis::start(&job, &|| signals.interrupted())?),
        Observe::None | Observe::Trace => None,
    };

    let outside = match args.gate {
        Gate::VfioUser => Some(Outside::start(args, &prepared, &mut options, &shared.log(), strict)?),
        Gate::Vmm | Gate::Off => None,
    };

    let mut at_findings = Hooks::new(args.on_finding.as_deref());
    let run = Around {
        log: &log,
        shared: &shared,
        signals: &signals,
        progress: &progress,
        outside: outside.as_ref(),
        snapshots: snapshots.as_ref(),
    };
    let finished = guest(&prepared, &options, analysis.as_mut(), &run, &mut at_findings);
    // Before the log ends, which would close this gate, too.
    let outside = outside.map(Outside::stop);
    log.mark_producer_dead();
    let finished = finished?;
    let guest_ended = Instant::now();
    if finished.outcome == Outcome::Interrupted {
        return Err(CliError::Interrupted);
    }
    // Whoever let an access wait for so long is not waited for any longer.
    if let (Outcome::Contained { .. }, Some(Closed::TimeOut)) = (&finished.outcome, log.gate_closed()) {
        return Err(CliError::Run(finished.outcome.to_string()));
    }
    // Nor is whoever did not read a log that was full.
    if let Some(FailReason::ReaderStalled | FailReason::UrgentOverflow) = log.failed() {
        return Err(CliError::Run(failure(&log, String::new())));
    }
    let outside = outside.transpose()?;
    let mut summary =
        Run { gate: gate::told(args, &log, outside.as_ref()), ..describe(&prepared, &finished, &log) };
    progress.step("waiting for the analysis");
    let analyzed = match analysis.map(|analysis| analysis.finish(&summary, &|| signals.interrupted())) {
        None => Analyzed::default(),
        Some(Err(CliError::Run(why))) => return Err(CliError::Run(failure(&log, why))),
        Some(other) => other?,
    };
    summary.lag_seconds = seconds(guest_ended.elapsed());
    if let Some(snapshots) = &snapshots {
        snapshots.thin(&progress);
    }
    summary.wall_seconds = seconds(started.elapsed());
    progress.finish();

    let mut report = Report {
        schema: SCHEMA.to_owned(),
        driver: names(&prepared),
        kernel: prepared.kernel.release.clone(),
        tools,
        mode: args.mode.word().to_owned(),
        run: analyzed.complete(summary),
        findings: analyzed.findings.clone(),
    };
    if args.confirm {
        let effort = Effort { tries: 40, runs: 3 };
        confirm::races_of_run(args, &prepared, &mut report.findings, effort, &cache, &signals, &progress)?;
        progress.finish();
    }
    keep(&folder, &report)?;
    at_findings.finish(&report.findings);
    output::report(&report, args.format)?;
    judge(&finished, &prepared, &report, &analyzed)
}

/// Whether the whole machine is recorded or runs again.
fn rerun(args: &CheckArgs) -> Result<Option<Rerun>, CliError> {
    let folder = args.vm_record.as_deref().or(args.vm_replay.as_deref());
    let Some(folder) = folder.map(absolute).transpose()? else { return Ok(None) };
    if args.smp != 1 || args.gate != Gate::Off || args.thread != Thread::Single {
        return Err(CliError::Usage(
            "a machine that is recorded has one CPU and no gate; add --smp 1 --gate off".into(),
        ));
    }
    Ok(Some(if args.vm_record.is_some() { Rerun::Record(folder) } else { Rerun::Replay(folder) }))
}

/// Why there is no result: where the log failed of itself, that says more than that the analysis found it so.
fn failure(log: &Log, why: String) -> String {
    match log.failed() {
        None | Some(FailReason::Stopped | FailReason::ReaderDied | FailReason::ReadersGone) => why,
        Some(reason) => format!("the trace is not whole: {reason}"),
    }
}

/// What can be refused without looking at anything.
fn refuse_early(args: &CheckArgs) -> Result<Vec<String>, CliError> {
    output::check_format(args.format)?;
    outside::refuse_early(args)?;
    snapshots::refuse_early(args)?;
    let tools = engine::tools(&args.tool)?;
    if args.confirm && !tools.iter().any(|tool| tool.starts_with("drcheck") || tool == "datacollider") {
        let why =
            "--confirm tries races, but no checker of the run finds any; add --tool drcheck or --tool all";
        return Err(CliError::Usage(why.into()));
    }
    Ok(tools)
}

pub fn prepare(args: &CheckArgs, packages: &Packages, progress: &Progress) -> Result<Prepared, CliError> {
    let request = Request {
        driver: &args.drivers[0],
        more: &args.drivers[1..],
        kernel: &args.kernel,
        device: args.device.as_deref(),
        workload: args.workload.as_deref(),
    };
    zoo::prepare(packages, request, progress)
}

/// What `datacollider` wants held. CPUs that take turns on one thread have turns of a tenth of a second.
fn samples(args: &CheckArgs, tools: &[String]) -> Holds {
    if !tools.iter().any(|tool| tool == "datacollider") {
        return Holds::default();
    }
    let (millis, pause_millis) = match args.thread {
        Thread::Multi => (20, 40),
        Thread::Single => (220, 220),
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let samples = Samples { one_in: 3, seed: now.as_nanos() as u64, millis, pause_millis };
    Holds { samples: Some(samples), ..Holds::default() }
}

/// Writes what the tracer is told, and gives the names of the hooks.
pub fn write_config(
    prepared: &Prepared,
    log: &Path,
    orders: Orders,
    file: &Path,
) -> Result<Vec<String>, CliError> {
    let image = KernelImage::open(&prepared.kernel.vmlinuz)?;
    let log = log.display().to_string();
    let watch: Vec<String> = drivers(prepared).map(|driver| driver.name.clone()).collect();
    let config = tracer_config(&image, &SummaryTable::for_image(&image), &watch, &log)?;
    let gate = orders
        .gate
        .map(|gate| config::Gate { strict: gate.strict, ..gate_config(&image, &gate.memory, gate.limit) });
    let config = TracerConfig { holds: orders.holds, gate, ..config };
    let text = serde_json::to_vec(&config).map_err(|error| CliError::Run(error.to_string()))?;
    fs::write(file, text).map_err(CliError::io("write", file.display()))?;
    Ok(config.hooks.into_iter().map(|hook| hook.name).collect())
}

fn meta(args: &CheckArgs, prepared: &Prepared, tools: &[String], hooks: Vec<String>) -> TraceMeta {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut meta = TraceMeta {
        guardrail: env!("CARGO_PKG_VERSION").to_owned(),
        driver: names(prepared),
        kernel_release: prepared.kernel.release.clone(),
        kernel_image: prepared.kernel.vmlinuz.display().to_string(),
        modules: drivers(prepared).map(|driver| (driver.name.clone(), resolved(&driver.path))).collect(),
        workload: prepared.workload.name.clone(),
        tools: tools.to_vec(),
        hooks,
        vcpus: args.smp.into(),
        started: now.as_secs(),
        ..TraceMeta::default()
    };
    let digests: Vec<String> = drivers(prepared).map(|driver| digest(&driver.bytes)).collect();
    let others: Vec<_> =
        others(prepared).map(|other| (&other.name, resolved(&other.path), digest(&other.bytes))).collect();
    // A trace that is cut has no end that tells of its run.
    let run = Run { outcome: "truncated".to_owned(), ..subject_of_run(prepared) };
    for (key, value) in [
        (RUN_KEY, serde_json::to_value(run)),
        ("kernel_modules", serde_json::to_value(resolved(&prepared.kernel.modules))),
        ("module_digests", serde_json::to_value(digests)),
        (OTHERS_KEY, serde_json::to_value(others)),
    ] {
        if let Ok(value) = value {
            meta.more.insert(key.to_owned(), value);
        }
    }
    meta
}

fn resolved(path: &Path) -> String {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}

/// Runs the guest, and ends it when somebody that it depends on fails.
pub fn guest(
    prepared: &Prepared,
    options: &Options,
    analysis: Option<&mut Analysis>,
    run: &Around<'_>,
    hooks: &mut Hooks,
) -> Result<Finished, CliError> {
    let Around { log, shared, signals, progress, outside, snapshots } = *run;
    let analysis = RefCell::new(analysis);
    let mut save = snapshots.map(|snapshots| {
        snapshots.saving(progress, |finding| {
            if let Some(analysis) = analysis.borrow_mut().as_mut() {
                analysis.go_on(finding);
            }
        })
    });
    let mut watch = Watch {
        progress: &mut |time, line| {
            // Everybody has opened the log by now: however we end, it does not stay behind.
            shared.unlink();
            progress.guest(time, &line.to_string());
        },
        stop: &mut || {
            if signals.interrupted() {
                return Some(Stop::Interrupted);
            }
            for found in analysis.borrow_mut().as_mut().map(|analysis| analysis.found()).into_iter().flatten()
            {
                progress.found(&found.checker, &found.kind, &found.action);
                hooks.run(&found);
                if let Some(snapshots) = snapshots.filter(|_| found.waits) {
                    snapshots.want(&found.id);
                }
            }
            if let Some(why) = analysis.borrow_mut().as_mut().and_then(|analysis| analysis.failure()) {
                log.fail(FailReason::ReaderDied);
                return Some(Stop::Because(why));
            }
            if let Some(why) = outside.and_then(Outside::failure) {
                return Some(Stop::Because(why));
            }
            log.failed().map(|reason| Stop::Because(reason.to_string()))
        },
        activity: &mut || analysis.borrow_mut().as_mut().map_or(0, |analysis| analysis.words()),
        closed: &mut || {
            let (places, why) = gate::closed(log)?;
            let Some(outside) = outside else { return Some((places, why)) };
            outside.contain(&why);
            Some((Vec::new(), why))
        },
        save: save.as_mut().map(|save| save as &mut dyn Save),
    };
    Ok(guardrail_vm::run::run(prepared, options, &mut watch)?)
}

/// What a run goes on among.
pub struct Around<'a> {
    /// The log.
    pub log: &'a Log,
    /// Its place.
    pub shared: &'a LogFolder,
    /// The user's wishes.
    pub signals: &'a Signals,
    /// What the user sees of it.
    pub progress: &'a Progress,
    /// The gate outside the driver VM, where there is one.
    pub outside: Option<&'a Outside>,
    /// The guest is saved at findings.
    pub snapshots: Option<&'a Snapshots>,
}

/// How device accesses wait.
pub struct GateOrders {
    /// Physical addresses of the guest's memory.
    pub memory: Vec<(u64, u64)>,
    /// The longest wait, in milliseconds.
    pub limit: u64,
    /// An access that got around the gate closes it.
    pub strict: bool,
}

/// What the tracer is to do besides watching.
#[derive(Default)]
pub struct Orders {
    /// Accesses that are held to see who comes meanwhile.
    pub holds: Holds,
    /// Device accesses wait to be checked.
    pub gate: Option<GateOrders>,
}

/// The part of a run's description that is known before it starts.
fn subject_of_run(prepared: &Prepared) -> Run {
    Run {
        device: prepared.choice.device.as_ref().map(|device| device.name.clone()),
        workload: Some(prepared.workload.name.clone()),
        ..Run::default()
    }
}

fn describe(prepared: &Prepared, finished: &Finished, log: &Log) -> Run {
    let Run { device, workload, .. } = subject_of_run(prepared);
    Run { device, workload, lost_events: log.stats().lost(), ..ran(finished) }
}

/// Turns the end of a run into an exit status.
fn judge(
    finished: &Finished,
    prepared: &Prepared,
    report: &Report,
    analyzed: &Analyzed,
) -> Result<Status, CliError> {
    if report.run.lost_events > 0 {
        return Err(CliError::Run(format!(
            "{} events were lost; the report is not whole",
            report.run.lost_events
        )));
    }
    if report.run.gate.as_ref().is_some_and(|gate| gate.ungated > 0) {
        return Err(CliError::Run(
            "accesses reached the device without being held; the report is in doubt".into(),
        ));
    }
    let contained = report.findings.iter().any(|finding| finding.action.as_deref() == Some("contained"));
    match &finished.outcome {
        _ if contained => {
            tell("guardrail", &finished.outcome.to_string());
            Ok(Status::Contained)
        }
        Outcome::Completed => match &analyzed.cut {
            Some(why) => Err(CliError::Run(format!("the trace is not whole: {why}"))),
            None if report.findings.is_empty() => Ok(Status::Clean),
            None => Ok(Status::Findings),
        },
        // A panic is a result, provided that the driver had begun to run.
        Outcome::GuestPanic { .. } if !report.findings.is_empty() => {
            tell("guardrail", &finished.outcome.to_string());
            Ok(Status::Findings)
        }
        Outcome::NoDeviceBound => Err(CliError::Run(no_device(prepared))),
        other => Err(CliError::Run(other.to_string())),
    }
}

/// Leaves the report in a folder that stays.
fn keep(folder: &RunFolder, report: &Report) -> Result<(), CliError> {
    let RunFolder::Kept(path) = folder else { return Ok(()) };
    let file = path.join("report.json");
    let mut text = Vec::new();
    guardrail_report::json::write(report, &mut text)
        .and_then(|()| fs::write(&file, text))
        .map_err(CliError::io("write", file.display()))
}
