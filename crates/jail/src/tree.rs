//! Which folders, links and files a private root has, so that every name of a jail's list leads where it leads outside.

use crate::list::Jail;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

/// Symbolic links that one path may lead through, as in the kernel.
const MOST_LINKS: u32 = 40;
/// The process information of the system. Landlock decides what of it is read.
const PROC: &str = "/proc";

/// A name in a private root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// A folder that leads to other names.
    Folder,
    /// A symbolic link with its target.
    Link(PathBuf),
    /// The file or folder of the same name outside.
    Same(Same),
}

/// How a file or folder of the system appears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Same {
    pub(crate) is_folder: bool,
    pub(crate) is_device: bool,
    pub(crate) writable: bool,
    /// It lies in a folder that appears as a whole, so that its name is there already.
    pub(crate) inside: bool,
}

/// The names of a private root by their paths, parents before what they hold.
#[derive(Debug, Default)]
pub(crate) struct Tree(BTreeMap<PathBuf, Node>);

impl Tree {
    /// The names that a jail lists, and the folder `start`, which is empty if nothing lists it. `None` where the list
    /// names the root itself.
    pub(crate) fn of(jail: &Jail, start: &Path) -> Option<Tree> {
        let mut tree = Tree::default();
        tree.add(Path::new(PROC), false)?;
        for (paths, writable) in [(&jail.writes, true), (&jail.reads, false)] {
            for path in paths.iter().filter(|path| !path.starts_with(PROC)) {
                tree.add(path, writable)?;
            }
        }
        if let Some(start) = tree.resolve(start) {
            tree.folders(&start);
            tree.0.entry(start).or_insert(Node::Folder);
        }
        Some(tree.pruned())
    }

    /// The names in order, without those that lie in a folder that appears as a whole.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&Path, &Node)> {
        self.0
            .iter()
            .filter(|(path, _)| path.as_path() != Path::new("/"))
            .map(|(path, node)| (path.as_path(), node))
    }

    fn add(&mut self, path: &Path, writable: bool) -> Option<()> {
        // What is absent is left out, and so is a pipe that was inherited, which has no name.
        let Some(place) = self.resolve(path) else { return Some(()) };
        let Ok(kind) = fs::symlink_metadata(&place).map(|found| found.file_type()) else { return Some(()) };
        place.parent()?;
        self.folders(&place);
        let is_device = kind.is_char_device() || kind.is_block_device();
        let writable = writable || matches!(self.0.get(&place), Some(Node::Same(same)) if same.writable);
        let same = Same { is_folder: kind.is_dir(), is_device, writable, inside: false };
        self.0.insert(place, Node::Same(same));
        Some(())
    }

    /// Adds the folders above a place.
    fn folders(&mut self, place: &Path) {
        for above in place.ancestors().skip(1) {
            self.0.entry(above.to_path_buf()).or_insert(Node::Folder);
        }
    }

    /// Where a path leads. Links on the way are added.
    fn resolve(&mut self, path: &Path) -> Option<PathBuf> {
        let path = std::path::absolute(path).ok()?;
        let mut left: VecDeque<OsString> =
            path.components().map(|part| part.as_os_str().to_owned()).collect();
        let (mut at, mut links) = (PathBuf::from("/"), 0);
        while let Some(part) = left.pop_front() {
            match Path::new(&part).components().next() {
                Some(Component::RootDir) => at = PathBuf::from("/"),
                Some(Component::ParentDir) => _ = at.pop(),
                Some(Component::Normal(name)) => {
                    let next = at.join(name);
                    let kind = fs::symlink_metadata(&next).ok()?.file_type();
                    if !kind.is_symlink() {
                        at = next;
                        continue;
                    }
                    links += 1;
                    let target = fs::read_link(&next).ok().filter(|_| links <= MOST_LINKS)?;
                    for part in target.components().rev() {
                        left.push_front(part.as_os_str().to_owned());
                    }
                    self.folders(&next);
                    self.0.insert(next, Node::Link(target));
                }
                _ => {}
            }
        }
        Some(at)
    }

    /// Leaves out what a folder above shows already.
    fn pruned(mut self) -> Tree {
        let mut kept = BTreeMap::new();
        for (path, node) in std::mem::take(&mut self.0) {
            let above = path.ancestors().skip(1).find_map(|above| match kept.get(above) {
                Some(Node::Same(same)) => Some(*same),
                _ => None,
            });
            let node = match (above, node) {
                (None, node) => node,
                (Some(above), Node::Same(same)) if same.is_device || same.writable && !above.writable => {
                    Node::Same(Same { inside: true, ..same })
                }
                (Some(_), _) => continue,
            };
            kept.insert(path, node);
        }
        Tree(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_name_leads_where_it_leads_outside() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let at = |name: &str| base.join(name);
        fs::create_dir_all(at("real/deep")).unwrap();
        fs::write(at("real/deep/file"), "").unwrap();
        fs::create_dir(at("start")).unwrap();
        symlink("real", at("link")).unwrap();
        symlink(at("link/deep/../deep/file"), at("far")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let jail =
            Jail::new().reads(at("far")).reads(at("loop")).reads(at("absent")).writes("/proc/self/fd/0");
        let tree = Tree::of(&jail, &at("start")).unwrap();
        let of = |tree: &Tree, name: &str| tree.0.get(&at(name)).cloned();
        let same = |is_folder, writable, inside| {
            Some(Node::Same(Same { is_folder, is_device: false, writable, inside }))
        };
        assert_eq!(of(&tree, "far"), Some(Node::Link(at("link/deep/../deep/file"))));
        assert_eq!(of(&tree, "link"), Some(Node::Link("real".into())));
        assert_eq!(of(&tree, "real/deep"), Some(Node::Folder));
        assert_eq!(of(&tree, "real/deep/file"), same(false, false, false));
        assert_eq!((of(&tree, "start"), of(&tree, "absent")), (Some(Node::Folder), None));
        // A folder shows what lies in it, and what is written in one that is read appears once more.
        let jail = Jail::new().reads(at("real/deep/file")).reads(at("real")).writes(at("real/deep"));
        let tree = Tree::of(&jail, &base).unwrap();
        assert_eq!(of(&tree, "real"), same(true, false, false));
        assert_eq!((of(&tree, "real/deep"), of(&tree, "real/deep/file")), (same(true, true, true), None));
        assert!(Tree::of(&Jail::new().reads("/"), &base).is_none());
    }
}
