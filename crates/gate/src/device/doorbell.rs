//! Message-signaled interrupts leave the device's QEMU through a doorbell.
//!
//! Such an interrupt is a write of a word to an address. QEMU's `ivshmem-doorbell` has a register; a write to
//! it signals a counter that its server chose. The device is therefore set up to send its interrupts to that
//! register, and this module is the server.

use crate::error::{Context, Result};
use crate::sys::{self, Event};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The number of interrupts that it distinguishes.
pub const VECTORS: u32 = 128;
/// Where the doorbell's registers are in the device's QEMU: above the I/O APIC, where no guest puts a device.
pub const BASE: u32 = 0xfed8_0000;
/// The bus address that interrupts are sent to. The word is the number of the interrupt. Its upper half,
/// which names the peer, is zero, because message-signaled interrupts without a table have no upper half.
pub const ADDRESS: u32 = BASE + 12;

/// The server's side of the doorbell.
#[derive(Debug)]
pub struct Doorbell {
    events: Vec<Event>,
    /// QEMU ends the doorbell when this stream is closed.
    _stream: UnixStream,
}

impl Doorbell {
    /// Sends QEMU all that it expects from the server, before it asks.
    pub fn serve(stream: UnixStream) -> Result<Doorbell> {
        const VERSION: i64 = 0;
        const QEMU: i64 = 1;
        const US: i64 = 0;
        const MEMORY: i64 = -1;
        stream.set_write_timeout(Some(Duration::from_secs(5))).context("limit a wait")?;
        let say = |word: i64, fd: Option<RawFd>| {
            sys::send(&stream, &word.to_le_bytes(), fd.as_slice()).context("notify QEMU of interrupts")
        };
        say(VERSION, None)?;
        say(QEMU, None)?;
        let memory = sys::memory_file(4096).context("make memory for interrupts")?;
        say(MEMORY, Some(memory.as_raw_fd()))?;
        let mut events = Vec::new();
        for _ in 0..VECTORS {
            let event = Event::new().context("make a counter for interrupts")?;
            say(US, Some(event.as_raw_fd()))?;
            events.push(event);
        }
        Ok(Doorbell { events, _stream: stream })
    }

    /// The counters, by interrupt.
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_fits_before_anybody_reads() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let doorbell = Doorbell::serve(ours).unwrap();
        let (mut words, mut fds) = (Vec::new(), Vec::new());
        for _ in 0..3 + VECTORS {
            let mut word = [0; 8];
            assert_eq!(sys::receive(&theirs, &mut word, &mut fds).unwrap(), 8);
            words.push(i64::from_le_bytes(word));
            if fds.len() > 1 {
                fds.remove(0);
            }
        }
        assert_eq!(words[..4], [0, 1, -1, 0]);
        let last = Event::received(fds.pop().unwrap()).unwrap();
        last.signal();
        assert_eq!(doorbell.events().last().unwrap().take(), 1);
    }
}
