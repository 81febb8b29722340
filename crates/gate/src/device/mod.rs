//! The device behind the gate, as the server uses it.

mod command;
mod doorbell;
mod pci;
mod qemu;
pub(crate) mod qmp;
pub(crate) mod qtest;

pub use command::Options;
pub use qemu::QemuDevice;

use crate::error::{Error, Result};
use crate::policy::Space;
use std::os::fd::RawFd;

/// The parts of a device, as PCI describes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The size of each base address register's space in bytes; 0 where the register is unused.
    pub bars: [u64; 6],
    /// The size of configuration space in bytes.
    pub config: u32,
    /// True where it has an interrupt line.
    pub line: bool,
    /// The number of message-signaled interrupts (MSI).
    pub msi: u32,
    /// The number of message-signaled interrupts with a table (MSI-X).
    pub msi_x: u32,
}

/// An interrupt of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// Its line is raised (true) or lowered (false).
    Line(bool),
    /// The MSI with this number.
    Msi(u32),
    /// The MSI-X with this number.
    MsiX(u32),
}

/// A device that the server drives. An error means that the device is lost, and closes the gate.
pub trait Device {
    /// The parts of the device.
    fn layout(&self) -> &Layout;

    /// Reads 1, 2, 4 or 8 bytes of a base address register's memory or ports, or any number of configuration space.
    fn read(&mut self, space: Space, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Writes under the same rules.
    fn write(&mut self, space: Space, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Resets the device.
    fn reset(&mut self) -> Result<()>;

    /// Cuts it off from the guest's memory, and lets it finish its work with the outside world. Even where
    /// this fails the device is cut off, because it has been ended then.
    fn cut(&mut self) -> Result<()>;

    /// Descriptors that become readable when the device has an interrupt.
    fn sources(&self) -> Vec<RawFd>;

    /// Takes the pending interrupts, of all sources (`None`) or of that with this index.
    fn interrupts(&mut self, source: Option<usize>, deliver: &mut dyn FnMut(Interrupt)) -> Result<()>;

    /// How the device's process ended; `None` while it runs.
    fn death(&mut self) -> Option<Error> {
        None
    }

    /// Operations of the gate that [`Device::read`] and [`Device::write`] on the device's memory and ports do
    /// not count.
    fn operations(&self) -> Operations;
}

/// Counts of the gate's own operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Words written to the table of interrupts.
    pub table: u64,
    /// Reads and writes of configuration space, including those for the guest.
    pub config: u64,
}
