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

#[cfg(test)]
mod tests {
    use super::{Device, serve};
    use crate::counts::Counts;
    use crate::descriptors::Descriptors;
    use crate::error::Error;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::JoinHandle;
    use std::time::{Duration, Instant};

    type Served = JoinHandle<Result<Counts, Error>>;

    fn served() -> (UnixStream, Arc<AtomicBool>, Served) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let descriptors = Descriptors::from_alias("usb:v067Bp2303d*dc*dsc*dp*ic*isc*ip*in*", 0).unwrap();
        let thread = std::thread::spawn(move || serve(theirs, &mut Device::new(descriptors, 0), &flag));
        (ours, stop, thread)
    }

    fn greeting() -> Vec<u8> {
        let words = [0_u32, 68, 0].map(u32::to_le_bytes);
        [words.as_flattened(), &[0; 64], &0xf6_u32.to_le_bytes()].concat()
    }

    #[test]
    fn a_device_greets_and_connects_and_ends_with_its_socket() {
        let (mut socket, _, thread) = served();
        socket.write_all(&greeting()).unwrap();
        // The greeting, endpoints, interfaces, and the device.
        let mut bytes = vec![0; 80 + (16 + 160) + (16 + 132) + (16 + 10)];
        socket.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[bytes.len() - 6..bytes.len() - 2], [0x7b, 0x06, 0x03, 0x23]);
        // The configuration is set.
        socket.write_all(&[6, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap();
        let mut bytes = vec![0; (16 + 160) + (16 + 132) + (16 + 2)];
        socket.read_exact(&mut bytes).unwrap();
        drop(socket);
        let counts = thread.join().unwrap().unwrap();
        assert_eq!((counts.configured, counts.control_out), (1, 1));
    }

    #[test]
    fn stop_ends_the_serving() {
        let (_socket, stop, thread) = served();
        let start = Instant::now();
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap().unwrap();
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_host_that_reads_nothing_does_not_hold_the_thread() {
        let (mut socket, stop, thread) = served();
        socket.write_all(&greeting()).unwrap();
        socket.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        // Requests for descriptors, until the device takes no more since its answers are not read.
        let mut request = vec![100, 0, 0, 0, 10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        request.extend([0x80, 6, 0x80, 0, 0, 2, 0, 0, 0xff, 0x0f]);
        let many = request.repeat(1000);
        let sent = (0..10_000).take_while(|_| socket.write(&many).is_ok()).count();
        assert!(sent < 10_000);
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn what_is_malformed_ends_the_serving_with_what_it_was() {
        let (mut socket, _, thread) = served();
        socket.write_all(&[3; 12]).unwrap();
        let error = thread.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("is no greeting"), "{error}");
    }
}
