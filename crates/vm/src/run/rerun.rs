//! Records a whole virtual machine and replays it instruction by instruction (QEMU's record/replay).
//!
//! QEMU counts instructions and records all input from outside: devices, network packets, the completion of
//! disk requests, the clock. A second QEMU with the same parts receives the same input at the same
//! instructions. QEMU supports this for one vCPU only. A gate that sends vCPUs back to an instruction would
//! break its counts. Requests of the workload to the host (pull a cable, unplug a stick) are not recorded.

use crate::error::{Context, Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The virtual nanoseconds of an instruction are 2 to this power. The guest's time has no other clock in such
/// a run.
const SHIFT: u8 = 5;
const LOG: &str = "replay.bin";
const INITRAMFS: &str = "initramfs.cpio";
const DISK: &str = "disk.img";

/// What is done with the folder that holds, or will hold, a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rerun {
    /// The run is recorded in this folder.
    Record(PathBuf),
    /// The run that was recorded in this folder is replayed.
    Replay(PathBuf),
}

impl Rerun {
    fn folder(&self) -> &Path {
        match self {
            Rerun::Record(folder) | Rerun::Replay(folder) => folder,
        }
    }

    /// Saves what the guest starts from, or restores it for the replay.
    pub(crate) fn begin(&self, initramfs: &Path, disk: Option<&Path>) -> Result<()> {
        let folder = self.folder();
        if let Rerun::Record(_) = self {
            fs::create_dir_all(folder).context("create", folder)?;
        } else if !folder.join(LOG).is_file() {
            return Err(Error::BadValue(format!(
                "{} holds no recorded machine; make one with --vm-record",
                folder.display()
            )));
        }
        for (name, file) in [(INITRAMFS, Some(initramfs)), (DISK, disk)] {
            let Some(file) = file else { continue };
            let kept = folder.join(name);
            let (from, to) = match self {
                Rerun::Record(_) => (file, kept.as_path()),
                Rerun::Replay(_) => (kept.as_path(), file),
            };
            fs::copy(from, to).context("copy", from)?;
        }
        Ok(())
    }

    /// QEMU's arguments for it.
    pub(crate) fn arguments(&self) -> [String; 2] {
        let word = match self {
            Rerun::Record(_) => "record",
            Rerun::Replay(_) => "replay",
        };
        let file = self.folder().join(LOG).display().to_string().replace(',', ",,");
        ["-icount".into(), format!("shift={SHIFT},rr={word},rrfile={file}")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_starts_from_what_the_recording_started_from() {
        let folder = tempfile::tempdir().unwrap();
        let (initramfs, disk) = (folder.path().join("i"), folder.path().join("d"));
        fs::write(&initramfs, "first").unwrap();
        fs::write(&disk, "disk").unwrap();
        let kept = folder.path().join("kept");
        assert!(Rerun::Replay(kept.clone()).begin(&initramfs, None).is_err());
        Rerun::Record(kept.clone()).begin(&initramfs, Some(&disk)).unwrap();
        fs::write(kept.join(LOG), "").unwrap();
        fs::write(&initramfs, "second").unwrap();
        fs::write(&disk, "used").unwrap();
        let replay = Rerun::Replay(kept);
        replay.begin(&initramfs, Some(&disk)).unwrap();
        assert_eq!(fs::read_to_string(&initramfs).unwrap(), "first");
        assert_eq!(fs::read_to_string(&disk).unwrap(), "disk");
        assert!(replay.arguments()[1].starts_with("shift=5,rr=replay,rrfile="));
    }
}
