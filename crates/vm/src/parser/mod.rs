//! Reads what others wrote in a process without rights.
//!
//! A command of root's that starts guests cannot confine itself. So it opens the files of its user, and hands them to a
//! process that can open nothing, start nothing and reach nothing (`guardrail internal-parser`). That process parses them
//! and answers with plain data, which is validated where it enters.
//!
//! **Knows**: the process, its messages, and how long it may take. **Must not know**: what is parsed; each [`Job`] is
//! beside those that need its answer.

mod serve;
mod wire;

pub use serve::serve;

use crate::ending::ending_early;
use crate::error::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long one answer may take. A kernel's image takes less than a second.
const LIMIT: Duration = Duration::from_secs(120);

/// How long the process may take to end when it has closed its socket.
const LEAVING: Duration = Duration::from_secs(10);

/// Something to parse.
pub trait Job: Serialize + DeserializeOwned {
    /// The name by which the process knows the job.
    const NAME: &'static str;
    /// What is found; it is not trusted.
    type Answer: Serialize + DeserializeOwned;

    /// Parses. An error is a sentence about the input. The bytes are a larger part of the answer.
    fn run(self, given: Given) -> Found<Self::Answer>;
}

/// What a job found, with bytes that belong to it, or what is wrong with its input.
pub type Found<T> = Result<(T, Vec<u8>), String>;

/// What a job parses.
#[derive(Debug, Default)]
pub struct Given {
    /// Open files, in the order of the job.
    pub files: Vec<File>,
    /// Bytes that the process which asks has in its memory.
    pub bytes: Vec<u8>,
}

impl Given {
    /// The contents of the next file, if it is no larger than `most` bytes.
    pub fn read(&mut self, most: u64) -> Result<Vec<u8>, String> {
        let file = self.file()?;
        let mut bytes = Vec::new();
        let read = io::Read::read_to_end(&mut io::Read::take(&file, most + 1), &mut bytes);
        read.map_err(|error| format!("it cannot be read: {error}"))?;
        match bytes.len() as u64 > most {
            true => Err(format!("it is larger than {} MiB", most >> 20)),
            false => Ok(bytes),
        }
    }

    /// The next file.
    pub fn file(&mut self) -> Result<File, String> {
        match self.files.is_empty() {
            true => Err("no file was given".to_owned()),
            false => Ok(self.files.remove(0)),
        }
    }
}

/// The names and sizes of parts of bytes that follow one another.
pub type Sizes = Vec<(String, usize)>;

/// Puts parts one after the other.
pub fn joined<'a>(parts: impl Iterator<Item = (&'a String, &'a [u8])>) -> (Sizes, Vec<u8>) {
    let (mut sizes, mut bytes) = (Vec::new(), Vec::new());
    for (name, part) in parts {
        sizes.push((name.clone(), part.len()));
        bytes.extend_from_slice(part);
    }
    (sizes, bytes)
}

/// The parts of bytes that follow one another, by their names and sizes.
pub fn pieces<'a>(
    sizes: &'a [(String, usize)],
    bytes: &'a [u8],
) -> impl Iterator<Item = (&'a str, &'a [u8])> {
    let mut rest = bytes;
    sizes.iter().map_while(move |(name, size)| {
        let (piece, more) = rest.split_at_checked(*size)?;
        rest = more;
        Some((name.as_str(), piece))
    })
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Refusal {
    /// The input is wrong, for this reason.
    Input(String),
    /// The process failed, in this way.
    Process(String),
}

impl Refusal {
    /// The error about an input; `bad` makes it where the input is wrong.
    pub fn of(self, what: &Path, bad: impl FnOnce(String) -> Error) -> Error {
        match self {
            Refusal::Input(why) => bad(why),
            Refusal::Process(why) => Error::Parser { what: what.to_path_buf(), why },
        }
    }
}

/// A job that the process knows.
#[derive(Clone, Copy)]
pub struct Known {
    name: &'static str,
    run: fn(Value, Given) -> Found<Value>,
}

impl Known {
    /// The job of a type.
    pub fn of<J: Job>() -> Known {
        Known { name: J::NAME, run: run::<J> }
    }
}

fn run<J: Job>(job: Value, given: Given) -> Found<Value> {
    let damaged = |error: serde_json::Error| format!("the request is damaged: {error}");
    let (answer, bytes) = serde_json::from_value::<J>(job).map_err(damaged)?.run(given)?;
    Ok((serde_json::to_value(answer).map_err(|error| format!("the answer has no text: {error}"))?, bytes))
}

/// Who parses: a process without rights, which starts with the first job, or this process.
#[derive(Clone, Debug)]
pub struct Parser(Option<Arc<Mutex<Apart>>>);

/// The process that parses.
#[derive(Debug)]
struct Apart {
    program: PathBuf,
    running: Option<Running>,
}

impl Parser {
    /// A process of its own, which ends with the last copy of this value. `program` is `guardrail`.
    pub fn apart(program: &Path) -> Parser {
        Parser(Some(Arc::new(Mutex::new(Apart { program: program.to_path_buf(), running: None }))))
    }

    /// This process, for those that are confined already, and for tests.
    pub fn here() -> Parser {
        Parser(None)
    }

    /// Has a job done over open files and bytes. Files are read from their beginning.
    pub fn ask<J: Job>(
        &self,
        job: &J,
        files: &[&File],
        bytes: &[u8],
    ) -> Result<(J::Answer, Vec<u8>), Refusal> {
        let failed = |error: &dyn std::fmt::Display| Refusal::Process(format!("failed: {error}"));
        let asked = serde_json::to_value(job).map_err(|error| failed(&error))?;
        let Some(apart) = &self.0 else {
            let files = files.iter().map(|file| file.try_clone()).collect::<io::Result<Vec<_>>>();
            let given = Given { files: files.map_err(|error| failed(&error))?, bytes: bytes.to_vec() };
            let job = serde_json::from_value::<J>(asked).map_err(|error| failed(&error))?;
            return job.run(given).map_err(Refusal::Input);
        };
        let mut apart = apart.lock().unwrap_or_else(|error| error.into_inner());
        let (answer, bytes) =
            apart.ask(wire::Request { job: J::NAME.to_owned(), with: asked }, files, bytes)?;
        let answer = answer.into_result().map_err(Refusal::Input)?;
        let answer = serde_json::from_value(answer).map_err(|error| failed(&error))?;
        Ok((answer, bytes))
    }
}

impl Apart {
    fn ask(
        &mut self,
        request: wire::Request,
        files: &[&File],
        bytes: &[u8],
    ) -> Result<(wire::Reply, Vec<u8>), Refusal> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => Running::start(&self.program)
                .map_err(|error| Refusal::Process(format!("cannot be started: {error}")))?,
        };
        let fds: Vec<_> = files.iter().map(|file| file.as_raw_fd()).collect();
        let asked = wire::send(&running.socket, &request, bytes, &fds);
        match asked.and_then(|()| wire::receive::<wire::Reply>(&running.socket, LIMIT)) {
            Ok(Some((reply, bytes))) => {
                self.running = Some(running);
                Ok((reply, bytes))
            }
            Ok(None) => Err(Refusal::Process(running.death(None))),
            Err(error) => Err(Refusal::Process(running.death(Some(error)))),
        }
    }
}

/// The process while it runs.
#[derive(Debug)]
struct Running {
    child: Child,
    socket: UnixStream,
}

impl Running {
    fn start(program: &Path) -> io::Result<Running> {
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_write_timeout(Some(LIMIT))?;
        let child = Command::new(program)
            .arg("internal-parser")
            .env_clear()
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            // The process that asks handles Ctrl-C at the terminal.
            .process_group(0)
            .spawn()?;
        Ok(Running { child, socket })
    }

    /// How the process ended, or was ended because of an error.
    fn death(&mut self, error: Option<io::Error>) -> String {
        let closed = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
        };
        if let Some(error) = error.filter(|error| !closed(error)) {
            let _ = self.child.kill();
            return match error.kind() {
                io::ErrorKind::TimedOut => format!("took more than {} s", LIMIT.as_secs()),
                _ => format!("failed: {error}"),
            };
        }
        // A process that closes its socket ends by itself a moment later.
        let deadline = Instant::now() + LEAVING;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return ending_early(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                Ok(None) => {
                    let _ = self.child.kill();
                    return "stopped answering".to_owned();
                }
                Err(error) => return format!("cannot be waited for: {error}"),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    /// Counts bytes, and refuses what has more than one file.
    #[derive(Serialize, Deserialize)]
    struct Count {
        more: u64,
    }

    impl Job for Count {
        const NAME: &'static str = "count";
        type Answer = u64;

        fn run(self, mut given: Given) -> Result<(u64, Vec<u8>), String> {
            let bytes = given.read(8)?;
            match given.files.is_empty() {
                true => Ok((bytes.len() as u64 + self.more, [bytes, given.bytes].concat())),
                false => Err("it has two files".to_owned()),
            }
        }
    }

    fn file(text: &str) -> File {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        file
    }

    /// A process that is a thread of this one.
    fn apart() -> Parser {
        let (socket, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || serve::answer(&theirs, &[Known::of::<Count>()]));
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let running = Some(Running { child, socket });
        Parser(Some(Arc::new(Mutex::new(Apart { program: PathBuf::from("/absent"), running }))))
    }

    #[test]
    fn a_process_answers_as_this_one_would() {
        for parser in [Parser::here(), apart()] {
            let ask = |files: &[&File]| parser.ask(&Count { more: 1 }, files, b" and more");
            assert_eq!(ask(&[&file("text")]).unwrap(), (5, b"text and more".to_vec()));
            let refused = |files: &[&File]| match ask(files) {
                Err(Refusal::Input(why)) => why,
                other => panic!("{other:?}"),
            };
            assert_eq!(refused(&[&file("a"), &file("b")]), "it has two files");
            assert_eq!(refused(&[&file("too long a text")]), "it is larger than 0 MiB");
            assert_eq!(refused(&[]), "no file was given");
        }
    }

    #[test]
    fn a_process_that_ends_or_is_absent_is_an_error() {
        let why = |program: &str| match Parser::apart(Path::new(program)).ask(&Count { more: 0 }, &[], b"") {
            Err(Refusal::Process(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(why("/absent").starts_with("cannot be started: "), "{}", why("/absent"));
        assert_eq!(why("/bin/false"), "ended too early, with status 1");
    }
}
