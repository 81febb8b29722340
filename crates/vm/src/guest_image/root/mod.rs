//! A root file system of the user's, in which the workload runs.
//!
//! A folder or an archive becomes a part of the guest's initramfs. An image of a file system is a disk of the guest: what
//! is in it is read by the guest's kernel alone.
//!
//! **Knows**: folders, archives and kinds of images. **Must not know**: what the workload does in the root.
//!
//! **Architecture Invariant:** no link of the root is followed on this machine, and no file outside it is read.

mod archive;
mod find;
mod folder;
mod tree;

use crate::cpio::Archive;
use crate::error::printable;
use crate::error::{Context, Error, Result};
use sha2::{Digest, Sha256};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tree::Tree;

/// The root's folder in the guest, without the slash in front.
pub(crate) const PLACE: &str = "guardrail/root";
/// The serial number of the disk with an image, by which the guest finds it.
pub(crate) const SERIAL: &str = "guardrail-root";
/// The largest image, in bytes: all of it is read once.
const MOST_IMAGE: u64 = 16 << 30;

/// The most characters of a reason.
const MOST_WORDS: usize = 400;

/// The root that the user names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestRoot {
    /// The folder, archive or image.
    pub path: PathBuf,
}

/// A file system that a guest can mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// Also ext2 and ext3, which the same module reads.
    Ext4,
    Squashfs,
}

/// A root that a guest gets.
#[derive(Clone, Debug)]
pub struct Root {
    kind: Kind,
    /// SHA-256 of all that the guest gets of it, in hexadecimal.
    digest: String,
}

#[derive(Clone, Debug)]
enum Kind {
    Tree(Tree),
    Image { path: PathBuf, file_system: FileSystem },
}

impl FromStr for GuestRoot {
    type Err = Error;

    /// Reads the path of an existing folder or file.
    fn from_str(text: &str) -> Result<GuestRoot> {
        let path = PathBuf::from(text);
        match path.is_dir() || path.is_file() {
            true => Ok(GuestRoot { path }),
            false => Err(Error::BadValue(format!("--rootfs {text}: there is no such folder or file"))),
        }
    }
}

impl fmt::Display for GuestRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

impl GuestRoot {
    /// The same with the whole path.
    pub fn whole(&self) -> GuestRoot {
        GuestRoot { path: std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone()) }
    }

    /// Reads the root; a folder or an archive may have at most `room` bytes.
    pub(crate) fn load(&self, room: u64) -> Result<Root> {
        if self.path.is_dir() {
            return Root::of_tree(folder::read(&self.path, room)?);
        }
        let file = File::open(&self.path).context("open", &self.path)?;
        match image(&file).context("read", &self.path)? {
            Some(file_system) => Root::of_image(&self.path, file, file_system),
            None => Root::of_tree(archive::read(&self.path, file, room)?),
        }
    }
}

impl FileSystem {
    /// The kernel's name for it, which is the module's as well.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Squashfs => "squashfs",
        }
    }

    /// How it is mounted: a journal that was not written to the end cannot be on a disk that nobody writes.
    pub(crate) fn options(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ro,noload",
            FileSystem::Squashfs => "ro",
        }
    }
}

impl Root {
    fn of_tree(tree: Tree) -> Result<Root> {
        let mut archive = Archive::new();
        tree.add_to(&mut archive, PLACE);
        let digest = format!("{:x}", Sha256::digest(archive.finish()));
        Ok(Root { kind: Kind::Tree(tree), digest })
    }

    fn of_image(path: &Path, mut file: File, file_system: FileSystem) -> Result<Root> {
        let size = file.metadata().context("read", path)?.len();
        if size > MOST_IMAGE {
            return Err(refused(
                path,
                &format!("an image may have {} GiB, and this one has more", MOST_IMAGE >> 30),
            ));
        }
        let mut digest = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer).context("read", path)? {
                0 => break,
                count => digest.update(&buffer[..count]),
            }
        }
        let digest = format!("{:x}", digest.finalize());
        Ok(Root { kind: Kind::Image { path: path.to_path_buf(), file_system }, digest })
    }

    /// SHA-256 of what the guest gets, in hexadecimal: the same contents give the same digest.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The file with the image and its file system; `None` where the root comes with the initramfs.
    pub(crate) fn image(&self) -> Option<(&Path, FileSystem)> {
        match &self.kind {
            Kind::Tree(_) => None,
            Kind::Image { path, file_system } => Some((path, *file_system)),
        }
    }

    /// How many bytes of it are in the initramfs.
    pub(crate) fn bytes(&self) -> usize {
        match &self.kind {
            Kind::Tree(tree) => tree.bytes() as usize,
            Kind::Image { .. } => 0,
        }
    }

    /// Adds what is of it in the initramfs.
    pub(crate) fn add_to(&self, archive: &mut Archive) {
        match &self.kind {
            Kind::Tree(tree) => tree.add_to(archive, PLACE),
            Kind::Image { .. } => archive.folder(PLACE),
        }
    }

    /// Refuses a program that could not run in the root. Only the guest sees what an image has.
    pub(crate) fn refuse(&self, of: &GuestRoot, program: &str) -> Result<()> {
        match &self.kind {
            Kind::Tree(tree) => find::refuse(tree, program).map_err(|why| refused(&of.path, &why)),
            Kind::Image { .. } => Ok(()),
        }
    }
}

/// Reads any bytes as an archive, for the fuzzer.
#[cfg(feature = "talk")]
pub fn understands(bytes: &[u8]) {
    if let Ok(tree) = archive::read(Path::new("root.tar"), bytes, 1 << 20) {
        assert!(tree.bytes() <= 1 << 20);
        let _ = find::refuse(&tree, "/bin/sh");
        let _ = Root::of_tree(tree);
    }
}

/// The file system of which a file is an image; `None` for other files.
fn image(file: &File) -> std::io::Result<Option<FileSystem>> {
    let is = |at: u64, wanted: &[u8]| {
        let mut found = vec![0; wanted.len()];
        match file.read_exact_at(&mut found, at) {
            Ok(()) => Ok(found == wanted),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    };
    // The archive's sign counts first: an image has other bytes at that place.
    Ok(if is(257, b"ustar")? {
        None
    } else if is(0, b"hsqs")? {
        Some(FileSystem::Squashfs)
    } else if is(0x438, b"\x53\xef")? {
        Some(FileSystem::Ext4)
    } else {
        None
    })
}

fn refused(path: &Path, why: &str) -> Error {
    // Names in the root are others' words.
    let why: String = printable(why).chars().take(MOST_WORDS).collect();
    Error::BadValue(format!("--rootfs {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const ROOM: u64 = 64 << 20;

    fn loaded(path: &Path) -> Result<Root> {
        path.display().to_string().parse::<GuestRoot>()?.load(ROOM)
    }

    fn why(path: &Path) -> String {
        loaded(path).err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn the_same_contents_have_the_same_digest_from_a_folder_and_an_archive() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("root");
        fs::create_dir_all(folder.join("etc")).unwrap();
        fs::write(folder.join("etc/b"), "two").unwrap();
        fs::write(folder.join("etc/a"), "one").unwrap();
        std::os::unix::fs::symlink("/etc/a", folder.join("c")).unwrap();
        let first = loaded(&folder).unwrap();
        let archive = place.path().join("root.tar");
        let mut builder = tar::Builder::new(File::create(&archive).unwrap());
        builder.follow_symlinks(false);
        builder.append_dir_all(".", &folder).unwrap();
        builder.finish().unwrap();
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } == 0 {
            assert_eq!(loaded(&archive).unwrap().digest(), first.digest());
        }
        assert_eq!(loaded(&folder).unwrap().digest(), first.digest());
        fs::write(folder.join("etc/a"), "on2").unwrap();
        assert_ne!(loaded(&folder).unwrap().digest(), first.digest());
    }

    #[test]
    fn images_are_known_by_their_signs_and_other_files_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("image");
        let mut bytes = vec![0; 4096];
        bytes[0x438..0x43a].copy_from_slice(b"\x53\xef");
        fs::write(&path, &bytes).unwrap();
        assert_eq!(loaded(&path).unwrap().image().map(|image| image.1), Some(FileSystem::Ext4));
        fs::write(&path, b"hsqs and more").unwrap();
        assert_eq!(loaded(&path).unwrap().image().map(|image| image.1), Some(FileSystem::Squashfs));
        for other in [&b""[..], b"hello", &[0; 5000]] {
            fs::write(&path, other).unwrap();
            assert!(why(&path).contains("neither a folder, nor a .tar archive"), "{}", why(&path));
        }
        File::create(&path).unwrap().set_len(MOST_IMAGE + 1).unwrap();
        File::options().write(true).open(&path).unwrap().write_all_at(b"hsqs", 0).unwrap();
        assert!(why(&path).contains("an image may have 16 GiB"), "{}", why(&path));
        assert!("/nowhere".parse::<GuestRoot>().is_err());
    }
}
