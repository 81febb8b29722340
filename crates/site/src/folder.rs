//! A folder that is read without following links: what is opened is in the folder, even if something is renamed meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder(File);

/// What an entry of a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// A folder.
    Folder,
    /// A plain file.
    File,
    /// A symbolic link, which is not followed.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

/// A file that was read.
#[derive(Debug)]
pub(crate) struct Contents {
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// When it was last written.
    pub(crate) written: SystemTime,
}

impl Folder {
    /// Opens the folder that the user named, which may be a link.
    pub(crate) fn open(path: &Path) -> io::Result<Folder> {
        Folder::with(path, libc::O_DIRECTORY)
    }

    /// Opens a folder in it; a link is an error.
    pub(crate) fn folder(&self, name: &OsStr) -> io::Result<Folder> {
        Folder::with(&self.entry(name)?, libc::O_DIRECTORY | libc::O_NOFOLLOW)
    }

    fn with(path: &Path, flags: i32) -> io::Result<Folder> {
        OpenOptions::new().read(true).custom_flags(flags).open(path).map(Folder)
    }

    /// The path of an entry, through the open folder.
    fn entry(&self, name: &OsStr) -> io::Result<PathBuf> {
        if matches!(name.as_bytes(), b"" | b"." | b"..") || name.as_bytes().contains(&b'/') {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        Ok(self.path().join(name))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// At most `most` of its entries, sorted by name; true where there are more.
    pub(crate) fn list(&self, most: usize) -> io::Result<(Vec<(OsString, Sort)>, bool)> {
        let mut found = Vec::new();
        // A trailing slash leads through the link to the folder itself.
        for entry in fs::read_dir(self.path().join(""))? {
            let entry = entry?;
            if found.len() == most {
                return Ok((sorted(found), true));
            }
            let kind = entry.file_type()?;
            let sort = match (kind.is_dir(), kind.is_file(), kind.is_symlink()) {
                (true, ..) => Sort::Folder,
                (_, true, _) => Sort::File,
                (.., true) => Sort::Link,
                _ => Sort::Other,
            };
            found.push((entry.file_name(), sort));
        }
        Ok((sorted(found), false))
    }

    /// When a file in it was last written, and its length; `None` for anything but a plain file.
    pub(crate) fn stamp(&self, name: &OsStr) -> Option<(SystemTime, u64)> {
        let about = fs::symlink_metadata(self.entry(name).ok()?).ok()?;
        about.is_file().then(|| (about.modified().unwrap_or(UNIX_EPOCH), about.len()))
    }

    /// Reads a plain file of at most `limit` bytes. An error is the rest of a sentence that begins with its name.
    pub(crate) fn read(&self, name: &OsStr, limit: u64) -> Result<Contents, String> {
        let failed = |error: io::Error| format!("it cannot be read: {error}");
        // Without O_NONBLOCK, a pipe would wait for its writer.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let path = self.entry(name).map_err(failed)?;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if !about.is_file() {
            return Err("it is no plain file".to_owned());
        }
        let mut bytes = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > limit {
            return Err(format!("it is too large; at most {} MiB are read", limit >> 20));
        }
        Ok(Contents { bytes, written: about.modified().unwrap_or(UNIX_EPOCH) })
    }
}

fn sorted(mut found: Vec<(OsString, Sort)>) -> Vec<(OsString, Sort)> {
    found.sort();
    found
}

impl PartialOrd for Sort {
    fn partial_cmp(&self, other: &Sort) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Sort {
    fn cmp(&self, other: &Sort) -> std::cmp::Ordering {
        (*self as u8).cmp(&(*other as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    #[test]
    fn links_pipes_and_names_with_a_path_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let inside = temp.path().join("inside");
        fs::create_dir(&inside).unwrap();
        fs::write(temp.path().join("secret"), "outside").unwrap();
        fs::write(inside.join("plain"), "x").unwrap();
        symlink("../secret", inside.join("link")).unwrap();
        symlink("..", inside.join("up")).unwrap();
        assert!(Command::new("mkfifo").arg(inside.join("pipe")).status().unwrap().success());
        let folder = Folder::open(&inside).unwrap();
        let sorts: Vec<Sort> = folder.list(10).unwrap().0.into_iter().map(|(_, sort)| sort).collect();
        assert_eq!(sorts, [Sort::Link, Sort::Other, Sort::File, Sort::Link]);
        assert!(folder.list(2).unwrap().1);
        let read = |name: &str| folder.read(OsStr::new(name), 1 << 20).map(|contents| contents.bytes);
        assert_eq!(read("plain").unwrap(), b"x");
        for name in ["link", "pipe", "../secret", "..", ".", "", "up/secret", "/etc/passwd", "absent"] {
            assert!(read(name).is_err(), "{name}");
        }
        assert!(folder.folder(OsStr::new("up")).is_err());
        assert_eq!(
            folder.read(OsStr::new("plain"), 0).unwrap_err(),
            "it is too large; at most 0 MiB are read"
        );
    }

    #[test]
    fn a_folder_that_is_replaced_by_a_link_stays_itself() {
        let temp = tempfile::tempdir().unwrap();
        let [inside, other] = ["inside", "other"].map(|name| temp.path().join(name));
        for (path, text) in [(&inside, "mine"), (&other, "not mine")] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("x"), text).unwrap();
        }
        let folder = Folder::open(&inside).unwrap();
        fs::rename(&inside, temp.path().join("moved")).unwrap();
        symlink(&other, &inside).unwrap();
        assert_eq!(folder.read(OsStr::new("x"), 9).unwrap().bytes, b"mine");
    }
}
