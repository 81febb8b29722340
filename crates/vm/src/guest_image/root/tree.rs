//! The files of a root, by their paths in it.

use crate::cpio::{Archive, Owner};
use std::collections::BTreeMap;

/// Folders that the guest mounts something over. What they have is left out.
const MOUNTED: [(&str, u32); 5] =
    [("dev", 0o755), ("proc", 0o755), ("run", 0o755), ("sys", 0o755), ("tmp", 0o1777)];
/// The most entries of a root.
const MOST: usize = 200_000;
/// The size of a page, and about what an entry takes besides its contents, in bytes.
const PAGE: u64 = 4096;
const ENTRY: u64 = 1024;
/// The longest path, in bytes; the guest's kernel leaves out entries with longer ones.
const LONGEST: usize = 3000;
/// The mode of a folder that a root has only in the paths of its files.
const FOLDER: u32 = 0o755;

/// The files of a root. Parents precede their children.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    nodes: BTreeMap<String, Node>,
    bytes: u64,
    room: u64,
}

/// An entry, with what a `stat` says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// The permission bits, with those for set-user-ID and set-group-ID.
    pub(super) mode: u32,
    pub(super) owner: Owner,
    pub(super) content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Folder,
    File(Vec<u8>),
    Link(String),
}

impl Tree {
    /// A root with the folders that every guest mounts something over; its files may have so many bytes.
    pub(super) fn new(room: u64) -> Tree {
        let folder = |(name, mode): (&str, u32)| {
            (name.to_owned(), Node { mode, owner: Owner::default(), content: Content::Folder })
        };
        Tree { nodes: MOUNTED.map(folder).into(), bytes: 0, room }
    }

    /// Whether an entry is left out, because the guest has its own there.
    pub(super) fn leaves_out(path: &str) -> bool {
        let first = path.split('/').next().unwrap_or_default();
        MOUNTED.iter().any(|(name, _)| *name == first)
    }

    /// Adds an entry, in place of an earlier one. An error says why the root is refused.
    pub(super) fn add(&mut self, path: &str, node: Node) -> Result<(), String> {
        if path.len() > LONGEST || matches!(&node.content, Content::Link(target) if target.len() > LONGEST) {
            return Err(format!("a path in it is longer than {LONGEST} bytes"));
        }
        self.add_parents(path)?;
        // A guest has whole pages of a file, and an inode with a name for each entry.
        let cost = |node: &Node| match &node.content {
            Content::File(bytes) => (bytes.len() as u64).next_multiple_of(PAGE) + ENTRY,
            _ => ENTRY,
        };
        let old = self.nodes.get(path);
        let is_folder = |node: &Node| node.content == Content::Folder;
        if old.is_some_and(is_folder) && !is_folder(&node) {
            return Err(format!("/{path} is a folder and something else as well"));
        }
        self.bytes -= old.map_or(0, cost);
        self.refuse_size(cost(&node))?;
        self.bytes += cost(&node);
        self.nodes.insert(path.to_owned(), node);
        match self.nodes.len() > MOST {
            true => Err(format!("it has more than {MOST} files; give it as an ext4 or squashfs image")),
            false => Ok(()),
        }
    }

    /// Adds the folders above a path. Something below a link would lead out of the root, or to two names for a file.
    fn add_parents(&mut self, path: &str) -> Result<(), String> {
        for (at, _) in path.match_indices('/') {
            let parent = &path[..at];
            match self.nodes.get(parent) {
                Some(Node { content: Content::Folder, .. }) => {}
                Some(_) => return Err(format!("/{path} is below /{parent}, which is no folder")),
                None => {
                    let node = Node { mode: FOLDER, owner: Owner::default(), content: Content::Folder };
                    self.nodes.insert(parent.to_owned(), node);
                }
            }
        }
        Ok(())
    }

    /// Refuses a root that would have so many bytes more than fit.
    pub(super) fn refuse_size(&self, more: u64) -> Result<(), String> {
        let whole = self.bytes.saturating_add(more);
        if whole <= self.room {
            return Ok(());
        }
        Err(format!(
            "it has {} MiB or more, and this guest has room for {}; give it more with --memory, or give the root as an \
             ext4 or squashfs image",
            whole >> 20,
            self.room >> 20
        ))
    }

    /// How many bytes there is still room for.
    pub(super) fn left(&self) -> u64 {
        self.room - self.bytes
    }

    /// How many bytes its files have.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The entry at a path without a slash in front.
    pub(super) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(path)
    }

    /// Adds all entries to the folder `place` of an archive.
    pub(super) fn add_to(&self, archive: &mut Archive, place: &str) {
        archive.folder(place);
        for (path, Node { mode, owner, content }) in &self.nodes {
            let name = format!("{place}/{path}");
            match content {
                Content::Folder => archive.owned_folder(&name, *mode, *owner),
                Content::File(bytes) => archive.owned_file(&name, *mode, *owner, bytes),
                Content::Link(target) => archive.link(&name, target),
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::guest_image::root) fn node(content: Content) -> Node {
        Node { mode: 0o755, owner: Owner::default(), content }
    }

    #[test]
    fn nothing_is_below_a_link_and_sizes_are_bounded() {
        let mut tree = Tree::new(3 * PAGE);
        tree.add("lib", node(Content::Link("usr/lib".into()))).unwrap();
        let error = tree.add("lib/x", node(Content::File(vec![1]))).unwrap_err();
        assert_eq!(error, "/lib/x is below /lib, which is no folder");
        tree.add("a/b", node(Content::File(vec![0; 10]))).unwrap();
        assert_eq!(tree.get("a").map(|node| &node.content), Some(&Content::Folder));
        // The same file again takes the room of the one before.
        tree.add("a/b", node(Content::File(vec![0; 9]))).unwrap();
        let used = PAGE + 2 * ENTRY;
        assert_eq!((tree.bytes(), tree.left()), (used, 3 * PAGE - used));
        assert!(
            tree.add("c", node(Content::File(vec![0; 2 * PAGE as usize]))).unwrap_err().contains("--memory")
        );
        assert!(tree.add("a", node(Content::File(Vec::new()))).unwrap_err().contains("is a folder"));
        assert!(tree.add(&"x".repeat(LONGEST + 1), node(Content::Folder)).is_err());
        assert!(Tree::leaves_out("dev/null") && Tree::leaves_out("tmp") && !Tree::leaves_out("device"));
    }
}
