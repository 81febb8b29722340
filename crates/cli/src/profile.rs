//! `guardrail profile`: clients over a kernel that runs.

mod ask;
mod choose;
mod names;
mod show;

use crate::args::ProfileArgs;
use crate::check::{self, LogFolder, RunFolder};
use crate::errors::{CliError, Status, tell};
use crate::output;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::zoo;
use choose::{Attachment, Plugged};
use guardrail_trace::client::{Report, Request};
use guardrail_vm::packages::Packages;
use guardrail_vm::prepare::{self, Prepared};
use guardrail_vm::progress::Progress as Said;
use guardrail_vm::run::{Finished, Limits, Options, Outcome, Stop, TcgThreads, Watch};
use guardrail_vm::{Cache, kernels};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Runs a workload under clients and prints what they say.
pub fn run(args: &ProfileArgs) -> Result<Status, CliError> {
    let clients = choose::clients(&args.clients)?;
    let attachment = Attachment::of(args)?;
    let signals = Signals::install()?;
    let progress = Progress::new();
    let cache = Cache::open()?;
    let packages = Packages::new(&cache);
    let prepared = prepare(args, &packages, &progress)?;
    let folder = RunFolder::new(args.out.as_deref(), &cache)?;
    signals.run_begins();
    progress.step("reading the kernel");
    let sockets = LogFolder::new()?;
    let at_start = attachment.at_start();
    let plugged = choose::configure(&clients, args, &prepared, folder.path(), sockets.folder(), at_start)?;
    let options = options(args, &plugged, folder.path())?;
    let finished = guest(&prepared, &options, &plugged, &attachment, &signals, &progress)?;
    progress.finish();
    if finished.outcome == Outcome::Interrupted {
        return Err(CliError::Interrupted);
    }
    let reports = plugged.iter().map(|one| ask::read(&one.results)).collect::<Result<Vec<_>, _>>()?;
    let names = names::Names::open(&cache, &prepared, &reports)?;
    let shown = show::Shown::new(&names, &prepared, &finished, reports);
    if let Some(out) = &args.out {
        shown.write_files(out)?;
    }
    output::text(&shown.text(args.format)?)?;
    judge(&finished, &prepared, &shown)
}

/// The guest that the arguments ask for.
fn prepare(args: &ProfileArgs, packages: &Packages, progress: &Progress) -> Result<Prepared, CliError> {
    let mut drivers = args.drivers.clone();
    for driver in &mut drivers {
        if let Some(name) = zoo::named(driver).filter(|_| !Path::new(driver).is_file()) {
            progress.step("the zoo");
            let kernel = kernels::find(packages, &args.kernel)?;
            let built = zoo::modules(packages, &kernel, &[name])?;
            *driver = built.first().map(|path| path.display().to_string()).unwrap_or_default();
        }
    }
    let request = prepare::Request {
        driver: &drivers[0],
        more: &drivers[1..],
        kernel: &args.kernel,
        device: args.device.as_deref(),
        workload: args.workload.as_deref(),
    };
    Ok(Prepared::new(packages, request, &mut |step| progress.step(step))?)
}

fn options(args: &ProfileArgs, plugged: &[Plugged], folder: &Path) -> Result<Options, CliError> {
    Ok(Options {
        cpus: args.smp,
        // Counters tell vCPUs apart by their threads.
        threads: TcgThreads::Multi,
        plugins: plugged.iter().map(|one| one.plugin.clone()).collect(),
        variables: check::variables(&args.variables)?,
        limits: Limits { total: Duration::from_secs(args.timeout), ..Limits::default() },
        kaslr: !args.no_kaslr,
        kernel_arguments: args.append.clone(),
        qemu_arguments: args.qemu.clone(),
        memory_mib: args.memory,
        ..Options::new(folder)
    })
}

/// Runs the guest, and attaches and detaches at the steps that were asked for.
fn guest(
    prepared: &Prepared,
    options: &Options,
    plugged: &[Plugged],
    attachment: &Attachment,
    signals: &Signals,
    progress: &Progress,
) -> Result<Finished, CliError> {
    let failed: RefCell<Option<String>> = RefCell::default();
    let sockets: Vec<PathBuf> = plugged.iter().map(|one| one.socket.clone()).collect();
    let mut watch = Watch {
        progress: &mut |time, line| {
            progress.guest(time, &line.to_string());
            let request = match line {
                Said::Begin(step) => attachment.at(step),
                _ => None,
            };
            if let Some(request) = request
                && let Err(why) = ask::all(&sockets, request)
            {
                *failed.borrow_mut() = Some(why.to_string());
            }
        },
        stop: &mut || match signals.interrupted() {
            true => Some(Stop::Interrupted),
            false => failed.borrow_mut().take().map(Stop::Because),
        },
        activity: &mut || 0,
        closed: &mut || None,
        save: None,
    };
    Ok(guardrail_vm::run::run(prepared, options, &mut watch)?)
}

/// Turns the end of a run into an exit status.
fn judge(finished: &Finished, prepared: &Prepared, shown: &show::Shown) -> Result<Status, CliError> {
    let found = shown.report.findings.len();
    match &finished.outcome {
        Outcome::Completed if shown.contained() => Ok(Status::Contained),
        Outcome::Completed if found > 0 => Ok(Status::Findings),
        Outcome::Completed => Ok(Status::Clean),
        Outcome::GuestPanic { .. } if found > 0 => {
            tell("guardrail", &finished.outcome.to_string());
            Ok(Status::Findings)
        }
        Outcome::NoDeviceBound => Err(CliError::Run(check::no_device(prepared))),
        other => Err(CliError::Run(other.to_string())),
    }
}

/// What all clients of a run have now.
pub fn results(sockets: &[PathBuf]) -> Result<Vec<Report>, CliError> {
    sockets.iter().map(|socket| ask::results(socket)).collect()
}

/// Asks all clients of a run for a change.
pub fn change(sockets: &[PathBuf], request: Request) -> Result<(), CliError> {
    ask::all(sockets, request)
}
