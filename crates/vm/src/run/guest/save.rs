//! Saves a guest in the middle of its run.

use super::{Guest, Heard, STOP_LIMIT};
use crate::qemu::qmp::{self, Message};
use crate::run::{Start, Watch, kept};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Whether a file was written; the error says why not.
type Written = std::result::Result<(), String>;

/// How long stopping may take while something that is held may keep a vCPU from stopping.
const HELD_LIMIT: Duration = Duration::from_secs(1);
/// The time between two lines that wake a guest.
const WAKE: Duration = Duration::from_millis(50);
/// The time between two looks whether the run is to end.
const LOOK: Duration = Duration::from_millis(200);
/// How often QEMU is asked to go on.
const CONT_TRIES: u32 = 200;
/// How long QEMU may take to write the guest's memory to a file.
const DUMP_LIMIT: Duration = Duration::from_secs(60);

/// Accepts the event of this name.
fn event(name: &str) -> impl Fn(&Message) -> Option<()> {
    move |message| matches!(message, Message::Event(event) if event == name).then_some(())
}

/// QEMU has stopped its CPUs.
pub(super) fn stopped(message: &Message) -> Option<()> {
    event("STOP")(message)
}

/// Sends a line to the guest's second serial port, unless QEMU does not read.
fn wake(socket: &UnixStream) {
    let line = b"\n";
    // SAFETY: the line outlives the call, and the socket is open.
    unsafe {
        libc::send(
            socket.as_raw_fd(),
            line.as_ptr().cast(),
            line.len(),
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
}

impl Guest {
    /// Stops the guest and saves it. The caller lets the guest continue.
    pub(super) fn save(&mut self, file: &Path, watch: &mut Watch<'_>) -> Written {
        let _ = qmp::say("stop", &mut self.qmp);
        // A vCPU that waits in the tracer, where it cannot be sent back to an earlier instruction, stops only
        // after that wait.
        if self.await_message(HELD_LIMIT, watch, stopped).is_none() {
            if let Some(save) = &mut watch.save {
                save.release();
            }
            let late = || format!("QEMU did not stop its CPUs within {} s", STOP_LIMIT.as_secs());
            self.await_message(STOP_LIMIT, watch, stopped).ok_or_else(late)?;
        }
        qmp::dump(file, &mut self.qmp).map_err(|error| error.to_string())?;
        let written = |message: &Message| match message {
            Message::Dumped(result) => Some(result.clone()),
            Message::Error(why) => Some(Err(why.clone())),
            _ => None,
        };
        self.await_written(watch, written)
    }

    /// Writes the whole guest to a file, from which another QEMU continues. This guest does not continue.
    pub(super) fn save_whole(&mut self, file: &Path, watch: &mut Watch<'_>) -> Written {
        qmp::save(file, &mut self.qmp).map_err(|error| error.to_string())?;
        let written = |message: &Message| match message {
            Message::Saved(result) => Some(result.clone()),
            Message::Error(why) => Some(Err(why.clone())),
            _ => None,
        };
        self.await_written(watch, written)
    }

    /// Saves a guest that is to be kept, and wakes one that waits for the files of its run.
    pub(super) fn keep(&mut self, start: &Start, watch: &mut Watch<'_>) {
        if let Start::Keep(file) = start
            && self.kept.is_none()
            && self.waits()
        {
            let saved = self.save_whole(file, watch);
            self.kept = Some(saved.and_then(|()| kept::take(file).map_err(|error| error.to_string())));
            // QEMU reports that it has written all a moment before it can go on.
            for _ in 0..CONT_TRIES {
                let _ = qmp::say("cont", &mut self.qmp);
                if self.await_message(WAKE, watch, event("RESUME")).is_some() {
                    break;
                }
            }
        }
        // What arrives before the other machine's state is lost, so this is said until it is heard.
        let wakes = self.progress.is_empty() && matches!(start, Start::Kept(_))
            || self.waits() && self.kept.is_some();
        if wakes && self.woken.is_none_or(|at| at.elapsed() > WAKE) {
            self.woken = Some(Instant::now());
            wake(&self.waker);
        }
    }

    /// Waits until QEMU reports that it has written a file, or why it did not.
    fn await_written(
        &mut self,
        watch: &mut Watch<'_>,
        written: impl Fn(&Message) -> Option<Written>,
    ) -> Written {
        let deadline = Instant::now() + DUMP_LIMIT;
        loop {
            if let Some(found) = self.await_message(LOOK, watch, &written) {
                return found;
            }
            if (watch.stop)().is_some() {
                return Err("the run was to end meanwhile".to_owned());
            }
            if Instant::now() >= deadline || !self.child.is_running() {
                return Err(format!("QEMU did not write it within {} s", DUMP_LIMIT.as_secs()));
            }
        }
    }

    /// Waits until QEMU sends a message that `wanted` accepts.
    pub(super) fn await_message<T>(
        &mut self,
        limit: Duration,
        watch: &mut Watch<'_>,
        wanted: impl Fn(&Message) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline && self.child.is_running() {
            let Ok(heard) = self.heard.recv_timeout(Duration::from_millis(50)) else { continue };
            let found = if let Heard::Qmp(message) = &heard { wanted(message) } else { None };
            self.take(heard, watch);
            if found.is_some() {
                return found;
            }
        }
        None
    }
}
