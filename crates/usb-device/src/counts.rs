//! What passed between a device and its host.

use std::fmt;

/// Numbers of transfers since the device was made. For an isochronous endpoint, each packet counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Control requests that asked for data.
    pub control_in: u64,
    /// Control requests that gave data or none, with settings of configurations and interfaces.
    pub control_out: u64,
    /// Bulk transfers to the host that were answered.
    pub bulk_in: u64,
    /// Bulk transfers from the host.
    pub bulk_out: u64,
    /// Interrupt packets to the host.
    pub interrupt_in: u64,
    /// Interrupt packets from the host.
    pub interrupt_out: u64,
    /// Isochronous packets to the host.
    pub iso_in: u64,
    /// Isochronous packets from the host.
    pub iso_out: u64,
    /// Requests and transfers that were answered with a stall.
    pub stalls: u64,
    /// Transfers that were answered with another error.
    pub errors: u64,
    /// Transfers that the host cancelled before they were answered.
    pub cancelled: u64,
    /// Times that the host set the configuration: each time a host has enumerated the device.
    pub configured: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "control {}/{}, bulk {}/{}, interrupt {}/{}, iso {}/{} (in/out), {} stalls, {} errors, {} cancelled, \
             configured {} times",
            self.control_in,
            self.control_out,
            self.bulk_in,
            self.bulk_out,
            self.interrupt_in,
            self.interrupt_out,
            self.iso_in,
            self.iso_out,
            self.stalls,
            self.errors,
            self.cancelled,
            self.configured
        )
    }
}
