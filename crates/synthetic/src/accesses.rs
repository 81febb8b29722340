//! What a driver did with a device, in numbers.

use guardrail_gate as gate;
use guardrail_usb_device as usb;
use serde::{Deserialize, Serialize};

/// The accesses to a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accesses {
    /// Reads of registers; transfers from a USB device.
    pub reads: u64,
    /// Writes to registers; transfers to a USB device.
    pub writes: u64,
    /// Interrupts that the guest received; packets of interrupt endpoints.
    pub interrupts: u64,
}

impl Accesses {
    /// Those to the registers of a PCI device.
    pub(crate) fn of_pci(counts: &gate::Counts) -> Accesses {
        Accesses {
            reads: counts.bars.iter().map(|bar| bar.reads_passed).sum(),
            writes: counts.bars.iter().map(|bar| bar.writes_passed).sum(),
            interrupts: counts.interrupts,
        }
    }

    /// Those to the endpoints of a USB device.
    pub(crate) fn of_usb(counts: usb::Counts) -> Accesses {
        Accesses {
            reads: counts.control_in + counts.bulk_in + counts.iso_in,
            writes: counts.control_out + counts.bulk_out + counts.interrupt_out + counts.iso_out,
            interrupts: counts.interrupt_in,
        }
    }
}
