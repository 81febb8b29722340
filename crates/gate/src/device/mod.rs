//! The device behind the gate.

mod command;
mod doorbell;
mod pci;
mod qemu;
mod qmp;
mod qtest;

pub use command::Options;
pub use qemu::QemuDevice;

use crate::error::{Error, Result};
use crate::policy::Space;
use std::os::fd::RawFd;

/// What a device consists of, as PCI tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Bytes behind each base address register; 0 where there is nothing.
    pub bars: [u64; 6],
    /// Bytes of configuration space.
    pub config: u32,
    /// It has an interrupt line.
    pub line: bool,
    /// Message-signaled interrupts.
    pub msi: u32,
    /// Message-signaled interrupts with a table.
    pub msi_x: u32,
}

/// What a device says to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// Its line is raised, or no longer.
    Line(bool),
    /// A message-signaled interrupt.
    Msi(u32),
    /// One of the table.
    MsiX(u32),
}

/// A device that the server drives. An error means that the device is lost, and closes the gate.
pub trait Device {
    /// What it consists of.
    fn layout(&self) -> &Layout;

    /// Reads 1, 2, 4 or 8 bytes of a base address register's memory or ports, or any number of configuration space.
    fn read(&mut self, space: Space, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Writes as much.
    fn write(&mut self, space: Space, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Resets it.
    fn reset(&mut self) -> Result<()>;

    /// Cuts it off from the guest's memory, and lets it finish what it had begun with the outside world. It is so even
    /// where this fails: then the device has been ended.
    fn cut(&mut self) -> Result<()>;

    /// Descriptors that have something to read when the device has something to say.
    fn sources(&self) -> Vec<RawFd>;

    /// Takes what the device has said; `None` for all sources, else only that with this index.
    fn interrupts(&mut self, source: Option<usize>, tell: &mut dyn FnMut(Interrupt)) -> Result<()>;

    /// How the device's process ended, where it has.
    fn death(&mut self) -> Option<Error> {
        None
    }

    /// What was done besides what [`Device::read`] and [`Device::write`] did to the device's memory and ports.
    fn operations(&self) -> Operations;
}

/// What the gate did on its own account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Words of the table of interrupts that were written.
    pub table: u64,
    /// Reads and writes of configuration space, those for the guest included.
    pub config: u64,
}
