//! A writer of "newc" cpio archives, the format of an initramfs. The same input gives the same bytes.

/// An unfinished archive.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

/// The numbers of the user and the group to whom an entry belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The user; 0 is root.
    pub user: u32,
    /// The group.
    pub group: u32,
}

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

impl Archive {
    /// An empty archive.
    pub fn new() -> Archive {
        Archive::default()
    }

    /// Adds a folder; the caller adds parents before children.
    pub fn folder(&mut self, name: &str) {
        self.entry(name, DIRECTORY | 0o755, &[], (0, 0));
    }

    /// Adds a file with permission bits `mode`.
    pub fn file(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.entry(name, FILE | mode, data, (0, 0));
    }

    /// Adds a folder with its permission bits and owner.
    pub fn owned_folder(&mut self, name: &str, mode: u32, owner: Owner) {
        self.owned(name, DIRECTORY | mode, owner, &[], (0, 0));
    }

    /// Adds a file with its permission bits and owner.
    pub fn owned_file(&mut self, name: &str, mode: u32, owner: Owner, data: &[u8]) {
        self.owned(name, FILE | mode, owner, data, (0, 0));
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, name: &str, target: &str) {
        self.entry(name, LINK | 0o777, target.as_bytes(), (0, 0));
    }

    /// Adds a character device node.
    pub fn device(&mut self, name: &str, mode: u32, major: u32, minor: u32) {
        self.entry(name, CHARACTER_DEVICE | mode, &[], (major, minor));
    }

    /// Ends the archive and returns its bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[], (0, 0));
        self.pad(512);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8], device: (u32, u32)) {
        self.owned(name, mode, Owner::default(), data, device);
    }

    fn owned(&mut self, name: &str, mode: u32, owner: Owner, data: &[u8], (major, minor): (u32, u32)) {
        self.inode += 1;
        let size = u32::try_from(data.len()).expect("files of an initramfs are smaller than 4 GiB");
        let name_size = name.len() as u32 + 1;
        // inode, mode, uid, gid, links, mtime, size, device, rdev, name size, checksum.
        let fields =
            [self.inode, mode, owner.user, owner.group, 1, 0, size, 0, 0, major, minor, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad(4);
        self.bytes.extend_from_slice(data);
        self.pad(4);
    }

    fn pad(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_deterministic_and_aligned() {
        let build = || {
            let mut archive = Archive::new();
            archive.folder("bin");
            archive.file("bin/x", 0o755, b"hello");
            archive.link("bin/sh", "x");
            archive.device("console", 0o600, 5, 1);
            archive.finish()
        };
        let bytes = build();
        assert_eq!(bytes, build());
        assert_eq!(bytes.len() % 512, 0);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("07070100000001000041ED"));
        // The file: inode 2, mode 0100755, size 5, name size 6.
        assert!(
            text.contains("07070100000002000081ED00000000000000000000000100000000000000050000000000000000")
        );
        assert_eq!(text.matches("070701").count(), 5);
        let at = text.find("bin/x").unwrap();
        assert_eq!((at + "bin/x".len() + 1).next_multiple_of(4), text.find("hello").unwrap());
    }
}
