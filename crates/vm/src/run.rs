//! One run of the guest: start, watch, end, and how it ended.

use crate::catalog::Class;
use crate::disk::{Image, Layout};
use crate::error::{Context, Error, Result};
use crate::guest::{Ended, Guest};
use crate::http::Server;
use crate::initramfs::{self, Contents};
use crate::machine;
use crate::modules::Modules;
use crate::prepare::Prepared;
use crate::progress::Progress;
use crate::rerun::Rerun;
use crate::workload::FULL;
use guardrail_trace::pci::PciAddress;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

/// How QEMU runs several vCPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TcgThreads {
    /// All on one thread, by turns.
    #[default]
    Single,
    /// A thread for each.
    Multi,
}

/// A plugin for QEMU, and its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// The shared library.
    pub library: PathBuf,
    /// The file that its `config` argument names.
    pub config: PathBuf,
}

/// How long a run may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From start to end.
    pub total: Duration,
    /// Without any sign of life.
    pub silence: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { total: Duration::from_secs(600), silence: Duration::from_secs(60) }
    }
}

/// Where a guest begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// Its kernel boots.
    #[default]
    Boot,
    /// Its kernel boots, and when all is ready for the driver the guest is saved in this file and ends; see [`save`].
    Save(PathBuf),
    /// Where one was saved. All but the driver and the variables has to be as it was there.
    Saved(PathBuf),
}

/// How a run is done.
#[derive(Clone, Debug)]
pub struct Options {
    /// The run folder; it exists, and everything that the run writes is in it.
    pub folder: PathBuf,
    /// Number of vCPUs, 1 to 4.
    pub cpus: u8,
    /// How QEMU runs them.
    pub threads: TcgThreads,
    /// The tracer, or clients.
    pub plugins: Vec<Plugin>,
    /// Time limits.
    pub limits: Limits,
    /// The kernel chooses its address at random.
    pub kaslr: bool,
    /// The machine has an IOMMU, and the kernel has it translate.
    pub iommu: bool,
    /// The guest's memory.
    pub memory_mib: u32,
    /// Size of the disk of a storage run.
    pub disk_mib: u64,
    /// Variables for the workload, such as `DOWNLOAD_MB`.
    pub variables: Vec<(String, String)>,
    /// Module parameters (`name=value`).
    pub parameters: Vec<String>,
    /// Words added to the kernel's command line.
    pub kernel_arguments: Vec<String>,
    /// The driver's device can be cut off in the middle of the run; see [`Watch::closed`].
    pub containable: bool,
    /// The whole machine is recorded, or a recorded one runs again.
    pub rerun: Option<Rerun>,
    /// Words added to QEMU's command line.
    pub qemu_arguments: Vec<String>,
    /// Ports of this machine that lead into the guest of a network run.
    pub forwards: Vec<Forward>,
    /// Further files for the guest's folder `/guardrail`.
    pub files: Vec<(String, Vec<u8>)>,
    /// Where the guest begins.
    pub start: Start,
    /// The device is not in the guest's QEMU: [`Options::qemu_arguments`] tell where it is.
    pub device_elsewhere: bool,
}

/// The device of a run, and what is behind it, for a QEMU that runs it elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceSide {
    /// Arguments for network, disk or sound.
    pub arguments: Vec<String>,
    /// The values of `-device`, in order.
    pub devices: Vec<String>,
}

/// What a QEMU needs that runs the device of a run elsewhere. The disk is made by [`run`], before the guest starts.
pub fn device_side(prepared: &Prepared, options: &Options) -> DeviceSide {
    let bad = (prepared.workload.name == FULL).then(|| disk_layout(prepared, options).bad_part());
    let image = Image { path: options.folder.join(DISK), bad };
    machine::device_side(prepared, options, prepared.choice.class.has_disk().then_some(&image))
}

/// The id that the guest's QEMU knows the driver's device by.
pub fn device_id(prepared: &Prepared) -> &str {
    machine::device_id(prepared)
}

/// The module by which a guest reads what it is given when it goes on.
const READER: &str = "qemu_fw_cfg";
/// The image of the disk, in the run folder.
const DISK: &str = "disk.img";

fn disk_layout(prepared: &Prepared, options: &Options) -> Layout {
    // Half of the old USB controllers move one megabyte a second.
    let most = if prepared.choice.class == Class::Usb { 8 } else { u64::MAX };
    Layout::of_size(options.disk_mib.min(most))
}

/// A port of this machine's loopback address that leads to a port of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// UDP instead of TCP.
    pub udp: bool,
    /// The port here.
    pub host: u16,
    /// The port of the guest.
    pub guest: u16,
}

impl std::str::FromStr for Forward {
    type Err = Error;

    /// Reads `tcp:HOST:GUEST` or `udp:HOST:GUEST`.
    fn from_str(text: &str) -> Result<Forward> {
        let read = || {
            let (protocol, ports) = text.split_once(':')?;
            let (host, guest) = ports.split_once(':')?;
            let udp = match protocol {
                "udp" => true,
                "tcp" => false,
                _ => return None,
            };
            Some(Forward { udp, host: host.parse().ok()?, guest: guest.parse().ok()? })
        };
        read().ok_or_else(|| Error::BadValue(format!("'{text}' is no forwarded port, such as tcp:8080:80")))
    }
}

impl Options {
    /// The usual options for a run in `folder`.
    pub fn new(folder: &Path) -> Options {
        Options {
            folder: folder.to_path_buf(),
            cpus: 2,
            threads: TcgThreads::Single,
            plugins: Vec::new(),
            limits: Limits::default(),
            kaslr: true,
            iommu: false,
            memory_mib: 512,
            disk_mib: 64,
            variables: Vec::new(),
            parameters: Vec::new(),
            kernel_arguments: Vec::new(),
            containable: false,
            rerun: None,
            qemu_arguments: Vec::new(),
            forwards: Vec::new(),
            files: Vec::new(),
            start: Start::Boot,
            device_elsewhere: false,
        }
    }
}

impl Options {
    /// Physical addresses of the guest's memory.
    pub fn memory(&self) -> Vec<(u64, u64)> {
        machine::memory(self)
    }
}

/// Why the caller wants a run to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The user interrupted it.
    Interrupted,
    /// Something that the run depends on failed.
    Because(String),
}

/// The caller's eyes and hands during a run.
pub struct Watch<'a> {
    /// Called for each line of progress, with the time since the start.
    pub progress: &'a mut dyn FnMut(Duration, &Progress),
    /// Asked about ten times a second whether to go on.
    pub stop: &'a mut dyn FnMut() -> Option<Stop>,
    /// A count that grows while something outside the guest makes progress for it (the analysis that a full
    /// ring waits for): such a guest is slow, not hung.
    pub activity: &'a mut dyn FnMut() -> u64,
    /// Asked some hundred times a second in runs that are containable: the devices to cut off, and why, once that is decided.
    /// None are named where the caller has done it already.
    pub closed: &'a mut dyn FnMut() -> Option<(Vec<PciAddress>, String)>,
    /// Who wants the guest saved in the middle of the run, if anybody.
    pub save: Option<&'a mut dyn Save>,
}

/// Has the guest's memory and registers saved, as an ELF core of physical memory.
pub trait Save {
    /// Asked as often as [`Watch::stop`]: the file that the guest is to be saved in now. It must not be there.
    fn wanted(&mut self) -> Option<PathBuf>;
    /// The guest cannot be stopped where it is, as long as the caller keeps something of it waiting: it must not.
    fn release(&mut self);
    /// The guest was saved, or why not; it goes on afterwards.
    fn saved(&mut self, saved: std::result::Result<(), String>);
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The workload ran to its end and the driver was unloaded.
    Completed,
    /// The driver loaded but took no device.
    NoDeviceBound,
    /// The driver could not be loaded.
    LoadFailed {
        /// What the guest said.
        why: String,
    },
    /// A step of the workload failed.
    WorkloadFailed {
        /// The step.
        step: String,
        /// What the guest said.
        why: String,
    },
    /// The guest's kernel oopsed or panicked.
    GuestPanic {
        /// Its last words.
        text: String,
    },
    /// The guest gave no sign of life.
    GuestHang {
        /// The step that it was in.
        step: String,
        /// For how long.
        silence: Duration,
    },
    /// The run took longer than it may.
    TimedOut {
        /// The limit.
        limit: Duration,
        /// The step that it was in.
        step: String,
    },
    /// The driver's device was cut off.
    Contained {
        /// Why.
        why: String,
        /// What became of the guest then.
        then: String,
    },
    /// The user interrupted it.
    Interrupted,
    /// The caller stopped it.
    Stopped {
        /// Why.
        why: String,
    },
    /// QEMU itself failed.
    QemuFailed {
        /// What it said.
        why: String,
    },
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Completed => write!(f, "the run completed"),
            Outcome::NoDeviceBound => {
                write!(f, "the driver loaded but bound no device; name one that it serves with --device")
            }
            Outcome::LoadFailed { why } => write!(f, "the driver could not be loaded: {why}"),
            Outcome::WorkloadFailed { step, why } => write!(f, "the workload failed at '{step}': {why}"),
            Outcome::GuestPanic { text } => {
                write!(f, "the guest panicked: {}", text.lines().next().unwrap_or("without a word"))?;
                let place = text.lines().find_map(|line| line.split_once("RIP: ")?.1.split_once(':'));
                place.map_or(Ok(()), |(_, place)| write!(f, ", at {place}"))
            }
            Outcome::GuestHang { step, silence } => {
                write!(f, "the guest hung: no sign of life for {} s in '{step}'", silence.as_secs())
            }
            Outcome::TimedOut { limit, step } => {
                write!(f, "the run reached its limit of {} s in '{step}'", limit.as_secs())
            }
            Outcome::Contained { why, then } => write!(f, "the device was cut off: {why}; then {then}"),
            Outcome::Interrupted => write!(f, "the run was interrupted"),
            Outcome::Stopped { why } => write!(f, "the run was stopped: {why}"),
            Outcome::QemuFailed { why } => write!(f, "QEMU failed: {why}"),
        }
    }
}

impl Outcome {
    /// A word for it that programs can rely on.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::NoDeviceBound => "no-device-bound",
            Outcome::LoadFailed { .. } => "load-failed",
            Outcome::WorkloadFailed { .. } => "workload-failed",
            Outcome::GuestPanic { .. } => "guest-panic",
            Outcome::GuestHang { .. } => "guest-hang",
            Outcome::TimedOut { .. } => "timed-out",
            Outcome::Contained { .. } => "contained",
            Outcome::Interrupted => "interrupted",
            Outcome::Stopped { .. } => "stopped",
            Outcome::QemuFailed { .. } => "qemu-failed",
        }
    }
}

/// What a run was.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How it ended.
    pub outcome: Outcome,
    /// Every line of progress with its time since the start.
    pub progress: Vec<(Duration, Progress)>,
    /// From the start of QEMU to its end.
    pub wall: Duration,
    /// The guest's console, bounded.
    pub console: PathBuf,
    /// What the kernel said of trouble (an oops, a KFENCE report), from its first line on; mostly empty.
    pub trouble: String,
}

impl Finished {
    /// True where the driver's code had begun to run, whatever happened then.
    pub fn driver_began(&self) -> bool {
        self.progress.iter().any(|(_, line)| matches!(line, Progress::Begin(step) if step == "load"))
    }

    /// How long each step of the workload took.
    pub fn steps(&self) -> Vec<(&str, Duration)> {
        let mut steps = Vec::new();
        let mut begun: Option<(&str, Duration)> = None;
        for (time, line) in &self.progress {
            match line {
                Progress::Begin(step) => begun = Some((step, *time)),
                Progress::Ok(step) => {
                    if let Some((name, start)) = begun.take_if(|(name, _)| name == step) {
                        steps.push((name, time.saturating_sub(start)));
                    }
                }
                _ => {}
            }
        }
        steps
    }

    /// From the start of QEMU to the guest's first word.
    pub fn boot(&self) -> Option<Duration> {
        self.progress.iter().find(|(_, line)| *line == Progress::Booted).map(|(time, _)| *time)
    }
}

/// Boots a guest and saves it in a file when it is about to load the driver, so that runs can start there ([`Start::Saved`]). What the
/// workload says or a device of the guest may keep it from being saved.
pub fn save(prepared: &Prepared, options: &Options, file: &Path, watch: &mut Watch<'_>) -> Result<()> {
    let mut options = Options { start: Start::Save(file.to_path_buf()), ..options.clone() };
    let reader = Modules::of(&prepared.kernel)?.plan(READER)?.driver;
    options.files.push((format!("{READER}.ko"), reader.bytes));
    options.variables.push(("WAITS".to_owned(), READER.to_owned()));
    match run(prepared, &options, watch)?.outcome {
        Outcome::Stopped { .. } if file.is_file() => Ok(()),
        outcome => Err(Error::BadValue(outcome.to_string())),
    }
}

/// Runs the guest. Call it on a thread that lives as long as the run: QEMU dies with that thread.
pub fn run(prepared: &Prepared, options: &Options, watch: &mut Watch<'_>) -> Result<Finished> {
    if !(1..=4).contains(&options.cpus) {
        return Err(Error::BadValue(format!("a guest has 1 to 4 CPUs, not {}", options.cpus)));
    }
    machine::check_kernel_arguments(options)?;
    let server = match prepared.choice.class {
        Class::Network => {
            Some(Server::start().context("start a server on", Path::new("the loopback address"))?)
        }
        _ => None,
    };
    let layout = disk_layout(prepared, options);
    let mut variables = Vec::new();
    variables.extend(server.iter().map(|server| ("PORT".to_owned(), server.port().to_string())));
    let disk = options.folder.join(DISK);
    let disk = prepared.choice.class.has_disk().then_some(disk.as_path());
    let mut image = None;
    if let Some(disk) = disk {
        layout.create(disk)?;
        variables.extend(layout.variables());
        let bad = match prepared.workload.name == FULL {
            true => Some(layout.add_bad_part(disk)?),
            false => None,
        };
        if let Some((read, write)) = bad {
            variables.push(("BAD_READ".to_owned(), read.to_string()));
            variables.push(("BAD_WRITE".to_owned(), write.to_string()));
        }
        image = Some(Image { path: disk.to_path_buf(), bad });
    }
    variables.extend(options.variables.iter().cloned());
    let contents = Contents {
        plan: &prepared.plan,
        also: &prepared.also,
        parameters: &options.parameters,
        wants_device: prepared.wants_device(),
        class: prepared.choice.class,
        workload: &prepared.workload,
        software: prepared.software.as_ref(),
        files: &options.files,
        more: &prepared.more,
        variables: &variables,
    };
    let initramfs = options.folder.join("initramfs.cpio");
    let archive = match options.start {
        Start::Saved(_) => initramfs::given(&contents)?,
        _ => initramfs::build(&prepared.guest_tree, &contents)?,
    };
    fs::write(&initramfs, archive).context("write", &initramfs)?;

    if let Some(rerun) = &options.rerun {
        rerun.begin(&initramfs, disk)?;
    }
    let mut guest = Guest::start(prepared, options, &initramfs, image.as_ref())?;
    let cause = guest.watch(options, server.as_ref(), watch);
    let ended = guest.end(watch);
    let mut outcome = judge(&ended, cause);
    if let Some(why) = &ended.contained {
        outcome = Outcome::Contained { why: why.clone(), then: outcome.to_string() };
    }
    let mut finished = Finished {
        outcome,
        wall: ended.wall,
        console: ended.console,
        trouble: ended.scan.excerpt().to_owned(),
        progress: ended.progress,
    };
    if finished.outcome == Outcome::Completed
        && prepared.workload.needs.has_disk()
        && let Some(disk) = disk
        && let Some(why) = layout.verify(disk)?
    {
        finished.outcome = Outcome::WorkloadFailed { step: "host-verify".into(), why };
    }
    if let Some(disk) = disk {
        fs::remove_file(disk).context("remove", disk)?;
    }
    fs::remove_file(&initramfs).context("remove", &initramfs)?;
    Ok(finished)
}

/// How a process ended, in words: `ended by signal 9 (SIGKILL)`.
pub fn ending(status: ExitStatus) -> String {
    match status.signal() {
        Some(_) => format!("ended by {}", status.to_string().replacen(": ", " ", 1)),
        None => format!("ended with status {}", status.code().unwrap_or(-1)),
    }
}

/// Why a plugin of ours would not go on: what QEMU says of it afterwards says less.
fn plugins_word(stderr: &str) -> Option<String> {
    let refused = |line: &str| {
        let (who, why) = line.strip_prefix("guardrail ")?.split_once(": ")?;
        matches!(who, "client" | "tracer").then(|| why.to_owned())
    };
    if let Some(why) = stderr.lines().find_map(refused) {
        return Some(why);
    }
    // A panic has its place in one line, and its message in the next.
    let mut lines = stderr.lines().skip_while(|line| !line.contains(" panicked at "));
    let (_, place) = lines.next()?.split_once(" panicked at ")?;
    let message = lines.next().unwrap_or_default();
    Some(format!("a plugin panicked at {place} {}", message.trim()))
}

/// Decides what all the signs together mean.
fn judge(ended: &Ended, cause: Option<Outcome>) -> Outcome {
    let progress = &ended.progress;
    let find = |wanted: fn(&Progress) -> Option<Outcome>| progress.iter().find_map(|(_, line)| wanted(line));
    let done = progress.iter().any(|(_, line)| *line == Progress::Done);
    let ended_by_itself = cause.is_none();
    let reset = ended.shutdown.as_deref() == Some("guest-reset");
    if ended.scan.panicked() || ended_by_itself && !done && reset {
        let text = ended.scan.excerpt().to_owned();
        let text = if text.is_empty() { "the guest reset itself without a word".to_owned() } else { text };
        return Outcome::GuestPanic { text };
    }
    if let Some(cause) = cause {
        return cause;
    }
    let failed = find(|line| match line {
        Progress::LoadFailed(why) => Some(Outcome::LoadFailed { why: why.clone() }),
        Progress::Failed(step, why) => Some(Outcome::WorkloadFailed { step: step.clone(), why: why.clone() }),
        Progress::Unbound => Some(Outcome::NoDeviceBound),
        _ => None,
    });
    match failed {
        Some(outcome) if done => outcome,
        _ if done => Outcome::Completed,
        _ => {
            if let Some(why) = plugins_word(&ended.stderr) {
                return Outcome::QemuFailed { why };
            }
            let told = |line: &&str| !line.is_empty() && !line.contains(" warning: ");
            let last = ended.stderr.lines().rev().map(str::trim).find(told);
            let why = match (ended.status.filter(|status| status.signal().is_some()), last) {
                (None, last) => {
                    last.unwrap_or("it ended before the guest was done, without a word").to_owned()
                }
                (Some(status), None) => format!("it was {}", ending(status)),
                (Some(status), Some(last)) => format!("it was {}; it last said: {last}", ending(status)),
            };
            Outcome::QemuFailed { why }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::Scan;

    #[test]
    fn plugins_say_why_they_end_qemu() {
        let refused = "guardrail client: client mine: no __kmalloc\nqemu: Could not load plugin mine.so\n";
        assert_eq!(plugins_word(refused).as_deref(), Some("client mine: no __kmalloc"));
        let panic = "\nthread '<unnamed>' panicked at src/lib.rs:31:9:\ntoo big\nnote: run with\n\nthread caused non-unwinding panic. aborting.\n";
        assert_eq!(plugins_word(panic).as_deref(), Some("a plugin panicked at src/lib.rs:31:9: too big"));
        assert_eq!(plugins_word("qemu: cannot open /dev/kvm\n"), None);
    }

    fn ended(lines: &[&str], console: &[&str], shutdown: Option<&str>) -> Ended {
        let mut scan = Scan::default();
        console.iter().for_each(|line| scan.line(line));
        let parse = |line: &&str| (Duration::ZERO, Progress::parse(&format!("guardrail: {line}")).unwrap());
        Ended {
            progress: lines.iter().map(parse).collect(),
            wall: Duration::ZERO,
            console: PathBuf::new(),
            scan,
            shutdown: shutdown.map(str::to_owned),
            stderr: "warning: x\nqemu: no such device\n".into(),
            status: None,
            contained: None,
        }
    }

    fn word(lines: &[&str], console: &[&str], shutdown: Option<&str>) -> &'static str {
        judge(&ended(lines, console, shutdown), None).word()
    }

    #[test]
    fn every_way_to_end_has_its_outcome() {
        let off = Some("guest-shutdown");
        assert_eq!(word(&["booted", "loaded x", "unloaded x", "done"], &[], off), "completed");
        assert_eq!(word(&["booted", "load-failed no", "done"], &[], off), "load-failed");
        assert_eq!(word(&["booted", "loaded x", "unbound", "done"], &[], off), "no-device-bound");
        assert_eq!(word(&["booted", "loaded x", "failed ping no", "done"], &[], off), "workload-failed");
        let panic = ["BUG: x", "Kernel panic - not syncing: Fatal exception"];
        assert_eq!(word(&["booted", "begin load"], &panic, Some("guest-reset")), "guest-panic");
        assert_eq!(word(&["booted", "begin load"], &[], Some("guest-reset")), "guest-panic");
        let words = [panic[0], "CPU: 1 PID: 7 Comm: x", "RIP: 0010:x_init+0x5/0x10 [x]", panic[1]];
        let panicked = judge(&ended(&["booted"], &words, Some("guest-reset")), None);
        assert_eq!(panicked.to_string(), "the guest panicked: BUG: x, at x_init+0x5/0x10 [x]");
        assert_eq!(word(&[], &[], None), "qemu-failed");
        let failed = judge(&ended(&[], &[], None), None);
        assert_eq!(failed.to_string(), "QEMU failed: qemu: no such device");
        let killed = Ended {
            status: Some(ExitStatus::from_raw(libc::SIGKILL)),
            stderr: String::new(),
            ..ended(&[], &[], None)
        };
        let text = "QEMU failed: it was ended by signal 9 (SIGKILL)";
        assert_eq!(judge(&killed, None).to_string(), text);
    }

    #[test]
    fn a_panic_explains_more_than_what_the_caller_did_about_it() {
        let panic = ended(&[], &["Kernel panic - not syncing: x"], None);
        assert_eq!(judge(&panic, Some(Outcome::Interrupted)).word(), "guest-panic");
        assert_eq!(judge(&ended(&[], &[], None), Some(Outcome::Interrupted)).word(), "interrupted");
    }

    #[test]
    fn steps_have_durations() {
        let at = Duration::from_secs;
        let finished = Finished {
            outcome: Outcome::Completed,
            progress: vec![
                (at(3), Progress::Booted),
                (at(4), Progress::Begin("ping".into())),
                (at(6), Progress::Ok("ping".into())),
            ],
            wall: at(7),
            console: PathBuf::new(),
            trouble: String::new(),
        };
        assert_eq!(finished.steps(), [("ping", at(2))]);
        assert_eq!(finished.boot(), Some(at(3)));
        assert!(!finished.driver_began());
    }
}
