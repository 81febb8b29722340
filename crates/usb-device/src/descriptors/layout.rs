//! Interfaces and endpoints by plan.

use super::{Endpoint, Interface, Setting, Transfer};
use crate::alias::Alias;
use crate::plan::{Plan, Shape, Speed};
use crate::random::Random;
use Transfer::{Bulk, Interrupt, Iso};

/// The bit of an address of an endpoint that gives data to the host.
const IN: u8 = 0x80;

/// The class of what belongs to its vendor.
const VENDOR_CLASS: u8 = 0xff;

/// The class of input devices.
const HID_CLASS: u8 = 0x03;

/// An interval of about 1 ms: frames at full speed, an exponent of microframes at high speed.
fn interval(speed: Speed) -> u8 {
    match speed {
        Speed::Full => 1,
        Speed::High => 4,
    }
}

/// An endpoint with the usual packet size of its kind.
pub(super) fn endpoint(speed: Speed, transfer: Transfer, address: u8) -> Endpoint {
    let packet = match (transfer, speed) {
        (Bulk, Speed::High) => 512,
        (Bulk, Speed::Full) | (Interrupt, _) => 64,
        (Iso, Speed::High) => 1024,
        (Iso, Speed::Full) => 1023,
    };
    let interval = if transfer == Bulk { 0 } else { interval(speed) };
    Endpoint { address, transfer, packet, interval, extra: Vec::new() }
}

/// Endpoints of one setting, written as kind and address.
type Endpoints = Vec<(Transfer, u8)>;

/// The settings of one interface.
type Settings = Vec<Endpoints>;

/// The interfaces that the alias and the plan give, all of the alias's class.
pub(super) fn interfaces(alias: &Alias, plan: &Plan, random: &mut Random) -> Vec<Interface> {
    let class =
        [alias.class.unwrap_or(VENDOR_CLASS), alias.subclass.unwrap_or(0), alias.protocol.unwrap_or(0)];
    let shapes = match plan.shape {
        Shape::Wide => (0..4).map(wide).collect(),
        Shape::Plain => vec![vec![vec![(Bulk, 0x81), (Bulk, 0x02), (Interrupt, 0x83)]]],
        Shape::Serial => vec![vec![vec![(Interrupt, 0x81), (Bulk, 0x02), (Bulk, 0x83)]]],
        Shape::Many => vec![vec![many()]],
        Shape::Input => vec![vec![vec![(Interrupt, 0x81)]]],
        Shape::Interrupts => vec![vec![vec![(Interrupt, 0x81), (Interrupt, 0x02)]]],
        Shape::Camera => vec![camera()],
        Shape::Paired => paired(),
        Shape::Bulk => vec![vec![vec![(Bulk, 0x81), (Bulk, 0x02)]]],
        Shape::Streams => streams(),
        Shape::Composite | Shape::Modem => composite(),
        Shape::Sound => sound(),
        Shape::Classes => (0..3)
            .map(|index| vec![vec![(Bulk, 0x81 + index), (Bulk, 0x04 + index), (Interrupt, 0x87 + index)]])
            .collect(),
        Shape::Scanner => vec![vec![vec![(Bulk, 0x81), (Bulk, 0x02), (Bulk, 0x83)]]],
        Shape::Five => vec![vec![vec![(Bulk, 0x81), (Bulk, 0x02), (Bulk, 0x83), (Bulk, 0x04), (Bulk, 0x85)]]],
        Shape::Still => vec![vec![vec![(Bulk, 0x01), (Interrupt, 0x82), (Bulk, 0x03), (Bulk, 0x84)]]],
        Shape::Drawn => drawn(random),
    };
    let mut interfaces = Vec::new();
    for (settings, number) in shapes.iter().zip(0..) {
        let settings = settings.iter().map(|endpoints| setting(class, endpoints, plan.speed)).collect();
        interfaces.push(Interface { number, settings });
    }
    if matches!(plan.shape, Shape::Wide | Shape::Camera | Shape::Sound) {
        grow(&mut interfaces, plan.speed);
    }
    if matches!(plan.shape, Shape::Input | Shape::Still) {
        interfaces.iter_mut().for_each(small);
    }
    if plan.shape == Shape::Classes && alias.class.is_none() {
        for (interface, class) in interfaces.iter_mut().zip([[3, 1, 2], [7, 1, 2], [8, 6, 0x50]]) {
            interface.settings.iter_mut().for_each(|setting| setting.class = class);
        }
    }
    for setting in interfaces.iter_mut().flat_map(|one| &mut one.settings) {
        // Drivers of input devices look at the first endpoint alone.
        if setting.class[0] == HID_CLASS {
            setting.endpoints.sort_by_key(|one| (one.transfer != Interrupt, one.address & IN == 0));
        }
    }
    number(&mut interfaces, alias.interface);
    interfaces
}

fn setting(class: [u8; 3], endpoints: &Endpoints, speed: Speed) -> Setting {
    let endpoints = endpoints.iter().map(|&(transfer, address)| endpoint(speed, transfer, address)).collect();
    Setting { class, endpoints, extra: Vec::new() }
}

/// Gives the interfaces numbers so that one has the wanted number.
fn number(interfaces: &mut Vec<Interface>, wanted: Option<u8>) {
    let Some(wanted) = wanted.filter(|wanted| interfaces.iter().all(|one| one.number != *wanted)) else {
        return;
    };
    // The first interface has the endpoints that most drivers name by number.
    interfaces.truncate(1);
    interfaces.iter_mut().for_each(|one| one.number = wanted);
}

/// The numbers of the endpoints of the four interfaces differ in each direction.
fn wide(index: u8) -> Settings {
    let (even, odd) = (index % 2, (index + 1) % 2);
    let base = if index < 2 { 1 } else { 7 };
    let input = |place: u8| IN | (base + 2 * place + even);
    let output = |place: u8| base + 2 * place + odd;
    let first = vec![(Bulk, input(0)), (Bulk, output(0)), (Interrupt, input(1)), (Interrupt, output(1))];
    let mut second = first.clone();
    second.extend([(Iso, input(2)), (Iso, output(2))]);
    let mut settings = vec![first];
    settings.extend((1..8).map(|_| second.clone()));
    settings
}

fn many() -> Endpoints {
    let mut endpoints = Vec::new();
    for number in 1..=15 {
        let transfer = if number <= 12 { Bulk } else { Interrupt };
        endpoints.extend([(transfer, IN | number), (transfer, number)]);
    }
    endpoints
}

fn camera() -> Settings {
    let quiet = vec![(Interrupt, 0x83), (Bulk, 0x82), (Bulk, 0x04)];
    (0..9).map(|_| [vec![(Iso, 0x81)], quiet.clone()].concat()).collect()
}

/// Makes the isochronous packets of later settings larger than those of the ones before; those of the first are empty.
fn grow(interfaces: &mut [Interface], speed: Speed) {
    let steps: [u16; 9] = match speed {
        Speed::High => [0, 128, 256, 512, 768, 1024, 0x0a70, 0x0b20, 0x1400],
        Speed::Full => [0, 128, 256, 384, 512, 640, 768, 896, 1023],
    };
    for interface in interfaces {
        for (setting, packet) in interface.settings.iter_mut().zip(steps) {
            for one in setting.endpoints.iter_mut().filter(|one| one.transfer == Iso) {
                one.packet = packet;
            }
        }
    }
}

/// Makes the packets of the first endpoints as small as those of a mouse.
fn small(interface: &mut Interface) {
    for setting in &mut interface.settings {
        for one in setting.endpoints.iter_mut().filter(|one| one.address & !IN <= 2) {
            one.packet = 8;
        }
    }
}

fn paired() -> Vec<Settings> {
    let first =
        vec![(Bulk, 0x81), (Bulk, 0x01), (Interrupt, 0x82), (Interrupt, 0x02), (Bulk, 0x83), (Bulk, 0x03)];
    let second = vec![(Bulk, 0x84), (Bulk, 0x04), (Bulk, 0x85), (Bulk, 0x05), (Bulk, 0x86), (Bulk, 0x06)];
    vec![vec![first.clone(), first], vec![second.clone(), second]]
}

fn streams() -> Vec<Settings> {
    vec![
        vec![vec![(Interrupt, 0x84), (Bulk, 0x05), (Bulk, 0x85)]],
        vec![vec![], vec![(Iso, 0x01)]],
        vec![vec![], vec![(Iso, 0x82)]],
    ]
}

fn sound() -> Vec<Settings> {
    let first = vec![
        (Iso, 0x01),
        (Iso, 0x82),
        (Interrupt, 0x84),
        (Interrupt, 0x03),
        (Interrupt, 0x86),
        (Interrupt, 0x05),
    ];
    let second = vec![(Bulk, 0x87), (Bulk, 0x08), (Interrupt, 0x89), (Interrupt, 0x0a)];
    [first, second]
        .map(|later| {
            let mut settings = vec![Vec::new()];
            settings.extend((1..8).map(|_| later.clone()));
            settings
        })
        .into()
}

fn composite() -> Vec<Settings> {
    vec![
        vec![vec![(Interrupt, 0x81), (Interrupt, 0x01)]],
        vec![vec![(Bulk, 0x82), (Bulk, 0x02)], vec![(Bulk, 0x82), (Bulk, 0x02), (Interrupt, 0x83)]],
    ]
}

/// One to four interfaces, each with its own numbers, as some devices have and drivers must bear.
fn drawn(random: &mut Random) -> Vec<Settings> {
    let mut free: Vec<u8> = (1..=15).flat_map(|number| [number, IN | number]).collect();
    if random.one_in(2) {
        for place in (1..free.len()).rev() {
            free.swap(place, random.below(place + 1));
        }
    }
    let mut free = free.into_iter();
    let count = random.pick(&[1, 1, 2, 3, 4]);
    let mut interfaces = Vec::new();
    for _ in 0..count {
        let endpoints: Endpoints = free
            .by_ref()
            .take(1 + random.below(7))
            .map(|address| (random.pick(&[Bulk, Bulk, Interrupt, Interrupt, Iso]), address))
            .collect();
        // Isochronous endpoints may not be in the first setting.
        let first = endpoints.iter().copied().filter(|(transfer, _)| *transfer != Iso).collect();
        let first = if random.one_in(4) { Vec::new() } else { first };
        let settings = if random.one_in(3) { vec![first] } else { vec![first, endpoints] };
        interfaces.push(settings);
    }
    interfaces
}
