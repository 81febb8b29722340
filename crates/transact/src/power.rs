//! Power-management code of drivers, found in their binaries: which functions quiesce a device and bring it back.
//!
//! A driver registers a structure with its bus, `struct pci_driver` for instance. Such a structure is a variable of the
//! structure's size whose required pointer leads to a function. Offsets and sizes come from BTF.

use guardrail_binfmt::module::{ModuleSymbol, SymbolKind};
use guardrail_binfmt::{Btf, ModuleImage};
use guardrail_learn::Calls;
use std::collections::BTreeMap;

const R_X86_64_64: u32 = 1;

/// How a driver finds its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bus {
    /// `struct pci_driver`.
    Pci,
    /// `struct usb_driver`.
    Usb,
    /// `struct pcmcia_driver`.
    Pcmcia,
    /// `struct virtio_driver`.
    Virtio,
    /// `struct serio_driver`: serial ports of keyboards and mice.
    Serio,
}

impl Bus {
    /// Its name as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Bus::Pci => "PCI",
            Bus::Usb => "USB",
            Bus::Pcmcia => "PCMCIA",
            Bus::Virtio => "virtio",
            Bus::Serio => "serio",
        }
    }
}

/// What a driver's power-management code is worth for a checkpoint of its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Power {
    /// It quiesces the device and brings it back.
    Fit {
        /// The member that quiesces, such as `freeze`.
        quiesces: String,
        /// The member that brings it back, such as `restore`.
        restores: String,
    },
    /// Its functions are those of a library.
    Library {
        /// The structure that has them, such as `usb_hcd_pci_pm_ops`.
        structure: String,
    },
    /// The bus resets the device, and the driver sets it up again.
    Resets {
        /// The member that does so, such as `reconnect`.
        restores: String,
    },
    /// Its code unregisters what programs use.
    Unregisters {
        /// The driver's function that does so.
        by: String,
        /// The function of the kernel that it calls.
        function: String,
    },
    /// It has one half of it only.
    Half {
        /// The member that it has.
        has: String,
    },
    /// It has none.
    None,
}

impl Power {
    /// Whether there is code that brings the device back, as Table 7 of the FGFT paper counts it.
    pub fn is_there(&self) -> bool {
        !matches!(self, Power::None | Power::Half { .. })
    }

    /// Whether a checkpoint can rely on it.
    pub fn is_fit(&self) -> bool {
        matches!(self, Power::Fit { .. } | Power::Library { .. } | Power::Resets { .. })
    }

    /// Why it is not fit; empty where it is.
    pub fn why(&self) -> String {
        match self {
            Power::Fit { .. } | Power::Library { .. } | Power::Resets { .. } => String::new(),
            Power::Unregisters { by, function } => format!("{by}() calls {function}()"),
            Power::Half { has } => format!("has {has}() alone"),
            Power::None => "no power management".to_owned(),
        }
    }
}

/// A driver of one bus in a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Its bus.
    pub bus: Bus,
    /// What its power management is worth.
    pub power: Power,
}

/// A structure that drivers register.
struct Kind {
    bus: Bus,
    structure: &'static str,
    /// Functions of the bus that register it.
    register: &'static [&'static str],
    /// The member without which it is no driver.
    required: &'static str,
    /// The member that points to `struct dev_pm_ops`.
    pm: Option<&'static str>,
    /// Members that quiesce and restore, of the structure itself; the first pair that is there counts.
    own: &'static [(&'static str, &'static str)],
}

const KINDS: [Kind; 5] = [
    Kind {
        bus: Bus::Pci,
        structure: "pci_driver",
        register: &["__pci_register_driver"],
        required: "probe",
        pm: Some("driver.pm"),
        own: &[("suspend", "resume")],
    },
    Kind {
        bus: Bus::Usb,
        structure: "usb_driver",
        register: &["usb_register_driver"],
        required: "probe",
        pm: None,
        own: &[("suspend", "reset_resume"), ("suspend", "resume")],
    },
    Kind {
        bus: Bus::Pcmcia,
        structure: "pcmcia_driver",
        register: &["pcmcia_register_driver"],
        required: "probe",
        pm: None,
        own: &[("suspend", "resume")],
    },
    Kind {
        bus: Bus::Virtio,
        structure: "virtio_driver",
        register: &["register_virtio_driver", "__register_virtio_driver"],
        required: "probe",
        pm: None,
        own: &[("freeze", "restore")],
    },
    Kind {
        bus: Bus::Serio,
        structure: "serio_driver",
        register: &["__serio_register_driver"],
        required: "connect",
        pm: None,
        own: &[("", "reconnect")],
    },
];

/// Members of `struct dev_pm_ops`. The first pair changes no power state by contract (Documentation/driver-api/pm/devices.rst).
const PM_OPS: [(&str, &str); 4] = [
    ("freeze", "restore"),
    ("suspend", "resume"),
    ("suspend_late", "resume_early"),
    ("suspend_noirq", "resume_noirq"),
];

/// Functions of the kernel that take from programs what they have open: a device that lost it is not the one before.
const UNREGISTERS: [&str; 12] = [
    "unregister_netdev",
    "unregister_netdevice_queue",
    "free_netdev",
    "ieee80211_unregister_hw",
    "snd_card_free",
    "snd_card_free_when_closed",
    "snd_card_disconnect",
    "scsi_remove_host",
    "del_gendisk",
    "usb_remove_hcd",
    "input_unregister_device",
    "misc_deregister",
];

/// What a pointer in a module's data leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pointer {
    /// A section of the module and an offset in it.
    Own(usize, u64),
    /// Something that another module or the kernel has.
    Extern(String),
}

/// A module's data with its pointers.
struct Data<'a> {
    image: &'a ModuleImage,
    /// By section and offset.
    pointers: BTreeMap<(usize, u64), Pointer>,
}

impl Data<'_> {
    fn new(image: &ModuleImage) -> Data<'_> {
        let mut pointers = BTreeMap::new();
        for (section, _) in image.sections().enumerate().filter(|(_, section)| section.alloc && !section.exec)
        {
            for rela in image.relocations(section).filter(|rela| rela.kind == R_X86_64_64) {
                let Some(symbol) = image.symbols().get(rela.symbol) else { continue };
                let pointer = match symbol.section {
                    Some(of) => Pointer::Own(usize::from(of), symbol.value.wrapping_add_signed(rela.addend)),
                    None => Pointer::Extern(image.symbol_name(symbol).to_owned()),
                };
                pointers.insert((section, rela.offset), pointer);
            }
        }
        Data { image, pointers }
    }

    /// Variables of a size, by section and offset.
    fn variables(&self, size: u64) -> impl Iterator<Item = (usize, u64)> {
        let object = move |symbol: &&ModuleSymbol| symbol.kind == SymbolKind::Object && symbol.size == size;
        let symbols = self.image.symbols().iter().filter(object);
        symbols.filter_map(|symbol| Some((usize::from(symbol.section?), symbol.value)))
    }

    /// The pointer in a member of the structure at a place.
    fn member(
        &self,
        types: &Btf,
        structure: &str,
        (section, at): (usize, u64),
        path: &str,
    ) -> Option<&Pointer> {
        let offset = types.member_offset(structure, path)?;
        self.pointers.get(&(section, at.checked_add(offset)?))
    }
}

/// The drivers of a module, one for each bus: of several, the one that is best off.
pub fn drivers(image: &ModuleImage, types: &Btf) -> Vec<Driver> {
    let data = Data::new(image);
    let calls = Calls::new(image, &UNREGISTERS);
    let mut found: BTreeMap<Bus, Power> = BTreeMap::new();
    let imports = |name: &str| {
        image.symbols().iter().any(|symbol| symbol.undefined && image.symbol_name(symbol) == name)
    };
    for kind in KINDS.iter().filter(|kind| kind.register.iter().any(|name| imports(name))) {
        let size = types.struct_named(kind.structure).and_then(|id| types.size_of(id));
        for place in size.into_iter().flat_map(|size| data.variables(size)) {
            if data.member(types, kind.structure, place, kind.required).is_none() {
                continue;
            }
            let power = power(&data, types, &calls, kind, place);
            let known = found.entry(kind.bus).or_insert(Power::None);
            if rank(&power) > rank(known) {
                *known = power;
            }
        }
    }
    found.into_iter().map(|(bus, power)| Driver { bus, power }).collect()
}

fn rank(power: &Power) -> u8 {
    match power {
        Power::None => 0,
        Power::Half { .. } => 1,
        Power::Unregisters { .. } => 2,
        Power::Resets { .. } => 3,
        Power::Library { .. } => 4,
        Power::Fit { .. } => 5,
    }
}

fn power(data: &Data<'_>, types: &Btf, calls: &Calls<'_>, kind: &Kind, place: (usize, u64)) -> Power {
    let common = match kind.pm.and_then(|pm| data.member(types, kind.structure, place, pm)) {
        Some(Pointer::Extern(name)) => Power::Library { structure: name.clone() },
        Some(&Pointer::Own(section, at)) => best(data, types, calls, ("dev_pm_ops", (section, at)), &PM_OPS),
        None => Power::None,
    };
    match common {
        Power::None => best(data, types, calls, (kind.structure, place), kind.own),
        found => found,
    }
}

/// What the first pair of members is worth that the structure has.
fn best(
    data: &Data<'_>,
    types: &Btf,
    calls: &Calls<'_>,
    (structure, place): (&str, (usize, u64)),
    pairs: &[(&str, &str)],
) -> Power {
    let member = |path: &str| data.member(types, structure, place, path);
    let mut half = Power::None;
    for &(quiesces, restores) in pairs {
        match (member(quiesces), member(restores)) {
            (Some(first), Some(second)) => {
                let unfit = [first, second].into_iter().find_map(|pointer| unregisters(calls, pointer));
                let fit = || Power::Fit { quiesces: quiesces.to_owned(), restores: restores.to_owned() };
                return unfit.unwrap_or_else(fit);
            }
            (None, Some(second)) if quiesces.is_empty() => {
                let resets = || Power::Resets { restores: restores.to_owned() };
                return unregisters(calls, second).unwrap_or_else(resets);
            }
            (Some(_), None) if half == Power::None => half = Power::Half { has: quiesces.to_owned() },
            (None, Some(_)) if half == Power::None => half = Power::Half { has: restores.to_owned() },
            _ => {}
        }
    }
    half
}

/// What unregisters in a function of the driver, on every way through it. Many do so where the device does not come back.
fn unregisters(calls: &Calls<'_>, pointer: &Pointer) -> Option<Power> {
    let &Pointer::Own(section, offset) = pointer else { return None };
    let call = calls.always(section, offset)?;
    Some(Power::Unregisters { by: call.by, function: call.function })
}
