//! Workers beside a NATS server: jobs go out by a stream, and results come back by another.
//!
//! - `guardrail-2.jobs.BUILD.QUEUE.KEY`: a job, as JSON. The stream keeps it until a worker has acknowledged it, and has each
//!   job once. A worker has the consumer of its build, so that it gets no job of another one.
//! - `guardrail-2.results.QUEUE.done`, `.failed` and `.unfit`: results, compressed, logs, and what machines lack. They are
//!   there until the controller stored them.
//!
//! A worker sends its result, waits until the server has it, and acknowledges the job afterwards. Results go through the server,
//! not through a shared folder: a worker then needs one address and nothing else, and the controller alone writes to the
//! store. A server that loses what it had costs time only, since the controller sends again what has no result.
//!
//! A queue is a store's id with a run's, so that several controllers can share a server.

mod controller;
mod link;
mod worker;

pub use controller::Nats;
pub use worker::{Worker, work};

use crate::canonical::digest;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The stream of jobs, and the beginning of its subjects. Their number changes with the subjects: an earlier program's stream
/// has a consumer for all of it, beside which a server takes none for a part.
const JOBS: (&str, &str) = ("GUARDRAIL_2_JOBS", "guardrail-2.jobs");
/// The stream of results, and the beginning of its subjects.
const RESULTS: (&str, &str) = ("GUARDRAIL_2_RESULTS", "guardrail-2.results");
/// The beginning of the names of the consumers that workers of a build share.
const WORKERS: &str = "workers";
/// The digits of a digest that stand for a build in subjects.
const BUILD_DIGITS: usize = 16;
/// How long a server may be away, unless the user says otherwise.
pub const OUTAGE: Duration = Duration::from_secs(600);
/// The time after which a job goes to another worker, unless the first says that it still works.
const ACK_WAIT: Duration = Duration::from_secs(5);
/// The time between two such words.
const PROGRESS: Duration = Duration::from_millis(1500);
/// How long the server keeps what nobody fetches.
const MAX_AGE: Duration = Duration::from_secs(7 * 86_400);

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Failure {
    key: crate::Key,
    attempt: crate::Attempt,
    worker: String,
    log: String,
}

/// A build as a word of a subject.
fn build_word(build: &str) -> String {
    digest(&[build.as_bytes()])[..BUILD_DIGITS].to_owned()
}

/// The subject of a job.
fn subject(build: &str, queue: &str, key: &crate::Key) -> String {
    format!("{}.{build}.{queue}.{key}", JOBS.1)
}

/// Checks an address: `nats://HOST` or `nats://HOST:PORT`.
pub fn address(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("nats://").unwrap_or_default();
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !rest.ends_with(']') => (host, port),
        _ => (rest, "4222"),
    };
    let good = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
    if text.starts_with("tls://") || rest.contains('@') {
        return Err(format!(
            "'{text}' asks for TLS or has a password; use nats://HOST:PORT, and see docs/use/fleet.md for both"
        ));
    }
    match !host.is_empty() && host.chars().all(good) && port.parse::<u16>().is_ok_and(|port| port > 0) {
        true => Ok(format!("nats://{host}:{port}")),
        false => Err(format!("'{text}' is no address of a NATS server; use nats://HOST:PORT")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        assert_eq!(address("nats://a.example").unwrap(), "nats://a.example:4222");
        assert_eq!(address("nats://127.0.0.1:99").unwrap(), "nats://127.0.0.1:99");
        assert_eq!(address("nats://[::1]:99").unwrap(), "nats://[::1]:99");
        for bad in
            ["nats://", "nats://:1", "nats://a:0", "nats://a:65536", "nats://a b", "nats://a/b", "http://a"]
        {
            assert!(address(bad).unwrap_err().contains("is no address"), "{bad}");
        }
        for other in ["tls://a", "nats://user:password@a"] {
            assert!(address(other).unwrap_err().contains("docs/use/fleet.md"), "{other}");
        }
    }
}
