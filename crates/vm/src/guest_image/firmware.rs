//! Firmware files for a driver on a synthetic device, which runs no firmware.
//!
//! Knows: which files a driver names.
//!
//! Must not know: what a device would do with them. They are of the right name, and of zeros.

use crate::cpio::Archive;
use crate::kernel::modules::ModuleFile;
use std::collections::BTreeSet;
use std::path::{Component, Path};

/// Where the kernel looks for firmware (drivers/base/firmware_loader/main.c).
const FOLDER: &str = "lib/firmware";
/// The size of a file, in bytes.
const SIZE: usize = 32 << 10;
/// The most files; a driver of graphics cards names some 500.
const MOST: usize = 512;
/// The longest name, in bytes.
const LONGEST: usize = 200;

/// Adds a file for each that the modules name.
pub fn add_to<'a>(archive: &mut Archive, modules: impl Iterator<Item = &'a ModuleFile>) {
    let all = modules.flat_map(|module| &module.facts.info.firmware);
    let names: BTreeSet<&str> = all.map(String::as_str).filter(|name| is_plain(name)).collect();
    let mut folders: BTreeSet<String> = BTreeSet::new();
    for name in names.into_iter().take(MOST) {
        let path = format!("{FOLDER}/{name}");
        for (at, _) in path.match_indices('/') {
            if folders.insert(path[..at].to_owned()) {
                archive.folder(&path[..at]);
            }
        }
        archive.file(&path, 0o644, &[0; SIZE]);
    }
}

/// Whether it is the name of one file below the folder. A module's file is not trusted, and some name patterns.
fn is_plain(name: &str) -> bool {
    let unusual = |c: char| c.is_control() || "*?[]\\".contains(c);
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    (1..=LONGEST).contains(&name.len())
        && !name.contains(unusual)
        && !name.ends_with('/')
        && !name.contains("//")
        && Path::new(name).components().all(plain)
        // Guardrail's own folder, which says which guarded modules the kernel admits.
        && !Path::new(name).starts_with(guardrail_abi::FIRMWARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_left_out() {
        for name in ["a.fw", "rtlwifi/rtl8192cufw.bin", "a b.bin", "a/b/c"] {
            assert!(is_plain(name), "{name}");
        }
        let long = "x".repeat(LONGEST + 1);
        for name in ["", "/etc/passwd", "../init", "a/../../init", "a/", "a//b", "brcm*.bin", "a\nb", &long] {
            assert!(!is_plain(name), "{name}");
        }
        assert!(!is_plain(guardrail_abi::FIRMWARE) && !is_plain(&format!("{}/x", guardrail_abi::FIRMWARE)));
    }

    #[test]
    fn files_are_made_once_in_folders_of_their_own() {
        let mut module = ModuleFile::default();
        module.facts.info.firmware =
            vec!["x/a.fw".into(), "x/b.fw".into(), "x/a.fw".into(), "../init".into()];
        let mut archive = Archive::new();
        add_to(&mut archive, [&module, &module].into_iter());
        let bytes = archive.finish();
        let count = |name: &[u8]| bytes.windows(name.len()).filter(|window| *window == name).count();
        assert_eq!(count(b"lib/firmware/x/a.fw\0"), 1);
        assert_eq!(count(b"lib/firmware/x\0"), 1);
        assert_eq!((count(b"lib/firmware/x/b.fw\0"), count(b"init\0")), (1, 0));
        assert!(bytes.len() > 2 * SIZE && bytes.len() < 3 * SIZE);
    }
}
