//! Module aliases of USB drivers: `usb:v046DpC52Bd*dc*dsc*dp*ic03isc01ip02in*`.

/// What an alias asks of a device and of one of its interfaces. A field is absent where the alias leaves it open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alias {
    /// The vendor's number (`v`).
    pub vendor: Option<u16>,
    /// The product's number (`p`).
    pub product: Option<u16>,
    /// The device's version as binary-coded decimals (`d`): the smallest that matches.
    pub version: Option<u16>,
    /// The device's class (`dc`).
    pub device_class: Option<u8>,
    /// The device's subclass (`dsc`).
    pub device_subclass: Option<u8>,
    /// The device's protocol (`dp`).
    pub device_protocol: Option<u8>,
    /// The interface's class (`ic`).
    pub class: Option<u8>,
    /// The interface's subclass (`isc`).
    pub subclass: Option<u8>,
    /// The interface's protocol (`ip`).
    pub protocol: Option<u8>,
    /// The interface's number (`in`).
    pub interface: Option<u8>,
}

/// The longest alias that is read, in bytes; those of Linux have at most 90.
const LONGEST: usize = 256;

impl Alias {
    /// Reads an alias; `None` where it does not have this form.
    pub fn parse(text: &str) -> Option<Alias> {
        let rest = text.strip_prefix("usb:").filter(|_| text.len() <= LONGEST)?;
        let mut rest = Rest(rest);
        let alias = Alias {
            vendor: rest.field("v", 4)?,
            product: rest.field("p", 4)?,
            version: rest.field("d", 4)?,
            device_class: rest.byte("dc")?,
            device_subclass: rest.byte("dsc")?,
            device_protocol: rest.byte("dp")?,
            class: rest.byte("ic")?,
            subclass: rest.byte("isc")?,
            protocol: rest.byte("ip")?,
            interface: rest.byte("in")?,
        };
        rest.0.is_empty().then_some(alias)
    }
}

/// What is not read yet.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    fn byte(&mut self, key: &str) -> Option<Option<u8>> {
        let value = self.field(key, 2)?;
        Some(value.and_then(|value| u8::try_from(value).ok()))
    }

    /// The value of the next field, `Some(None)` where it is open, and `None` where the field is not there or malformed.
    fn field(&mut self, key: &str, width: usize) -> Option<Option<u16>> {
        let rest = self.0.strip_prefix(key)?;
        let end = rest.find(|c: char| c.is_ascii_lowercase()).unwrap_or(rest.len());
        let (pattern, rest) = rest.split_at(end);
        self.0 = rest;
        // The last field of an alias ends in a star for what later kernels may add.
        let pattern = if key == "in" { pattern.strip_suffix('*').unwrap_or(pattern) } else { pattern };
        if pattern.is_empty() || pattern == "*" {
            return (key == "in" || !pattern.is_empty()).then_some(None);
        }
        smallest(pattern, width).map(Some)
    }
}

/// The smallest number of `width` hexadecimal digits that matches digits, sets like `[0-9A-C]`, `?` and a last `*`.
fn smallest(pattern: &str, width: usize) -> Option<u16> {
    let mut digits = String::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        match first {
            '[' => {
                let (set, after) = rest[1..].split_once(']')?;
                digits.push(set.chars().filter(char::is_ascii_hexdigit).min()?);
                rest = after;
            }
            '*' if rest.len() == 1 => {
                while digits.len() < width {
                    digits.push('0');
                }
                rest = "";
            }
            '?' => {
                digits.push('0');
                rest = &rest[1..];
            }
            digit if digit.is_ascii_hexdigit() => {
                digits.push(digit);
                rest = &rest[1..];
            }
            _ => return None,
        }
    }
    (digits.len() == width).then(|| u16::from_str_radix(&digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::Alias;

    #[test]
    fn an_alias_gives_its_fields() {
        let alias = Alias::parse("usb:v046DpC52Bd*dc*dsc*dp*ic03isc01ip02in*").unwrap();
        let expected = Alias {
            vendor: Some(0x046d),
            product: Some(0xc52b),
            class: Some(3),
            subclass: Some(1),
            protocol: Some(2),
            ..Alias::default()
        };
        assert_eq!(alias, expected);
        let alias = Alias::parse("usb:v0F3Dp68AAd*dc*dsc*dp*ic*isc*ip*in0B*").unwrap();
        assert_eq!((alias.interface, alias.class), (Some(0x0b), None));
        let alias = Alias::parse("usb:v*p*d*dc*dsc*dp*icFEisc03ip01in*").unwrap();
        assert_eq!((alias.vendor, alias.class), (None, Some(0xfe)));
        let alias = Alias::parse("usb:v0572pCB01d*dcFFdsc00dp00ic*isc*ip*in*").unwrap();
        assert_eq!((alias.device_class, alias.device_subclass), (Some(0xff), Some(0)));
    }

    #[test]
    fn a_range_of_versions_gives_its_smallest() {
        let version =
            |text: &str| Alias::parse(&format!("usb:v0001p0002{text}dc*dsc*dp*ic*isc*ip*in*"))?.version;
        assert_eq!(version("d0102"), Some(0x0102));
        assert_eq!(version("d01[0-9]*"), Some(0x0100));
        assert_eq!(version("d000[1-3]"), Some(0x0001));
        assert_eq!(version("d015*"), Some(0x0150));
        assert_eq!(version("d[4-9]*"), Some(0x4000));
        assert_eq!(version("d*"), None);
    }

    #[test]
    fn other_text_is_no_alias() {
        let long = format!("usb:v{}", "0".repeat(300));
        let wrong = [
            "",
            "usb:",
            "pci:v00008086d*sv*sd*bc*sc*i*",
            "usb:v046DpC52B",
            "usb:v046DpC52Bd*dc*dsc*dp*ic*isc*ip*in*x",
            "usb:v46DpC52Bd*dc*dsc*dp*ic*isc*ip*in*",
            "usb:v046DpC52Bd[0dc*dsc*dp*ic*isc*ip*in*",
            "usb:v046DpC52Bd[]123dc*dsc*dp*ic*isc*ip*in*",
            "usb:vpC52Bd*dc*dsc*dp*ic*isc*ip*in*",
            "usb:v046DpC52Bd*dc*dsc*dp*icé3isc*ip*in*",
            &long,
        ];
        for text in wrong {
            assert_eq!(Alias::parse(text), None, "{text}");
        }
    }
}
