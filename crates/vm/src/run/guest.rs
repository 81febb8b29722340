//! A running QEMU: its process, the threads that read from it, and its end.

mod save;

use crate::error::{Context, Error, Result};
use crate::exercise::http::Server;
use crate::guest_image::prepare::Prepared;
use crate::qemu::qmp::{self, Control, Message};
use crate::run::console::{Kept, Scan};
use crate::run::cut::Ports;
use crate::run::jail::{self, Opened};
use crate::run::machine::{self, Channels, Files};
use crate::run::options::{Options, Start};
use crate::run::outcome::{self, Outcome, Stop, Watch};
use crate::run::progress::{Lines, Progress};
use crate::run::starved::Silence;
use crate::run::watchdog::Watchdog;
use guardrail_trace::pci::PciAddress;
use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a guest may continue after its device was cut off.
const AFTER_CUT: Duration = Duration::from_secs(10);
/// How long QEMU may take to stop its vCPUs.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// How long the threads that read from QEMU may take to end after it.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// Most lines of progress that are kept.
const MOST_LINES: usize = 10_000;
/// Most messages that wait for the main loop. A guest that says more must wait.
const QUEUE: usize = 1024;

/// What the threads that read from QEMU report to the main loop.
enum Heard {
    Progress(Progress),
    Qmp(Message),
    Panic,
}

/// The QEMU process; dropping it ends it, whatever went wrong.
struct Qemu {
    child: Child,
    /// Set where this program killed it.
    killed: bool,
}

impl Qemu {
    /// False where it has ended or cannot be waited for; the caller treats both alike.
    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills the process group, if it still runs, and waits for it.
    fn kill(&mut self) {
        if self.is_running() {
            self.killed = true;
            // SAFETY: the child leads a process group of its own and has not been waited for, so no other
            // process has the number.
            unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        }
        let _ = self.child.wait();
    }

    /// How it ended, unless this program killed it.
    fn ending(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten().filter(|_| !self.killed)
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The results of a guest that has ended.
pub(crate) struct Ended {
    pub(crate) progress: Vec<(Duration, Progress)>,
    pub(crate) wall: Duration,
    pub(crate) console: PathBuf,
    pub(crate) scan: Scan,
    /// QEMU's reason for the shutdown.
    pub(crate) shutdown: Option<String>,
    pub(crate) stderr: String,
    /// How QEMU ended, unless this program killed it.
    pub(crate) status: Option<ExitStatus>,
    /// Why the device was cut off, if it was.
    pub(crate) contained: Option<String>,
    /// The length of the console's file when the device was cut off.
    pub(crate) cut_at: Option<u64>,
    /// How long that took, from when it was due.
    pub(crate) cut_took: Option<Duration>,
    /// Whether the guest was saved on its way, or why not; `None` where it was not tried.
    pub(crate) kept: Option<std::result::Result<(), String>>,
    /// Whether the watchdog ended QEMU.
    pub(crate) cut_by_force: bool,
}

/// A running QEMU and the threads that read from it.
pub(crate) struct Guest {
    child: Qemu,
    start: Instant,
    heard: Receiver<Heard>,
    qmp: Control,
    listeners: Vec<JoinHandle<()>>,
    console: JoinHandle<Scan>,
    stderr: JoinHandle<String>,
    progress: Vec<(Duration, Progress)>,
    shutdown: Option<String>,
    console_file: PathBuf,
    ports: Ports<UnixStream>,
    device: String,
    contained: Option<String>,
    cut_at: Option<u64>,
    cut_took: Option<Duration>,
    cut_by_force: bool,
    waker: UnixStream,
    woken: Option<Instant>,
    kept: Option<std::result::Result<(), String>>,
}

impl Guest {
    pub(crate) fn start(
        prepared: &Prepared,
        options: &Options,
        files: Files<'_>,
        server: Option<&Server>,
    ) -> Result<Guest> {
        jail::refuse_out_of_reach(prepared, options)?;
        let pair = || UnixStream::pair().context("make a socket for", Path::new("QEMU"));
        let (console, console_of_qemu) = pair()?;
        let (progress, progress_of_qemu) = pair()?;
        let (qmp, qmp_of_qemu) = pair()?;
        let (ports, ports_of_qemu) = pair()?;
        let channels = Channels {
            console: console_of_qemu.as_raw_fd(),
            progress: progress_of_qemu.as_raw_fd(),
            qmp: qmp_of_qemu.as_raw_fd(),
            ports: ports_of_qemu.as_raw_fd(),
        };
        let console_file = options.folder.join("console.log");
        let log = fs::File::create(&console_file).context("create", &console_file)?;
        let mut opened = Opened::new(prepared);
        let kernel = opened.name(files.kernel)?;
        let plugins = opened.plugins(&options.plugins)?;
        let named = Files { kernel: &kernel, ..files };
        let mut command = machine::command(prepared, options, named, &plugins, channels);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let parent = std::process::id();
        let mut inherited = opened.descriptors();
        inherited.extend([channels.console, channels.progress, channels.qmp, channels.ports]);
        inherited.extend(options.inherited.iter().map(|fd| fd.as_raw_fd()));
        // SAFETY: the closure calls only async-signal-safe functions and touches no memory of the parent but
        // the integers that it owns.
        unsafe {
            command.pre_exec(move || {
                // QEMU must not outlive this process in any case.
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                if libc::getppid() as u32 != parent {
                    libc::_exit(1);
                }
                for fd in &inherited {
                    if libc::fcntl(*fd, libc::F_SETFD, 0) != 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        let start = Instant::now();
        let jail = jail::of_guest(prepared, options, files, server);
        let child = guardrail_jail::spawn(&mut command, &jail).map_err(|error| Error::BadQemu {
            path: prepared.qemu.program.clone(),
            why: error.to_string(),
        })?;
        drop((console_of_qemu, progress_of_qemu, qmp_of_qemu, ports_of_qemu));
        let mut child = Qemu { child, killed: false };
        let stderr = child.child.stderr.take().expect("stderr is piped");
        let (sender, heard) = mpsc::sync_channel(QUEUE);
        let waker = progress.try_clone().context("clone a socket for", Path::new("QEMU"))?;
        let qmp_reader = qmp.try_clone().context("clone a socket for", Path::new("QEMU"))?;
        let listeners = vec![
            listen_lines("progress", progress, sender.clone(), |line| {
                Progress::parse(line).map(Heard::Progress)
            }),
            listen_lines("qmp", qmp_reader, sender.clone(), |line| Message::parse(line).map(Heard::Qmp)),
        ];
        Ok(Guest {
            child,
            start,
            heard,
            qmp: Control::new(qmp).context("set up a socket for", Path::new("QEMU"))?,
            listeners,
            console: listen_console(console, log, sender),
            stderr: listen_stderr(stderr),
            progress: Vec::new(),
            shutdown: None,
            console_file,
            ports: Ports::new(ports).context("set up a socket for", Path::new("QEMU"))?,
            device: machine::device_id(prepared).to_owned(),
            contained: None,
            cut_at: None,
            cut_took: None,
            cut_by_force: false,
            waker,
            woken: None,
            kept: None,
        })
    }

    /// Watches until QEMU ends (`None`) or must be ended (why).
    pub(crate) fn watch(
        &mut self,
        options: &Options,
        server: Option<&Server>,
        watch: &mut Watch<'_>,
    ) -> Option<Outcome> {
        let watchdog =
            options.watched.as_ref().map(|watched| Watchdog::start(self.child.child.id(), watched));
        let mut watchdog = match watchdog.transpose() {
            Ok(watchdog) => watchdog,
            Err(error) => return Some(Outcome::QemuFailed { why: format!("it cannot be watched: {error}") }),
        };
        let outcome = self.watch_with(options, server, watch, watchdog.as_ref());
        if let Some(watchdog) = &mut watchdog {
            self.cut_took = watchdog.end();
            self.cut_by_force = watchdog.has_killed();
            self.child.killed |= self.cut_by_force;
        }
        outcome
    }

    fn watch_with(
        &mut self,
        options: &Options,
        server: Option<&Server>,
        watch: &mut Watch<'_>,
        watchdog: Option<&Watchdog>,
    ) -> Option<Outcome> {
        let mut silence = Silence::new(self.child.child.id());
        let mut last_count = (0, 0);
        let mut end_by: Option<Instant> = None;
        let mut cut_off_by: Option<Instant> = None;
        // A containable device must be cut off quickly, so the loop looks around more often.
        let pause = Duration::from_millis(if options.containable { 2 } else { 100 });
        loop {
            if let Ok(heard) = self.heard.recv_timeout(pause) {
                silence.broken();
                if matches!(heard, Heard::Panic) {
                    // The guest reboots at once, which ends QEMU; one that cannot even reboot is ended below.
                    end_by.get_or_insert(Instant::now() + Duration::from_secs(10));
                }
                self.take(heard, watch);
            }
            if let Start::Save(file) = &options.start
                && self.waits()
            {
                return Some(match self.save_whole(file, watch) {
                    Ok(()) => Outcome::Stopped { why: "it was saved".to_owned() },
                    Err(why) => Outcome::QemuFailed { why: format!("the guest cannot be saved: {why}") },
                });
            }
            self.keep(&options.start, watch);
            if !self.child.is_running() {
                // The watchdog may have ended it before this loop looked.
                if watchdog.is_some_and(Watchdog::has_killed) && self.contained.is_none() {
                    self.contained = (watch.closed)().map(|(_, why)| why);
                }
                return None;
            }
            if let Some(stop) = (watch.stop)() {
                // Where the reason to end also closed the gate, the driver must not run on until QEMU has
                // ended.
                if options.containable
                    && self.contained.is_none()
                    && let Some((places, _)) = (watch.closed)()
                {
                    self.cut_off(&places, watch);
                    watchdog.inspect(|watchdog| watchdog.cut());
                }
                return Some(match stop {
                    Stop::Interrupted => Outcome::Interrupted,
                    Stop::Because(why) => Outcome::Stopped { why },
                });
            }
            if options.containable
                && self.contained.is_none()
                && let Some((places, why)) = (watch.closed)()
            {
                self.cut_off(&places, watch);
                watchdog.inspect(|watchdog| watchdog.cut());
                self.contained = Some(why);
                self.cut_at = fs::metadata(&self.console_file).ok().map(|file| file.len());
                cut_off_by = Some(Instant::now() + AFTER_CUT);
            }
            if let Some(file) = watch.save.as_mut().and_then(|save| save.wanted()) {
                let saved = self.save(&file, watch);
                if let Some(save) = &mut watch.save {
                    save.saved(saved);
                }
                let _ = qmp::say("cont", &mut self.qmp);
                silence.broken();
            }
            let count = ((watch.activity)(), server.map_or(0, Server::activity));
            if count != last_count {
                last_count = count;
                silence.broken();
            }
            if end_by.is_some_and(|time| Instant::now() >= time) {
                return None;
            }
            if cut_off_by.is_some_and(|time| Instant::now() >= time) {
                return Some(without_device(&self.step()));
            }
            if self.start.elapsed() >= options.limits.total {
                return Some(Outcome::TimedOut { limit: options.limits.total, step: self.step() });
            }
            if silence.lasts() >= options.limits.silence {
                return Some(Outcome::GuestHang { step: self.step(), silence: options.limits.silence });
            }
        }
    }

    /// Cuts devices off, and notifies the guest. Where QEMU refuses, it is ended at once, so that nothing
    /// more of the driver reaches the outside.
    ///
    /// A device outside this QEMU needs nothing here. The guest is not notified then either. QEMU has aborted
    /// at the removal of a `vfio-user-pci` device with an interrupt table, and a device that reads as all
    /// ones is notice enough.
    fn cut_off(&mut self, devices: &[PciAddress], watch: &mut Watch<'_>) {
        if devices.is_empty() {
            return;
        }
        if qmp::say("stop", &mut self.qmp).is_err() {
            return self.child.kill();
        }
        self.await_message(STOP_LIMIT, watch, save::stopped);
        if devices.iter().any(|&device| self.ports.cut(device).is_err()) {
            return self.child.kill();
        }
        let _ = qmp::say("cont", &mut self.qmp);
        let _ = qmp::unplug(&self.device, &mut self.qmp);
    }

    fn take(&mut self, heard: Heard, watch: &mut Watch<'_>) {
        match heard {
            Heard::Progress(line) => {
                let time = self.start.elapsed();
                if let Progress::Ask(what) = &line {
                    // The main loop notices the end of QEMU anyhow.
                    let _ = qmp::act(what, &mut self.qmp);
                    return;
                }
                (watch.progress)(time, &line);
                // Signs of life are no steps.
                if matches!(line, Progress::Alive(_) | Progress::Output(_)) {
                    return;
                }
                keep(&mut self.progress, (time, line));
            }
            Heard::Qmp(Message::Greeting) => {
                // The main loop notices the end of QEMU anyhow.
                let _ = qmp::say("qmp_capabilities", &mut self.qmp);
            }
            Heard::Qmp(Message::Shutdown { reason }) => self.shutdown = Some(reason),
            Heard::Qmp(_) | Heard::Panic => {}
        }
    }

    /// True where the guest waits to be saved.
    fn waits(&self) -> bool {
        self.progress.last().is_some_and(|(_, line)| *line == Progress::Waiting)
    }

    /// The step that the guest is in, as far as it reported one.
    fn step(&self) -> String {
        outcome::step(&self.progress)
    }

    /// Ends QEMU if it still runs. It asks first, so that the plugin can finish, and then kills.
    pub(crate) fn end(mut self, watch: &mut Watch<'_>) -> Ended {
        if self.child.is_running() && qmp::say("quit", &mut self.qmp).is_ok() {
            let deadline = Instant::now() + Duration::from_secs(10);
            while Instant::now() < deadline && self.child.is_running() {
                if let Ok(heard) = self.heard.recv_timeout(Duration::from_millis(20)) {
                    self.take(heard, watch);
                }
            }
        }
        self.child.kill();
        let wall = self.start.elapsed();
        self.qmp.shut();
        // The threads wait for room in the queue, and end with what they read from.
        let deadline = Instant::now() + LAST_WORDS;
        let left = || deadline.saturating_duration_since(Instant::now());
        while let Ok(heard) = self.heard.recv_timeout(left()) {
            self.take(heard, watch);
        }
        drop(self.heard);
        for listener in self.listeners {
            join_within(listener, left());
        }
        let scan = join_within(self.console, left()).unwrap_or_default();
        let stderr = join_within(self.stderr, left()).unwrap_or_default();
        Ended {
            progress: self.progress,
            wall,
            console: self.console_file,
            scan,
            shutdown: self.shutdown,
            stderr,
            status: self.child.ending(),
            contained: self.contained,
            cut_at: self.cut_at,
            cut_took: self.cut_took,
            cut_by_force: self.cut_by_force,
            kept: self.kept,
        }
    }
}

/// Keeps a line of progress. Of a guest that floods the channel the first and the last ones are kept.
fn keep(lines: &mut Vec<(Duration, Progress)>, line: (Duration, Progress)) {
    if lines.len() >= MOST_LINES {
        lines.drain(MOST_LINES / 4..MOST_LINES / 2);
    }
    lines.push(line);
}

/// How a guest ends that goes on for too long after its device was cut off.
pub(crate) fn without_device(step: &str) -> Outcome {
    let seconds = AFTER_CUT.as_secs();
    Outcome::Stopped { why: format!("the guest went on for {seconds} s without the device, in '{step}'") }
}

/// The result of a thread, unless it panics or goes on for longer.
fn join_within<T>(thread: JoinHandle<T>, limit: Duration) -> Option<T> {
    let deadline = Instant::now() + limit;
    while !thread.is_finished() {
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.join().ok()
}

/// Reports the lines that mean something. What is not taken fills the queue, and then the thread waits, so that QEMU
/// and the guest wait, too.
fn listen_lines(
    name: &str,
    mut stream: UnixStream,
    sender: SyncSender<Heard>,
    parse: fn(&str) -> Option<Heard>,
) -> JoinHandle<()> {
    let run = move || {
        let mut lines = Lines::default();
        each_piece(&mut stream, |bytes| {
            lines.feed(bytes, |line| _ = parse(line).map(|heard| sender.send(heard)));
        });
    };
    std::thread::Builder::new().name(name.into()).spawn(run).expect("the system can start a thread")
}

fn listen_console(mut stream: UnixStream, log: fs::File, sender: SyncSender<Heard>) -> JoinHandle<Scan> {
    std::thread::spawn(move || {
        let (mut lines, mut scan, mut kept) = (Lines::default(), Scan::default(), Kept::new(log));
        each_piece(&mut stream, |bytes| {
            kept.add(bytes);
            lines.feed(bytes, |line| {
                let before = scan.panicked();
                scan.line(line);
                if scan.panicked() && !before {
                    let _ = sender.send(Heard::Panic);
                }
            });
        });
        scan.cut = kept.cut();
        scan
    })
}

fn listen_stderr(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        each_piece(&mut stream, |bytes| {
            if text.len() < 64 << 10 {
                text.extend_from_slice(bytes);
            }
        });
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// Reads pieces until the other end is closed.
fn each_piece(stream: &mut impl Read, mut each: impl FnMut(&[u8])) {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => each(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Write};

    #[test]
    fn a_guest_that_says_too_much_waits() {
        let (mut guest, ours) = UnixStream::pair().unwrap();
        let (sender, heard) = mpsc::sync_channel(QUEUE);
        let listener =
            listen_lines("progress", ours, sender, |line| Progress::parse(line).map(Heard::Progress));
        guest.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let line = b"guardrail: alive 0\n";
        let said = (0..4_000_000).map(|_| guest.write_all(line)).find_map(Result::err);
        assert_eq!(said.map(|error| error.kind()), Some(ErrorKind::WouldBlock));
        // Room for more.
        for _ in 0..QUEUE {
            assert!(matches!(heard.recv().unwrap(), Heard::Progress(Progress::Alive(0))));
        }
        guest.write_all(line).unwrap();
        // Nobody listens any more.
        drop(guest);
        drop(heard);
        assert!(join_within(listener, LAST_WORDS).is_some());
    }
    #[test]
    fn the_first_and_the_last_lines_are_kept() {
        let mut lines = Vec::new();
        for second in 0..100_000 {
            keep(&mut lines, (Duration::from_secs(second), Progress::Begin("step".to_owned())));
            assert!(lines.len() <= MOST_LINES);
        }
        let seconds = |line: Option<&(Duration, Progress)>| line.map(|(time, _)| time.as_secs());
        assert_eq!((seconds(lines.get(2000)), seconds(lines.last())), (Some(2000), Some(99_999)));
    }
}
