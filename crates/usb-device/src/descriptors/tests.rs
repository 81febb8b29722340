use super::{Descriptors, Transfer};
use crate::plan::Speed;

const ALIASES: [&str; 12] = [
    "usb:v067Bp2303d*dc*dsc*dp*ic*isc*ip*in*",
    "usb:v*p*d*dc*dsc*dp*ic03isc01ip02in*",
    "usb:v*p*d*dc*dsc*dp*ic02isc02ip01in*",
    "usb:v*p*d*dc*dsc*dp*ic02isc0Dip00in*",
    "usb:v*p*d*dc*dsc*dp*ic02isc0Eip00in*",
    "usb:v*p*d*dc*dsc*dp*ic02isc0Aip00in*",
    "usb:v*p*d*dc*dsc*dp*ic01isc01ip*in*",
    "usb:v*p*d*dc*dsc*dp*ic01isc03ip*in*",
    "usb:v*p*d*dc*dsc*dp*ic08isc06ip62in*",
    "usb:v*p*d*dc*dsc*dp*ic0Eisc01ip00in*",
    "usb:v0F3Dp68AAd*dc*dsc*dp*ic*isc*ip*in0B*",
    "usb:v*p*d*dcE0dsc01dp01ic*isc*ip*in*",
];

/// Reads a configuration as a host does; gives each setting's interface, number, class and count of endpoints.
fn read(bytes: &[u8]) -> Vec<(u8, u8, u8, usize)> {
    assert_eq!(usize::from(u16::from_le_bytes([bytes[2], bytes[3]])), bytes.len());
    let mut settings: Vec<(u8, u8, u8, usize, usize)> = Vec::new();
    let mut rest = &bytes[9..];
    if rest.get(1) == Some(&11) {
        // The interfaces that belong together follow each other.
        let numbers: std::collections::BTreeSet<u8> =
            rest[8..].windows(3).filter(|w| w[..2] == [9, 4]).map(|w| w[2]).collect();
        let said: std::collections::BTreeSet<u8> = (rest[2]..=rest[2] + rest[3] - 1).collect();
        assert!(said.is_subset(&numbers), "{said:?} {numbers:?}");
    }
    while !rest.is_empty() {
        let length = usize::from(rest[0]);
        assert!(
            length >= 2 && length <= rest.len(),
            "a descriptor of {length} bytes where {} are left",
            rest.len()
        );
        match rest[1] {
            4 => settings.push((rest[2], rest[3], rest[5], usize::from(rest[4]), 0)),
            5 => settings.last_mut().unwrap().4 += 1,
            _ => {}
        }
        rest = &rest[length..];
    }
    settings
        .into_iter()
        .map(|(interface, setting, class, said, are)| {
            assert_eq!(said, are);
            (interface, setting, class, are)
        })
        .collect()
}

#[test]
fn descriptors_match_their_alias() {
    let descriptors = Descriptors::from_alias(ALIASES[0], 0).unwrap();
    let device = descriptors.get(0x0100, 0).unwrap();
    assert_eq!(device.len(), 18);
    assert_eq!(device[8..12], [0x7b, 0x06, 0x03, 0x23]);
    let settings = read(&descriptors.get(0x0200, 0).unwrap());
    // Four interfaces of the vendor's class, each with eight settings.
    assert_eq!(settings.len(), 32);
    assert!(settings.iter().all(|(_, _, class, _)| *class == 0xff));
    assert_eq!(settings[..2], [(0, 0, 0xff, 4), (0, 1, 0xff, 6)]);
    let numbered = Descriptors::from_alias(ALIASES[10], 0).unwrap();
    assert!(read(&numbered.get(0x0200, 0).unwrap()).iter().any(|(number, ..)| *number == 0x0b));
}

#[test]
fn each_plan_gives_descriptors_that_a_host_can_read() {
    for alias in ALIASES {
        for plan in 0..300 {
            let descriptors = Descriptors::from_alias(alias, plan).unwrap();
            let configuration = descriptors.get(0x0200, 0).unwrap();
            // The host's controller in QEMU takes no more from endpoint 0 at once.
            assert!(configuration.len() <= 4096, "{} bytes", configuration.len());
            let settings = read(&configuration);
            assert!(!settings.is_empty());
            let class = crate::alias::Alias::parse(alias).unwrap().class;
            assert!(
                class.is_none_or(|class| settings.iter().any(|(_, _, of, _)| *of == class)),
                "{alias} {plan}"
            );
            for interface in &descriptors.interfaces {
                for setting in &interface.settings {
                    let mut addresses: Vec<u8> = setting.endpoints.iter().map(|one| one.address).collect();
                    addresses.sort_unstable();
                    addresses.dedup();
                    assert_eq!(addresses.len(), setting.endpoints.len(), "{alias} {plan}");
                    assert!(addresses.iter().all(|address| address & 0x70 == 0 && address & 0x0f != 0));
                }
            }
        }
    }
}

#[test]
fn no_endpoint_is_in_two_interfaces() {
    for alias in ALIASES {
        for plan in 0..300 {
            let descriptors = Descriptors::from_alias(alias, plan).unwrap();
            let mut owners = [None; 256];
            for interface in &descriptors.interfaces {
                for one in interface.settings.iter().flat_map(|setting| &setting.endpoints) {
                    let owner = owners[usize::from(one.address)].get_or_insert(interface.number);
                    assert_eq!(*owner, interface.number, "{alias} {plan} {:#x}", one.address);
                }
            }
        }
    }
}

#[test]
fn packets_fit_the_speed() {
    for plan in 0..300 {
        let descriptors = Descriptors::from_alias(ALIASES[0], plan).unwrap();
        let endpoints = descriptors
            .interfaces
            .iter()
            .flat_map(|one| &one.settings)
            .flat_map(|setting| &setting.endpoints);
        for one in endpoints {
            let fits = match (one.transfer, descriptors.speed) {
                (Transfer::Bulk, Speed::High) => one.packet == 512,
                (Transfer::Bulk, Speed::Full) => [8, 16, 32, 64].contains(&one.packet),
                (Transfer::Interrupt, _) => one.packet <= 64,
                (Transfer::Iso, Speed::Full) => one.packet <= 1023,
                (Transfer::Iso, Speed::High) => one.packet & 0x7ff <= 1024,
            };
            assert!(fits, "plan {plan}: {one:?}");
        }
    }
}

#[test]
fn strings_and_missing_descriptors() {
    let descriptors = Descriptors::from_alias(ALIASES[1], 0).unwrap();
    assert_eq!(descriptors.get(0x0300, 0), Some(vec![4, 3, 9, 4]));
    for index in 1..=0xff_u16 {
        let string = descriptors.get(0x0300 | index, 0).unwrap();
        assert_eq!(usize::from(string[0]), string.len());
    }
    assert_eq!(descriptors.get(0x0201, 0), None);
    assert_eq!(descriptors.get(0x2900, 0), None);
    let report = descriptors.get(0x2200, 1).unwrap();
    let hid = descriptors.get(0x2100, 1).unwrap();
    assert_eq!(usize::from(u16::from_le_bytes([hid[7], hid[8]])), report.len());
}
