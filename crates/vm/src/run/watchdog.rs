//! Ends QEMU where its device is not cut off in time, by a thread that waits for nobody.
//!
//! The main loop asks QEMU, the gate's process and the analysis, and any of these may hang. The end of QEMU also cuts its
//! device off.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(2);
/// How long the cut may take where no thread of the process that does it runs or could: it waits for ever.
const FROZEN_LIMIT: Duration = Duration::from_millis(25);
/// How long it may take at all.
const LIMIT: Duration = Duration::from_millis(900);

/// What a watchdog watches, besides QEMU.
#[derive(Clone)]
pub struct Watched {
    /// Whether the device is to be cut off.
    pub closed: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Another process that reaches the device, which is ended with QEMU.
    pub other: Option<u32>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("other", &self.other).finish_non_exhaustive()
    }
}

/// A process by a descriptor, which never means another one.
struct Process {
    number: u32,
    descriptor: OwnedFd,
}

impl Process {
    /// The caller has not waited for the process yet.
    fn open(number: u32) -> io::Result<Process> {
        // SAFETY: the call takes plain numbers.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the system just returned this descriptor, and nothing else owns it.
        Ok(Process { number, descriptor: unsafe { OwnedFd::from_raw_fd(descriptor as i32) } })
    }

    fn kill(&self) {
        let (descriptor, none) = (self.descriptor.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
        // SAFETY: the descriptor is open, and no information is passed. A process that has ended is no error here.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, descriptor, libc::SIGKILL, none, 0) };
    }

    /// The states of its threads, as in proc_pid_stat(5).
    fn states(&self) -> Vec<u8> {
        let threads = fs::read_dir(PathBuf::from(format!("/proc/{}/task", self.number)));
        let state = |thread: fs::DirEntry| {
            let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
            stat.rsplit(") ").next()?.bytes().next()
        };
        threads.into_iter().flatten().flatten().filter_map(state).collect()
    }
}

/// What the watchdog and the main loop tell each other.
#[derive(Default)]
struct Told {
    cut: OnceLock<Instant>,
    killed: AtomicBool,
}

/// A watchdog at work; dropping it ends it.
pub(super) struct Watchdog {
    told: Arc<Told>,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<Option<Duration>>>,
}

impl Watchdog {
    /// Watches over QEMU, which the caller has not waited for.
    pub(super) fn start(qemu: u32, watched: &Watched) -> io::Result<Watchdog> {
        let numbers = [Some(qemu), watched.other].into_iter().flatten();
        let processes = numbers.map(Process::open).collect::<io::Result<Vec<_>>>()?;
        let (told, closed) = (Arc::new(Told::default()), Arc::clone(&watched.closed));
        let (end, ended) = mpsc::channel::<()>();
        let of_thread = Arc::clone(&told);
        let watch = move || {
            let goes_on = || matches!(ended.recv_timeout(LOOK), Err(RecvTimeoutError::Timeout));
            let mut last = Instant::now();
            while goes_on() {
                if closed() {
                    return Some(wait(&processes, &of_thread, &goes_on));
                }
                last = Instant::now();
            }
            // The main loop may be done between two looks.
            of_thread.cut.get().map(|cut| cut.saturating_duration_since(last))
        };
        let thread = std::thread::Builder::new().name("watchdog".into()).spawn(watch)?;
        Ok(Watchdog { told, end: Some(end), thread: Some(thread) })
    }

    /// The device is cut off.
    pub(super) fn cut(&self) {
        let _ = self.told.cut.set(Instant::now());
    }

    /// Whether the watchdog has ended QEMU.
    pub(super) fn has_killed(&self) -> bool {
        self.told.killed.load(Ordering::Acquire)
    }

    /// How long the cut took, at most 2 ms too little or too much; `None` where none was due.
    pub(super) fn end(&mut self) -> Option<Duration> {
        self.end = None;
        self.thread.take()?.join().ok().flatten()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits for the cut, or ends the processes. Returns how long that took.
fn wait(processes: &[Process], told: &Told, goes_on: &dyn Fn() -> bool) -> Duration {
    let due = Instant::now();
    let mut idle = 0;
    loop {
        let over = !goes_on();
        if let Some(cut) = told.cut.get() {
            return cut.saturating_duration_since(due);
        }
        let states: Vec<Vec<u8>> = processes.iter().map(Process::states).collect();
        let hangs = hang(&states, due.elapsed(), &mut idle);
        if hangs {
            processes.iter().for_each(Process::kill);
            told.killed.store(true, Ordering::Release);
        }
        if hangs || over {
            return due.elapsed();
        }
    }
}

/// Whether processes will not cut the device off any more. The last of them is asked to; `idle` counts looks in a row
/// at which none of its threads ran.
fn hang(states: &[Vec<u8>], since: Duration, idle: &mut u32) -> bool {
    // A thread in state D would run if it got its data from a disk.
    let runs = |threads: &Vec<u8>| threads.iter().any(|state| matches!(state, b'R' | b'D'));
    let is_stopped =
        |threads: &Vec<u8>| !threads.is_empty() && threads.iter().all(|state| matches!(state, b'T' | b't'));
    // One look may fall between two moments of work.
    *idle = if states.last().is_some_and(runs) { 0 } else { *idle + 1 };
    states.iter().any(is_stopped) || since >= FROZEN_LIMIT && *idle > 1 || since >= LIMIT
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).spawn().unwrap()
    }

    fn watched(closed: bool, other: Option<u32>) -> Watched {
        Watched { closed: Arc::new(move || closed), other }
    }

    /// Whether the process was killed when the watchdog has waited for the cut.
    fn is_killed(mut child: Child, watchdog: &mut Watchdog) -> bool {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !watchdog.has_killed() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(watchdog.end().is_some());
        let ended = child.wait().unwrap();
        std::os::unix::process::ExitStatusExt::signal(&ended) == Some(libc::SIGKILL)
    }

    #[test]
    fn what_does_not_let_go_is_ended() {
        let scripts = ["exec sleep 60", "while :; do :; done", "kill -STOP $$"];
        for (script, of_other) in scripts.iter().flat_map(|&one| scripts.iter().map(move |&two| (one, two))) {
            let (child, mut other) = (sleeper(script), sleeper(of_other));
            let mut watchdog = Watchdog::start(child.id(), &watched(true, Some(other.id()))).unwrap();
            assert!(is_killed(child, &mut watchdog), "{script}, {of_other}");
            assert!(!other.wait().unwrap().success());
        }
    }

    #[test]
    fn a_process_that_works_does_not_hide_one_that_hangs() {
        let hangs = |qemu: &str, asked: &str, milliseconds: u64| {
            let states = [qemu, asked].map(|threads| threads.as_bytes().to_vec());
            hang(&states, Duration::from_millis(milliseconds), &mut 1)
        };
        for (qemu, asked) in [("TT", "R"), ("R", "T"), ("tT", "SS"), ("R", "tt")] {
            assert!(hangs(qemu, asked, 2), "{qemu}, {asked}");
        }
        for (qemu, asked) in [("R", "SS"), ("S", "S"), ("S", "ST"), ("D", "")] {
            assert_eq!([2, 24, 25, 40].map(|time| hangs(qemu, asked, time)), [false, false, true, true]);
        }
        for (qemu, asked) in [("S", "R"), ("R", "SD"), ("", "TR")] {
            assert_eq!([25, 899, 900].map(|time| hangs(qemu, asked, time)), [false, false, true]);
        }
        // The first look without work.
        assert!(!hang(&[b"S".to_vec()], FROZEN_LIMIT, &mut 0));
    }

    #[test]
    fn a_cut_between_two_looks_counts() {
        let mut child = sleeper("exec sleep 60");
        let mut watchdog = Watchdog::start(child.id(), &watched(false, None)).unwrap();
        watchdog.cut();
        assert!(watchdog.end().is_some_and(|took| took < LIMIT));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn nothing_is_ended_where_the_device_was_cut_off_or_need_not_be() {
        for closed in [false, true] {
            let mut child = sleeper("exec sleep 60");
            let mut watchdog = Watchdog::start(child.id(), &watched(closed, None)).unwrap();
            watchdog.cut();
            std::thread::sleep(FROZEN_LIMIT * 2);
            assert!(watchdog.end().is_some() && !watchdog.has_killed(), "{closed}");
            assert!(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
