//! The policy, `deny.toml`, and what the lock files say.

use crate::read;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The lock files: the programs' with their tests', and the fuzz targets'.
pub const LOCKS: [&str; 2] = ["Cargo.lock", "fuzz/Cargo.lock"];
/// The registry whose index names the checksums.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// What `deny.toml` says, as far as tests use it.
#[derive(Deserialize)]
pub struct Policy {
    pub advisories: Advisories,
    pub licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Advisories {
    pub db_urls: Vec<String>,
    pub ignore: Vec<Ignored>,
}

#[derive(Deserialize)]
pub struct Ignored {
    pub id: String,
}

#[derive(Deserialize)]
pub struct Licenses {
    pub allow: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Bans {
    skip: Vec<Skipped>,
}

#[derive(Deserialize)]
struct Skipped {
    #[serde(rename = "crate")]
    name: String,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Package>,
}

/// A package of a lock file.
#[derive(Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    source: Option<String>,
    checksum: Option<String>,
}

pub fn policy() -> Policy {
    toml::from_str(&read("deny.toml")).expect("deny.toml can be read")
}

/// The packages of a lock file that others wrote.
pub fn packages(lock: &str) -> Vec<Package> {
    let lock: Lock = toml::from_str(&read(lock)).expect("a lock file can be read");
    lock.package.into_iter().filter(|package| !package.name.starts_with("guardrail-")).collect()
}

/// Packages that are not the registry's, or have no checksum.
pub fn elsewhere() -> Vec<String> {
    let mut found = Vec::new();
    for lock in LOCKS {
        for package in packages(lock) {
            if package.source.as_deref() != Some(REGISTRY) || package.checksum.is_none() {
                found.push(format!("{lock}: {} {} is not the registry's", package.name, package.version));
            }
        }
    }
    found
}

/// Packages with several versions that the policy does not skip, and skips without use.
pub fn twice() -> Vec<String> {
    let mut skips: BTreeMap<String, bool> =
        policy().bans.skip.into_iter().map(|skipped| (skipped.name, false)).collect();
    let mut found = Vec::new();
    for lock in LOCKS {
        let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for package in packages(lock) {
            versions.entry(package.name).or_default().push(package.version);
        }
        for (name, mut versions) in versions {
            if versions.len() == 1 {
                continue;
            }
            versions.retain(|version| {
                let skip = skips.iter_mut().find(|(skip, _)| {
                    skip.split_once('@').is_some_and(|(of, start)| {
                        of == name && version.strip_prefix(start).is_some_and(|rest| rest.starts_with('.'))
                    })
                });
                skip.map(|(_, used)| *used = true).is_none()
            });
            if versions.len() != 1 {
                found.push(format!("{lock}: {name} has the versions {}", versions.join(", ")));
            }
        }
    }
    let unused = skips.iter().filter(|(_, used)| !**used);
    found.extend(unused.map(|(name, _)| format!("deny.toml skips {name}, which has one version")));
    found
}
