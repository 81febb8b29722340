//! Starts a guest's kernel without its own decompressor, which takes seconds where each instruction is translated.
//!
//! The cache keeps kernels unpacked. A guest whose kernel gets a random address has a moved copy of its own.

use crate::error::{Context, Error, Result};
use crate::fetch::cache::Cache;
use crate::parser::{Given, Job, Parser, Refusal};
use guardrail_binfmt::direct::{DirectImage, STEP, unpack};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// What the firmware and QEMU need below the end of the guest's memory, besides the initramfs.
const FIRMWARE: u64 = 16 << 20;
/// The largest unpacked image.
const MAX_IMAGE: u64 = 1 << 30;

/// The kernel at `vmlinuz`, unpacked in the cache. `None` where it cannot be started that way, or not be kept:
/// then it unpacks itself.
pub(crate) fn unpacked(cache: &Cache, parser: &Parser, vmlinuz: &Path) -> Option<PathBuf> {
    let bytes = fs::read(vmlinuz).ok()?;
    let name = format!("unpacked/{:x}", Sha256::digest(&bytes));
    let kept = cache.path(&name);
    if !kept.is_file() {
        let what = vmlinuz.display().to_string();
        // An empty file says that this kernel is not such a one.
        let whole = match parser.ask(&Unpack { what }, &[], &bytes) {
            Ok((_, whole)) => whole,
            Err(Refusal::Input(_)) => Vec::new(),
            Err(Refusal::Process(_)) => return None,
        };
        cache.write_atomically(&name, whole).ok()?;
    }
    fs::metadata(&kept).ok().filter(|file| file.len() > 0).map(|_| kept)
}

/// Unpacks a kernel's image. The bytes of the answer are one that can be moved.
#[derive(Debug, Serialize, Deserialize)]
pub struct Unpack {
    what: String,
}

impl Job for Unpack {
    const NAME: &'static str = "unpack";
    type Answer = ();

    fn run(self, given: Given) -> Result<((), Vec<u8>), String> {
        let sentence = |error: guardrail_binfmt::KernelError| error.to_string();
        let whole = unpack(&self.what, &given.bytes).map_err(sentence)?;
        DirectImage::parse(&self.what, whole.clone()).map_err(sentence)?;
        Ok(((), whole))
    }
}

/// Writes a copy of the unpacked kernel whose address is random to `copy`. The kernel ends below the initramfs of
/// `initramfs` bytes in a memory of `memory` bytes. Returns the distance from its usual place;
/// `None` where there is one place only: then nothing is written.
pub(crate) fn moved(
    parser: &Parser,
    unpacked: &Path,
    memory: u64,
    initramfs: u64,
    copy: &Path,
) -> Result<Option<u64>> {
    let file = File::open(unpacked).context("read", unpacked)?;
    let out = File::create(copy).context("create", copy)?;
    let room = memory.saturating_sub(initramfs + FIRMWARE);
    let job = Move { what: unpacked.display().to_string(), room, random: random()? };
    let bad = |why| Error::BadKernel { path: unpacked.to_path_buf(), why };
    let (moved, _) = parser.ask(&job, &[&file, &out], &[]).map_err(|error| error.of(unpacked, bad))?;
    if moved.is_none() {
        fs::remove_file(copy).context("remove", copy)?;
    }
    Ok(moved)
}

/// Moves an unpacked kernel, the first file, and writes it to the second. The answer is by how much; `None` where
/// there is one place only.
#[derive(Debug, Serialize, Deserialize)]
pub struct Move {
    what: String,
    /// The physical address at or below which the kernel ends.
    room: u64,
    random: u64,
}

impl Job for Move {
    const NAME: &'static str = "move";
    type Answer = Option<u64>;

    fn run(self, mut given: Given) -> Result<(Option<u64>, Vec<u8>), String> {
        let data = given.read(MAX_IMAGE)?;
        let image = DirectImage::parse(&self.what, data).map_err(|error| error.to_string())?;
        let places = image.places(self.room);
        if places < 2 {
            return Ok((None, Vec::new()));
        }
        // The first place is that of a kernel whose address is not random.
        let shift = (1 + self.random % (places - 1)) * STEP;
        let written = given.file()?.write_all(&image.shifted(shift));
        written.map_err(|error| format!("its copy cannot be written: {error}"))?;
        Ok((Some(shift), Vec::new()))
    }
}

/// A random number of the host.
pub(crate) fn random() -> Result<u64> {
    let source = Path::new("/dev/urandom");
    let mut bytes = [0; 8];
    fs::File::open(source).and_then(|mut file| file.read_exact(&mut bytes)).context("read", source)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_is_none_unpacks_itself() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("cache")).unwrap();
        let vmlinuz = folder.path().join("vmlinuz");
        assert_eq!(unpacked(&cache, &Parser::here(), &vmlinuz), None);
        fs::write(&vmlinuz, "no kernel").unwrap();
        assert_eq!(unpacked(&cache, &Parser::here(), &vmlinuz), None);
        let kept: Vec<_> = fs::read_dir(cache.path("unpacked")).unwrap().flatten().collect();
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].metadata().unwrap().len(), 0);
        assert_eq!(unpacked(&cache, &Parser::here(), &vmlinuz), None);
        let copy = folder.path().join("copy");
        assert!(moved(&Parser::here(), &kept[0].path(), 512 << 20, 0, &copy).is_err());
    }
}
