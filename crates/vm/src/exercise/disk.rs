//! The disk of a storage run: its deterministic content, and the check after the run.

use crate::error::{Context, Result};
use crate::exercise::pattern::{self, Checksum};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// What the storage workload does with the disk, in MiB. It reads all of it, then copies the first `copied`
/// to `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Size of the disk in MiB.
    pub size: u64,
    /// How much is copied, from the beginning, in MiB.
    pub copied: u64,
    /// The offset of the copy, in MiB.
    pub at: u64,
}

/// The image of a storage run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The image file, in the run folder.
    pub path: PathBuf,
    /// Sectors that QEMU makes fail: the first on reads, the second on writes.
    pub bad: Option<(u64, u64)>,
}

impl Layout {
    /// Doubles the image. Returns the sectors that shall fail; they are in its second half, which nobody
    /// verifies.
    pub fn add_bad_part(&self, path: &Path) -> Result<(u64, u64)> {
        let file = File::options().write(true).open(path).context("open", path)?;
        file.set_len(2 * self.size * MIB).context("write", path)?;
        Ok(self.bad_part())
    }

    /// The two sectors of that half that shall fail.
    pub fn bad_part(&self) -> (u64, u64) {
        let sector = |mib: u64| mib * (MIB / 512);
        (sector(self.size + 1), sector(self.size + 2))
    }

    /// A disk of `size` MiB, a quarter of which is written.
    pub fn of_size(size: u64) -> Layout {
        let size = size.max(4);
        Layout { size, copied: size / 4, at: size / 2 }
    }

    /// Creates the image at `path`, filled with the pattern.
    pub fn create(&self, path: &Path) -> Result<()> {
        let mut file = File::create(path).context("create", path)?;
        let mut buffer = vec![0; MIB as usize];
        for index in 0..self.size {
            pattern::fill(index * MIB, &mut buffer);
            file.write_all(&buffer).context("write", path)?;
        }
        Ok(())
    }

    /// The variables that describe the disk to the workload.
    pub fn variables(&self) -> Vec<(String, String)> {
        let sum = |mib: u64| Checksum::of_pattern(mib * MIB).hex();
        vec![
            ("DISK_MB".into(), self.size.to_string()),
            ("COPY_MB".into(), self.copied.to_string()),
            ("COPY_AT_MB".into(), self.at.to_string()),
            ("DISK_SUM".into(), sum(self.size)),
            ("COPY_SUM".into(), sum(self.copied)),
        ]
    }

    /// Checks the image after a run; the text describes the first difference.
    pub fn verify(&self, path: &Path) -> Result<Option<String>> {
        let mut file = File::open(path).context("open", path)?;
        let (mut found, mut expected) = (vec![0; MIB as usize], vec![0; MIB as usize]);
        for index in 0..self.size {
            file.read_exact(&mut found).context("read", path)?;
            let copied = (self.at..self.at + self.copied).contains(&index);
            pattern::fill(if copied { index - self.at } else { index } * MIB, &mut expected);
            if let Some(offset) = found.iter().zip(&expected).position(|(a, b)| a != b) {
                let what = if copied { "what the guest wrote is not" } else { "the guest changed what was" };
                return Ok(Some(format!("{what} on the disk at byte {:#x}", index * MIB + offset as u64)));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_copied_disk_verifies_and_a_damaged_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let layout = Layout::of_size(4);
        layout.create(&path).unwrap();
        assert!(layout.verify(&path).unwrap().unwrap().starts_with("what the guest wrote"));
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut first = vec![0; MIB as usize];
        file.read_exact_at(&mut first, 0).unwrap();
        file.write_all_at(&first, 2 * MIB).unwrap();
        assert_eq!(layout.verify(&path).unwrap(), None);
        file.write_all_at(&[first[5] ^ 1], 5).unwrap();
        assert_eq!(
            layout.verify(&path).unwrap().unwrap(),
            "the guest changed what was on the disk at byte 0x5"
        );
    }
}
