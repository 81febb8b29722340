//! Which QEMU device a driver binds, and what exercises it.

use crate::error::{Context, Error, Result, suggest};
use crate::kernel::modules::normalized;
use crate::qemu::Qemu;
use serde::Serialize;
use std::fs;
use std::io::Read;
use std::path::Path;

const TEXT: &str = include_str!("../../../../knowledge/catalog.txt");

/// The kind of device that a driver drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// A network interface.
    Network,
    /// A disk controller, or a driver of a disk.
    Storage,
    /// USB: a host controller with a disk behind it, or a driver of such a disk.
    Usb,
    /// A sound card.
    Sound,
    /// A watchdog timer.
    Watchdog,
    /// A controller of a CAN bus.
    Can,
    /// An I2C or SMBus controller.
    I2c,
    /// A baseboard management controller.
    Ipmi,
    /// A keyboard or the like.
    Input,
    /// A serial port.
    Serial,
    /// A virtio device that belongs to no other class.
    Virtio,
    /// A screen.
    Display,
    /// No class that a workload exercises.
    None,
}

impl Class {
    /// All classes by the names that the catalog uses.
    pub const NAMED: [(&'static str, Class); 13] = [
        ("network", Class::Network),
        ("storage", Class::Storage),
        ("usb", Class::Usb),
        ("sound", Class::Sound),
        ("watchdog", Class::Watchdog),
        ("can", Class::Can),
        ("i2c", Class::I2c),
        ("ipmi", Class::Ipmi),
        ("input", Class::Input),
        ("serial", Class::Serial),
        ("virtio", Class::Virtio),
        ("display", Class::Display),
        ("none", Class::None),
    ];

    /// The class with this name.
    pub fn named(name: &str) -> Option<Class> {
        Class::NAMED.into_iter().find(|(known, _)| *known == name).map(|(_, class)| class)
    }

    /// The name that the catalog uses for the class.
    pub fn name(self) -> &'static str {
        Class::NAMED.into_iter().find(|(_, class)| *class == self).map_or("none", |(name, _)| name)
    }

    /// True where a disk is behind the device.
    pub fn has_disk(self) -> bool {
        matches!(self, Class::Storage | Class::Usb)
    }
}

/// A driver that the catalog lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The module's name, or the beginning of a device alias (`pci:…`).
    pub name: String,
    /// The kind of device that it drives.
    pub class: Class,
    /// Modules to load besides its dependencies.
    pub also: Vec<String>,
    /// The devices that it binds, the default first.
    pub devices: Vec<Device>,
    /// Kernels with which it does not work, and why.
    pub not: Option<Exception>,
}

/// The kernels with which a driver of the catalog does not work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Exception {
    /// The kernels' short names; empty for all.
    pub kernels: Vec<String>,
    /// The reason, as text for the user.
    pub why: String,
}

impl Entry {
    /// Why the driver does not work with a kernel (`6.1`, `7.2`, …), if so.
    pub fn not_with(&self, kernel: &str) -> Option<&str> {
        let not = self.not.as_ref()?;
        let concerns = not.kernels.is_empty() || not.kernels.iter().any(|name| name == kernel);
        concerns.then_some(not.why.as_str())
    }
}

/// A device in the spelling of QEMU's command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Its model name, such as `e1000-82544gc`.
    pub name: String,
    /// The values of the `-device` options that make it.
    pub options: Vec<String>,
    /// Other arguments that QEMU needs for it; they precede `options`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
}

/// The name by which a user asks for a synthetic device: one that no QEMU models, with the driver's own IDs.
pub const SYNTHETIC: &str = "synthetic";

/// What a run adds to the guest for a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceChoice {
    /// The class, which decides the back end (network, disk) and the default workload.
    pub class: Class,
    /// Modules to load besides the driver's dependencies.
    pub also: Vec<String>,
    /// The device, if any.
    pub device: Option<Device>,
}

impl DeviceChoice {
    /// True where the device is a synthetic one, which the caller has to make.
    pub fn is_synthetic(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.name == SYNTHETIC)
    }
}

/// The most bytes of a user's catalog.
const MAX_FILE: u64 = 1 << 20;

/// Drivers, with the devices that they bind.
#[derive(Clone, Debug)]
pub struct Catalog {
    entries: Vec<Entry>,
}

impl Catalog {
    /// The drivers of a file, if there is one, before those that are known anyway. The file's first row for a driver counts.
    pub fn with(file: Option<&Path>) -> Result<Catalog> {
        let own = file.map(|file| read(file).and_then(|text| parse(file, &text))).transpose()?;
        Ok(Catalog { entries: own.into_iter().flatten().chain(entries()).collect() })
    }

    /// The row for a driver with this name or one of these device aliases.
    pub fn entry(&self, driver: &str, aliases: &[String]) -> Option<&Entry> {
        self.entries.iter().find(|entry| {
            entry.name == driver
                || entry.name.contains(':') && aliases.iter().any(|alias| alias.starts_with(&entry.name))
        })
    }

    /// The first row with a device of this model.
    fn entry_with(&self, model: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.devices.iter().any(|device| device.name == model))
    }
}

/// All drivers that are known without a file of the user's.
pub fn entries() -> Vec<Entry> {
    TEXT.lines().filter_map(|line| parse_line(line).ok().flatten()).collect()
}

fn read(file: &Path) -> Result<String> {
    let opened = fs::File::open(file).context("open", file)?;
    let mut text = String::new();
    opened.take(MAX_FILE + 1).read_to_string(&mut text).context("read", file)?;
    match text.len() as u64 > MAX_FILE {
        true => Err(Error::BadValue(format!("{}: a catalog has at most {MAX_FILE} bytes", file.display()))),
        false => Ok(text),
    }
}

fn parse(file: &Path, text: &str) -> Result<Vec<Entry>> {
    let mut rows = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let row = parse_line(line)
            .map_err(|why| Error::BadValue(format!("{}, line {}: {why}", file.display(), number + 1)))?;
        rows.extend(row);
    }
    Ok(rows)
}

/// The row of a line; `None` where it has none.
fn parse_line(line: &str) -> Result<Option<Entry>, String> {
    let line = line.split('#').next().unwrap_or_default().trim();
    if line.is_empty() {
        return Ok(None);
    }
    let fields: Vec<&str> = line.split('|').map(str::trim).collect();
    let (&[name, class, also, devices], rest) = fields.split_first_chunk::<4>().map_or_else(
        || Err(format!("a row is 'driver | class | also | device', and this one has {} parts", fields.len())),
        Ok,
    )?;
    let class = Class::named(class).ok_or_else(|| {
        let known: Vec<&str> = Class::NAMED.iter().map(|(name, _)| *name).collect();
        format!("'{}' is no class; the classes are {}", class.escape_debug(), known.join(", "))
    })?;
    let not = match rest {
        [] => None,
        [text] => Some(parse_exception(text).ok_or("the fifth part is 'KERNEL …: WHY', or 'all: WHY'")?),
        _ => return Err("a row has five parts at most".to_owned()),
    };
    let devices: Vec<Device> = devices.split(" ; ").map(parse_device).collect();
    if name.is_empty() || devices.iter().any(|device| device.name.is_empty()) {
        return Err("a row names a driver, and at least one device".to_owned());
    }
    let also = also.split_whitespace().filter(|word| *word != "-").map(str::to_owned).collect();
    let name = if name.contains(':') { name.to_owned() } else { normalized(name) };
    Ok(Some(Entry { name, class, also, devices, not }))
}

fn parse_device(text: &str) -> Device {
    let mut device = Device { name: String::new(), options: Vec::new(), arguments: Vec::new() };
    for part in text.split(" + ").map(str::trim) {
        let name = if part.starts_with('-') {
            device.arguments.extend(part.split_whitespace().map(str::to_owned));
            continue;
        } else if let Some(built_in) = part.strip_prefix('(') {
            built_in.trim_end_matches(')')
        } else {
            device.options.push(part.to_owned());
            part.split(',').next().unwrap_or_default()
        };
        // A back end that must precede the device is not what the driver serves.
        if device.name.is_empty() && !name.starts_with("ipmi-bmc") {
            device.name = name.to_owned();
        }
    }
    device
}

fn parse_exception(text: &str) -> Option<Exception> {
    let (kernels, why) = text.split_once(':')?;
    let kernels = kernels.split_whitespace().filter(|word| *word != "all").map(str::to_owned).collect();
    Some(Exception { kernels, why: why.trim().to_owned() })
}

/// Decides device and class for a driver; `device` is the user's request.
///
/// A device that the catalog does not list is used as it is, provided that QEMU models it.
pub fn choose(
    catalog: &Catalog,
    driver: &str,
    aliases: &[String],
    device: Option<&str>,
    qemu: &Qemu,
) -> Result<DeviceChoice> {
    let known = catalog.entry(driver, aliases).cloned();
    let Some(wanted) = device else {
        return Ok(match known {
            Some(entry) => DeviceChoice {
                class: entry.class,
                also: entry.also,
                device: entry.devices.into_iter().next(),
            },
            None => DeviceChoice { class: Class::None, also: Vec::new(), device: None },
        });
    };
    if wanted == SYNTHETIC {
        return synthetic(driver, aliases);
    }
    // A driver that the catalog does not know is exercised as the one that it has for the device.
    let model = wanted.split([',', ' ']).next().unwrap_or_default();
    let listed = catalog.entry_with(model).cloned();
    let known = known.as_ref().or(listed.as_ref());
    let (class, also) = known.map_or((Class::None, Vec::new()), |entry| (entry.class, entry.also.clone()));
    let named = |device: &Device| device.name == wanted;
    if let Some(found) = listed.and_then(|entry| entry.devices.into_iter().find(named)) {
        return Ok(DeviceChoice { class, also, device: Some(found) });
    }
    // Several parts are spelled as in the catalog, and complete: nothing is added to them.
    let parts = wanted.contains(" + ").then(|| parse_device(wanted));
    let name = match &parts {
        Some(device) => device.name.as_str(),
        None => wanted.split(',').next().unwrap_or_default(),
    };
    let models = qemu.devices()?;
    if !models.iter().any(|model| model == name) {
        let ours = catalog.entries.iter().flat_map(|entry| &entry.devices).map(|device| &device.name);
        let all = ours.chain(&models).map(String::as_str);
        return Err(Error::Unknown { what: "device", name: name.to_owned(), near: suggest(name, all) });
    }
    if let Some(device) = parts {
        return Ok(DeviceChoice { class, also, device: Some(device) });
    }
    let mut option = wanted.to_owned();
    if class == Class::Network && !wanted.contains("netdev=") {
        option += ",netdev=net0";
    }
    if class.has_disk() && !wanted.contains("drive=") {
        option += ",drive=disk";
    }
    Ok(DeviceChoice {
        class,
        also,
        device: Some(Device { name: name.to_owned(), options: vec![option], arguments: Vec::new() }),
    })
}

/// A synthetic device, whose IDs are those of an alias.
fn synthetic(driver: &str, aliases: &[String]) -> Result<DeviceChoice> {
    let binds = |bus: &str| aliases.iter().any(|alias| alias.starts_with(bus));
    let also = match () {
        () if binds("pci:") => Vec::new(),
        () if binds("usb:") => vec!["xhci_pci?".to_owned()],
        () => {
            return Err(Error::BadValue(format!(
                "a synthetic device has the IDs of a driver's PCI or USB aliases, and {driver} has none; name another \
                 device with --device, or leave it out"
            )));
        }
    };
    let device = Device { name: SYNTHETIC.to_owned(), options: Vec::new(), arguments: Vec::new() };
    Ok(DeviceChoice { class: Class::None, also, device: Some(device) })
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
                Class::Storage | Class::Usb => "drive=disk",
                Class::Sound => "audiodev=audio",
                Class::Can => "=bus",
                _ => continue,
            };
            for device in &entry.devices {
                assert!(device.options.last().unwrap().contains(back_end), "{device:?}");
            }
        }
    }

    #[test]
    fn parts_of_a_device_that_are_no_devices_go_elsewhere() {
        let device = parse_device("-machine q35 + (ICH9-SMB)");
        assert_eq!((device.name.as_str(), device.arguments.len()), ("ICH9-SMB", 2));
        assert!(device.options.is_empty());
        let device = parse_device("ipmi-bmc-sim,id=bmc + pci-ipmi-kcs,bmc=bmc");
        assert_eq!((device.name.as_str(), device.options.len()), ("pci-ipmi-kcs", 2));
    }

    #[test]
    fn exceptions_name_kernels_and_a_reason() {
        let row = |line: &str| parse_line(line).unwrap().unwrap();
        let entry = row("x | can | - | y,canbus=bus | 6.12 7.2: it is part of the image");
        assert_eq!(entry.not_with("7.2"), Some("it is part of the image"));
        assert_eq!(entry.not_with("6.1"), None);
        let entry = row("x | can | a b? | y,canbus=bus | all: the device is refused");
        assert_eq!(entry.not_with("6.1"), Some("the device is refused"));
    }

    #[test]
    fn drivers_are_found_by_name_and_by_alias() {
        let catalog = Catalog::with(None).unwrap();
        let entry_of = |name: &str| catalog.entry(name, &[]);
        assert_eq!(entry_of("8139cp").unwrap().devices[0].name, "rtl8139");
        assert_eq!(entry_of("sym53c8xx").unwrap().devices[0].options.len(), 2);
        assert_eq!(entry_of("zoo_x"), None);
        let aliases = ["pci:v00001234d000011E8sv*sd*bc*sc*i*".to_owned()];
        assert_eq!(catalog.entry("zoo_x", &aliases).unwrap().devices[0].name, "edu");
        assert_eq!(catalog.entry_with("lsi53c810").unwrap().class, Class::Storage);
        let like = |model: &str| catalog.entry_with(model).map(|entry| (entry.class, entry.also.clone()));
        assert_eq!(like("ahci"), Some((Class::Storage, vec!["sd_mod".to_owned()])));
        assert_eq!(like("edu").map(|(class, _)| class), Some(Class::None));
        assert_eq!(like("no-such-model"), None);
    }

    #[test]
    fn rows_of_the_users_come_first() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let with = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            Catalog::with(Some(file.path())).map_err(|error| error.to_string())
        };
        let text =
            "# mine\n\ne1000 | network | - | e1000e,netdev=net0\nmy-card | none | crc32c? | edu # new\n";
        let own = with(text).unwrap();
        assert_eq!(own.entry("e1000", &[]).unwrap().devices[0].name, "e1000e");
        assert_eq!(own.entry("my_card", &[]).unwrap().also, ["crc32c?"]);
        assert_eq!(own.entry("8139cp", &[]).unwrap().devices[0].name, "rtl8139");
        let usb = with("usb:v0BDAp8152 | network | - | usb-net,netdev=net0\n").unwrap();
        let alias = "usb:v0BDAp8152d*dc*dsc*dp*icFFisc*ip*in*".to_owned();
        assert_eq!(usb.entry("r8152", &[alias]).unwrap().devices[0].name, "usb-net");
        for (row, why) in [
            ("x | can | -", "a row is 'driver | class | also | device', and this one has 3 parts"),
            ("x | cam | - | y", "'cam' is no class; the classes are network, "),
            ("x | can | - | ", "a row names a driver, and at least one device"),
            (" | can | - | y", "a row names a driver, and at least one device"),
            ("x | can | - | y | 6.1", "the fifth part is "),
            ("x | can | - | y | 6.1: a | b", "a row has five parts at most"),
        ] {
            let error = with(&format!("\n{row}\n")).unwrap_err();
            let place = format!("{}, line 2: {why}", file.path().display());
            assert!(error.starts_with(&place), "{error}");
        }
        let long = "#".repeat(MAX_FILE as usize + 1);
        assert!(with(&long).unwrap_err().ends_with("a catalog has at most 1048576 bytes"));
        assert!(Catalog::with(Some(Path::new("/no/catalog"))).is_err());
    }
}
