//! Digests of packages that were fetched: a name and a version stand for the same bytes ever after.

use crate::error::{Context, Error, Result};
use crate::fetch::cache::Cache;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The file with the digests, as `sha256sum` writes them.
const PINS: &str = "pins/packages.sha256";

/// Compares packages with those that were fetched before, and adds new ones. The caller holds apt's
/// lock.
pub(super) fn check(cache: &Cache, files: &[PathBuf]) -> Result<()> {
    let path = cache.path(PINS);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Error::io("read", &path, error)),
    };
    let mut known: BTreeMap<String, String> = text
        .lines()
        .filter_map(|line| line.split_once("  "))
        .map(|(digest, name)| (name.to_owned(), digest.to_owned()))
        .collect();
    let before = known.len();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let digest = digest(file)?;
        if *known.entry(name.clone()).or_insert_with(|| digest.clone()) != digest {
            return Err(Error::Replaced { package: name, pins: path });
        }
    }
    if known.len() == before {
        return Ok(());
    }
    let text: String = known.iter().map(|(name, digest)| format!("{digest}  {name}\n")).collect();
    cache.write_atomically(PINS, text).map(|_| ())
}

/// The SHA-256 of a file, in hexadecimal.
fn digest(path: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    std::io::copy(&mut File::open(path).context("open", path)?, &mut hash).context("read", path)?;
    Ok(hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
