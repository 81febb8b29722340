//! A clock whose ticks are read from a descriptor.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A clock; it ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Ticks(UnixStream);

impl Ticks {
    pub(crate) fn start(every: Duration) -> std::io::Result<Ticks> {
        let (ours, mut theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let tick = move || {
            loop {
                std::thread::sleep(every);
                match theirs.write(&[0]) {
                    // Nobody reads: the ticks so far are enough.
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                    Ok(_) => {}
                }
            }
        };
        std::thread::Builder::new().name("ticks".into()).spawn(tick)?;
        Ok(Ticks(ours))
    }

    /// The descriptor that is readable after a tick.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// True where the clock has ticked since the last call.
    pub(crate) fn take(&mut self) -> bool {
        let mut ticked = false;
        while self.0.read(&mut [0; 64]).is_ok_and(|count| count > 0) {
            ticked = true;
        }
        ticked
    }
}
