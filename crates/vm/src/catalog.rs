//! Which QEMU device a driver binds, and what exercises it.

use crate::error::{Error, Result, suggest};
use crate::qemu::Qemu;
use serde::Serialize;

const TEXT: &str = include_str!("../data/catalog.txt");

/// What a driver drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// A network interface.
    Network,
    /// A disk controller.
    Storage,
    /// Nothing that a workload knows.
    None,
}

/// A driver that the catalog knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The module's name, or the beginning of a device alias (`pci:…`).
    pub name: String,
    /// Its class.
    pub class: Class,
    /// Modules to load besides its dependencies.
    pub also: Vec<String>,
    /// The devices that it binds, the default first.
    pub devices: Vec<Device>,
}

/// A device as QEMU's command line spells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Its model name, such as `e1000-82544gc`.
    pub name: String,
    /// The values of the `-device` options that make it.
    pub options: Vec<String>,
}

/// What a run puts into the guest for a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The class, which decides the back end (network, disk) and the default workload.
    pub class: Class,
    /// Modules to load besides the driver's dependencies.
    pub also: Vec<String>,
    /// The device, if any.
    pub device: Option<Device>,
}

/// All drivers in the catalog.
pub fn entries() -> Vec<Entry> {
    TEXT.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Entry> {
    let line = line.split('#').next()?.trim();
    let mut fields = line.split('|').map(str::trim);
    let name = fields.next().filter(|name| !name.is_empty())?.to_owned();
    let class = match fields.next()? {
        "network" => Class::Network,
        "storage" => Class::Storage,
        _ => Class::None,
    };
    let also = fields.next()?.split_whitespace().filter(|word| *word != "-").map(str::to_owned).collect();
    let devices = fields.next()?.split(" ; ").map(parse_device).collect();
    Some(Entry { name, class, also, devices })
}

fn parse_device(text: &str) -> Device {
    let options: Vec<String> = text.split(" + ").map(|part| part.trim().to_owned()).collect();
    let name = options[0].split(',').next().unwrap_or_default().to_owned();
    Device { name, options }
}

/// The entry for a driver with this name or one of these device aliases.
pub fn entry(driver: &str, aliases: &[String]) -> Option<Entry> {
    entries().into_iter().find(|entry| {
        entry.name == driver
            || entry.name.starts_with("pci:") && aliases.iter().any(|alias| alias.starts_with(&entry.name))
    })
}

/// Decides device and class for a driver; `device` is what the user asked for.
///
/// A device that the catalog does not know is taken as it is, provided that QEMU models it.
pub fn choose(driver: &str, aliases: &[String], device: Option<&str>, qemu: &Qemu) -> Result<Choice> {
    let known = entry(driver, aliases);
    let Some(wanted) = device else {
        return Ok(match known {
            Some(entry) => {
                Choice { class: entry.class, also: entry.also, device: entry.devices.into_iter().next() }
            }
            None => Choice { class: Class::None, also: Vec::new(), device: None },
        });
    };
    let (class, also) = known.map_or((Class::None, Vec::new()), |entry| (entry.class, entry.also));
    if let Some((class_of_device, found)) = device_named(wanted) {
        let class = if class == Class::None { class_of_device } else { class };
        return Ok(Choice { class, also, device: Some(found) });
    }
    let name = wanted.split(',').next().unwrap_or_default();
    let models = qemu.devices()?;
    if !models.iter().any(|model| model == name) {
        let ours: Vec<String> =
            entries().into_iter().flat_map(|entry| entry.devices).map(|device| device.name).collect();
        let all = ours.iter().chain(&models).map(String::as_str);
        return Err(Error::Unknown { what: "device", name: name.to_owned(), near: suggest(name, all) });
    }
    let mut option = wanted.to_owned();
    if class == Class::Network && !wanted.contains("netdev=") {
        option += ",netdev=net0";
    }
    if class == Class::Storage && !wanted.contains("drive=") {
        option += ",drive=disk";
    }
    Ok(Choice { class, also, device: Some(Device { name: name.to_owned(), options: vec![option] }) })
}

/// The first device with this model name, and the class of the driver that it is listed under.
fn device_named(name: &str) -> Option<(Class, Device)> {
    entries().into_iter().find_map(|entry| {
        let class = entry.class;
        entry.devices.into_iter().find(|device| device.name == name).map(|device| (class, device))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_well_formed() {
        let lines = TEXT.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).count();
        let all = entries();
        assert_eq!(all.len(), lines);
        for entry in &all {
            assert!(entry.devices.iter().all(|device| !device.name.is_empty()), "{entry:?}");
            let back_end = match entry.class {
                Class::Network => "netdev=net0",
                Class::Storage => "drive=disk",
                Class::None => "",
            };
            for device in &entry.devices {
                assert!(device.options.last().unwrap().contains(back_end), "{device:?}");
            }
        }
    }

    #[test]
    fn drivers_are_found_by_name_and_by_alias() {
        let entry_of = |name: &str| entry(name, &[]);
        assert_eq!(entry_of("8139cp").unwrap().devices[0].name, "rtl8139");
        assert_eq!(entry_of("sym53c8xx").unwrap().devices[0].options.len(), 2);
        assert_eq!(entry_of("zoo_x"), None);
        let aliases = ["pci:v00001234d000011E8sv*sd*bc*sc*i*".to_owned()];
        assert_eq!(entry("zoo_x", &aliases).unwrap().devices[0].name, "edu");
        assert_eq!(device_named("lsi53c810").unwrap().0, Class::Storage);
    }
}
