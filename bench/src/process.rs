//! Processes that benchmarks start.

use serde_json::Value;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Makes the kernel signal a child when the thread that starts it ends, however it ends.
pub fn dies_with_us(command: &mut Command, signal: i32) {
    // SAFETY: the closure calls one async-signal-safe function and touches no memory of the parent but a copied number.
    unsafe {
        command.pre_exec(move || match libc::prctl(libc::PR_SET_PDEATHSIG, signal) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

/// The program `guardrail`, beside this one. Its output is read; it ends its guest in order when this program ends.
pub fn guardrail() -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("guardrail");
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    dies_with_us(&mut command, libc::SIGTERM);
    Ok(command)
}

/// Starts a program.
pub fn start(command: &mut Command, name: &str) -> Result<Child, String> {
    command.spawn().map_err(|error| format!("cannot start {name}: {error}"))
}

/// Reads a stream to its end, on a thread of its own.
pub fn read_all(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // If the rest cannot be read, what was read shows why.
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for a child with piped output and returns what it printed. `meanwhile` is called some times a
/// second.
///
/// # Errors
/// The child did not end in time, or it failed: the error has its last words.
pub fn finish(
    mut child: Child,
    limit: Duration,
    name: &str,
    meanwhile: &mut dyn FnMut(),
) -> Result<String, String> {
    let output = child.stdout.take().map(read_all);
    let errors = child.stderr.take().map(read_all);
    let deadline = Instant::now() + limit;
    let status = loop {
        match child.try_wait().map_err(|error| format!("cannot wait for {name}: {error}"))? {
            Some(status) => break status,
            None if Instant::now() >= deadline => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{name} did not end in {} s", limit.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
        meanwhile();
    };
    let text = |thread: Option<JoinHandle<String>>| thread.and_then(|thread| thread.join().ok());
    let output = text(output).unwrap_or_default();
    let errors = text(errors).unwrap_or_default();
    match status.success() {
        true => Ok(output),
        false => Err(format!("{name} failed: {}", last_words(&format!("{output}\n{errors}")))),
    }
}

/// A port that is free for TCP and UDP at this moment.
pub fn free_port() -> Result<u16, String> {
    for _ in 0..50 {
        let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) else { break };
        let Ok(address) = listener.local_addr() else { break };
        if UdpSocket::bind(address).is_ok() {
            return Ok(address.port());
        }
    }
    Err("there is no free port on the loopback address".into())
}

/// Instructions that the client `count` reports of all CPUs, without those of the idle task, which waits for the host.
pub fn instructions(report: &Value) -> Option<f64> {
    let table = &report["clients"][0]["tables"][0];
    let column = |name: &str| table["columns"].as_array()?.iter().position(|column| column == name);
    let last = table["rows"].as_array()?.last()?;
    let cell = |name: &str| last[column(name)?].as_f64();
    Some(cell("all")? - cell("idle task")?).filter(|count| *count > 0.0)
}

/// The last lines of a text.
pub fn last_words(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(3)..];
    if last.is_empty() { "it said nothing".to_owned() } else { last.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_hang_or_fail_are_told() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let second = Duration::from_secs(1);
        assert_eq!(
            finish(shell("exec sleep 60"), second, "x", &mut || {}).unwrap_err(),
            "x did not end in 1 s"
        );
        assert_eq!(
            finish(shell("echo no >&2; exit 1"), second, "x", &mut || {}).unwrap_err(),
            "x failed: no"
        );
        assert_eq!(finish(shell("echo yes"), second, "x", &mut || {}).unwrap(), "yes\n");
    }
}
