//! Kernels that are no packages of Debian: packages of other distributions, and folders where a kernel was built.

use crate::error::{Context, Error, Result};
use crate::fetch::cache::Cache;
use crate::fetch::packages::unpacked;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How files of packages end: Fedora's, SUSE's and others', and Arch's.
const ENDINGS: [&str; 4] = [".rpm", ".pkg.tar.zst", ".pkg.tar.xz", ".pkg.tar.gz"];
/// Where packages of a kernel's headers have them, before its release: Debian's and `bindeb-pkg`'s, and those of `rpm-pkg`.
const HEADERS: [&str; 2] = ["usr/src/linux-headers-", "usr/src/kernels/"];
/// Where `make install` puts an image without a program of the distribution that names it by its release.
const UNNAMED: [&str; 2] = ["boot/vmlinuz", "vmlinuz"];
/// Bytes of an image that hold its boot sector, and the text of its release.
const HEAD: u64 = 64 << 10;
/// What the build of a kernel says of its release.
const RELEASE: &str = "include/config/kernel.release";
/// The image that it makes.
const IMAGE: &str = "arch/x86/boot/bzImage";

/// A kernel that was built here.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    /// What `uname -r` would say.
    pub(crate) release: String,
    /// The compressed image.
    pub(crate) vmlinuz: PathBuf,
    /// The folder that leads to its modules.
    pub(crate) modules: PathBuf,
}

/// Whether a file is a package of another distribution, by its name.
pub(crate) fn is_package(path: &Path) -> bool {
    path.file_name().is_some_and(|name| ENDINGS.iter().any(|ending| name.to_string_lossy().ends_with(ending)))
}

/// The packages of other distributions in a folder.
pub(crate) fn packages(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).context("list", folder)? {
        let path = entry.context("list", folder)?.path();
        if is_package(&path) && path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

/// Unpacks a package. The program takes no path that leads out of the folder.
pub(crate) fn unpack(package: &Path, folder: &Path) -> Result<()> {
    let mut command = Command::new("bsdtar");
    command.arg("-xf").arg(package).arg("-C").arg(folder).arg("--no-same-owner");
    unpacked(&mut command, ["bsdtar", "libarchive-tools"], package, folder)
}

/// The folders below a root that may have the headers of a release.
pub(crate) fn headers(root: &Path, release: &str) -> Vec<PathBuf> {
    HEADERS.map(|folder| root.join(format!("{folder}{release}"))).to_vec()
}

/// The image of this release that `make install` put below a root; `None` where its name and its text do not say that it
/// is of this release.
pub(crate) fn installed(root: &Path, release: &str) -> Option<PathBuf> {
    let named = root.join(format!("vmlinuz-{release}"));
    let unnamed = UNNAMED.map(|name| root.join(name)).into_iter();
    let mut fitting = unnamed.filter(|image| release_of_image(image).as_deref() == Some(release));
    Some(named).filter(|image| image.is_file()).or_else(|| fitting.next())
}

/// The release that an image's boot sector names (`kernel_version` of the boot protocol).
fn release_of_image(image: &Path) -> Option<String> {
    let mut head = Vec::new();
    fs::File::open(image).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
    if head.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let at = u16::from_le_bytes([*head.get(0x20e)?, *head.get(0x20f)?]);
    let text = head.get(usize::from(at) + 0x200..)?;
    let end = text.iter().position(|byte| *byte == b' ' || *byte == 0)?;
    String::from_utf8(text[..end].to_vec()).ok()
}

/// The kernel that was built in a folder; `None` where the folder is no kernel's. The cache gets a folder that leads to its
/// modules.
pub(crate) fn built(cache: &Cache, tree: &Path) -> Option<Result<Built>> {
    let is_source = tree.join("Kbuild").is_file() && tree.join("arch/x86").is_dir();
    (is_source || tree.join(RELEASE).is_file()).then(|| of_tree(cache, tree))
}

fn of_tree(cache: &Cache, tree: &Path) -> Result<Built> {
    let bad = |why: &str| Error::BadKernel { path: tree.to_path_buf(), why: why.to_owned() };
    let vmlinuz = tree.join(IMAGE);
    let release = fs::read_to_string(tree.join(RELEASE)).unwrap_or_default().trim().to_owned();
    if !vmlinuz.is_file() || release.is_empty() {
        return Err(bad(
            "a kernel's source is here, but no kernel that was built for x86-64; run make in it",
        ));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "+.-_~".contains(c);
    if !release.chars().all(plain) || release.starts_with('.') {
        return Err(bad("its release is no name of a folder"));
    }
    let key = format!("{:.20x}", Sha256::digest(format!("{}\0{release}", tree.display())));
    let folder = cache.ensure_tree(&format!("kernels/built-{key}"), |folder| {
        let link =
            |from: &Path, name: &str| symlink(from, folder.join(name)).context("create a link in", folder);
        link(tree, "kernel")?;
        link(tree, "build")?;
        link(&tree.join("modules.builtin"), "modules.builtin")
    })?;
    Ok(Built { release, vmlinuz, modules: folder })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        (folder, cache)
    }

    #[test]
    fn packages_are_known_by_their_names() {
        for name in ["kernel-core-6.1.rpm", "linux-6.1-1-x86_64.pkg.tar.zst"] {
            assert!(is_package(Path::new(name)), "{name}");
        }
        for name in ["linux.deb", "rpm", "a.tar.zst", "/"] {
            assert!(!is_package(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn an_image_without_a_release_in_its_name_says_it() {
        let root = tempfile::tempdir().unwrap();
        let image = root.path().join("vmlinuz");
        let mut bytes = vec![0; 0x400];
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x20e..0x210].copy_from_slice(&0x180u16.to_le_bytes());
        bytes[0x380..0x38e].copy_from_slice(b"6.1.0-own (me)");
        fs::write(&image, &bytes).unwrap();
        let found = |release| installed(root.path(), release);
        assert_eq!(found("6.1.0-own"), Some(image.clone()));
        assert_eq!(found("6.1.0"), None);
        let named = root.path().join("vmlinuz-6.1.0");
        fs::write(&named, "").unwrap();
        assert_eq!(found("6.1.0"), Some(named));
        // No length and no offset of a damaged one leads beyond its end.
        bytes[0x20e..0x210].copy_from_slice(&u16::MAX.to_le_bytes());
        for bytes in [&bytes[..], &bytes[..0x206], &bytes[..3], b""] {
            fs::write(&image, bytes).unwrap();
            assert_eq!(found("6.1.0-own"), None);
        }
    }

    #[test]
    fn a_kernel_is_where_it_was_built() {
        let (_folder, cache) = cache();
        let tree = tempfile::tempdir().unwrap();
        assert!(built(&cache, tree.path()).is_none());
        fs::create_dir_all(tree.path().join("include/config")).unwrap();
        fs::write(tree.path().join(RELEASE), "6.1.0-mine\n").unwrap();
        let error = built(&cache, tree.path()).unwrap().unwrap_err().to_string();
        assert!(error.ends_with("run make in it"), "{error}");
        fs::create_dir_all(tree.path().join("arch/x86/boot")).unwrap();
        fs::write(tree.path().join(IMAGE), "").unwrap();
        fs::create_dir_all(tree.path().join("drivers/net")).unwrap();
        fs::write(tree.path().join("drivers/net/a.ko"), "").unwrap();
        let kernel = built(&cache, tree.path()).unwrap().unwrap();
        assert_eq!(kernel.release, "6.1.0-mine");
        assert!(kernel.modules.join("kernel/drivers/net/a.ko").is_file());
        fs::write(tree.path().join(RELEASE), "../x").unwrap();
        assert!(built(&cache, tree.path()).unwrap().is_err());
    }
}
