//! Messages to the peer.

use super::{ENDPOINTS, Status, VERSION_LENGTH, kind};
use crate::descriptors::{Descriptors, Endpoint};
use crate::wire::Control;

/// A buffer of messages that are to be sent.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub bytes: Vec<u8>,
}

impl Writer {
    /// The greeting, which alone has a short id.
    pub fn hello(&mut self, capabilities: u32) {
        let mut version = [0; VERSION_LENGTH];
        let text = b"guardrail synthetic USB device";
        version[..text.len()].copy_from_slice(text);
        let length = u32::try_from(VERSION_LENGTH + 4).unwrap_or(u32::MAX);
        for word in [kind::HELLO, length, 0] {
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.extend(version);
        self.bytes.extend(capabilities.to_le_bytes());
    }

    /// A message with the parts of its body.
    pub fn message(&mut self, kind: u32, id: u64, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
        self.bytes.extend(id.to_le_bytes());
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
    }

    /// The device's own numbers.
    pub fn connect(&mut self, of: &Descriptors) {
        let mut body = vec![of.speed as u8];
        body.extend(of.class);
        for word in [of.vendor, of.product, of.version] {
            body.extend(word.to_le_bytes());
        }
        self.message(kind::DEVICE_CONNECT, 0, &[&body]);
    }

    /// The endpoints of the settings in use, with the numbers of their interfaces, and the interfaces with their classes.
    pub fn information(&mut self, endpoints: &[(u8, &Endpoint)], interfaces: &[(u8, [u8; 3])]) {
        let mut types = [0xff_u8; ENDPOINTS];
        let (mut intervals, mut owners) = ([0_u8; ENDPOINTS], [0_u8; ENDPOINTS]);
        let mut packets = [0_u16; ENDPOINTS];
        for control in [0, ENDPOINTS / 2] {
            types[control] = 0;
            packets[control] = 64;
        }
        for (interface, one) in endpoints {
            let place = usize::from(one.address & 0x0f) + usize::from(one.address >> 7) * ENDPOINTS / 2;
            types[place] = one.transfer as u8;
            intervals[place] = one.interval.max(1);
            owners[place] = *interface;
            packets[place] = (one.packet & 0x7ff) * (1 + ((one.packet >> 11) & 3));
        }
        let packets: Vec<u8> = packets.iter().flat_map(|packet| packet.to_le_bytes()).collect();
        self.message(kind::EP_INFO, 0, &[&types, &intervals, &owners, &packets]);
        let mut table = [[0_u8; ENDPOINTS]; 4];
        for (place, (number, class)) in interfaces.iter().take(ENDPOINTS).enumerate() {
            table[0][place] = *number;
            for (row, value) in class.iter().enumerate() {
                table[row + 1][place] = *value;
            }
        }
        let count = u32::try_from(interfaces.len().min(ENDPOINTS)).unwrap_or(0).to_le_bytes();
        self.message(kind::INTERFACE_INFO, 0, &[&count, table.as_flattened()]);
    }

    /// The answer to a control request: `data` where it was asked for, else how many bytes were taken.
    pub fn control(&mut self, id: u64, of: &Control, status: Status, data: &[u8]) {
        let input = of.kind & 0x80 != 0;
        let length = if input { u16::try_from(data.len()).unwrap_or(u16::MAX) } else { of.length };
        let length = if status == Status::Success { length } else { 0 };
        let mut body = vec![of.endpoint, of.request, of.kind, status as u8];
        for word in [of.value, of.index, length] {
            body.extend(word.to_le_bytes());
        }
        self.message(
            kind::CONTROL_PACKET,
            id,
            &[&body, if input { &data[..usize::from(length)] } else { &[] }],
        );
    }

    /// The answer to a bulk transfer: its data, or how many bytes were taken.
    pub fn bulk(&mut self, id: u64, endpoint: u8, stream: u32, status: Status, taken: usize, data: &[u8]) {
        let length = if endpoint & 0x80 != 0 { data.len() } else { taken };
        let length = u32::try_from(length).unwrap_or(0);
        let [low0, low1, high0, high1] = length.to_le_bytes();
        let mut body = vec![endpoint, status as u8, low0, low1];
        body.extend(stream.to_le_bytes());
        body.extend([high0, high1]);
        self.message(kind::BULK_PACKET, id, &[&body, data]);
    }

    /// A packet of an isochronous or interrupt endpoint (`kind`): its data, or how many bytes were taken.
    pub fn packet(&mut self, kind: u32, id: u64, endpoint: u8, status: Status, taken: usize, data: &[u8]) {
        let length = if endpoint & 0x80 != 0 { data.len() } else { taken };
        let [low, high] = u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes();
        self.message(kind, id, &[&[endpoint, status as u8, low, high], data]);
    }
}
