//! Connecting a device to the socket of QEMU's `usb-redir`.

use crate::counts::Counts;
use crate::device::Device;
use crate::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest time until the loop looks at `stop`.
const LOOK: Duration = Duration::from_millis(50);

/// The shortest wait for the host: the system rounds up to its own ticks.
const SHORTEST: Duration = Duration::from_millis(1);

/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

/// While more than this waits to be sent, nothing is read and no data is made.
const FULL: usize = 1 << 20;

/// Serves `device` on `socket` until the other end closes it or `stop` is set; gives what has passed.
///
/// The socket's timeouts take the place of poll: one thread serves one socket, and needs no more.
///
/// # Errors
///
/// Fails where the socket does, and where QEMU breaks the protocol or refuses the device.
pub fn serve(socket: UnixStream, device: &mut Device, stop: &AtomicBool) -> Result<Counts, Error> {
    let failed = |what| move |source| Error::Socket { what, source };
    socket.set_nonblocking(false).map_err(failed("set up"))?;
    socket.set_write_timeout(Some(LOOK)).map_err(failed("set up"))?;
    let mut socket = socket;
    let mut piece = vec![0; PIECE];
    let start = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let waiting = device.output();
        if !waiting.is_empty() {
            match socket.write(waiting) {
                Ok(sent) => drop(waiting.drain(..sent)),
                Err(error) if passing(&error) => {}
                Err(error) if gone(&error) => break,
                Err(error) => return Err(failed("write to")(error)),
            }
        }
        if device.output().len() > FULL {
            continue;
        }
        let wait = device.wait(start.elapsed()).map_or(LOOK, |wait| wait.min(LOOK));
        let wait = if device.output().is_empty() { wait } else { SHORTEST };
        socket.set_read_timeout(Some(wait.max(SHORTEST))).map_err(failed("set up"))?;
        match socket.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => device.message(&piece[..length], start.elapsed())?,
            Err(error) if passing(&error) => {}
            Err(error) if gone(&error) => break,
            Err(error) => return Err(failed("read from")(error)),
        }
        device.due(start.elapsed());
    }
    Ok(device.counts())
}

/// True where nothing was there to be done in time.
fn passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// True where the other end has closed the socket.
fn gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}
