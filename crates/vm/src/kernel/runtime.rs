//! The runtime that guarded modules need, `guardrail.ko`; it is built for a kernel at the first request.

use crate::error::{Context, Error, Result};
use crate::fetch::packages::Packages;
use crate::kernel::installed::Target;
use crate::kernel::kbuild;
use crate::kernel::kernels::Kernel;
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// The files of a runtime that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// The path of `guardrail.ko`.
    pub module: PathBuf,
}

/// Builds the runtime for `kernel`, unless the cache has it.
pub fn ensure(packages: &Packages, kernel: &Kernel) -> Result<Runtime> {
    ensure_for(packages, &Target { kernel: kernel.clone(), headers: None })
}

/// Does the same for a kernel that may be installed on this machine.
pub fn ensure_for(packages: &Packages, target: &Target) -> Result<Runtime> {
    Ok(Runtime { module: build(packages, target, false)?.join("guardrail.ko") })
}

/// Builds the module with the runtime's tests, unless the cache has it; the runtime is beside it.
pub fn ensure_tests(packages: &Packages, kernel: &Kernel) -> Result<PathBuf> {
    let target = Target { kernel: kernel.clone(), headers: None };
    Ok(build(packages, &target, true)?.join("guardrail_test.ko"))
}

/// The folder with the runtime's sources: beside the program, or the value of `$GUARDRAIL_RUNTIME`.
pub fn folder() -> Result<PathBuf> {
    kbuild::folder("runtime", "Kbuild", "GUARDRAIL_RUNTIME")
}

fn build(packages: &Packages, target: &Target, tests: bool) -> Result<PathBuf> {
    let folder = folder()?;
    let script = kbuild::folder("scripts", "kbuild", "GUARDRAIL_SCRIPTS")?.join("kbuild");
    let sources = sources(&folder, tests)?;
    let what = if tests { "runtime-test" } else { "runtime" };
    let release = &target.kernel.release;
    let symbols = target.headers.as_ref().map(|headers| there(headers, release)).transpose()?;
    let tree = format!("{what}/{release}/{}", digest(&folder, &sources, &script, symbols.as_deref())?);
    packages.cache().ensure_tree(&tree, |out| {
        let (work, copy) = (out.join(".work"), out.join(".work/runtime"));
        for source in &sources {
            let to = copy.join(source);
            let parent = to.parent().unwrap_or(&copy);
            fs::create_dir_all(parent).context("create", parent)?;
            fs::copy(folder.join(source), &to).context("write", &to)?;
        }
        let mut rest = vec![work.as_os_str(), copy.as_os_str()];
        rest.extend(tests.then_some(OsStr::new("TEST=1")));
        let headers = target.headers(packages)?;
        let included = copy.join("base/kernel.h").display().to_string();
        let options = ["--name", "runtime", "--headers", &included];
        kbuild::run_with(packages, &headers, release, &script, &options, &rest)?;
        let modules: &[&str] = if tests { &["guardrail.ko", "guardrail_test.ko"] } else { &["guardrail.ko"] };
        for name in modules {
            let (from, to) = (copy.join(name), out.join(name));
            fs::copy(&from, &to).context("copy", &from)?;
        }
        fs::remove_dir_all(&work).context("remove", &work)
    })
}

/// The paths of the sources below `folder`; those of the tests only where `tests` is set.
fn sources(folder: &Path, tests: bool) -> Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(part) = folders.pop() {
        let here = folder.join(&part);
        for entry in fs::read_dir(&here).context("list", &here)? {
            let entry = entry.context("list", &here)?;
            let path = part.join(entry.file_name());
            if entry.path().is_dir() {
                folders.extend((tests || path != Path::new(TESTS)).then_some(path));
            } else if is_source(&path) {
                names.push(path);
            }
        }
    }
    names.sort();
    if names.is_empty() {
        return Err(Error::BadValue(format!("{} holds no sources of the runtime", folder.display())));
    }
    Ok(names)
}

/// The folder of the runtime's tests.
const TESTS: &str = "tests";

/// True where a build reads this file; a build in the folder itself leaves other files there.
fn is_source(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name == "Kbuild" || (name.ends_with(".c") || name.ends_with(".h")) && !name.ends_with(".mod.c")
}

/// The symbols in a headers tree of this machine, which identify what it was made for.
fn there(headers: &Path, release: &str) -> Result<PathBuf> {
    let symbols = headers.join("Module.symvers");
    match symbols.is_file() {
        true => Ok(symbols),
        false => Err(Error::BadKernel {
            path: headers.to_path_buf(),
            why: format!(
                "the headers of kernel {release} are missing; install them with: apt-get install linux-headers-{release}"
            ),
        }),
    }
}

/// A digest that changes with the sources, with the build script, and with the kernel's symbols where the
/// release is not unique.
fn digest(folder: &Path, sources: &[PathBuf], script: &Path, symbols: Option<&Path>) -> Result<String> {
    let mut hash = Sha256::new();
    for file in [script].into_iter().chain(symbols) {
        hash.update(fs::read(file).context("read", file)?);
    }
    for source in sources {
        let path = folder.join(source);
        let bytes = fs::read(&path).context("read", &path)?;
        hash.update(format!("{} {}\n", source.display(), bytes.len()));
        hash.update(bytes);
    }
    Ok(format!("{:.20x}", hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_known_by_its_sources() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("tests")).unwrap();
        fs::create_dir(root.join("include")).unwrap();
        for name in ["a.c", "a.mod.c", "a.o", "include/a.h", "Kbuild", "tests/b.c"] {
            fs::write(root.join(name), "1").unwrap();
        }
        let names = |tests| sources(root, tests).unwrap();
        assert_eq!(names(false), ["Kbuild", "a.c", "include/a.h"].map(PathBuf::from));
        assert_eq!(names(true), ["Kbuild", "a.c", "include/a.h", "tests/b.c"].map(PathBuf::from));
        let digest = || digest(root, &names(false), &root.join("a.o"), None).unwrap();
        let before = digest();
        fs::write(root.join("tests/b.c"), "2").unwrap();
        assert_eq!(digest(), before);
        fs::write(root.join("include/a.h"), "2").unwrap();
        assert_ne!(digest(), before);
        let missing = root.join("missing");
        assert!(sources(&missing, true).unwrap_err().to_string().contains("cannot list"));
    }

    #[test]
    fn headers_that_are_missing_are_told_with_their_package() {
        let folder = tempfile::tempdir().unwrap();
        let said = there(folder.path(), "6.1").unwrap_err().to_string();
        assert!(said.ends_with("install them with: apt-get install linux-headers-6.1"), "{said}");
        fs::write(folder.path().join("Module.symvers"), "").unwrap();
        assert!(there(folder.path(), "6.1").is_ok());
    }
}
