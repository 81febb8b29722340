//! One run of a guest, from QEMU's start to its end.
//!
//! **Knows**: the machine's command line, progress, limits, outcomes, the host's part in a workload. **Must not know**: what the tracer writes.

pub(crate) mod console;
pub mod cut;
pub(crate) mod guest;
mod jail;
mod kept;
pub(crate) mod machine;
mod options;
mod outcome;
pub mod progress;
pub mod rerun;
mod starved;
mod watchdog;
mod words;

pub use machine::device_id;
pub use options::{DeviceSide, Forward, Limits, Options, Plugin, Start, TcgThreads};
pub use outcome::{Finished, Outcome, Save, Stop, Watch};
pub use watchdog::Watched;
pub use words::named;

use crate::ending::ending;
use crate::error::{Context, Error, Result};
use crate::exercise::catalog::Class;
use crate::exercise::disk::{Image, Layout};
use crate::exercise::http::Server;
use crate::exercise::workload::FULL;
use crate::guest_image::initramfs::{self, Contents};
use crate::guest_image::prepare::{Prepared, READER};
use crate::kernel::direct;
use crate::run::guest::{Ended, Guest};
use crate::run::kept::{Choice, Keeping};
use crate::run::machine::{Files, KernelFile};
use crate::run::progress::Progress;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Takes the device of a run out of the guest's QEMU, and returns what another QEMU needs to run it. [`run`] creates the
/// disk before the guest starts.
pub fn device_side(prepared: &Prepared, options: &mut Options) -> Result<DeviceSide> {
    options.device_elsewhere = true;
    options.server = server(prepared, options)?;
    let bad = (prepared.workload.name == FULL).then(|| disk_layout(prepared, options).bad_part());
    let image = Image { path: options.folder.join(DISK), bad };
    let disk = prepared.choice.class.has_disk().then_some(&image);
    let mut side = machine::device_side(prepared, options, disk);
    jail::of_other(prepared, options, &image.path, &mut side);
    Ok(side)
}

/// The peer of a network workload.
fn server(prepared: &Prepared, options: &Options) -> Result<Option<Arc<Server>>> {
    if options.server.is_some() || prepared.choice.class != Class::Network {
        return Ok(options.server.clone());
    }
    let server = Server::start().context("start a server on", Path::new("the loopback address"))?;
    Ok(Some(Arc::new(server)))
}

/// The name of the kernel in the run folder, where it was moved.
const MOVED: &str = "vmlinux";
/// The least size of the files that a guest reads when it continues, in bytes.
const PIECE: usize = 64 << 10;
/// The most such files; QEMU has room for 32, with its own.
const MOST_PIECES: usize = 8;
/// The name of the disk image in the run folder.
const DISK: &str = "disk.img";

fn disk_layout(prepared: &Prepared, options: &Options) -> Layout {
    // Half of the old USB controllers transfer one megabyte a second.
    let most = if prepared.choice.class == Class::Usb { 8 } else { u64::MAX };
    Layout::of_size(options.disk_mib.min(most))
}

/// Boots a guest and saves it in a file when it is about to load the driver. Runs can start there
/// ([`Start::Saved`]). The workload's needs or a device of the guest can make it impossible to save.
pub fn save(prepared: &Prepared, options: &Options, file: &Path, watch: &mut Watch<'_>) -> Result<()> {
    let mut options = Options { start: Start::Save(file.to_path_buf()), ..options.clone() };
    options.files.push((format!("{READER}.ko"), prepared.reader()?.bytes));
    options.variables.push(("WAITS".to_owned(), READER.to_owned()));
    match run(prepared, &options, watch)?.outcome {
        Outcome::Stopped { .. } if file.is_file() => Ok(()),
        outcome => Err(Error::BadValue(outcome.to_string())),
    }
}

/// The words of QEMU's command line for a run, without its folder's files, channels and plugins.
pub fn words_of_qemu(prepared: &Prepared, options: &Options) -> Vec<String> {
    let kernel = machine::unpacked(prepared, options).unwrap_or(&prepared.kernel.vmlinuz);
    let command = machine::shape(prepared, options, kernel);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Runs the guest. Call it on a thread that lives as long as the run: QEMU ends with that thread.
pub fn run(prepared: &Prepared, options: &Options, watch: &mut Watch<'_>) -> Result<Finished> {
    if !(1..=4).contains(&options.cpus) {
        return Err(Error::BadValue(format!("a guest has 1 to 4 CPUs, not {}", options.cpus)));
    }
    machine::check_kernel_arguments(options)?;
    let server = server(prepared, options)?;
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
    variables.extend(prepared.unloaded_last());
    let contents = Contents {
        plan: &prepared.plan,
        also: &prepared.also,
        parameters: &prepared.parameters,
        wants_device: prepared.wants_device(),
        class: prepared.choice.class,
        workload: &prepared.workload,
        software: prepared.software.as_ref(),
        firmware: prepared.choice.is_synthetic(),
        brought: &prepared.brought,
        root: prepared.root.as_ref(),
        inside: prepared.inside.as_deref(),
        files: &options.files,
        more: &prepared.more,
        variables: &variables,
        parser: &prepared.parser,
    };
    let mut options = options.clone();
    let Started { kernel, initramfs, given, keeping } = start(prepared, &mut options, contents)?;
    let options = &options;

    if let Some(rerun) = &options.rerun {
        rerun.begin(&initramfs, disk)?;
    }
    let mut guest = Guest::start(
        prepared,
        options,
        Files { kernel: &kernel.path, initramfs: &initramfs, given: &given, disk: image.as_ref() },
        server.as_deref(),
    )?;
    let cause = guest.watch(options, server.as_deref(), watch);
    let ended = guest.end(watch);
    if let Start::Kept(kept) = &options.start
        && ended.progress.is_empty()
    {
        kept::refuse(kept);
    }
    if let (Some(keeping), Some(kept), Some(slide)) = (keeping, &ended.kept, kernel.slide) {
        keeping.end(kept, slide);
    }
    let mut outcome = judge(&ended, cause);
    if let Some(why) = &ended.contained {
        outcome = Outcome::Contained { why: why.clone(), then: outcome.to_string() };
    }
    let mut finished = Finished {
        outcome,
        wall: ended.wall,
        console: ended.console,
        console_cut: ended.scan.cut.clone(),
        trouble: ended.scan.excerpt().to_owned(),
        progress: ended.progress,
        cut_at: ended.cut_at,
        cut_took: ended.cut_took,
        cut_by_force: ended.cut_by_force,
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
    let copy = options.folder.join(MOVED);
    for file in [&initramfs, &copy].into_iter().chain(&given).filter(|file| file.exists()) {
        fs::remove_file(file).context("remove", file)?;
    }
    Ok(finished)
}

/// What a guest starts from.
struct Started {
    kernel: KernelFile,
    initramfs: PathBuf,
    /// The pieces of what a guest that was saved reads when it continues.
    given: Vec<PathBuf>,
    keeping: Option<Keeping>,
}

/// Writes what a guest starts from, and chooses whether it boots or continues from a guest that was kept.
fn start(prepared: &Prepared, options: &mut Options, contents: Contents<'_>) -> Result<Started> {
    let mut keeping = None;
    let base = kept::base(prepared, options, &contents);
    if let Some(base) = &base {
        match kept::choose(prepared, options, base) {
            Choice::Boot => {}
            Choice::Keep(keep) => {
                options.start = Start::Keep(keep.file());
                keeping = Some(keep);
            }
            Choice::Continue(kept) => options.start = Start::Kept(kept),
        }
    }
    let (archive, later) = match (&options.start, base) {
        (Start::Saved(_), _) => (None, Some(initramfs::given(&contents)?)),
        (Start::Keep(_) | Start::Kept(_), base) => {
            // What was saved has an old clock, and would have the same random numbers each time.
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let new = [("KEPT_NOW", now.as_secs()), ("KEPT_SEED", direct::random()?)];
            let new = new.map(|(name, value)| (name.to_owned(), value.to_string()));
            let variables: Vec<_> = contents.variables.iter().cloned().chain(new).collect();
            let boots = matches!(options.start, Start::Keep(_));
            (
                base.filter(|_| boots),
                Some(initramfs::awaited(&Contents { variables: &variables, ..contents })?),
            )
        }
        _ => (Some(initramfs::build(&prepared.guest_tree, &contents)?), None),
    };
    let initramfs = options.folder.join("initramfs.cpio");
    let size = archive.as_ref().map_or(0, |archive| archive.len() as u64);
    archive.map_or(Ok(()), |bytes| fs::write(&initramfs, bytes)).context("write", &initramfs)?;
    let given = later.map_or(Ok(Vec::new()), |bytes| pieces(&options.folder, &bytes))?;
    let kernel = machine::kernel(prepared, options, size, &options.folder.join(MOVED))?;
    Ok(Started { kernel, initramfs, given, keeping })
}

/// Writes the files for a guest that continues. The kernel's module reads a file in pages, each from the file's first byte
/// on, a byte at a time (fw_cfg_read_blob, drivers/firmware/qemu_fw_cfg.c). So several short files take less time than one.
fn pieces(folder: &Path, bytes: &[u8]) -> Result<Vec<PathBuf>> {
    let size = bytes.len().div_ceil(MOST_PIECES).max(PIECE);
    let write = |(number, piece): (usize, &[u8])| {
        let file = folder.join(format!("given.cpio.xz.{number}"));
        fs::write(&file, piece).context("write", &file)?;
        Ok(file)
    };
    bytes.chunks(size).enumerate().map(write).collect()
}

/// Why a plugin of ours stopped: QEMU's own message afterwards contains less.
fn plugins_word(stderr: &str) -> Option<String> {
    let refused = |line: &str| {
        let (who, why) = line.strip_prefix("guardrail ")?.split_once(": ")?;
        matches!(who, "client" | "tracer").then(|| why.to_owned())
    };
    if let Some(why) = stderr.lines().find_map(refused) {
        return Some(why);
    }
    // A panic prints its place on one line, and its message on the next.
    let mut lines = stderr.lines().skip_while(|line| !line.contains(" panicked at "));
    let (_, place) = lines.next()?.split_once(" panicked at ")?;
    let message = lines.next().unwrap_or_default();
    Some(format!("a plugin panicked at {place} {}", message.trim()))
}

/// Decides the outcome from all signs together.
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
            let says_why = |line: &&str| !line.is_empty() && !line.contains(" warning: ");
            let last = ended.stderr.lines().rev().map(str::trim).find(says_why);
            let why = match (ended.status.filter(|status| status.signal().is_some()), last) {
                (None, last) => {
                    last.unwrap_or("it ended before the guest was done, without a word").to_owned()
                }
                (Some(status), None) => format!("it was {}", ending(status)),
                (Some(status), Some(last)) => format!("it was {}; it last said: {last}", ending(status)),
            };
            match ended.status.and_then(|status| status.signal()) {
                Some(libc::SIGKILL) => Outcome::QemuKilled { why },
                _ => Outcome::QemuFailed { why },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::console::Scan;
    use std::path::PathBuf;
    use std::process::ExitStatus;
    use std::time::Duration;

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
            cut_at: None,
            cut_took: None,
            cut_by_force: false,
            kept: None,
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
        let judged = judge(&killed, None);
        assert!(matches!(judged, Outcome::QemuKilled { .. }) && judged.to_string() == text);
    }

    #[test]
    fn a_panic_explains_more_than_what_the_caller_did_about_it() {
        let panic = ended(&[], &["Kernel panic - not syncing: x"], None);
        assert_eq!(judge(&panic, Some(Outcome::Interrupted)).word(), "guest-panic");
        assert_eq!(judge(&ended(&[], &[], None), Some(Outcome::Interrupted)).word(), "interrupted");
    }

    #[test]
    fn a_guest_that_was_ended_after_a_cut_off_says_so() {
        let quiet = Ended { stderr: String::new(), ..ended(&["booted", "begin rings"], &[], None) };
        let then = judge(&quiet, Some(guest::without_device("rings"))).to_string();
        assert_eq!(then, "the run was stopped: the guest went on for 10 s without the device, in 'rings'");
        let contained = Outcome::Contained { why: "a finding is contained".into(), then };
        assert!(!contained.to_string().contains("without a word"), "{contained}");
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
            console_cut: None,
            trouble: String::new(),
            cut_at: None,
            cut_took: None,
            cut_by_force: false,
        };
        assert_eq!(finished.steps(), [("ping", at(2))]);
        assert_eq!(finished.boot(), Some(at(3)));
        assert_eq!(finished.last_step(), "after: ping ok");
        assert!(!finished.driver_began());
    }
}
