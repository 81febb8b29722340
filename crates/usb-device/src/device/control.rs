//! Control requests.

use super::Device;
use crate::wire::{Control, Status};

/// Parts of the kind of a request (`bmRequestType`).
const IN: u8 = 0x80;
const CATEGORY: u8 = 0x60;
const RECIPIENT: u8 = 0x1f;
const DEVICE: u8 = 0;
const INTERFACE: u8 = 1;
const ENDPOINT: u8 = 2;

/// Standard requests that come as control requests; the others have messages of their own.
const GET_STATUS: u8 = 0;
const CLEAR_FEATURE: u8 = 1;
const SET_FEATURE: u8 = 3;
const GET_DESCRIPTOR: u8 = 6;
const SET_DESCRIPTOR: u8 = 7;
const GET_CONFIGURATION: u8 = 8;
const GET_INTERFACE: u8 = 10;

/// A class request to an interface for data.
const CLASS_OF_INTERFACE: u8 = 0xa1;

/// The class-specific descriptor of an infrared link, the one class that has a request for its descriptor: version 1.0,
/// frames of up to 2048 bytes, all windows, turnaround times, rates and counts of flags.
const INFRARED: [u8; 12] = [12, 0x21, 0x00, 0x01, 0x3f, 0x7f, 0xff, 0xff, 0x01, 0xff, 0x00, 0x01];

/// The feature of an endpoint that stalls.
const HALT: u16 = 0;

impl Device {
    /// Answers a control request; `data` came with it.
    pub(super) fn control(&mut self, id: u64, request: &Control, data: &[u8]) {
        let input = request.kind & IN != 0;
        *(if input { &mut self.counts.control_in } else { &mut self.counts.control_out }) += 1;
        let answer =
            if request.kind & CATEGORY == 0 { self.standard(request) } else { self.own(request, data) };
        let status = if answer.is_some() { Status::Success } else { Status::Stall };
        self.counts.stalls += u64::from(answer.is_none());
        let mut answer = answer.unwrap_or_default();
        answer.truncate(request.length.into());
        self.writer.control(id, request, status, &answer);
    }

    /// The answer to a standard request; `None` for a stall.
    fn standard(&mut self, request: &Control) -> Option<Vec<u8>> {
        let recipient = request.kind & RECIPIENT;
        let input = request.kind & IN != 0;
        let [low, _] = request.index.to_le_bytes();
        match (input, request.request) {
            (true, GET_DESCRIPTOR) => self.descriptors.get(request.value, recipient),
            (true, GET_STATUS) => match recipient {
                DEVICE | INTERFACE => Some(vec![0, 0]),
                ENDPOINT => Some(vec![u8::from(self.halted.contains(&low)), 0]),
                _ => None,
            },
            (true, GET_CONFIGURATION) => Some(vec![self.configuration]),
            (true, GET_INTERFACE) => Some(vec![self.settings[self.place(low)?]]),
            (false, CLEAR_FEATURE | SET_FEATURE) if recipient == ENDPOINT => {
                if request.value != HALT {
                    return None;
                }
                self.halted.retain(|&address| address != low);
                // Endpoint 0 clears itself.
                if request.request == SET_FEATURE && low & 0x0f != 0 && self.halted.len() < 32 {
                    self.halted.push(low);
                }
                Some(Vec::new())
            }
            (false, CLEAR_FEATURE | SET_FEATURE | SET_DESCRIPTOR) => Some(Vec::new()),
            _ => None,
        }
    }

    /// The answer to a request of a class or a vendor.
    fn own(&mut self, request: &Control, data: &[u8]) -> Option<Vec<u8>> {
        self.flow.encourage();
        if self.plan.faults.is_some_and(|rate| self.data.chance(rate)) {
            return None;
        }
        if request.kind & IN == 0 {
            self.answers.write(request, data);
            self.data.rndis.note(data);
            return Some(Vec::new());
        }
        if let Some(answer) = self.data.rndis.answer(request) {
            return Some(answer);
        }
        if (request.kind, request.request) == (CLASS_OF_INTERFACE, GET_DESCRIPTOR) {
            return Some(INFRARED.to_vec());
        }
        Some(self.answers.read(request))
    }
}
