//! Runs a guest under clients, or reads the clients' results.

use crate::choose::{Attachment, ReadyPlugin};
use crate::plan::{Format, ProfilePlan};
use crate::{choose, control, names, show};
use guardrail_host::error::print_line;
use guardrail_host::folders::{LogFolder, RunFolder};
use guardrail_host::{HostError, Progress, Signals, Status, drivers, zoo};

use guardrail_binfmt::KernelImage;
use guardrail_jail::Jail;
use guardrail_trace::client::{self, Report};
use guardrail_vm::Cache;
use guardrail_vm::packages::Packages;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::progress::Progress as Said;
use guardrail_vm::run::{Finished, Limits, Options, Outcome, Stop, TcgThreads, Watch};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest time without any sign of life. A kernel whose every instruction is counted boots for long and says
/// nothing meanwhile.
const SILENCE: Duration = Duration::from_secs(180);

/// The results of a guest's clients.
pub struct Profile {
    shown: show::NamedResults,
    /// How the run ended; `None` where it continues or its end was reported before.
    end: Option<(Finished, Prepared)>,
}

impl Profile {
    /// All results in one format.
    pub fn text(&self, format: Format) -> Result<String, HostError> {
        self.shown.text(format)
    }

    /// How the run ended; `None` where it continues or its end was reported before.
    pub fn finished(&self) -> Option<&Finished> {
        self.end.as_ref().map(|(finished, _)| finished)
    }

    /// The number in the last row of a client's first table, by the name of its column; `None` where the client lacks
    /// it.
    pub fn total(&self, client: &str, column: &str) -> Option<u64> {
        self.shown.total(client, column)
    }

    /// The exit status that follows from the end of the run and the findings.
    pub fn status(&self) -> Result<Status, HostError> {
        match &self.end {
            Some((finished, prepared)) => judge(finished, prepared, &self.shown),
            None if self.shown.report.findings.is_empty() => Ok(Status::Clean),
            None => Ok(Status::Findings),
        }
    }
}

/// Runs a workload under clients.
pub fn run(plan: &ProfilePlan) -> Result<Profile, HostError> {
    run_live(plan, None)
}

/// A callback with the clients' sockets and a line of the guest's progress.
pub type Watcher<'a> = dyn FnMut(&[PathBuf], &Said) -> Result<(), HostError> + 'a;

/// The callbacks of a caller that follows a run.
pub struct Live<'a> {
    /// Called with the clients' sockets at each line of progress.
    pub ready: &'a mut Watcher<'a>,
}

/// Does the same for a guest that takes commands: it may run for any time.
pub fn run_live(plan: &ProfilePlan, live: Option<Live<'_>>) -> Result<Profile, HostError> {
    check(plan)?;
    let signals = Signals::install()?;
    let progress = Progress::shown();
    let prepared = prepare(plan, &Packages::new(&guardrail_host::cache()?), &progress)?;
    run_prepared(plan, prepared, live, &signals, &progress)
}

/// Runs a workload under clients in a guest that the caller has prepared; the plan's drivers, device and workload do
/// not count.
pub fn run_prepared(
    plan: &ProfilePlan,
    prepared: Prepared,
    live: Option<Live<'_>>,
    signals: &Signals,
    progress: &Progress,
) -> Result<Profile, HostError> {
    let clients = choose::clients(&plan.clients)?;
    let attachment = Attachment::of(plan, &clients);
    let cache = guardrail_host::cache()?;
    let folder = RunFolder::new(plan.out.as_deref())?;
    signals.run_begins();
    progress.step("reading the kernel");
    let sockets = LogFolder::new()?;
    let image = KernelImage::open(&prepared.kernel.vmlinuz)?;
    let plugged = choose::configure(
        &clients,
        plan,
        &prepared,
        &image,
        folder.path(),
        sockets.folder(),
        attachment.at_start,
    )?;
    let mut options = options(plan, &plugged, folder.path())?;
    options.kernel_arguments.extend(choose::kernel_arguments(&clients));
    if live.is_some() {
        options.limits = Limits { total: Duration::MAX, silence: Duration::MAX };
    }
    let finished = guest(&prepared, &options, &plugged, &attachment, live, signals, progress)?;
    progress.finish();
    if finished.outcome == Outcome::Interrupted {
        return Err(HostError::Interrupted);
    }
    let reports = plugged.iter().map(|one| control::read(&one.results)).collect::<Result<Vec<_>, _>>();
    let reports = match &finished.outcome {
        // A client's reason for its refusal to begin explains more than the absence of results.
        Outcome::QemuFailed { .. } | Outcome::QemuKilled { .. } if reports.is_err() => {
            return Err(HostError::Run(finished.outcome.to_string()));
        }
        _ => reports?,
    };
    let names = names::Names::new(&cache, &prepared, image, &reports);
    let shown = show::NamedResults::new(&names, &prepared, drivers::ran(&finished), reports);
    if let Some(out) = &plan.out {
        shown.write_files(out)?;
    }
    Ok(Profile { shown, end: Some((finished, prepared)) })
}

/// Refuses plans whose errors are visible without any file.
pub fn check(plan: &ProfilePlan) -> Result<(), HostError> {
    choose::scope_parts(&plan.scope)?;
    choose::clients(&plan.clients).map(drop)
}

/// The current results of a running guest's clients.
pub fn show_live(cache: &Cache, plan: &ProfilePlan, sockets: &[PathBuf]) -> Result<Profile, HostError> {
    let reports = sockets.iter().map(|socket| control::results(socket)).collect::<Result<Vec<_>, _>>()?;
    show(cache, plan, reports, "running")
}

/// The results that the clients of a guest left when it ended.
pub fn show_kept(cache: &Cache, plan: &ProfilePlan, folder: &Path) -> Result<Profile, HostError> {
    let plugins = choose::clients(&plan.clients)?.len();
    let reports: Vec<Report> = (0..plugins)
        .map(|number| control::read(&choose::results(folder, number)))
        .collect::<Result<_, _>>()?;
    show(cache, plan, reports, "completed")
}

fn show(
    cache: &Cache,
    plan: &ProfilePlan,
    reports: Vec<Report>,
    outcome: &str,
) -> Result<Profile, HostError> {
    let prepared = prepare(plan, &Packages::new(cache), &Progress::silent())?;
    let image = KernelImage::open(&prepared.kernel.vmlinuz)?;
    let names = names::Names::new(cache, &prepared, image, &reports);
    let run = guardrail_report::Run { outcome: outcome.to_owned(), ..Default::default() };
    let shown = show::NamedResults::new(&names, &prepared, run, reports);
    Ok(Profile { shown, end: None })
}

/// True where the clients behind these sockets are attached.
pub fn is_attached(sockets: &[PathBuf]) -> Result<bool, HostError> {
    sockets.iter().try_fold(true, |all, socket| Ok(control::is_attached(socket)? && all))
}

/// Prepares the guest of the plan.
fn prepare(plan: &ProfilePlan, packages: &Packages, progress: &Progress) -> Result<Prepared, HostError> {
    let [driver, more @ ..] = plan.drivers.as_slice() else {
        return Err(HostError::Usage("no driver is named".into()));
    };
    let (kernel, device) = (plan.kernel.as_str(), plan.device.as_deref());
    let request =
        Request { driver, more, kernel, device, workload: plan.workload.as_deref(), ..Request::default() };
    let mut prepared = zoo::prepare(packages, request, progress)?;
    drivers::set(
        &mut prepared,
        &drivers::variables(&plan.variables)?,
        &drivers::parameters(&plan.parameters)?,
    )?;
    Ok(prepared)
}

fn options(plan: &ProfilePlan, plugged: &[ReadyPlugin], folder: &Path) -> Result<Options, HostError> {
    Ok(Options {
        cpus: plan.smp,
        // QEMU can count instructions itself (-icount) with one thread only.
        threads: match plan.qemu.iter().any(|word| word == "-icount") {
            true => TcgThreads::Single,
            false => TcgThreads::Multi,
        },
        plugins: plugged.iter().map(|one| one.plugin.clone()).collect(),
        reach: plugged.iter().fold(Jail::new(), |reach, one| reach.and(&one.reach)),
        variables: drivers::variables(&plan.variables)?,
        limits: Limits { total: Duration::from_secs(plan.timeout), silence: SILENCE },
        kaslr: !plan.no_kaslr,
        kernel_arguments: plan.append.clone(),
        files: plan.files.clone(),
        qemu_arguments: plan.qemu.clone(),
        memory_mib: plan.memory,
        ..Options::new(folder)
    })
}

/// Runs the guest, and attaches and detaches at the planned steps.
fn guest(
    prepared: &Prepared,
    options: &Options,
    plugged: &[ReadyPlugin],
    attachment: &Attachment,
    mut live: Option<Live<'_>>,
    signals: &Signals,
    progress: &Progress,
) -> Result<Finished, HostError> {
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
                && let Err(why) = control::all(&sockets, request)
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
fn judge(finished: &Finished, prepared: &Prepared, shown: &show::NamedResults) -> Result<Status, HostError> {
    let found = shown.report.findings.len();
    match &finished.outcome {
        Outcome::Completed if shown.contained() => Ok(Status::Contained),
        Outcome::Completed if found > 0 => Ok(Status::Findings),
        Outcome::Completed => Ok(Status::Clean),
        Outcome::GuestPanic { .. } if found > 0 => {
            print_line("guardrail", &finished.outcome.to_string());
            Ok(Status::Findings)
        }
        Outcome::GuestPanic { text } => {
            print_line("guardrail", &format!("the guest's last words:\n{}", text.trim_end()));
            Err(HostError::Run(finished.outcome.to_string()))
        }
        Outcome::NoDeviceBound => Err(HostError::NotExercised(drivers::no_device(prepared))),
        other => Err(HostError::Run(other.to_string())),
    }
}

/// Sends a request for a change to all clients of a run.
pub fn change(sockets: &[PathBuf], request: client::Request) -> Result<(), HostError> {
    control::all(sockets, request)
}
