//! A `guardrail check` of its own, for commands that make many runs: nothing that a run does can end them, and none outlives them.

use crate::error::HostError;
use crate::folders::program;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// A running `guardrail check`; dropping it ends it. Its guest dies with it.
pub struct Process(std::process::Child);

impl Process {
    /// This program, asked to check something.
    pub fn check() -> Result<Command, HostError> {
        let mut command = Command::new(program()?);
        command.arg("check");
        Ok(command)
    }

    /// Starts it. What it prints goes to the files `stdout` and `stderr` of a folder.
    pub fn start(mut command: Command, folder: &Path) -> Result<Process, HostError> {
        let file = |name: &str| {
            let path = folder.join(name);
            fs::File::create(&path).map_err(HostError::io("create", path.display()))
        };
        command.stdin(Stdio::null()).stdout(file("stdout")?).stderr(file("stderr")?);
        // Ctrl-C at the terminal is ours to handle: a run is ended in order.
        command.process_group(0);
        // SAFETY: the closure calls one async-signal-safe function and touches no memory.
        unsafe {
            command.pre_exec(|| {
                // However we end, a run does not go on alone; it takes its guest with it.
                match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let program = command.get_program().to_string_lossy().into_owned();
        Ok(Process(command.spawn().map_err(HostError::io("start", program))?))
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Its end, if it has come.
    pub fn try_wait(&mut self) -> std::io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// Tells it to end.
    pub fn interrupt(&self) {
        // SAFETY: the child has not been waited for, so the number is its.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGTERM) };
    }

    /// Ends it at once.
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
