//! Programs that start others, such as `make`: none of them outlives this process, however that ends.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;

/// Reads the number of a group of processes, and ends the group when it can read no further line, or when the user
/// interrupts it at the terminal. It can read none once nobody holds the other end of its pipe.
const WATCH: &str = r#"trap '' INT TERM HUP; echo; read -r group || exit
trap 'kill -s KILL -- -"$group"; exit' INT TERM HUP; read -r line || kill -s KILL -- -"$group""#;

/// Runs a program to its end, and returns what it wrote. All processes of its group end with it, or with this process.
pub(crate) fn output(command: &mut Command) -> io::Result<Output> {
    // It watches before there is anything to watch: a signal may come at any moment.
    let watcher = Watcher::start()?;
    watcher.watches(command);
    let spawned = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            watcher.dismiss();
            return Err(error);
        }
    };
    let group = child.id();
    let (stdout, stderr) = (read(child.stdout.take()), read(child.stderr.take()));
    let ended = wait(group);
    // What is left of the group would keep the pipes open.
    end(group);
    let status = child.wait()?;
    let text = |thread: JoinHandle<Vec<u8>>| thread.join().unwrap_or_default();
    let output = Output { status, stdout: text(stdout), stderr: text(stderr) };
    watcher.dismiss();
    ended.map(|()| output)
}

/// Reads a pipe to its end.
fn read(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        bytes
    })
}

/// Waits for the end of a program. It stays known, so that no other group gets its number before the others have ended.
fn wait(child: u32) -> io::Result<()> {
    loop {
        let mut status = MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: the status is writable, and the program is a child of this process that nobody waited for.
        match unsafe { libc::waitid(libc::P_PID, child, status.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT) }
        {
            0 => return Ok(()),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

/// Ends all processes of a group, whose leader was not waited for.
fn end(group: u32) {
    // SAFETY: kill takes plain numbers. The leader was not waited for, so the number is that of its group.
    unsafe { libc::kill(-(group as i32), libc::SIGKILL) };
}

/// A process that ends a group when this one has ended.
struct Watcher(Child);

impl Watcher {
    /// Returns when the process is ready.
    fn start() -> io::Result<Watcher> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WATCH]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut watcher = Watcher(command.spawn()?);
        let ready = watcher.0.stdout.take().map_or(Ok(()), |mut line| line.read_exact(&mut [0]));
        match ready {
            Ok(()) => Ok(watcher),
            Err(_) => {
                watcher.dismiss();
                Err(io::Error::new(io::ErrorKind::Interrupted, "it was interrupted"))
            }
        }
    }

    /// Has a command say the number of its group before the program in it runs.
    fn watches(&self, command: &mut Command) {
        let pipe = self.0.stdin.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let say = move || {
            // The process leads its group. Numbers are written without an allocation.
            let mut line = io::Cursor::new([0; 16]);
            writeln!(line, "{}", std::process::id())?;
            let line = &line.get_ref()[..line.position() as usize];
            // SAFETY: the line outlives the call; the pipe is open until the program runs.
            match unsafe { libc::write(pipe, line.as_ptr().cast(), line.len()) } {
                written if written == line.len() as isize => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure makes two async-signal-safe calls, and uses its own memory.
        unsafe { command.pre_exec(say) };
    }

    /// The group has ended.
    fn dismiss(mut self) {
        // One that was killed needs no line.
        let _ = self.0.stdin.take().map(|mut pipe| pipe.write_all(b"\n"));
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::time::{Duration, Instant};

    /// What starts a process that outlives its parent, and says its number.
    const LEAVES: &str = "sleep 100 & echo $!; echo words >&2";
    const WAITS: &str = "sleep 100 & echo $! > \"$0\"; wait";

    fn runs(process: u32) -> bool {
        // SAFETY: the signal 0 is not sent.
        let is_there = unsafe { libc::kill(process as i32, 0) } == 0;
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        is_there && stat.rsplit(") ").next().is_some_and(|rest| !rest.starts_with('Z'))
    }

    fn ends(process: u32) -> bool {
        let deadline = Instant::now() + Duration::from_secs(20);
        while runs(process) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        !runs(process)
    }

    #[test]
    fn nothing_outlives_a_program() {
        let output = output(Command::new("sh").args(["-c", LEAVES])).unwrap();
        assert!(output.status.success());
        assert_eq!(output.stderr, b"words\n");
        let process = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        assert!(ends(process));
    }

    #[test]
    fn much_output_is_read() {
        let output = output(Command::new("head").args(["-c", "300000", "/dev/zero"])).unwrap();
        assert_eq!(output.stdout.len(), 300_000);
        assert!(super::output(&mut Command::new("/no/such/program")).is_err());
    }

    /// Runs in a process of its own, which is killed.
    #[test]
    fn runs_a_group() {
        let Ok(place) = std::env::var("GUARDRAIL_TEST_GROUP") else { return };
        output(Command::new("sh").args(["-c", WAITS, &place])).unwrap();
    }

    #[test]
    fn nothing_outlives_this_process() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("number");
        for signal in [libc::SIGKILL, libc::SIGINT] {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "fetch::group::tests::runs_a_group", "--nocapture"]);
            command.env("GUARDRAIL_TEST_GROUP", &place).stdout(Stdio::piped()).stderr(Stdio::null());
            // A shell's background job, which these tests may be, ignores the signal of a terminal.
            // SAFETY: the closure makes one async-signal-safe call.
            unsafe {
                command.pre_exec(|| {
                    libc::signal(libc::SIGINT, libc::SIG_DFL);
                    Ok(())
                })
            };
            // The signal is for all processes of the terminal.
            let mut child = command.process_group(0).spawn().unwrap();
            let deadline = Instant::now() + Duration::from_secs(20);
            let number = || std::fs::read_to_string(&place).ok()?.trim().parse::<u32>().ok();
            while number().is_none() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            let process = number().unwrap();
            assert!(runs(process));
            let whom = if signal == libc::SIGINT { -(child.id() as i32) } else { child.id() as i32 };
            // SAFETY: kill takes plain numbers, and the child was not waited for.
            unsafe { libc::kill(whom, signal) };
            let out = child.stdout.take().unwrap();
            assert!(ends(process), "signal {signal}");
            child.wait().unwrap();
            assert!(BufReader::new(out).lines().all(|line| line.is_ok()));
            std::fs::remove_file(&place).unwrap();
        }
    }
}
