//! A root that is a folder of this machine. Its links are taken as they are, and never followed.

use super::refused;
use super::tree::{Content, Node, Tree};
use crate::cpio::Owner;
use crate::error::{Context, Result};
use std::fs::{self, Metadata, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Reads a folder with all that is in it.
pub(super) fn read(root: &Path, room: u64) -> Result<Tree> {
    let whole = root.canonicalize().context("find", root)?;
    let mut tree = Tree::new(room);
    let mut open = vec![String::new()];
    while let Some(folder) = open.pop() {
        let path = whole.join(&folder);
        for entry in fs::read_dir(&path).context("list", &path)? {
            let entry = entry.context("list", &path)?;
            let Ok(name) = entry.file_name().into_string() else {
                return Err(refused(root, &format!("the name of {} is no UTF-8", entry.path().display())));
            };
            let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            if Tree::leaves_out(&name) {
                continue;
            }
            let node = node(&whole, &name, &tree)?;
            if node.content == Content::Folder {
                open.push(name.clone());
            }
            tree.add(&name, node).map_err(|why| refused(root, &why))?;
        }
    }
    Ok(tree)
}

/// One entry of the folder.
fn node(root: &Path, name: &str, tree: &Tree) -> Result<Node> {
    let path = root.join(name);
    let found = fs::symlink_metadata(&path).context("read", &path)?;
    let kind = found.file_type();
    let content = if kind.is_symlink() {
        let target = fs::read_link(&path).context("read", &path)?;
        match target.into_os_string().into_string() {
            Ok(target) => Content::Link(target),
            Err(_) => {
                return Err(refused(root, &format!("the link /{name} leads to a name that is no UTF-8")));
            }
        }
    } else if kind.is_dir() {
        Content::Folder
    } else if kind.is_file() {
        tree.refuse_size(found.len()).map_err(|why| refused(root, &why))?;
        Content::File(bytes(root, &path, tree.left())?)
    } else {
        let why = format!(
            "/{name} is a device, a pipe or a socket, which a root may have in /dev, /run and /tmp alone"
        );
        return Err(refused(root, &why));
    };
    Ok(Node { mode: found.mode() & 0o7777, owner: owner(&found), content })
}

/// Reads a file. Somebody else may put a link in the place of a folder meanwhile: then the file is not below the root.
fn bytes(root: &Path, path: &Path, room: u64) -> Result<Vec<u8>> {
    // A pipe in the file's place would be waited for.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).context("open", path)?;
    let is = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).context("find", path)?;
    if is != path || !file.metadata().context("read", path)?.is_file() {
        return Err(refused(root, &format!("{} changes while it is read", path.display())));
    }
    // A byte beyond the room is enough for the tree to refuse it.
    let mut bytes = Vec::new();
    file.take(room.saturating_add(1)).read_to_end(&mut bytes).context("read", path)?;
    Ok(bytes)
}

/// What belongs to the user of this program belongs to root in the guest.
fn owner(found: &Metadata) -> Owner {
    // SAFETY: neither function has preconditions.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    Owner {
        user: if found.uid() == user { 0 } else { found.uid() },
        group: if found.gid() == group { 0 } else { found.gid() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    #[test]
    fn links_are_not_followed_and_devices_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        fs::create_dir_all(root.join("dev")).unwrap();
        fs::create_dir_all(root.join("bin")).unwrap();
        symlink("/etc", root.join("etc")).unwrap();
        symlink("../../secret", root.join("bin/out")).unwrap();
        fs::write(root.join("bin/su"), "x").unwrap();
        fs::set_permissions(root.join("bin/su"), PermissionsExt::from_mode(0o4755)).unwrap();
        let _left_out = UnixListener::bind(root.join("dev/log")).unwrap();
        let tree = read(&root, 1 << 20).unwrap();
        let link = |target: &str| Some(Content::Link(target.into()));
        let content = |path: &str| tree.get(path).map(|node| node.content.clone());
        assert_eq!(content("etc"), link("/etc"));
        assert_eq!(content("bin/out"), link("../../secret"));
        assert_eq!((content("etc/passwd"), content("dev/log")), (None, None));
        assert_eq!(tree.get("bin/su").map(|node| (node.mode, node.owner)), Some((0o4755, Owner::default())));
        let _refused = UnixListener::bind(root.join("bin/socket")).unwrap();
        let error = read(&root, 1 << 20).unwrap_err().to_string();
        assert!(error.contains("/bin/socket is a device, a pipe or a socket"), "{error}");
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        let place = tempfile::tempdir().unwrap();
        File::create(place.path().join("huge")).unwrap().set_len(1 << 40).unwrap();
        let error = read(place.path(), 1 << 20).unwrap_err().to_string();
        assert!(error.contains("it has 1048576 MiB or more, and this guest has room for 1"), "{error}");
    }

    #[test]
    fn a_folder_that_became_a_link_is_noticed() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("real")).unwrap();
        fs::write(place.path().join("real/secret"), "x").unwrap();
        symlink("real", place.path().join("link")).unwrap();
        let root = place.path().canonicalize().unwrap();
        let error = bytes(&root, &root.join("link/secret"), 10).unwrap_err().to_string();
        assert!(error.contains("changes while it is read"), "{error}");
        assert_eq!(bytes(&root, &root.join("real/secret"), 10).unwrap(), b"x");
    }
}
