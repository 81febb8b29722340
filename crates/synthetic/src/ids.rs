//! The IDs by which a driver binds, from the aliases of its module.

use guardrail_usb_device::Descriptors;
use serde::{Deserialize, Serialize};

/// What a PCI device says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciIds {
    /// The vendor.
    pub vendor: u16,
    /// The device.
    pub device: u16,
    /// The vendor of the board.
    pub subvendor: u16,
    /// The board.
    pub subdevice: u16,
    /// Base class, subclass and programming interface, in the upper three of 24 bits.
    pub class: u32,
}

/// Where an alias leaves the vendor open, nobody's: a reserved ID that no driver names.
const ANY_VENDOR: u16 = 0x1dff;

impl PciIds {
    /// Reads an alias such as `pci:v00008086d0000100Esv*sd*bc*sc*i*` (Linux `scripts/mod/file2alias.c`,
    /// `do_pci_entry`). What it leaves open is chosen here. `None` for an alias of another bus, or a malformed one.
    pub fn from_alias(alias: &str) -> Option<PciIds> {
        let mut rest = alias.strip_prefix("pci:v")?;
        let mut field = |next: &str| -> Option<Option<u32>> {
            let (text, after) = if next.is_empty() { (rest, "") } else { rest.split_once(next)? };
            rest = after;
            match text {
                "*" => Some(None),
                digits => u32::from_str_radix(digits, 16).ok().map(Some),
            }
        };
        let (vendor, device) = (field("d")?, field("sv")?);
        let (subvendor, subdevice) = (field("sd")?, field("bc")?);
        let (base, sub, interface) = (field("sc")?, field("i")?, field("")?);
        let id = |value: Option<u32>, open: u16| u16::try_from(value.unwrap_or(open.into())).ok();
        let byte = |value: Option<u32>, open: u8| u8::try_from(value.unwrap_or(open.into())).ok();
        let vendor = id(vendor, ANY_VENDOR)?;
        // A class that is open is "unassigned": other drivers that bind by class leave the device alone.
        let class = [0, byte(base, 0xff)?, byte(sub, 0)?, byte(interface, 0)?];
        Some(PciIds {
            vendor,
            device: id(device, 1)?,
            subvendor: id(subvendor, vendor)?,
            subdevice: id(subdevice, 1)?,
            class: u32::from_be_bytes(class),
        })
    }
}

/// What a driver binds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ids {
    /// A PCI device.
    Pci(PciIds),
    /// A USB device, by the alias that it shall match.
    Usb(String),
}

impl Ids {
    /// The device of the first alias that names one; PCI comes first.
    pub fn first(aliases: &[String]) -> Option<Ids> {
        let pci = aliases.iter().find_map(|alias| PciIds::from_alias(alias)).map(Ids::Pci);
        pci.or_else(|| {
            aliases.iter().find(|alias| Descriptors::from_alias(alias, 0).is_some()).cloned().map(Ids::Usb)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_say_what_they_say_and_leave_the_rest_open() {
        let ids = PciIds::from_alias("pci:v00008086d0000100Esv00001028sd00000002bc02sc00i00").unwrap();
        assert_eq!((ids.vendor, ids.device, ids.subvendor, ids.subdevice), (0x8086, 0x100e, 0x1028, 2));
        assert_eq!(ids.class, 0x02_0000);
        let ids = PciIds::from_alias("pci:v*d*sv*sd*bc0Csc03i30*").map(|ids| ids.class);
        assert_eq!(ids, None, "a field is a number or a star");
        let ids = PciIds::from_alias("pci:v*d*sv*sd*bc0Csc03i30").unwrap();
        assert_eq!((ids.vendor, ids.class), (ANY_VENDOR, 0x0c_0330));
        let ids = PciIds::from_alias("pci:v000010ECd00008139sv*sd*bc*sc*i*").unwrap();
        assert_eq!((ids.subvendor, ids.class), (0x10ec, 0xff_0000));
        for bad in [
            "usb:v1d1",
            "pci:",
            "pci:v",
            "pci:v00018086d*sv*sd*bc*sc*i*",
            "pci:v8086d1sv*sd*bc1FFsc*i*",
            "pci:vxd*sv*sd*bc*sc*i*",
        ] {
            assert_eq!(PciIds::from_alias(bad), None, "{bad}");
        }
    }
}
