//! Descriptors as bytes, in the layout of USB 2.0, chapter 9.

use super::{CONFIGURATION, Descriptors, Endpoint, Interface, Setting, text};

/// The types of descriptors.
pub(super) struct Kind;

impl Kind {
    pub const DEVICE: u8 = 1;
    pub const CONFIGURATION: u8 = 2;
    pub const STRING: u8 = 3;
    const INTERFACE: u8 = 4;
    const ENDPOINT: u8 = 5;
    pub const QUALIFIER: u8 = 6;
    pub const OTHER_SPEED: u8 = 7;
    const ASSOCIATION: u8 = 11;
    pub const BOS: u8 = 15;
    pub const HID: u8 = 0x21;
    pub const REPORT: u8 = 0x22;
    const AUDIO_ENDPOINT: u8 = 0x25;
}

/// The version of USB that the device says it follows.
const USB_VERSION: u16 = 0x0200;

/// Most bytes of a packet of endpoint 0.
const CONTROL_PACKET: u8 = 64;

/// Bus-powered, as all devices have to say; 100 mA, in units of 2 mA.
const ATTRIBUTES: u8 = 0x80;
const POWER: u8 = 50;

pub(super) fn device(of: &Descriptors) -> Vec<u8> {
    let mut bytes = vec![18, Kind::DEVICE];
    bytes.extend(USB_VERSION.to_le_bytes());
    bytes.extend(of.class);
    bytes.push(CONTROL_PACKET);
    bytes.extend(of.vendor.to_le_bytes());
    bytes.extend(of.product.to_le_bytes());
    bytes.extend(of.version.to_le_bytes());
    bytes.extend([text::MANUFACTURER, text::PRODUCT, text::SERIAL, 1]);
    bytes
}

pub(super) fn qualifier(of: &Descriptors) -> Vec<u8> {
    let mut bytes = vec![10, Kind::QUALIFIER];
    bytes.extend(USB_VERSION.to_le_bytes());
    bytes.extend(of.class);
    bytes.extend([CONTROL_PACKET, 1, 0]);
    bytes
}

/// A store of capabilities of the device with nothing in it.
pub(super) fn bos() -> Vec<u8> {
    vec![5, Kind::BOS, 5, 0, 0]
}

/// The configuration with all that belongs to it; `kind` is its type.
pub(super) fn configuration(of: &Descriptors, kind: u8) -> Vec<u8> {
    let mut body = Vec::new();
    association(&mut body, of);
    for interface in &of.interfaces {
        for (number, one) in interface.settings.iter().enumerate() {
            setting(&mut body, interface.number, u8::try_from(number).unwrap_or(u8::MAX), one);
        }
    }
    let length = u16::try_from(body.len() + 9).unwrap_or(u16::MAX);
    let count = u8::try_from(of.interfaces.len()).unwrap_or(u8::MAX);
    let mut bytes = vec![9, kind];
    bytes.extend(length.to_le_bytes());
    bytes.extend([count, CONFIGURATION, 0, ATTRIBUTES, POWER]);
    bytes.extend(body);
    bytes
}

/// Says that interfaces belong together: all of a class, or those of a vendor after the first.
fn association(bytes: &mut Vec<u8>, of: &Descriptors) {
    let class = |one: &Interface| one.settings.first().map_or([0; 3], |setting| setting.class);
    let [first, rest @ ..] = &of.interfaces[..] else { return };
    let Some(last) = rest.last() else { return };
    let first = if class(first)[0] == 0xff { &rest[0] } else { first };
    let count = last.number.saturating_sub(first.number).saturating_add(1);
    bytes.extend([8, Kind::ASSOCIATION, first.number, count]);
    bytes.extend(class(first));
    bytes.push(0);
}

fn setting(bytes: &mut Vec<u8>, interface: u8, number: u8, of: &Setting) {
    let count = u8::try_from(of.endpoints.len()).unwrap_or(u8::MAX);
    bytes.extend([9, Kind::INTERFACE, interface, number, count]);
    bytes.extend(of.class);
    bytes.push(0);
    bytes.extend(&of.extra);
    for one in &of.endpoints {
        endpoint(bytes, one);
    }
}

fn endpoint(bytes: &mut Vec<u8>, of: &Endpoint) {
    // Endpoint descriptors of audio have 9 bytes; class-specific ones follow them. The last two bytes are always 0.
    let audio = of.extra.get(1) == Some(&Kind::AUDIO_ENDPOINT);
    bytes.extend([if audio { 9 } else { 7 }, Kind::ENDPOINT, of.address, of.transfer as u8]);
    bytes.extend(of.packet.to_le_bytes());
    bytes.push(of.interval);
    if audio {
        bytes.extend([0, 0]);
    }
    bytes.extend(&of.extra);
}
