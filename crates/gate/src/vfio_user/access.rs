//! Checks accesses, has the policy decide, and performs or drops them.

use super::message::{self, Header, INVALID, Refusal};
use super::requests::CONFIG_REGION;
use super::serve::{HeldAccess, Loop};
use crate::device::Device;
use crate::policy::{Access, Space, Verdict};
use std::sync::atomic::Ordering;

/// The most writes that may wait while the guest runs on; at this number the guest waits, too.
const MAX_POSTED: usize = 32;

impl<D: Device> Loop<'_, D> {
    /// Checks an access and asks the policy; false where the driver VM cannot be answered.
    pub(super) fn access(
        &mut self,
        header: Header,
        region: u32,
        offset: u64,
        write: bool,
        bytes: Vec<u8>,
    ) -> std::result::Result<bool, Refusal> {
        let size = self.region_size(region).ok_or(INVALID)?;
        let count = bytes.len();
        let inside = offset.checked_add(count as u64).is_some_and(|end| end <= size);
        let space = if region == CONFIG_REGION { Space::Config } else { Space::Bar(region as u8) };
        if !inside || space != Space::Config && !matches!(count, 1 | 2 | 4 | 8) {
            return Err(INVALID);
        }
        let mut value = [0; 8];
        if write {
            value[..count.min(8)].copy_from_slice(&bytes[..count.min(8)]);
        }
        let access = Access { space, offset, size: count as u32, write, value: u64::from_le_bytes(value) };
        let mut held = HeldAccess { header, region, access, bytes, answered: false };
        if self.shared.closed.load(Ordering::SeqCst) {
            return Ok(self.finish(&held, Verdict::Drop));
        }
        let gate = self.gate;
        // A panic of the policy here must not end the loop, which still has to cut the device off.
        let now = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| gate.admit_now(&access)));
        let first = !self.post_writes || self.holds.len() == 0;
        let mut going_on = true;
        match now {
            Ok(Some(verdict)) if first => return Ok(self.finish(&held, verdict)),
            Err(_) => {
                self.shared.close("the policy died");
                return Ok(self.finish(&held, Verdict::Drop));
            }
            Ok(_) if self.post_writes && write && space != Space::Config && self.holds.len() < MAX_POSTED => {
                going_on = self.answer(&held, &[]);
                held.answered = true;
            }
            Ok(_) => {}
        }
        match now {
            Ok(Some(verdict)) => self.holds.follow(verdict, held),
            _ => {
                self.shared.counts().of(space).held += 1;
                if !self.holds.hold(gate, &self.shared.wake, access, held) {
                    self.shared.close("more accesses wait than a guest has processors");
                }
            }
        }
        Ok(going_on)
    }

    /// Answers an access.
    fn answer(&self, held: &HeldAccess, read: &[u8]) -> bool {
        let Access { offset, size, .. } = held.access;
        held.answered || self.reply(&held.header, Ok(message::access_body(offset, held.region, size, read)))
    }

    /// Performs or drops the access, and answers.
    pub(super) fn finish(&mut self, held: &HeldAccess, verdict: Verdict) -> bool {
        let Access { space, offset, write, .. } = held.access;
        let closed = self.shared.closed.load(Ordering::SeqCst);
        let verdict = if closed { Verdict::Drop } else { verdict };
        let mut read = vec![0xff; if write { 0 } else { held.bytes.len() }];
        self.shared.counts().note(&held.access, verdict);
        if verdict == Verdict::Pass {
            let done = match write {
                true => self.device.write(space, offset, &held.bytes),
                false => self.device.read(space, offset, &mut read),
            };
            self.survive(done);
            self.interrupts(None);
        }
        self.answer(held, &read)
    }
}
