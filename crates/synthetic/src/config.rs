//! Configuration space: what a device of a shape says of itself, and which of its bytes can be written.

use crate::ids::PciIds;
use crate::shape::{Bar, Shape, TABLE, VECTORS};

/// Its size in bytes.
pub(crate) const SIZE: usize = 256;

/// Where each capability begins, for all shapes that have it.
const POWER: usize = 0x40;
const MSI: usize = 0x50;
const EXPRESS: usize = 0x60;
const MSI_X: usize = 0xa0;
/// The capability of the vendor, through which the guest chooses the plan.
const VENDOR: usize = 0xb0;

/// Where the guest writes the number of the plan: two bytes.
pub const PLAN: u64 = VENDOR as u64 + 4;

const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const LINE_DISABLED: u8 = 4;

/// Configuration space.
#[derive(Clone, Debug)]
pub(crate) struct ConfigSpace {
    bytes: [u8; SIZE],
    /// The bits that the guest can change.
    writable: [u8; SIZE],
}

/// How the driver has asked to be interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupts {
    None,
    Line,
    Msi,
    MsiX,
}

impl ConfigSpace {
    pub(crate) fn new(ids: PciIds, shape: Shape) -> ConfigSpace {
        let mut space = ConfigSpace { bytes: [0; SIZE], writable: [0; SIZE] };
        space.put(0x00, &ids.vendor.to_le_bytes());
        space.put(0x02, &ids.device.to_le_bytes());
        space.put(0x08, &((ids.class << 8) | 1).to_le_bytes());
        space.put(0x2c, &ids.subvendor.to_le_bytes());
        space.put(0x2e, &ids.subdevice.to_le_bytes());
        // Ports, memory, bus mastering, parity, system errors; the interrupt line off.
        space.allow(COMMAND, &[0x47, 0x05]);
        // Cache line, latency; the interrupt's number, which the guest's firmware notes.
        space.allow(0x0c, &[0xff, 0xff]);
        space.allow(0x3c, &[0xff]);
        // Pin A.
        space.put(0x3d, &[1]);
        for (number, bar) in shape.bars.into_iter().enumerate() {
            let (kind, mask) = match bar {
                Bar::Memory(size) => (0u32, !(size as u32 - 1)),
                Bar::Ports(size) => (1, !(size as u32 - 1)),
            };
            space.put(0x10 + 4 * number, &kind.to_le_bytes());
            space.allow(0x10 + 4 * number, &mask.to_le_bytes());
        }
        space.capabilities(shape);
        space
    }

    /// The list of capabilities (PCI Local Bus 3.0, section 6.7).
    fn capabilities(&mut self, shape: Shape) {
        self.put(STATUS, &[0x10]);
        let mut link = 0x34;
        let mut begin = |space: &mut ConfigSpace, at: usize, id: u8| {
            space.put(link, &[at as u8]);
            space.put(at, &[id]);
            link = at + 1;
        };
        begin(self, POWER, 0x01);
        // Version 3, without states between on and off; the state itself.
        self.put(POWER + 2, &[0x03, 0x00]);
        self.allow(POWER + 4, &[0x03, 0x01]);
        if shape.modern {
            begin(self, MSI, 0x05);
            // Addresses of 64 bits, one message.
            self.put(MSI + 2, &[0x80, 0]);
            self.allow(MSI + 2, &[0x01, 0, 0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
            begin(self, EXPRESS, 0x10);
            // Version 2, an endpoint; a link of one lane at 2.5 GT/s, as capability and as status.
            self.put(EXPRESS + 2, &[0x02, 0x00]);
            self.put(EXPRESS + 4, &0x8000u32.to_le_bytes());
            self.allow(EXPRESS + 8, &[0xff, 0x7f]);
            self.put(EXPRESS + 0x0c, &0x11u32.to_le_bytes());
            self.allow(EXPRESS + 0x10, &[0xc3, 0x01]);
            self.put(EXPRESS + 0x12, &0x11u16.to_le_bytes());
            begin(self, MSI_X, 0x11);
            self.put(MSI_X + 2, &(VECTORS - 1).to_le_bytes());
            self.allow(MSI_X + 2, &[0, 0xc0]);
            let (bar, table, pending) = TABLE;
            self.put(MSI_X + 4, &(table | bar).to_le_bytes());
            self.put(MSI_X + 8, &(pending | bar).to_le_bytes());
        }
        begin(self, VENDOR, 0x09);
        self.put(VENDOR + 2, &[8]);
        self.allow(PLAN as usize, &[0xff, 0xff]);
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, at: usize, bits: &[u8]) {
        self.writable[at..at + bits.len()].copy_from_slice(bits);
    }

    /// Reads; beyond the end are ones, as where no device is.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            let at = offset.saturating_add(index as u64);
            *byte = usize::try_from(at).ok().and_then(|at| self.bytes.get(at)).copied().unwrap_or(0xff);
        }
    }

    /// Writes the bits that can be written; returns true where the guest has chosen a plan by it.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> bool {
        for (index, &byte) in bytes.iter().enumerate() {
            let at = offset.saturating_add(index as u64);
            let Some(at) = usize::try_from(at).ok().filter(|at| *at < SIZE) else { break };
            self.bytes[at] = self.bytes[at] & !self.writable[at] | byte & self.writable[at];
        }
        (offset..offset.saturating_add(bytes.len() as u64)).contains(&PLAN)
    }

    /// The plan that the guest has chosen.
    pub(crate) fn plan(&self) -> u16 {
        let at = PLAN as usize;
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Shows in the status register whether the line is raised (PCI Local Bus 3.0, section 6.2.3).
    pub(crate) fn show_interrupt(&mut self, raised: bool) {
        self.bytes[STATUS] = self.bytes[STATUS] & !8 | u8::from(raised) << 3;
    }

    pub(crate) fn interrupts(&self, shape: Shape) -> Interrupts {
        match () {
            () if shape.modern && self.bytes[MSI_X + 3] & 0x80 != 0 => Interrupts::MsiX,
            () if shape.modern && self.bytes[MSI + 2] & 1 != 0 => Interrupts::Msi,
            () if self.bytes[COMMAND + 1] & LINE_DISABLED != 0 => Interrupts::None,
            () => Interrupts::Line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::testing::{MODERN, OLD};

    fn space(shape: Shape) -> ConfigSpace {
        let ids = PciIds { vendor: 0x8086, device: 0x100e, subvendor: 1, subdevice: 2, class: 0x02_0000 };
        ConfigSpace::new(ids, shape)
    }

    fn read(space: &ConfigSpace, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        space.read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn capabilities_follow_one_another_and_end() {
        for (shape, wanted) in [(MODERN, vec![0x01, 0x05, 0x10, 0x11, 0x09]), (OLD, vec![0x01, 0x09])] {
            let space = space(shape);
            let (mut at, mut found) = (space.bytes[0x34], Vec::new());
            while at != 0 && found.len() < 10 {
                found.push(space.bytes[usize::from(at)]);
                at = space.bytes[usize::from(at) + 1];
            }
            assert_eq!(found, wanted, "{shape:?}");
        }
    }

    #[test]
    fn base_address_registers_tell_their_size() {
        let mut space = space(OLD);
        assert_eq!(read(&space, 0), 0x100e_8086);
        for (register, size) in [(0x10, 0xffff_ff01), (0x14, 0xff00_0000)] {
            space.write(register, &[0xff; 4]);
            assert_eq!(read(&space, register), size);
        }
        space.write(0, &[0; 4]);
        assert_eq!(read(&space, 0), 0x100e_8086);
    }

    #[test]
    fn what_lies_outside_is_not_there() {
        let mut space = space(MODERN);
        assert_eq!(read(&space, 254) >> 16, 0xffff);
        assert_eq!(read(&space, u64::MAX - 1), u32::MAX);
        assert!(!space.write(254, &[1, 2, 3, 4]) && !space.write(u64::MAX, &[1]));
    }

    #[test]
    fn the_guest_chooses_plan_and_interrupts() {
        let mut space = space(MODERN);
        assert!(space.write(PLAN, &[3]) && !space.write(PLAN + 1, &[1]));
        assert_eq!((space.plan(), space.interrupts(MODERN)), (0x103, Interrupts::Line));
        space.write(0x05, &[4]);
        assert_eq!(space.interrupts(MODERN), Interrupts::None);
        space.write(MSI as u64 + 2, &[1]);
        assert_eq!(space.interrupts(MODERN), Interrupts::Msi);
        space.write(MSI_X as u64 + 3, &[0x80]);
        assert_eq!(space.interrupts(MODERN), Interrupts::MsiX);
    }
}
