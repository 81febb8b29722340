//! Temporary folders that belong to a process. What a process leaves that was killed, the next one removes.
//!
//! The owner holds a lock on the folder itself, which ends with the owner in any way.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// How often a folder is made again that another process took for one that was left.
const TRIES: u32 = 8;

/// A folder that is removed with this value, or after its process.
#[derive(Debug)]
pub struct OwnedFolder {
    folder: TempDir,
    _lock: File,
}

impl OwnedFolder {
    /// Makes a folder in `parent` whose name begins with `prefix`. Before, it removes those there whose owners have
    /// ended.
    pub fn new(prefix: &str, parent: &Path) -> io::Result<OwnedFolder> {
        sweep(prefix, parent);
        for _ in 0..TRIES {
            let folder = TempDir::with_prefix_in(prefix, parent)?;
            if let Some(lock) = lock(folder.path()) {
                return Ok(OwnedFolder { folder, _lock: lock });
            }
        }
        Err(io::Error::other("another process removes new folders there"))
    }

    /// Makes a folder for large files: in `$TMPDIR`, or in `/var/tmp`, which is mostly on a disk.
    pub fn large(prefix: &str) -> io::Result<OwnedFolder> {
        let disk = Path::new("/var/tmp");
        let set = std::env::var_os("TMPDIR").is_some_and(|value| !value.is_empty());
        if !set && let Ok(folder) = OwnedFolder::new(prefix, disk) {
            return Ok(folder);
        }
        OwnedFolder::new(prefix, &std::env::temp_dir())
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The folder around it. To remove a folder takes the right to write to that one.
    pub fn around(&self) -> &Path {
        self.path().parent().unwrap_or(self.path())
    }

    /// Gives the folder up: it is not removed any more.
    pub fn keep(self) -> PathBuf {
        self.folder.keep()
    }
}

/// Removes the folders in `parent` whose names begin with `prefix`, which belong to this user, and whose owners have
/// ended.
pub(crate) fn sweep(prefix: &str, parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)) {
        if let Some(_lock) = lock(&entry.path()) {
            // What cannot be removed now is removed by a later run.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Takes the lock on a folder of this user; `None` where it is held, or where the folder is no longer there.
fn lock(path: &Path) -> Option<File> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let folder = File::options().read(true).custom_flags(flags).open(path).ok()?;
    // SAFETY: `geteuid` always succeeds and touches no memory.
    let user = unsafe { libc::geteuid() };
    let is_ours = folder.metadata().is_ok_and(|metadata| metadata.uid() == user);
    if !is_ours || !try_lock(&folder, libc::LOCK_EX) {
        return None;
    }
    // Another process may have removed it between the two.
    let (locked, there) = (folder.metadata().ok()?, fs::symlink_metadata(path).ok()?);
    (locked.ino() == there.ino() && locked.dev() == there.dev()).then_some(folder)
}

/// Takes a lock (`LOCK_EX` or `LOCK_SH`) that ends with the open file; false where another process holds one.
pub fn try_lock(file: &File, kind: libc::c_int) -> bool {
    // SAFETY: flock on a descriptor that `file` keeps open.
    unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) == 0 }
}

/// Has a program end with the thread that starts it.
pub(crate) fn bound(command: &mut Command) -> &mut Command {
    // SAFETY: the closure calls nothing but `prctl`, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn a_folder_lives_as_long_as_its_owner() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join("x-left");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("file"), "1").unwrap();
        let (other, file) = (parent.path().join("y-other"), parent.path().join("x-file"));
        fs::create_dir(&other).unwrap();
        fs::write(&file, "1").unwrap();
        let first = OwnedFolder::new("x-", parent.path()).unwrap();
        assert!(!left.exists() && other.exists() && file.exists());
        let second = OwnedFolder::new("x-", parent.path()).unwrap();
        assert!(first.path().exists(), "its owner lives");
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists() && second.path().exists());
        let kept = second.keep();
        assert!(kept.exists());
    }

    #[test]
    fn a_link_to_a_folder_is_left_alone() {
        let (parent, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(elsewhere.path().join("file"), "1").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), parent.path().join("x-link")).unwrap();
        sweep("x-", parent.path());
        assert!(elsewhere.path().join("file").exists());
    }

    #[test]
    fn what_a_killed_process_leaves_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("x-1");
        fs::create_dir(&folder).unwrap();
        let script = "exec 9<\"$1\" && flock -n 9 && echo locked && exec sleep 60";
        let mut owner = Command::new("sh");
        owner.args(["-c", script, "sh"]).arg(&folder).stdout(Stdio::piped());
        let mut owner = bound(&mut owner).spawn().unwrap();
        let mut said = [0; 7];
        io::Read::read_exact(owner.stdout.as_mut().unwrap(), &mut said).unwrap();
        sweep("x-", parent.path());
        assert!(folder.exists(), "its owner lives");
        owner.kill().unwrap();
        owner.wait().unwrap();
        sweep("x-", parent.path());
        assert!(!folder.exists());
    }

    #[test]
    fn a_program_ends_with_the_thread_that_started_it() {
        let start = || bound(Command::new("sleep").arg("60")).spawn().unwrap();
        let mut child = std::thread::spawn(start).join().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    }
}
