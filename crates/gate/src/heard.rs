//! What the gate hears from other processes, as any bytes, for the fuzzer.

use crate::device::qmp::Qmp;
use crate::device::qtest::Qtest;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub use crate::process::understood;

/// Most commands of one conversation over qtest: nobody reads them, so more would fill the socket.
const COMMANDS: usize = 64;

/// Hears answers of the device's QEMU over its machine protocol, and over qtest, until they end.
pub fn qemu(bytes: &[u8]) {
    if let Some((stream, _theirs)) = spoken(bytes)
        && let Ok(mut qmp) = Qmp::new(stream)
    {
        let _ = qmp.execute("system_reset", Some("RESET"));
        let _ = qmp.execute("stop", None);
    }
    if let Some((stream, _theirs)) = spoken(bytes)
        && let Ok(mut qtest) = Qtest::new(stream)
    {
        for _ in 0..COMMANDS {
            if qtest.read(false, 0x1000, 4).is_err() || qtest.write(true, 0xcf8, 2, 7).is_err() {
                break;
            }
            if qtest.has_changes() {
                let _ = qtest.changes();
            }
        }
    }
}

/// A stream that holds these bytes and then ends, and its other end; `None` where they do not fit into a socket.
fn spoken(bytes: &[u8]) -> Option<(UnixStream, UnixStream)> {
    let (ours, mut theirs) = UnixStream::pair().ok()?;
    theirs.set_write_timeout(Some(Duration::from_millis(100))).ok()?;
    theirs.write_all(bytes).ok()?;
    theirs.shutdown(Shutdown::Write).ok()?;
    Some((ours, theirs))
}
