//! Ends QEMU where its device is not cut off in time, by a thread that waits for nobody.
//!
//! The main loop asks QEMU, the gate's process and the analysis, and any of these may hang. The end of QEMU also cuts its
//! device off.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(2);
/// How long the cut may take where no thread of the processes runs or could: they are stopped, or wait for each other.
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

    /// Whether a thread of it runs, or would if it got a processor or its data from a disk.
    fn is_runnable(&self) -> bool {
        let threads = fs::read_dir(PathBuf::from(format!("/proc/{}/task", self.number)));
        threads.into_iter().flatten().flatten().any(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['R', 'D']))
        })
    }
}

/// What the watchdog and the main loop tell each other.
#[derive(Default)]
struct Told {
    cut: AtomicBool,
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
            while goes_on() {
                if closed() {
                    return Some(wait(&processes, &of_thread, &goes_on));
                }
            }
            None
        };
        let thread = std::thread::Builder::new().name("watchdog".into()).spawn(watch)?;
        Ok(Watchdog { told, end: Some(end), thread: Some(thread) })
    }

    /// The device is cut off.
    pub(super) fn cut(&self) {
        self.told.cut.store(true, Ordering::Release);
    }

    /// Whether the watchdog has ended QEMU.
    pub(super) fn has_killed(&self) -> bool {
        self.told.killed.load(Ordering::Acquire)
    }

    /// How long the cut took, from when the watchdog saw that it was due; `None` where none was.
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
    let mut frozen = 0;
    loop {
        if told.cut.load(Ordering::Acquire) {
            return due.elapsed();
        }
        // One look may fall between two moments of work.
        frozen = if processes.iter().any(Process::is_runnable) { 0 } else { frozen + 1 };
        let over = due.elapsed() >= FROZEN_LIMIT && frozen > 1;
        if over || due.elapsed() >= LIMIT {
            processes.iter().for_each(Process::kill);
            told.killed.store(true, Ordering::Release);
            return due.elapsed();
        }
        if !goes_on() {
            return due.elapsed();
        }
    }
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
        for script in ["exec sleep 60", "while :; do :; done", "kill -STOP $$"] {
            let (child, mut other) = (sleeper(script), sleeper("exec sleep 60"));
            let mut watchdog = Watchdog::start(child.id(), &watched(true, Some(other.id()))).unwrap();
            assert!(is_killed(child, &mut watchdog), "{script}");
            assert!(!other.wait().unwrap().success());
        }
    }

    #[test]
    fn nothing_is_ended_where_the_device_was_cut_off_or_need_not_be() {
        for closed in [false, true] {
            let mut child = sleeper("exec sleep 60");
            let mut watchdog = Watchdog::start(child.id(), &watched(closed, None)).unwrap();
            watchdog.cut();
            std::thread::sleep(FROZEN_LIMIT * 2);
            assert_eq!((watchdog.end().is_some(), watchdog.has_killed()), (closed, false));
            assert!(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
