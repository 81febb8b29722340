//! Addresses of PCI devices.

use std::fmt;
use std::str::FromStr;

/// Address of a PCI device: `domain:bus:device.function`. The guests' machines have one domain, 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PciAddress {
    /// Number of the device's bus.
    pub bus: u8,
    /// Device number in the upper five bits, function in the lower three, as `pci_dev::devfn` has them.
    pub devfn: u8,
}

impl PciAddress {
    /// Number of the device on its bus, 0 to 31.
    pub fn device(self) -> u8 {
        self.devfn >> 3
    }

    /// Number of the function in its device, 0 to 7.
    pub fn function(self) -> u8 {
        self.devfn & 7
    }

    /// Bus, device and function in the low 16 bits, like a PCI requester ID.
    pub fn id(self) -> u16 {
        u16::from_be_bytes([self.bus, self.devfn])
    }

    /// The address with this [`id`](Self::id).
    pub fn from_id(id: u16) -> PciAddress {
        let [bus, devfn] = id.to_be_bytes();
        PciAddress { bus, devfn }
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0000:{:02x}:{:02x}.{}", self.bus, self.device(), self.function())
    }
}

/// The error for a text that is not `domain:bus:device.function` with domain 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not the address of a PCI device; write it as 0000:00:04.0")]
pub struct BadPciAddress(String);

impl FromStr for PciAddress {
    type Err = BadPciAddress;

    fn from_str(text: &str) -> Result<PciAddress, BadPciAddress> {
        let parse = || {
            let (bus, rest) = text.strip_prefix("0000:").unwrap_or(text).split_once(':')?;
            let (device, function) = rest.split_once('.')?;
            let hex = |digits: &str| {
                let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                plain.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
            };
            let (bus, device, function) = (hex(bus)?, hex(device)?, hex(function)?);
            (device < 32 && function < 8).then_some(PciAddress { bus, devfn: device << 3 | function })
        };
        parse().ok_or_else(|| BadPciAddress(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        let address = PciAddress { bus: 0x1f, devfn: 0x23 };
        assert_eq!(address.to_string(), "0000:1f:04.3");
        assert_eq!("0000:1f:04.3".parse(), Ok(address));
        assert_eq!("1f:04.3".parse(), Ok(address));
        assert_eq!(PciAddress::from_id(address.id()), address);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "0000:", "00:04", "00:20.0", "00:04.8", "0001:00:04.0", "+0:04.0", "100:00.0"] {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }
}
