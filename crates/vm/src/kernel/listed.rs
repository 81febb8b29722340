//! Which files are a kernel's modules.

use crate::error::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The endings of module file names.
pub(super) const ENDINGS: [&str; 3] = [".ko", ".ko.xz", ".ko.zst"];

/// A module's name as `struct module` spells it.
pub fn normalized(name: &str) -> String {
    name.replace('-', "_")
}

/// The modules below a folder, by name. Where the kernel was built there, those that it lists.
pub(super) fn files(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    built(folder).map_or_else(|| all_below(folder.to_path_buf()), Ok)
}

/// The modules of the tree where a kernel was built, which lists them; `None` for other folders. Packages that were made in the
/// tree leave copies of older builds there.
fn built(folder: &Path) -> Option<BTreeMap<String, PathBuf>> {
    let list = fs::read_to_string(folder.join("modules.order")).ok()?;
    // Newer kernels list the objects that modules are linked of.
    let listed = list.lines().filter(|line| is_inside(line)).map(|line| Path::new(line).with_extension("ko"));
    let file = |path: PathBuf| Some((module_name(&path)?, folder.join(path)));
    Some(listed.filter_map(file).filter(|(_, path)| path.is_file()).collect())
}

/// Whether a path leads to something below where it begins.
fn is_inside(path: &str) -> bool {
    Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// All modules below a folder.
fn all_below(folder: PathBuf) -> Result<BTreeMap<String, PathBuf>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).context("list", &folder)? {
            let entry = entry.context("list", &folder)?;
            let path = entry.path();
            if entry.file_type().context("read", &path)?.is_dir() {
                folders.push(path);
            } else if let Some(name) = module_name(&path) {
                files.insert(name, path);
            }
        }
    }
    Ok(files)
}

/// The name of the module in a file, by the file's name.
pub(super) fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let stem = ENDINGS.iter().find_map(|ending| file.strip_suffix(ending))?;
    (!stem.is_empty()).then(|| normalized(stem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_says_which_modules_it_built() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for place in ["drivers/net", "debian/linux-image/drivers/net"] {
            fs::create_dir_all(path(place)).unwrap();
            fs::write(path(place).join("my-card.ko"), place).unwrap();
        }
        assert!(built(folder.path()).is_none());
        assert_eq!(all_below(folder.path().to_path_buf()).unwrap().len(), 1);
        let order = "drivers/net/my-card.o\ndrivers/net/gone.ko\n../debian/linux-image/drivers/net/my-card.ko\n/etc/x.ko\n";
        fs::write(path("modules.order"), order).unwrap();
        let files = built(folder.path()).unwrap();
        assert_eq!(
            files.into_iter().collect::<Vec<_>>(),
            [("my_card".into(), path("drivers/net/my-card.ko"))]
        );
    }
}
