//! `guardrail profile`: clients over a kernel that runs.

mod ask;
mod charts;
mod choose;
mod coverage;
mod drawn;
mod names;
mod show;

use crate::args::{ProfileArgs, ProfileFormat};
use crate::errors::{CliError, Status, tell};
use crate::output;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::zoo;
use crate::{
    drivers,
    folders::{LogFolder, RunFolder},
};
use choose::{Attachment, Plugged};

pub use choose::INCLUDED;
use guardrail_binfmt::KernelImage;
use guardrail_trace::client::{self, Report};
use guardrail_vm::Cache;
use guardrail_vm::packages::Packages;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::progress::Progress as Said;
use guardrail_vm::run::{Finished, Limits, Options, Outcome, Stop, TcgThreads, Watch};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Runs a workload under clients and prints what they say.
pub fn run(args: &ProfileArgs) -> Result<Status, CliError> {
    run_live(args, None)
}

/// What is called with the clients' sockets and a line of the guest's progress.
pub type Told<'a> = dyn FnMut(&[PathBuf], &Said) -> Result<(), CliError> + 'a;

/// Who wants to know of a run while it goes on.
pub struct Live<'a> {
    /// Gets the clients' sockets with each line of progress.
    pub ready: &'a mut Told<'a>,
}

/// The same for a guest that others talk to: nothing is printed at the end, and the guest may take as long as it likes.
pub fn run_live(args: &ProfileArgs, live: Option<Live<'_>>) -> Result<Status, CliError> {
    choose::scope_parts(&args.scope)?;
    let clients = choose::clients(&args.clients)?;
    let attachment = Attachment::of(args, &clients);
    let signals = Signals::install()?;
    let progress = Progress::shown();
    let cache = Cache::open()?;
    let packages = Packages::new(&cache);
    let prepared = prepare(args, &packages, &progress)?;
    let folder = RunFolder::new(args.out.as_deref(), &cache)?;
    signals.run_begins();
    progress.step("reading the kernel");
    let sockets = LogFolder::new()?;
    let image = KernelImage::open(&prepared.kernel.vmlinuz)?;
    let plugged = choose::configure(
        &clients,
        args,
        &prepared,
        &image,
        folder.path(),
        sockets.folder(),
        attachment.at_start,
    )?;
    let mut options = options(args, &plugged, folder.path())?;
    options.kernel_arguments.extend(choose::kernel_arguments(&clients));
    let lives = live.is_some();
    if lives {
        options.limits = Limits { total: Duration::MAX, silence: Duration::MAX };
    }
    let finished = guest(&prepared, &options, &plugged, &attachment, live, &signals, &progress)?;
    progress.finish();
    if finished.outcome == Outcome::Interrupted {
        return Err(CliError::Interrupted);
    }
    let reports = plugged.iter().map(|one| ask::read(&one.results)).collect::<Result<Vec<_>, _>>();
    let reports = match &finished.outcome {
        // Why a client refused to begin says more than that it left nothing.
        Outcome::QemuFailed { .. } if reports.is_err() => {
            return Err(CliError::Run(finished.outcome.to_string()));
        }
        _ => reports?,
    };
    let names = names::Names::new(&cache, &prepared, image, &reports);
    let shown = show::Shown::new(&names, &prepared, drivers::ran(&finished), reports);
    if let Some(out) = &args.out {
        shown.write_files(out)?;
    }
    if !lives {
        output::text(&shown.text(args.format)?)?;
    }
    judge(&finished, &prepared, &shown)
}

/// Refuses what can be refused without looking at anything.
pub fn check(args: &ProfileArgs) -> Result<(), CliError> {
    choose::scope_parts(&args.scope)?;
    choose::clients(&args.clients).map(drop)
}

/// What the clients of a guest have that runs.
pub fn show_live(
    cache: &Cache,
    args: &ProfileArgs,
    sockets: &[PathBuf],
    format: ProfileFormat,
) -> Result<Status, CliError> {
    let reports = sockets.iter().map(|socket| ask::results(socket)).collect::<Result<Vec<_>, _>>()?;
    show(cache, args, reports, "running", format)
}

/// What the clients of a guest left that has ended.
pub fn show_kept(
    cache: &Cache,
    args: &ProfileArgs,
    folder: &Path,
    format: ProfileFormat,
) -> Result<Status, CliError> {
    let plugins = choose::clients(&args.clients)?.len();
    let reports: Vec<Report> =
        (0..plugins).map(|number| ask::read(&choose::results(folder, number))).collect::<Result<_, _>>()?;
    show(cache, args, reports, "completed", format)
}

fn show(
    cache: &Cache,
    args: &ProfileArgs,
    reports: Vec<Report>,
    outcome: &str,
    format: ProfileFormat,
) -> Result<Status, CliError> {
    let prepared = prepare(args, &Packages::new(cache), &Progress::silent())?;
    let image = KernelImage::open(&prepared.kernel.vmlinuz)?;
    let names = names::Names::new(cache, &prepared, image, &reports);
    let run = guardrail_report::Run { outcome: outcome.to_owned(), ..Default::default() };
    let shown = show::Shown::new(&names, &prepared, run, reports);
    output::text(&shown.text(format)?)?;
    Ok(if shown.report.findings.is_empty() { Status::Clean } else { Status::Findings })
}

/// Whether the clients behind these sockets are attached.
pub fn is_attached(sockets: &[PathBuf]) -> Result<bool, CliError> {
    sockets.iter().try_fold(true, |all, socket| Ok(ask::is_attached(socket)? && all))
}

/// The guest that the arguments ask for.
fn prepare(args: &ProfileArgs, packages: &Packages, progress: &Progress) -> Result<Prepared, CliError> {
    let [driver, more @ ..] = args.drivers.as_slice() else {
        return Err(CliError::Usage("no driver is named".into()));
    };
    let (kernel, device) = (args.kernel.as_str(), args.device.as_deref());
    let request = Request { driver, more, kernel, device, workload: args.workload.as_deref() };
    zoo::prepare(packages, request, progress)
}

fn options(args: &ProfileArgs, plugged: &[Plugged], folder: &Path) -> Result<Options, CliError> {
    Ok(Options {
        cpus: args.smp,
        // QEMU counts instructions itself (-icount) with one thread only.
        threads: match args.qemu.iter().any(|word| word == "-icount") {
            true => TcgThreads::Single,
            false => TcgThreads::Multi,
        },
        plugins: plugged.iter().map(|one| one.plugin.clone()).collect(),
        variables: drivers::variables(&args.variables)?,
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
    mut live: Option<Live<'_>>,
    signals: &Signals,
    progress: &Progress,
) -> Result<Finished, CliError> {
    let failed: RefCell<Option<String>> = RefCell::default();
    let sockets: Vec<PathBuf> = plugged.iter().map(|one| one.socket.clone()).collect();
    let mut watch = Watch {
        progress: &mut |time, line| {
            progress.guest(time, &line.to_string());
            if let Some(live) = &mut live
                && let Err(why) = (live.ready)(&sockets, line)
            {
                *failed.borrow_mut() = Some(why.to_string());
            }
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
        Outcome::GuestPanic { text } => {
            tell("guardrail", &format!("the guest's last words:\n{}", text.trim_end()));
            Err(CliError::Run(finished.outcome.to_string()))
        }
        Outcome::NoDeviceBound => Err(CliError::Run(drivers::no_device(prepared))),
        other => Err(CliError::Run(other.to_string())),
    }
}

/// Asks all clients of a run for a change.
pub fn change(sockets: &[PathBuf], request: client::Request) -> Result<(), CliError> {
    ask::all(sockets, request)
}
