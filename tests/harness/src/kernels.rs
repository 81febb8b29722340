//! The kernels that tests pin, in the cache of downloads.
//!
//! A cache may contain other kernels of the user; tests take only the kernels that short names are pinned to.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The short names of the kernels that the tests use.
const NAMES: [&str; 3] = ["6.1", "6.12", "7.2"];

/// The cache folder, as `guardrail` chooses it.
fn cache() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || variable("HOME").unwrap_or_default().join(".cache");
    variable("GUARDRAIL_CACHE")
        .unwrap_or_else(|| variable("XDG_CACHE_HOME").unwrap_or_else(home).join("guardrail"))
}

/// The value of `GUARDRAIL_TEST_KERNELS`: the images of the pinned kernels that are in the cache, separated by colons.
pub fn pinned() -> OsString {
    pinned_in(&cache())
}

fn pinned_in(cache: &Path) -> OsString {
    let images = NAMES.iter().filter_map(|name| {
        let pin = std::fs::read_to_string(cache.join("pins").join(name)).ok()?;
        let release = pin.split("\"release\"").nth(1)?.split('"').nth(1)?.to_owned();
        let folder = cache.join("kernels").join(&release);
        [
            folder.join(format!("boot/vmlinuz-{release}")),
            folder.join(format!("usr/lib/modules/{release}/vmlinuz")),
        ]
        .into_iter()
        .find(|image| image.is_file())
    });
    std::env::join_paths(images).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pinned_kernels_are_taken() {
        let cache = std::env::temp_dir().join(format!("guardrail-harness-{}", std::process::id()));
        let old = cache.join("kernels/6.1.0-1-amd64/boot/vmlinuz-6.1.0-1-amd64");
        let new = cache.join("kernels/7.2.1/usr/lib/modules/7.2.1/vmlinuz");
        let users = cache.join("kernels/6.1.0-1-cloud-amd64/boot/vmlinuz-6.1.0-1-cloud-amd64");
        for image in [&old, &new, &users] {
            std::fs::create_dir_all(image.parent().unwrap()).unwrap();
            std::fs::write(image, "").unwrap();
        }
        std::fs::create_dir_all(cache.join("pins")).unwrap();
        std::fs::write(cache.join("pins/6.1"), r#"{"release":"6.1.0-1-amd64","packages":["a"]}"#).unwrap();
        std::fs::write(cache.join("pins/6.12"), r#"{"release":"6.12.9","packages":["not fetched"]}"#)
            .unwrap();
        std::fs::write(cache.join("pins/7.2"), r#"{ "release": "7.2.1" }"#).unwrap();
        let found: Vec<PathBuf> = std::env::split_paths(&pinned_in(&cache)).collect();
        std::fs::remove_dir_all(&cache).unwrap();
        assert_eq!(found, [old, new]);
    }
}
