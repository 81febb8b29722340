//! The socket on which the supervisor sends requests: attach, detach, results.

use crate::host::Host;
use guardrail_trace::client::{Reply, Request};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

/// Most bytes of a request.
const MAX_REQUEST: u64 = 4096;
/// The longest time that a peer may take to send a request or to read the reply.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest wait for a change of state: an interrupt must first reach a vCPU.
const CHANGE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(2);

/// Listens on a thread of its own.
pub(crate) fn serve(host: &'static Host) -> Result<(), String> {
    let path = &host.config.socket;
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    let listener =
        UnixListener::bind(path).map_err(|e| format!("cannot listen at {}: {e}", path.display()))?;
    let serve = move || {
        for stream in listener.incoming().flatten() {
            // A peer that closes its connection early is harmless.
            let _ = answer(host, stream);
        }
    };
    let thread = std::thread::Builder::new().name("guardrail-client".into());
    thread.spawn(serve).map_err(|e| format!("cannot start a thread: {e}"))?;
    Ok(())
}

fn answer(host: &Host, stream: UnixStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(MAX_REQUEST)).read_line(&mut line)?;
    let reply = match serde_json::from_str(&line) {
        Ok(request) => carry_out(host, request),
        Err(e) => Reply::Error(format!("the request is malformed: {e}")),
    };
    let mut text = serde_json::to_vec(&reply)?;
    text.push(b'\n');
    (&stream).write_all(&text)
}

fn carry_out(host: &Host, request: Request) -> Reply {
    match request {
        Request::Attach => change(host, true),
        Request::Detach => change(host, false),
        Request::Results => Reply::Results(Box::new(host.report())),
        Request::Status => state(host),
    }
}

fn state(host: &Host) -> Reply {
    let control = &host.control;
    Reply::State { attached: control.attached.load(Acquire), times: control.times.load(Acquire) }
}

fn change(host: &Host, wanted: bool) -> Reply {
    let control = &host.control;
    control.wanted.store(wanted, Release);
    let end = Instant::now() + CHANGE;
    while control.attached.load(Acquire) != wanted || control.changing.load(Acquire) {
        if Instant::now() > end {
            return Reply::Error(format!(
                "the guest took no interrupt for {} s, so nothing was changed; is it paused?",
                CHANGE.as_secs()
            ));
        }
        std::thread::sleep(LOOK);
    }
    state(host)
}

/// Writes the results of all clients to the file that the configuration names.
pub(crate) fn write_results(host: &Host) {
    let path = &host.config.results;
    if path.as_os_str().is_empty() {
        return;
    }
    let written = serde_json::to_vec(&host.report())
        .map_err(std::io::Error::other)
        .and_then(|text| std::fs::write(path, text));
    if let Err(e) = written {
        eprintln!("guardrail client: cannot write {}: {e}", path.display());
    }
}
