//! The cache folder: it keeps what was fetched once, for all later runs.
//!
//! A tree in the cache appears by an atomic rename, so a folder that exists is complete. File locks keep
//! parallel runs from doing the same work twice or disturbing each other. What is not complete is in one folder, from
//! which the next run removes what a killed one left.

use crate::error::{Context, Error, Result};
use crate::fetch::owned::OwnedFolder;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The most files that are written to the disk one by one, and not with all that the file system has.
const SYNCED: usize = 32;

/// The cache folder, shared by all runs of a user.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
    /// Gets a line before what is fetched or waited for.
    said: fn(&str),
}

/// A held file lock. Dropping it, or the end of the process in any way, releases it.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Cache {
    /// The cache at `$GUARDRAIL_CACHE`, or `~/.cache/guardrail`; created if absent.
    pub fn open() -> Result<Cache> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = set("GUARDRAIL_CACHE")
            .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("guardrail")))
            .or_else(|| set("HOME").map(|dir| dir.join(".cache/guardrail")))
            .ok_or_else(|| {
                Error::BadValue(
                    "neither GUARDRAIL_CACHE nor HOME is set; set one to say where the cache is".into(),
                )
            })?;
        Cache::at(&root)
    }

    /// The cache at `root`; created if absent.
    pub fn at(root: &Path) -> Result<Cache> {
        fs::create_dir_all(root).map_err(|error| match is_denied(&error) {
            true => Error::UnwritableCache { cache: root.to_path_buf(), why: reason(&error) },
            false => Error::io("create", root, error),
        })?;
        let root = root.canonicalize().context("find", root)?;
        Ok(Cache { root, said: |_| () })
    }

    /// The same cache, which says what is fetched into it and what is waited for.
    pub fn saying(self, said: fn(&str)) -> Cache {
        Cache { said, ..self }
    }

    /// Says what is done next.
    pub(crate) fn say(&self, text: &str) {
        (self.said)(text);
    }

    /// The canonical path of the root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path of `name` below the root; it need not exist.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Waits for the lock `name` and holds it.
    pub fn lock(&self, name: &str) -> Result<Lock> {
        let folder = self.path("locks");
        let made = fs::create_dir_all(&folder).context("create", &folder);
        let path = folder.join(name);
        let opened = made.and_then(|()| {
            File::options().create(true).truncate(false).write(true).open(&path).context("open", &path)
        });
        let file = opened.map_err(|error| self.unwritable(error))?;
        let mut how = libc::LOCK_EX | libc::LOCK_NB;
        loop {
            // SAFETY: flock on a descriptor that `file` keeps open.
            if unsafe { libc::flock(file.as_raw_fd(), how) } == 0 {
                return Ok(Lock { _file: file });
            }
            let error = std::io::Error::last_os_error();
            match error.kind() {
                std::io::ErrorKind::WouldBlock => {
                    self.say(&format!("waiting for another process that holds the lock '{name}'"));
                    how = libc::LOCK_EX;
                }
                std::io::ErrorKind::Interrupted => {}
                _ => return Err(Error::io("lock", &path, error)),
            }
        }
    }

    /// The folder `name`. Where it is absent, `fill` makes it in a temporary folder, which is then renamed
    /// into place.
    pub fn ensure_tree(&self, name: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let tree = self.path(name);
        if tree.is_dir() {
            return Ok(tree);
        }
        let lock = self.lock(&format!("tree-{}", name.replace('/', "-")));
        let _lock = lock.map_err(|error| match error {
            Error::UnwritableCache { cache, why } => Error::NotInCache { what: name.to_owned(), cache, why },
            other => other,
        })?;
        if tree.is_dir() {
            return Ok(tree);
        }
        let parent = tree.parent().unwrap_or(&self.root);
        fs::create_dir_all(parent).context("create", parent)?;
        let folder = self.unfinished()?;
        fill(folder.path())?;
        // Temporary folders are private, but other users may read the cache. The unprivileged analysis
        // process is one of them.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), mode).context("change", folder.path())?;
        sync(folder.path()).context("write", folder.path())?;
        fs::rename(folder.path(), &tree).context("rename", &tree)?;
        // After the rename nothing is left to remove under the old name.
        let _ = folder.keep();
        Ok(tree)
    }

    /// Writes a file so that a reader sees the old contents or the new ones, never a part.
    pub fn write_atomically(&self, name: &str, contents: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.path(name);
        let parent = path.parent().unwrap_or(&self.root).to_path_buf();
        fs::create_dir_all(&parent).context("create", &parent)?;
        let folder = self.unfinished()?;
        let file = folder.path().join("file");
        fs::write(&file, contents).context("write", &file)?;
        sync(folder.path()).context("write", &file)?;
        fs::rename(&file, &path).context("rename", &path)?;
        Ok(path)
    }

    /// A folder for what is not complete, on the same file system as everything in the cache.
    pub(crate) fn unfinished(&self) -> Result<OwnedFolder> {
        let folder = self.path("unfinished");
        let made = fs::create_dir_all(&folder).context("create", &folder);
        let made =
            made.and_then(|()| OwnedFolder::new("new-", &folder).context("create a folder in", &folder));
        made.map_err(|error| self.unwritable(error))
    }

    /// True where this process may make folders in the cache: what is not there yet can be fetched and built.
    pub fn is_writable(&self) -> bool {
        self.unfinished().is_ok()
    }

    /// An error of its own where the cache as a whole cannot be written to.
    fn unwritable(&self, error: Error) -> Error {
        match error {
            Error::Io { source, .. } if is_denied(&source) => {
                Error::UnwritableCache { cache: self.root.clone(), why: reason(&source) }
            }
            other => other,
        }
    }
}

/// Whether a file system or its rights refuse to write.
fn is_denied(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied)
}

/// Why, in a few words.
fn reason(error: &std::io::Error) -> &'static str {
    if error.kind() == ErrorKind::ReadOnlyFilesystem {
        "it is read-only"
    } else {
        "it belongs to another user"
    }
}

/// Writes what a folder holds to the disk, so that after a crash of the system nothing is complete by its name alone.
fn sync(folder: &Path) -> std::io::Result<()> {
    let files: Vec<_> = fs::read_dir(folder)?.take(SYNCED + 1).collect::<std::io::Result<_>>()?;
    let plain = files.iter().all(|file| file.file_type().is_ok_and(|kind| kind.is_file()));
    if plain && files.len() <= SYNCED {
        return files.iter().try_for_each(|file| File::open(file.path())?.sync_all());
    }
    let folder = File::open(folder)?;
    // SAFETY: syncfs on a descriptor that `folder` keeps open.
    match unsafe { libc::syncfs(folder.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Bytes that the user may still write on the disk that holds `path`.
pub(crate) fn free_space(path: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: `statvfs` is plain data for which all zeros is a value.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is NUL-terminated and `stat` is writable; both live through the call.
    let result = unsafe { libc::statvfs(path.as_ptr(), &mut stat) };
    (result == 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_made_once_and_a_failure_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let failed = cache.ensure_tree("a/b", |_| Err(Error::NoMirror));
        assert!(failed.is_err());
        assert!(!cache.path("a/b").exists());
        assert_eq!(fs::read_dir(cache.path("a")).unwrap().count(), 0);
        let made =
            cache.ensure_tree("a/b", |dir| fs::write(dir.join("x"), "1").context("write", dir)).unwrap();
        let again = cache.ensure_tree("a/b", |_| panic!("made twice")).unwrap();
        assert_eq!(fs::read_dir(cache.path("unfinished")).unwrap().count(), 0);
        assert_eq!(made, again);
        assert_eq!(fs::read_to_string(again.join("x")).unwrap(), "1");
    }

    /// Root may write everywhere, so the test makes files of what has to be folders, and asks for the sentences alone.
    #[test]
    fn a_cache_that_takes_nothing_says_what_it_still_does() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        assert!(cache.is_writable());
        let refused = |number| {
            let source = std::io::Error::from_raw_os_error(number);
            cache.unwritable(Error::io("open", folder.path(), source)).to_string()
        };
        assert!(refused(libc::EROFS).contains("it is read-only"), "{}", refused(libc::EROFS));
        for number in [libc::EACCES, libc::EPERM] {
            let said = refused(number);
            assert!(said.contains("belongs to another user") && said.contains("GUARDRAIL_CACHE"), "{said}");
        }
        assert!(refused(libc::EIO).starts_with("cannot open "), "{}", refused(libc::EIO));
        assert!(Cache::at(Path::new("/proc/none/here")).is_err());
        fs::remove_dir_all(cache.path("unfinished")).unwrap();
        fs::write(cache.path("unfinished"), "").unwrap();
        assert!(!cache.is_writable());
    }

    #[test]
    fn what_a_killed_run_left_is_removed_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let left = cache.path("unfinished/new-left/deep");
        fs::create_dir_all(&left).unwrap();
        fs::write(left.join("x"), "1").unwrap();
        cache.ensure_tree("a", |dir| fs::create_dir(dir.join("many")).context("create", dir)).unwrap();
        cache.write_atomically("b", "1").unwrap();
        assert!(!left.exists());
        let all: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(all.len(), 4, "{all:?}");
    }
}
