//! What classes of interfaces ask for beyond endpoints: class-specific descriptors, and interfaces that go together.

use super::layout::endpoint;
use super::{Descriptors, Endpoint, Interface, Setting, Transfer, text};
use crate::alias::Alias;
use crate::plan::{Plan, Shape, Speed};
use crate::random::Random;
use Transfer::{Bulk, Interrupt, Iso};

/// Classes of interfaces.
const AUDIO: u8 = 0x01;
const COMMUNICATION: u8 = 0x02;
const HID: u8 = 0x03;
const STORAGE: u8 = 0x08;
const DATA: u8 = 0x0a;
const VIDEO: u8 = 0x0e;
const WIRELESS: u8 = 0xe0;
const MISCELLANEOUS: u8 = 0xef;
const VENDOR: u8 = 0xff;

/// The type of class-specific descriptors of an interface.
const CLASS_SPECIFIC: u8 = 0x24;

/// Adds what the class of the interfaces asks for.
pub(super) fn dress(descriptors: &mut Descriptors, alias: &Alias, plan: &Plan, random: &mut Random) {
    let class = [alias.class.unwrap_or(0), alias.subclass.unwrap_or(0), alias.protocol.unwrap_or(0)];
    let first = alias.interface.unwrap_or(0);
    if plan.shape == Shape::Modem && [None, Some(VENDOR)].contains(&alias.class) {
        // Vendors put network links behind classes of their own, too.
        let own = alias.class.unwrap_or(COMMUNICATION);
        let class = [own, alias.subclass.unwrap_or(MODEM), alias.protocol.unwrap_or(1)];
        descriptors.interfaces = communication(plan.speed, class, first);
    }
    if alias.class.is_none() {
        return;
    }
    match class[0] {
        AUDIO if class[1] == 3 => midi(&mut descriptors.interfaces),
        AUDIO => descriptors.interfaces = audio(plan.speed, class, first),
        COMMUNICATION if class[1] == EEM => {}
        COMMUNICATION => descriptors.interfaces = communication(plan.speed, class, first),
        WIRELESS if class[1..] == [1, 3] => descriptors.interfaces = communication(plan.speed, class, first),
        MISCELLANEOUS => descriptors.interfaces = communication(plan.speed, class, first),
        HID => {
            descriptors.report = report(plan, random);
            let one = hid(descriptors.report.len());
            each_setting(&mut descriptors.interfaces, |setting| setting.extra.clone_from(&one));
        }
        STORAGE if class[1..] == [6, 0x62] => descriptors.interfaces = attached_scsi(plan.speed, first),
        VIDEO => descriptors.interfaces = video(plan.speed, class, first),
        _ => {}
    }
}

fn each_setting(interfaces: &mut [Interface], change: impl Fn(&mut Setting)) {
    interfaces.iter_mut().flat_map(|one| &mut one.settings).for_each(change);
}

/// The HID descriptor of an interface whose report descriptor has `length` bytes.
pub(super) fn hid(length: usize) -> Vec<u8> {
    let [low, high] = u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes();
    vec![9, 0x21, 0x11, 0x01, 0, 1, 0x22, low, high]
}

/// A report descriptor: a mouse with three buttons and two axes, or a vendor's eight bytes in, out and as a feature.
fn report(plan: &Plan, random: &mut Random) -> Vec<u8> {
    let mouse = [
        0x05, 0x01, 0x09, 0x02, 0xa1, 0x01, 0x09, 0x01, 0xa1, 0x00, 0x05, 0x09, 0x19, 0x01, 0x29, 0x03, 0x15,
        0x00, 0x25, 0x01, 0x95, 0x03, 0x75, 0x01, 0x81, 0x02, 0x95, 0x01, 0x75, 0x05, 0x81, 0x03, 0x05, 0x01,
        0x09, 0x30, 0x09, 0x31, 0x15, 0x81, 0x25, 0x7f, 0x75, 0x08, 0x95, 0x02, 0x81, 0x06, 0xc0, 0xc0,
    ];
    let vendor = [
        0x06, 0x00, 0xff, 0x09, 0x01, 0xa1, 0x01, 0x15, 0x00, 0x26, 0xff, 0x00, 0x75, 0x08, 0x95, 0x08, 0x09,
        0x01, 0x81, 0x02, 0x09, 0x01, 0x91, 0x02, 0x09, 0x01, 0xb1, 0x02, 0xc0,
    ];
    let usual = if plan.seed < crate::CURATED { plan.seed.is_multiple_of(2) } else { random.one_in(2) };
    if usual { mouse.to_vec() } else { vendor.to_vec() }
}

/// Subclasses of communication.
const MODEM: u8 = 0x02;
const ETHERNET: u8 = 0x06;
const HANDSET: u8 = 0x08;
const MANAGEMENT: u8 = 0x09;
const DIRECT_LINE: u8 = 0x0a;
const EEM: u8 = 0x0c;
const NCM: u8 = 0x0d;
const MBIM: u8 = 0x0e;
const PHONE: u8 = 0xfe;

/// What a control interface says about itself besides its data interface.
fn functions(subclass: u8, data: u8) -> Vec<u8> {
    let ethernet = [13, CLASS_SPECIFIC, 0x0f, text::ADDRESS, 0, 0, 0, 0, 0xea, 0x05, 0, 0, 0];
    match subclass {
        ETHERNET => ethernet.to_vec(),
        NCM => [&ethernet[..], &[6, CLASS_SPECIFIC, 0x1a, 0x00, 0x01, 0]].concat(),
        MBIM => vec![12, CLASS_SPECIFIC, 0x1b, 0x00, 0x01, 0x00, 0x10, 16, 64, 0xdc, 0x05, 0x20],
        HANDSET | MANAGEMENT => vec![7, CLASS_SPECIFIC, 0x14, 0x00, 0x01, 0x00, 0x01],
        PHONE => vec![4, CLASS_SPECIFIC, 0xab, 0],
        DIRECT_LINE => {
            // The identifier and the capabilities of network links of handhelds.
            let mut bytes = vec![21, CLASS_SPECIFIC, 0x12, 0x00, 0x01];
            bytes.extend(b"\x74\xf0\x3d\xbd\x1e\xc1\x44\x70\xa3\x67\x71\x34\xc9\xf5\x54\x37");
            bytes.extend([7, CLASS_SPECIFIC, 0x13, 1, 0, 1, 0]);
            bytes
        }
        _ => vec![5, CLASS_SPECIFIC, 0x01, 0x03, data, 4, CLASS_SPECIFIC, 0x02, 0x06],
    }
}

/// A control interface and its data interface.
fn communication(speed: Speed, class: [u8; 3], number: u8) -> Vec<Interface> {
    let data_number = number.saturating_add(1);
    let subclass = if class[0] == VENDOR { NCM } else { class[1] };
    let network =
        [COMMUNICATION, VENDOR].contains(&class[0]) && ![MODEM, HANDSET, MANAGEMENT].contains(&subclass);
    let mut extra = vec![5, CLASS_SPECIFIC, 0x00, 0x10, 0x01];
    extra.extend([5, CLASS_SPECIFIC, 0x06, number, data_number]);
    extra.extend(functions(subclass, data_number));
    let mut endpoints = vec![endpoint(speed, Interrupt, 0x81)];
    if subclass == DIRECT_LINE {
        // Some of these have their data in the control interface.
        endpoints.extend([endpoint(speed, Bulk, 0x84), endpoint(speed, Bulk, 0x05)]);
    }
    let control = Setting { class, endpoints, extra };
    let pair = vec![endpoint(speed, Bulk, 0x82), endpoint(speed, Bulk, 0x03)];
    // Network links have a first setting without endpoints, so that a host can stop them.
    let protocol = u8::from(subclass == NCM) + 2 * u8::from(subclass == MBIM);
    let data =
        |endpoints: Vec<Endpoint>| Setting { class: [DATA, 0, protocol], endpoints, extra: Vec::new() };
    let settings = if network { vec![data(Vec::new()), data(pair)] } else { vec![data(pair)] };
    vec![Interface { number, settings: vec![control] }, Interface { number: data_number, settings }]
}

/// Version 1: a control interface with one terminal each way and a volume between, and a stereo stream out.
fn audio(speed: Speed, class: [u8; 3], number: u8) -> Vec<Interface> {
    let stream_number = number.saturating_add(1);
    let units: &[&[u8]] = &[
        &[12, CLASS_SPECIFIC, 0x02, 1, 0x01, 0x01, 0, 2, 0x03, 0x00, 0, 0],
        &[10, CLASS_SPECIFIC, 0x06, 2, 1, 1, 0x03, 0, 0, 0],
        &[9, CLASS_SPECIFIC, 0x03, 3, 0x01, 0x03, 0, 2, 0],
    ];
    let units = units.concat();
    let [low, high] = u16::try_from(units.len() + 9).unwrap_or(u16::MAX).to_le_bytes();
    let mut extra = vec![9, CLASS_SPECIFIC, 0x01, 0x00, 0x01, low, high, 1, stream_number];
    extra.extend(units);
    let control = Setting { class, endpoints: Vec::new(), extra };
    let stream_class = [AUDIO, 2, class[2]];
    let mut stream = endpoint(speed, Iso, 0x01);
    stream.packet = 200;
    stream.extra = vec![7, 0x25, 0x01, 0, 0, 0, 0];
    let format: &[&[u8]] = &[
        &[7, CLASS_SPECIFIC, 0x01, 1, 1, 0x01, 0x00],
        &[11, CLASS_SPECIFIC, 0x02, 1, 2, 2, 16, 1, 0x80, 0xbb, 0x00],
    ];
    let playing = Setting { class: stream_class, endpoints: vec![stream], extra: format.concat() };
    let silent = Setting { class: stream_class, ..Setting::default() };
    vec![
        Interface { number, settings: vec![control] },
        Interface { number: stream_number, settings: vec![silent, playing] },
    ]
}

/// One jack each way behind each bulk endpoint.
fn midi(interfaces: &mut [Interface]) {
    each_setting(interfaces, |setting| {
        setting.extra = vec![7, CLASS_SPECIFIC, 0x01, 0x00, 0x01, 7, 0];
        for one in setting.endpoints.iter_mut().filter(|one| one.transfer == Bulk) {
            one.extra = vec![5, 0x25, 0x01, 1, 1];
        }
    });
}

/// A storage interface with a setting for the older transport and one for the newer, whose pipes are named.
fn attached_scsi(speed: Speed, number: u8) -> Vec<Interface> {
    let older = vec![endpoint(speed, Bulk, 0x81), endpoint(speed, Bulk, 0x02)];
    let pipe = |address: u8, usage: u8| {
        let extra = vec![4, CLASS_SPECIFIC, usage, 0];
        Endpoint { extra, ..endpoint(speed, Bulk, address) }
    };
    let newer = vec![pipe(0x02, 1), pipe(0x83, 2), pipe(0x81, 3), pipe(0x04, 4)];
    let setting =
        |protocol, endpoints| Setting { class: [STORAGE, 6, protocol], endpoints, extra: Vec::new() };
    vec![Interface { number, settings: vec![setting(0x50, older), setting(0x62, newer)] }]
}

/// A control interface with a camera, and a stream of uncompressed frames.
fn video(speed: Speed, class: [u8; 3], number: u8) -> Vec<Interface> {
    let stream_number = number.saturating_add(1);
    let units: &[&[u8]] = &[
        &[18, CLASS_SPECIFIC, 0x02, 1, 0x01, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0],
        &[9, CLASS_SPECIFIC, 0x03, 2, 0x01, 0x01, 0, 1, 0],
    ];
    let units = units.concat();
    let [low, high] = u16::try_from(units.len() + 13).unwrap_or(u16::MAX).to_le_bytes();
    let mut extra =
        vec![13, CLASS_SPECIFIC, 0x01, 0x00, 0x01, low, high, 0x80, 0x8d, 0x5b, 0x00, 1, stream_number];
    extra.extend(units);
    let control = Setting { class, endpoints: vec![endpoint(speed, Interrupt, 0x83)], extra };
    let stream_class = [VIDEO, 2, 0];
    let silent = Setting { class: stream_class, endpoints: Vec::new(), extra: frames() };
    let mut input = endpoint(speed, Iso, 0x81);
    input.packet = 512;
    let showing = Setting { class: stream_class, endpoints: vec![input], extra: Vec::new() };
    vec![
        Interface { number, settings: vec![control] },
        Interface { number: stream_number, settings: vec![silent, showing] },
    ]
}

/// 160 x 120 pixels of two bytes, 30 times a second, of endpoint 0x81.
fn frames() -> Vec<u8> {
    let mut format = vec![27, CLASS_SPECIFIC, 0x04, 1, 1];
    format.extend(b"YUY2\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71");
    format.extend([16, 1, 0, 0, 0, 0]);
    let size = 160 * 120 * 2_u32;
    let period = 333_333_u32.to_le_bytes();
    let mut frame = vec![30, CLASS_SPECIFIC, 0x05, 1, 0, 160, 0, 120, 0];
    frame.extend((size * 8 * 30).to_le_bytes());
    frame.extend((size * 8 * 30).to_le_bytes());
    frame.extend(size.to_le_bytes());
    frame.extend(period);
    frame.push(1);
    frame.extend(period);
    let [low, high] = u16::try_from(format.len() + frame.len() + 14).unwrap_or(u16::MAX).to_le_bytes();
    let mut bytes = vec![14, CLASS_SPECIFIC, 0x01, 1, low, high, 0x81, 0, 2, 0, 0, 0, 1, 0];
    bytes.extend(format);
    bytes.extend(frame);
    bytes
}
