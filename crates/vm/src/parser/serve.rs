//! The process that parses (`guardrail internal-parser`). It serves the other end of the socket that is its standard input.

use super::wire::{HEAD, Reply, Request, body, send};
use super::{Given, Known};
use guardrail_jail::descriptors;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Gives all rights up by `confine`, and answers until the other end is closed.
pub fn serve(jobs: &[Known], confine: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    confine()?;
    end_with(socket.as_raw_fd())?;
    answer(&socket, jobs)
}

/// Ends this process when the other end of a socket is closed, also while a job is done.
fn end_with(socket: libc::c_int) -> io::Result<()> {
    let wait = move || {
        let mut wanted = libc::pollfd { fd: socket, events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: the structure lives through the call. The socket stays open as long as the process.
        while unsafe { libc::poll(&raw mut wanted, 1, -1) } < 0 {}
        std::process::exit(0);
    };
    std::thread::Builder::new().name("end".to_owned()).spawn(wait).map(drop)
}

/// Answers requests until the other end is closed.
pub(super) fn answer(socket: &UnixStream, jobs: &[Known]) -> io::Result<()> {
    loop {
        let mut head = [0; HEAD];
        let mut fds: Vec<OwnedFd> = Vec::new();
        // The descriptors are beside the first bytes.
        let count = descriptors::wait(socket, &mut head, &mut fds)?;
        if count == 0 {
            return Ok(());
        }
        let mut input = socket;
        input.read_exact(&mut head[count..])?;
        let (request, bytes) = body::<Request>(&mut input, head)?;
        let given = Given { files: fds.into_iter().map(File::from).collect(), bytes };
        let found = match jobs.iter().find(|job| job.name == request.job) {
            Some(job) => (job.run)(request.with, given),
            None => Err(format!("the process that reads files knows no job '{}'", request.job)),
        };
        let (reply, bytes) = match found {
            Ok((value, bytes)) => (Reply::Found(value), bytes),
            Err(why) => (Reply::Refused(why), Vec::new()),
        };
        send(socket, &reply, &bytes, &[])?;
    }
}
