//! Devices of guarded drivers, whose state is noted and restored by hand.

use crate::errors::CliError;
use guardrail_vm::error::suggest;
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The runtime's folder; it has a file for each verb, to which a device's name is written.
const FILES: &str = "/sys/kernel/debug/guardrail";
/// Classes whose names people use for devices.
const CLASSES: [&str; 2] = ["class/net", "class/block"];

/// What is done with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// What its bus keeps for it is noted anew.
    Checkpoint,
    /// Its driver sets it up from memory.
    Restore,
}

impl Verb {
    /// The name of the runtime's file.
    fn file(self) -> &'static str {
        match self {
            Verb::Checkpoint => "checkpoint",
            Verb::Restore => "restore",
        }
    }
}

/// Does it, and returns the device's name on its bus. `modules` are the modules whose entries can be transactions.
pub fn run(verb: Verb, name: &str, modules: &BTreeSet<&str>) -> Result<String, CliError> {
    let device = find(Path::new("/sys"), name, modules).map_err(CliError::Usage)?;
    // Nothing is created: where the file is not there, the error says so.
    let file = OpenOptions::new().write(true).open(Path::new(FILES).join(verb.file()));
    let written = file.and_then(|mut file| file.write_all(device.as_bytes()));
    written.map_err(|error| refused(verb, &device, &error))?;
    Ok(device)
}

/// The name on its bus of the device that a name leads to: itself, or for an interface or a block device the nearest that it
/// hangs on and that has one of the drivers.
fn find(sys: &Path, name: &str, modules: &BTreeSet<&str>) -> Result<String, String> {
    let Some((start, climbs)) = place(sys, name) else { return Err(unknown(sys, name)) };
    let mut nearest = None;
    let most = if climbs { usize::MAX } else { 1 };
    for device in start.ancestors().take_while(|path| path.starts_with(sys)).take(most) {
        let Ok(driver) = device.join("driver").canonicalize() else { continue };
        let module = driver.join("module").canonicalize().ok().and_then(last);
        if module.is_some_and(|module| modules.contains(module.as_str())) {
            return last(device.to_path_buf()).ok_or_else(|| unknown(sys, name));
        }
        nearest = nearest.or_else(|| last(driver));
    }
    Err(match nearest {
        Some(driver) => {
            format!(
                "{driver}, the driver of {name}, is not guarded with --transact; guard it so, and load it"
            )
        }
        None => format!("{name} has no driver; load one that was guarded with --transact"),
    })
}

/// Where sysfs has what a name is of: a network interface or a block device, which hang on others, or a device on some bus.
fn place(sys: &Path, name: &str) -> Option<(PathBuf, bool)> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return None;
    }
    let buses = names(&sys.join("bus")).into_iter().map(|bus| sys.join("bus").join(bus).join("devices"));
    let buses = buses.map(|folder| (folder, false));
    let classes = CLASSES.iter().map(|class| (sys.join(class), true));
    classes.chain(buses).find_map(|(folder, climbs)| Some((folder.join(name).canonicalize().ok()?, climbs)))
}

fn unknown(sys: &Path, name: &str) -> String {
    let folders = CLASSES.iter().copied().chain(["bus/pci/devices"]);
    let known: Vec<String> = folders.flat_map(|folder| names(&sys.join(folder))).collect();
    let near = match suggest(name, known.iter().map(String::as_str)).as_slice() {
        [] => "'guardrail transact list' has the modules whose devices there can be".to_owned(),
        near => format!("the nearest are {}", near.join(", ")),
    };
    format!("there is no device, network interface or block device named '{name}'; {near}")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn last(path: PathBuf) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

/// Why the runtime has refused a device.
fn refused(verb: Verb, device: &str, error: &io::Error) -> CliError {
    let file = Path::new(FILES).join(verb.file());
    let file = file.display();
    let usage = |text: String| CliError::Usage(text);
    match (error.raw_os_error(), verb) {
        (Some(libc::ENOENT), _) => usage(format!(
            "there is no {file}; the loaded guardrail.ko is older than this program, so guard the driver anew"
        )),
        (Some(libc::ENODEV), _) => {
            usage(format!("the driver of {device} has not bound it, or is not guarded with --transact"))
        }
        (Some(libc::ESHUTDOWN), _) => usage(format!(
            "the domain of {device} is dead, with its driver; try again when a recovery has reloaded it, or load it"
        )),
        (Some(libc::EOPNOTSUPP), Verb::Checkpoint) => usage(format!(
            "the bus of {device} keeps nothing that is noted; its driver's memory is all there is"
        )),
        (Some(libc::EOPNOTSUPP), Verb::Restore) => {
            usage(format!("the driver of {device} has no code that saves and restores it; reload it instead"))
        }
        (Some(libc::EIO), Verb::Checkpoint) => CliError::Run(format!(
            "{device} sleeps and does not wake; the kernel's log has its driver's reason"
        )),
        (Some(libc::EIO), Verb::Restore) => CliError::Run(format!(
            "the driver of {device} has failed to restore it, and is reloaded; the kernel's log says how that ends"
        )),
        _ if error.kind() == ErrorKind::PermissionDenied => {
            usage(format!("{file} cannot be written: {error}; only root may"))
        }
        _ => CliError::Run(format!("{device} cannot be reached: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A sysfs with a guarded PCI driver's interface and disk, one of another driver, and what has none.
    fn sysfs() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let sys = folder.path();
        let make = |path: &str| fs::create_dir_all(sys.join(path)).unwrap();
        let link = |at: &str, to: &str| symlink(sys.join(to), sys.join(at)).unwrap();
        for path in ["bus/pci/devices", "bus/virtio/devices", "class/net", "class/block"] {
            make(path);
        }
        for (module, bus) in [("e1000", "pci"), ("mptspi", "pci"), ("virtio_net", "virtio"), ("vp", "pci")] {
            make(&format!("module/{module}"));
            make(&format!("bus/{bus}/drivers/{module}"));
            link(&format!("bus/{bus}/drivers/{module}/module"), &format!("module/{module}"));
        }
        for (path, driver, class) in [
            ("0000:00:03.0/net/eth0", "pci/drivers/e1000", "net"),
            ("0000:00:04.0/host0/target0:0:0/0:0:0:0/block/sda/sda1", "pci/drivers/mptspi", "block"),
            ("0000:00:05.0/virtio0/net/eth1", "pci/drivers/vp", "net"),
            ("virtual/net/lo", "", "net"),
        ] {
            let (first, _) = path.split_once('/').unwrap();
            make(&format!("devices/pci0000:00/{path}"));
            let name = path.rsplit('/').next().unwrap();
            link(&format!("class/{class}/{name}"), &format!("devices/pci0000:00/{path}"));
            if !driver.is_empty() {
                link(&format!("devices/pci0000:00/{first}/driver"), &format!("bus/{driver}"));
                link(&format!("bus/pci/devices/{first}"), &format!("devices/pci0000:00/{first}"));
            }
        }
        link("devices/pci0000:00/0000:00:05.0/virtio0/driver", "bus/virtio/drivers/virtio_net");
        folder
    }

    #[test]
    fn names_lead_to_devices_of_guarded_drivers() {
        let folder = sysfs();
        let sys = folder.path().canonicalize().unwrap();
        let found = |name: &str, module: &str| find(&sys, name, &BTreeSet::from([module]));
        assert_eq!(found("0000:00:03.0", "e1000").unwrap(), "0000:00:03.0");
        assert_eq!(found("eth0", "e1000").unwrap(), "0000:00:03.0");
        assert_eq!(found("sda1", "mptspi").unwrap(), "0000:00:04.0");
        assert_eq!(found("eth1", "virtio_net").unwrap(), "virtio0");
        assert_eq!(found("eth1", "vp").unwrap(), "0000:00:05.0");
    }

    #[test]
    fn a_name_that_leads_to_none_is_refused_in_a_sentence() {
        let folder = sysfs();
        let sys = folder.path().canonicalize().unwrap();
        let refused = |name: &str| find(&sys, name, &BTreeSet::from(["e1000"])).unwrap_err();
        insta::assert_snapshot!(refused("eth1"), @"virtio_net, the driver of eth1, is not guarded with --transact; guard it so, and load it");
        insta::assert_snapshot!(refused("lo"), @"lo has no driver; load one that was guarded with --transact");
        insta::assert_snapshot!(refused("0000:00:03"), @"there is no device, network interface or block device named '0000:00:03'; the nearest are 0000:00:03.0, 0000:00:04.0, 0000:00:05.0");
        for name in ["", "..", "../module/e1000", "/"] {
            assert!(refused(name).starts_with("there is no device"), "{name}");
        }
    }

    #[test]
    fn the_runtimes_errors_are_sentences() {
        let said = |verb, number| refused(verb, "D", &io::Error::from_raw_os_error(number)).to_string();
        let all = [libc::ENOENT, libc::ENODEV, libc::ESHUTDOWN, libc::EOPNOTSUPP, libc::EIO, libc::EACCES];
        let all = all.map(|number| (said(Verb::Restore, number), said(Verb::Checkpoint, number)));
        let mut texts: Vec<String> = all.into_iter().flat_map(|(one, other)| [one, other]).collect();
        texts.dedup();
        insta::assert_snapshot!(texts.join("\n"), @r"
        there is no /sys/kernel/debug/guardrail/restore; the loaded guardrail.ko is older than this program, so guard the driver anew
        there is no /sys/kernel/debug/guardrail/checkpoint; the loaded guardrail.ko is older than this program, so guard the driver anew
        the driver of D has not bound it, or is not guarded with --transact
        the domain of D is dead, with its driver; try again when a recovery has reloaded it, or load it
        the driver of D has no code that saves and restores it; reload it instead
        the bus of D keeps nothing that is noted; its driver's memory is all there is
        the driver of D has failed to restore it, and is reloaded; the kernel's log says how that ends
        D sleeps and does not wake; the kernel's log has its driver's reason
        /sys/kernel/debug/guardrail/restore cannot be written: Permission denied (os error 13); only root may
        /sys/kernel/debug/guardrail/checkpoint cannot be written: Permission denied (os error 13); only root may
        ");
    }
}
