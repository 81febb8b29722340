//! The messages to and from the process that parses: a head, a JSON object, then bytes.

use guardrail_jail::descriptors;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{self, Read};
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The longest object, and the most bytes behind it. An unpacked kernel has about 60 MB.
const MAX_TEXT: u64 = 64 << 20;
const MAX_BYTES: u64 = 1 << 30;
/// The size of a head: the lengths of the object and of the bytes.
pub(super) const HEAD: usize = 16;

/// What is asked: the job by its name, and its words.
#[derive(Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) job: String,
    pub(super) with: Value,
}

/// What is answered.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Reply {
    Found(Value),
    Refused(String),
}

impl Reply {
    pub(super) fn into_result(self) -> Result<Value, String> {
        match self {
            Reply::Found(value) => Ok(value),
            Reply::Refused(why) => Err(why),
        }
    }
}

/// Sends a message, with descriptors beside its head.
pub(super) fn send(
    socket: &UnixStream,
    message: &impl Serialize,
    bytes: &[u8],
    fds: &[RawFd],
) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let head = [(text.len() as u64).to_le_bytes(), (bytes.len() as u64).to_le_bytes()].concat();
    descriptors::send(socket, &head, fds)?;
    descriptors::send(socket, &text, &[])?;
    descriptors::send(socket, bytes, &[])
}

/// Receives a message within a time; `None` where the other end is closed.
pub(super) fn receive<T: DeserializeOwned>(
    socket: &UnixStream,
    limit: Duration,
) -> io::Result<Option<(T, Vec<u8>)>> {
    let mut input = Timed { socket, deadline: Instant::now() + limit };
    let mut head = [0; HEAD];
    match input.read_exact(&mut head) {
        Ok(()) => body(&mut input, head).map(Some),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads what follows a head.
pub(super) fn body<T: DeserializeOwned>(input: &mut impl Read, head: [u8; HEAD]) -> io::Result<(T, Vec<u8>)> {
    let length = |at: usize| head[at..at + 8].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let text = exactly(input, length(0), MAX_TEXT)?;
    let bytes = exactly(input, length(8), MAX_BYTES)?;
    Ok((serde_json::from_slice(&text)?, bytes))
}

fn exactly(input: &mut impl Read, length: u64, most: u64) -> io::Result<Vec<u8>> {
    if length > most {
        return Err(io::Error::other("a message is longer than any can be"));
    }
    // The memory grows with what arrives.
    let mut bytes = Vec::new();
    match input.take(length).read_to_end(&mut bytes)? as u64 == length {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A socket that is read until a time.
struct Timed<'a> {
    socket: &'a UnixStream,
    deadline: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        let read = (&mut &*self.socket).read(into);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })
    }
}
