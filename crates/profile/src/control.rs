//! Sends requests to clients inside QEMU.

use guardrail_host::HostError;
use guardrail_trace::client::{Reply, Report, Request};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest time for a plugin's reply: a change waits for an interrupt in the guest.
const PATIENCE: Duration = Duration::from_secs(30);
/// The largest reply, in bytes.
const MAX_REPLY: u64 = 1 << 30;

/// Sends one request and reads one reply.
fn ask(socket: &Path, request: Request) -> Result<Reply, HostError> {
    let io = |doing| HostError::io(doing, socket.display());
    let mut stream = UnixStream::connect(socket).map_err(io("reach the clients at"))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(io("wait at"))?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(io("wait at"))?;
    let mut line = serde_json::to_vec(&request).map_err(|e| HostError::Run(e.to_string()))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(io("write to"))?;
    let mut reply = Vec::new();
    BufReader::new(stream.take(MAX_REPLY)).read_until(b'\n', &mut reply).map_err(io("read from"))?;
    match serde_json::from_slice(&reply) {
        Ok(Reply::Error(why)) => Err(HostError::Run(why)),
        Ok(reply) => Ok(reply),
        Err(e) => Err(HostError::Run(format!("the clients' answer is malformed: {e}"))),
    }
}

/// Sends the same request to all plugins.
pub fn all(sockets: &[PathBuf], request: Request) -> Result<(), HostError> {
    sockets.iter().try_for_each(|socket| ask(socket, request).map(drop))
}

/// The current results of one plugin's clients.
pub fn results(socket: &Path) -> Result<Report, HostError> {
    match ask(socket, Request::Results)? {
        Reply::Results(report) => Ok(*report),
        _ => Err(HostError::Run("the clients answered something else than their results".into())),
    }
}

/// True where the clients of one plugin are attached.
pub fn is_attached(socket: &Path) -> Result<bool, HostError> {
    match ask(socket, Request::Status)? {
        Reply::State { attached, .. } => Ok(attached),
        _ => Err(HostError::Run("the clients answered something else than their state".into())),
    }
}

/// The results that the clients of one plugin wrote when QEMU ended.
pub fn read(file: &Path) -> Result<Report, HostError> {
    let text = fs::read(file).map_err(|e| {
        HostError::Run(format!(
            "the clients left no results in {} ({e}); QEMU did not end as it should",
            file.display()
        ))
    })?;
    serde_json::from_slice(&text)
        .map_err(|e| HostError::Run(format!("the clients' results in {} are malformed: {e}", file.display())))
}
