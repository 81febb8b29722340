//! The runtime that guarded modules stand on, `guardrail.ko`: built for a kernel when it is first asked for.

use crate::error::{Context, Error, Result};
use crate::kbuild;
use crate::kernels::Kernel;
use crate::packages::Packages;
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// A runtime that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// `guardrail.ko`.
    pub module: PathBuf,
    /// What it exports, with the checksums that modules which use it carry (`Module.symvers`).
    pub symbols: PathBuf,
}

/// Builds the runtime for `kernel`, unless the cache has it.
pub fn ensure(packages: &Packages, kernel: &Kernel) -> Result<Runtime> {
    let tree = build(packages, kernel, false)?;
    Ok(Runtime { module: tree.join("guardrail.ko"), symbols: tree.join("Module.symvers") })
}

/// Builds the module with the runtime's tests, unless the cache has it; the runtime is beside it.
pub fn ensure_tests(packages: &Packages, kernel: &Kernel) -> Result<PathBuf> {
    Ok(build(packages, kernel, true)?.join("guardrail_test.ko"))
}

/// The folder with the runtime's sources: beside the program, or what `$GUARDRAIL_RUNTIME` names.
pub fn folder() -> Result<PathBuf> {
    kbuild::folder("runtime", "Kbuild", "GUARDRAIL_RUNTIME")
}

fn build(packages: &Packages, kernel: &Kernel, tests: bool) -> Result<PathBuf> {
    let folder = folder()?;
    let script = kbuild::folder("scripts", "kbuild", "GUARDRAIL_SCRIPTS")?.join("kbuild");
    let sources = sources(&folder, tests)?;
    let what = if tests { "runtime-test" } else { "runtime" };
    let tree = format!("{what}/{}/{}", kernel.release, digest(&folder, &sources, &script)?);
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
        kbuild::run(packages, kernel, &script, &["--name", "runtime"], &rest)?;
        let modules: &[&str] = if tests { &["guardrail.ko", "guardrail_test.ko"] } else { &["guardrail.ko"] };
        for name in modules.iter().chain(&["Module.symvers"]) {
            let (from, to) = (copy.join(name), out.join(name));
            fs::copy(&from, &to).context("copy", &from)?;
        }
        fs::remove_dir_all(&work).context("remove", &work)
    })
}

/// The names of the sources, those of the tests with their folder.
fn sources(folder: &Path, tests: bool) -> Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for part in ["", "test"].iter().take(1 + usize::from(tests)) {
        let folder = folder.join(part);
        for entry in fs::read_dir(&folder).context("list", &folder)? {
            let name = entry.context("list", &folder)?.file_name();
            let path = Path::new(&name);
            let source = path.extension().is_some_and(|end| end == "c" || end == "h") || name == "Kbuild";
            // What a build in the sources' folder leaves is none.
            if source && !name.to_string_lossy().ends_with(".mod.c") {
                names.push(Path::new(part).join(path));
            }
        }
    }
    names.sort();
    if names.is_empty() {
        return Err(Error::BadValue(format!("{} holds no sources of the runtime", folder.display())));
    }
    Ok(names)
}

/// Changes with the sources and with how they are built.
fn digest(folder: &Path, sources: &[PathBuf], script: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    hash.update(fs::read(script).context("read", script)?);
    for source in sources {
        let path = folder.join(source);
        let bytes = fs::read(&path).context("read", &path)?;
        hash.update(format!("{} {}\n", source.display(), bytes.len()));
        hash.update(bytes);
    }
    Ok(hash.finalize().iter().take(10).map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_known_by_its_sources() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("test")).unwrap();
        for name in ["a.c", "a.mod.c", "a.o", "a.h", "Kbuild", "test/b.c"] {
            fs::write(root.join(name), "1").unwrap();
        }
        let names = |tests| sources(root, tests).unwrap();
        assert_eq!(names(false), ["Kbuild", "a.c", "a.h"].map(PathBuf::from));
        assert_eq!(names(true), ["Kbuild", "a.c", "a.h", "test/b.c"].map(PathBuf::from));
        let digest = || digest(root, &names(false), &root.join("a.o")).unwrap();
        let before = digest();
        fs::write(root.join("test/b.c"), "2").unwrap();
        assert_eq!(digest(), before);
        fs::write(root.join("a.h"), "2").unwrap();
        assert_ne!(digest(), before);
        fs::remove_dir_all(root.join("test")).unwrap();
        assert!(sources(root, true).unwrap_err().to_string().contains("cannot list"));
    }
}
