//! Processes that end with this one, and a `guardrail check` in one, for commands that make many runs. No failure of a run can end
//! the command, and no run outlives it.

use crate::error::{HostError, Status};
use crate::folders::program;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Has the process of a command killed when the thread that starts it ends.
pub fn kill_with_parent(command: &mut Command) {
    end_with_parent(command, libc::SIGKILL);
}

/// Has a signal sent to the process of a command when the thread that starts it ends.
fn end_with_parent(command: &mut Command, signal: libc::c_int) {
    // SAFETY: the closure calls one async-signal-safe function and touches no memory.
    unsafe {
        command.pre_exec(move || match libc::prctl(libc::PR_SET_PDEATHSIG, signal) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

/// The time of a check beyond its guest's limit: for reading the kernel, and for the analysis's lag.
pub const BEYOND: Duration = Duration::from_secs(300);
/// How long a check may take to end in order after a signal.
pub const GRACE: Duration = Duration::from_secs(20);

/// The environment's name by which a worker asks its check to say with [`Status::Unfit`] that the machine lacks something. For
/// others that is a failure like any.
pub const OF_WORKER: &str = "GUARDRAIL_OF_WORKER";

/// Has the check of a command end with [`Status::Unfit`] where this machine lacks something.
pub fn for_worker(command: &mut Command) {
    command.env(OF_WORKER, "1");
}

/// The exit status of this process for an error.
pub fn status(error: &HostError) -> Status {
    let of_worker = std::env::var_os(OF_WORKER).is_some_and(|value| !value.is_empty());
    if of_worker && error.is_of_machine() { Status::Unfit } else { error.status() }
}

/// The error that a check ended with, or its last line; `None` where it said nothing.
pub fn last_words(stderr: &str) -> Option<&str> {
    let error = stderr.lines().rev().find_map(|line| line.strip_prefix("error: "));
    error.or(stderr.lines().rev().find(|line| !line.is_empty()))
}

/// A running `guardrail check`; dropping it ends it. Its guest ends with it.
pub struct Process(std::process::Child);

impl Process {
    /// The command of this program for a check.
    pub fn check() -> Result<Command, HostError> {
        let mut command = Command::new(program()?);
        // The command that makes the runs says all that they are; a file of the current folder does not.
        command.arg("check").env("GUARDRAIL_CONFIG", "").env_remove("GUARDRAIL_PROFILE");
        Ok(command)
    }

    /// Starts the process. Its output is written to the files `stdout` and `stderr` of a folder.
    pub fn start(mut command: Command, folder: &Path) -> Result<Process, HostError> {
        let file = |name: &str| {
            let path = folder.join(name);
            fs::File::create(&path).map_err(HostError::io("create", path.display()))
        };
        command.stdin(Stdio::null()).stdout(file("stdout")?).stderr(file("stderr")?);
        // This process handles Ctrl-C at the terminal: it ends a run in order.
        command.process_group(0);
        // However this process ends, the run must not continue alone; it ends its guest, too.
        end_with_parent(&mut command, libc::SIGTERM);
        let program = command.get_program().to_string_lossy().into_owned();
        Ok(Process(command.spawn().map_err(HostError::io("start", program))?))
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The exit status; `None` while it runs.
    pub fn try_wait(&mut self) -> std::io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// Asks the process to end (SIGTERM).
    pub fn interrupt(&self) {
        // SAFETY: the child has not been waited for, so no other process has the number.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGTERM) };
    }

    /// Kills the process at once.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = self.0.kill();
        }
        let _ = self.0.wait();
    }
}
