//! Kernels that are installed on a machine, with their headers. A module for one is built on the machine
//! where it runs.

use crate::error::{Error, Result};
use crate::fetch::packages::Packages;
use crate::kernel::kernels::{self, Kernel};
use std::path::{Path, PathBuf};

/// A kernel, and the headers that modules for it are built against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The kernel with its image and modules.
    pub kernel: Kernel,
    /// Its headers, where this machine has them; otherwise they are fetched from the archive.
    pub headers: Option<PathBuf>,
}

impl Target {
    /// The kernel that this machine runs.
    pub fn running() -> Result<Target> {
        below(Path::new("/"), &kernels::running()?)
    }

    /// The kernel that `wanted` names. It is one of `ROOT/boot/vmlinuz-RELEASE`, `ROOT/lib/modules/RELEASE`,
    /// with or without `build` behind, `ROOT/usr/src/linux-headers-RELEASE`, or a name for [`kernels::find`].
    pub fn find(packages: &Packages, wanted: &str) -> Result<Target> {
        match kernels::root_and_release(Path::new(wanted)) {
            Some((root, release)) => below(&root, &release),
            None => Ok(Target { kernel: kernels::find(packages, wanted)?, headers: None }),
        }
    }

    /// The folder with its headers, fetched where this machine has none.
    pub fn headers(&self, packages: &Packages) -> Result<PathBuf> {
        match &self.headers {
            Some(folder) => Ok(folder.clone()),
            None => kernels::headers_tree(packages, &self.kernel),
        }
    }
}

/// An installed kernel by its release.
fn below(root: &Path, release: &str) -> Result<Target> {
    let kernel = kernels::below(root, release)?;
    let modules = &kernel.modules;
    let headers = [modules.join("build"), root.join("usr/src").join(format!("linux-headers-{release}"))];
    let found = headers.iter().find(|folder| folder.join("Module.symvers").is_file());
    let headers = match found {
        Some(folder) => Some(folder.canonicalize().map_err(|error| Error::io("find", folder, error))?),
        // A later step finds out whether they are needed.
        None => Some(headers[0].clone()),
    };
    Ok(Target { kernel, headers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_installed_kernel_is_known_by_any_of_its_files() {
        let known = |path| {
            kernels::root_and_release(Path::new(path))
                .map(|(root, release)| (root.display().to_string(), release))
        };
        let expected = |root: &str| Some((root.to_owned(), "6.1.0-1".to_owned()));
        assert_eq!(known("/boot/vmlinuz-6.1.0-1"), expected("/"));
        assert_eq!(known("/lib/modules/6.1.0-1/build"), expected("/"));
        assert_eq!(known("/x/usr/lib/modules/6.1.0-1/"), expected("/x"));
        assert_eq!(known("/x/usr/src/linux-headers-6.1.0-1"), expected("/x"));
        for other in ["/x/vmlinuz-6.1", "6.1", "/x/linux-headers-6.1", "/", "/lib/modules"] {
            assert_eq!(known(other), None, "{other}");
        }
    }

    #[test]
    fn what_an_installed_kernel_lacks_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let said = || below(root, "6.1").unwrap_err().to_string();
        assert!(said().contains("there are no modules of kernel 6.1"), "{}", said());
        fs::create_dir_all(root.join("lib/modules/6.1")).unwrap();
        assert!(said().ends_with("vmlinuz-6.1: there is no such image of the kernel"), "{}", said());
        fs::create_dir_all(root.join("boot")).unwrap();
        fs::write(root.join("boot/vmlinuz-6.1"), "").unwrap();
        let target = below(root, "6.1").unwrap();
        assert_eq!(target.headers, Some(root.join("lib/modules/6.1/build")));
        let headers = root.join("usr/src/linux-headers-6.1");
        fs::create_dir_all(&headers).unwrap();
        fs::write(headers.join("Module.symvers"), "").unwrap();
        assert_eq!(below(root, "6.1").unwrap().headers, headers.canonicalize().ok());
    }
}
