//! Requests of the driver VM other than accesses: about the device, its memory and its interrupts.

use super::irqs;
use super::message::{self, INVALID, Refusal, Request};
use super::serve::Loop;
use crate::device::Device;
use crate::error::Error;
use crate::sys;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// The most pieces of memory that a driver VM may map.
const MAX_MAPS: usize = 4096;

/// Every guest has memory in this range.
const FIRST_MEGABYTE: u64 = 1 << 20;

/// Regions, as the protocol numbers them.
pub(super) const CONFIG_REGION: u32 = 7;
const REGIONS: u32 = 9;

impl<D: Device> Loop<'_, D> {
    /// Serves requests that need no access to the device's memory.
    pub(super) fn serve(
        &mut self,
        request: Request<'_>,
        fds: Vec<OwnedFd>,
        body: &[u8],
    ) -> std::result::Result<Vec<u8>, Refusal> {
        const HAS_RESET: u32 = 1;
        const IS_PCI: u32 = 2;
        Ok(match request {
            Request::Version { major, minor } => {
                if major != 0 {
                    return Err(message::UNSUPPORTED);
                }
                let offer = format!(
                    "{{\"capabilities\":{{\"max_msg_fds\":8,\"max_data_xfer_size\":{},\"pgsizes\":4096}}}}\0",
                    message::MAX_TRANSFER
                );
                let mut reply = Vec::from(0u16.to_le_bytes());
                reply.extend(minor.min(1).to_le_bytes());
                reply.extend(offer.as_bytes());
                reply
            }
            Request::DmaMap { offset, address, size } => {
                self.map(offset, address, size, &fds)?;
                Vec::new()
            }
            Request::DmaUnmap { all, .. } => {
                self.maps = if all { 0 } else { self.maps.saturating_sub(1) };
                body.to_vec()
            }
            Request::DeviceInfo => message::words(&[16, HAS_RESET | IS_PCI, REGIONS, irqs::KINDS]),
            Request::RegionInfo { index } => {
                const READ_WRITE: u32 = 3;
                let size = self.region_size(index).ok_or(INVALID)?;
                let flags = if size == 0 { 0 } else { READ_WRITE };
                let mut reply = message::words(&[32, flags, index, 0]);
                reply.extend(size.to_le_bytes());
                reply.extend((u64::from(index) << 40).to_le_bytes());
                reply
            }
            Request::IrqInfo { index } => {
                let (flags, count) = self.irqs.info(self.device.layout(), index).ok_or(INVALID)?;
                message::words(&[16, flags, index, count])
            }
            Request::SetIrqs(set) => {
                let signaled = self.irqs.set(set, fds)?;
                self.shared.counts().interrupts += signaled;
                body.to_vec()
            }
            Request::Reset => {
                self.shared.counts().resets += 1;
                // After a reset, accesses that still wait for a verdict have no meaning for the device.
                self.give_up();
                if !self.shared.closed.load(Ordering::SeqCst) {
                    let done = self.device.reset();
                    self.survive(done);
                    self.interrupts(None);
                }
                Vec::new()
            }
            Request::Read { .. } | Request::Write { .. } => return Err(INVALID),
        })
    }

    /// The guest's memory must be the file that the device maps as well, at the address where the device
    /// expects it.
    fn map(
        &mut self,
        offset: u64,
        address: u64,
        size: u64,
        fds: &[OwnedFd],
    ) -> std::result::Result<(), Refusal> {
        if self.maps >= MAX_MAPS {
            return Err(INVALID);
        }
        self.maps += 1;
        let shared = fds.first().is_some_and(|fd| sys::identity(fd).is_ok_and(|file| file == self.memory));
        let what = match shared {
            true if address < 1 << 32 && address != offset => format!(
                "it has its memory at {address:#x} where the device would look at {offset:#x} (an IOMMU cannot be \
                 used with this gate)"
            ),
            // Other mappings are ROMs and the like, which devices do not access.
            false if (address..address + size).contains(&FIRST_MEGABYTE) => {
                "its memory is not the file that it was given".to_owned()
            }
            _ => return Ok(()),
        };
        self.shared.fail(&Error::Protocol { what });
        Err(INVALID)
    }

    pub(super) fn region_size(&self, index: u32) -> Option<u64> {
        let layout = self.device.layout();
        match index {
            0..6 => layout.bars.get(index as usize).copied(),
            CONFIG_REGION => Some(layout.config.into()),
            6..REGIONS => Some(0),
            _ => None,
        }
    }
}
