//! Starts a guest's kernel without its own decompressor, which takes seconds where each instruction is translated.
//!
//! The cache keeps kernels unpacked. A guest whose kernel gets a random address has a moved copy of its own.

use crate::error::{Context, Result};
use crate::fetch::cache::Cache;
use guardrail_binfmt::direct::{DirectImage, STEP, unpack};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What the firmware and QEMU need below the end of the guest's memory, besides the initramfs.
const FIRMWARE: u64 = 16 << 20;

/// The kernel at `vmlinuz`, unpacked in the cache. `None` where it cannot be started that way, or not be kept:
/// then it unpacks itself.
pub(crate) fn unpacked(cache: &Cache, vmlinuz: &Path) -> Option<PathBuf> {
    let bytes = fs::read(vmlinuz).ok()?;
    let name = format!("unpacked/{:x}", Sha256::digest(&bytes));
    let kept = cache.path(&name);
    if !kept.is_file() {
        // An empty file says that this kernel is not such a one.
        let whole = unpack(vmlinuz).ok().filter(|data| DirectImage::parse("it", data.clone()).is_ok());
        cache.write_atomically(&name, whole.unwrap_or_default()).ok()?;
    }
    fs::metadata(&kept).ok().filter(|file| file.len() > 0).map(|_| kept)
}

/// Writes a copy of the unpacked kernel whose address is random to `copy`. The kernel ends below the initramfs of
/// `initramfs` bytes in a memory of `memory` bytes. False where there is one place only: then nothing is written.
pub(crate) fn moved(unpacked: &Path, memory: u64, initramfs: u64, copy: &Path) -> Result<bool> {
    let data = fs::read(unpacked).context("read", unpacked)?;
    let image = DirectImage::parse(&unpacked.display().to_string(), data).map_err(std::io::Error::other);
    let image = image.context("use", unpacked)?;
    let places = image.places(memory.saturating_sub(initramfs + FIRMWARE));
    if places < 2 {
        return Ok(false);
    }
    // The first place is that of a kernel whose address is not random.
    let shift = (1 + random()? % (places - 1)) * STEP;
    fs::write(copy, image.shifted(shift)).context("write", copy)?;
    Ok(true)
}

fn random() -> Result<u64> {
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
        assert_eq!(unpacked(&cache, &vmlinuz), None);
        fs::write(&vmlinuz, "no kernel").unwrap();
        assert_eq!(unpacked(&cache, &vmlinuz), None);
        let kept: Vec<_> = fs::read_dir(cache.path("unpacked")).unwrap().flatten().collect();
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].metadata().unwrap().len(), 0);
        assert_eq!(unpacked(&cache, &vmlinuz), None);
        assert!(moved(&kept[0].path(), 512 << 20, 0, &folder.path().join("copy")).is_err());
    }
}
