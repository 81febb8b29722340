//! A loop over a device of plain memory, for tests and the fuzzer.

use super::serve::Loop;
use super::{Options, Shared};
use crate::counts::Counts;
use crate::device::{self, Device, Interrupt, Layout, Operations};
use crate::error::{Error, Result};
use crate::policy::{Gate, Space};
use guardrail_jail::Jail;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The device's layout: 4 KiB of memory, 64 bytes of ports, 256 of configuration space.
pub(super) const LAYOUT: Layout =
    Layout { bars: [4096, 64, 0, 0, 0, 0], config: 256, line: true, msi: 0, msi_x: 4 };

/// The operations that reached the device.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) writes: Vec<(Space, u64, Vec<u8>)>,
    pub(super) cut: bool,
}

/// The device. A write to offset 8 of its memory raises the second interrupt; one to offset 16 loses the
/// device.
#[derive(Debug, Default)]
pub(super) struct FakeDevice {
    pub(super) effects: Arc<Mutex<Effects>>,
    pub(super) rung: bool,
}

impl Device for FakeDevice {
    fn layout(&self) -> &Layout {
        &LAYOUT
    }

    fn read(&mut self, space: Space, offset: u64, into: &mut [u8]) -> Result<()> {
        let size = if space == Space::Config { u64::from(LAYOUT.config) } else { 4096 };
        assert!(offset + into.len() as u64 <= size, "the loop lets no access out of bounds");
        into.fill(offset as u8);
        Ok(())
    }

    fn write(&mut self, space: Space, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut effects = self.effects.lock().expect("no test panics with it");
        assert!(!effects.cut, "nothing passes a closed gate");
        if effects.writes.len() < 1000 {
            effects.writes.push((space, offset, bytes.to_vec()));
        }
        self.rung |= (space, offset) == (Space::Bar(0), 8);
        match (space, offset) {
            (Space::Bar(0), 16) => Err(Error::Qemu { what: "was ended by a test".into() }),
            _ => Ok(()),
        }
    }

    fn reset(&mut self) -> Result<()> {
        Ok(())
    }

    fn cut(&mut self) -> Result<()> {
        self.effects.lock().expect("no test panics with it").cut = true;
        Ok(())
    }

    fn sources(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn interrupts(&mut self, _: Option<usize>, deliver: &mut dyn FnMut(Interrupt)) -> Result<()> {
        if std::mem::take(&mut self.rung) {
            deliver(Interrupt::MsiX(1));
        }
        Ok(())
    }

    fn operations(&self) -> Operations {
        Operations::default()
    }
}

pub(super) fn options() -> Options {
    Options {
        folder: PathBuf::new(),
        memory_mib: 1,
        hold_limit: Duration::from_millis(300),
        post_writes: false,
        id: "dut".into(),
        reach: Jail::new(),
        device: device::Options::default(),
    }
}

/// Serves a client until it disconnects.
#[cfg(test)]
pub(super) fn serve(
    shared: &Shared,
    client: UnixStream,
    options: &Options,
    gate: &Arc<dyn Gate>,
    device: FakeDevice,
) -> Counts {
    Loop::new(shared, client, options, gate, (0, 0), device).expect("the loop starts").run();
    shared.counts().clone()
}

/// Serves a client that has sent all its messages already. Its memory is the file with this device and inode.
#[cfg(feature = "talk")]
pub fn converse(client: UnixStream, memory: (u64, u64), post_writes: bool, gate: &Arc<dyn Gate>) -> Counts {
    // A client that reads no answers may hold up a real server for longer.
    client.set_write_timeout(Some(Duration::from_millis(100))).expect("a limit can be set");
    let shared = Shared::new().expect("there are descriptors");
    let options = Options { post_writes, ..options() };
    Loop::new(&shared, client, &options, gate, memory, FakeDevice::default()).expect("the loop starts").run();
    shared.counts().clone()
}
