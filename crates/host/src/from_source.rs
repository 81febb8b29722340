//! Drivers that are given as C sources: a file, or a folder of them.
//!
//! A copy is built with the headers of the run's kernel, so that the user's folder stays as it is. What is built is kept
//! by the digest of what it is built from.

use crate::error::HostError;
use crate::progress::Progress;
use guardrail_vm::kbuild;
use guardrail_vm::kernels::Kernel;
use guardrail_vm::packages::Packages;
use guardrail_vm::{Error, kernels};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The folder of the cache for what was built.
const BUILT: &str = "built";
/// How many builds for a kernel are kept.
const KEPT: usize = 32;
/// The most files of a driver, and bytes.
const MOST_FILES: usize = 10_000;
const MOST_BYTES: u64 = 256 << 20;
/// Endings of what a build makes, besides hidden files.
const MADE: [&str; 7] = ["o", "ko", "mod", "a", "order", "symvers", "gch"];
/// How the build files are called.
const BUILD_FILES: [&str; 2] = ["Kbuild", "Makefile"];
/// The folder of a build that goes on.
const WORK: &str = ".build";
/// The most lines of a failed build that are shown.
const MOST_LINES: usize = 100;

/// The sources of a driver.
#[derive(Debug)]
struct Sources {
    /// The file or folder, as the user named it.
    named: PathBuf,
    /// The files by their paths in the folder.
    files: BTreeMap<PathBuf, Vec<u8>>,
}

/// Whether an argument names sources: a file that ends in `.c`, or a folder by a path.
pub fn is_source(driver: &str) -> bool {
    let path = Path::new(driver);
    match driver.ends_with(".c") {
        true => path.is_file(),
        false => (driver == "." || driver == ".." || driver.contains('/')) && path.is_dir(),
    }
}

/// Why an argument is refused that has to name sources.
pub fn no_source(named: &str) -> String {
    format!(
        "{named} is neither a C file nor a folder of sources; write a folder with a slash, as in ./mydriver"
    )
}

/// A word that changes when the sources change.
pub fn state(source: &str) -> Result<String, HostError> {
    Ok(Sources::read(Path::new(source))?.digest(None))
}

/// The modules that are built of these sources for a kernel, unless that was done before.
pub fn modules(
    packages: &Packages,
    kernel: &Kernel,
    source: &str,
    progress: &Progress,
) -> Result<Vec<PathBuf>, HostError> {
    let sources = Sources::read(Path::new(source))?;
    let releases = format!("{BUILT}/{}", kernel.release);
    let tree = format!("{releases}/{}", sources.digest(Some(kernel)));
    let folder = packages.cache().path(&tree);
    if !folder.is_dir() {
        progress.step(&format!("building {source}"));
        let headers = kernels::headers_tree(packages, kernel)?;
        let built = packages.cache().ensure_tree(&tree, |out| sources.build(packages, &headers, kernel, out));
        match built {
            Ok(_) => make_room(&packages.cache().path(&releases), &folder),
            Err(Error::Build { why, said, .. }) => {
                said.lines().take(MOST_LINES).for_each(|line| progress.note(line));
                return Err(HostError::Usage(format!(
                    "{source} does not build for {}: {why}",
                    kernel.release
                )));
            }
            Err(other) => return Err(other.into()),
        }
    }
    let mut modules = files_in(&folder).map_err(HostError::io("list", folder.display()))?;
    modules.retain(|path| path.extension() == Some(OsStr::new("ko")));
    modules.sort();
    Ok(modules)
}

/// The one module that is built of sources.
pub fn module(
    packages: &Packages,
    kernel: &Kernel,
    source: &str,
    progress: &Progress,
) -> Result<PathBuf, HostError> {
    let modules = modules(packages, kernel, source, progress)?;
    match modules.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(none(source)),
        many => {
            let names: Vec<_> = many.iter().filter_map(|path| path.file_name()?.to_str()).collect();
            Err(HostError::Usage(format!(
                "{source} makes {} modules ({}); run 'guardrail build {source}', and check one of them",
                names.len(),
                names.join(", ")
            )))
        }
    }
}

/// What is wrong with sources of which no module is built.
pub fn none(source: &str) -> HostError {
    HostError::Usage(format!(
        "{source} builds, but makes no module; its Kbuild file needs a line 'obj-m += NAME.o'"
    ))
}

impl Sources {
    fn read(named: &Path) -> Result<Sources, HostError> {
        let mut sources = Sources { named: named.to_path_buf(), files: BTreeMap::new() };
        if named.is_file() {
            let name = named.file_name().map(PathBuf::from).unwrap_or_default();
            sources.files.insert(name, read(named, MOST_BYTES)?);
            sources.read_beside()?;
        } else {
            sources.read_folder()?;
        }
        sources.add_build_file()?;
        Ok(sources)
    }

    /// Reads what a C file may include from its folder, and its workload.
    fn read_beside(&mut self) -> Result<(), HostError> {
        let folder = self.named.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        for path in files_in(folder).map_err(HostError::io("list", folder.display()))? {
            let Some(name) = path.file_name() else { continue };
            let wanted = path.extension() == Some(OsStr::new("h")) || is_workload(Path::new(name));
            if wanted && path.is_file() && self.files.len() < MOST_FILES {
                let content = read(&path, MOST_BYTES)?;
                self.files.insert(name.into(), content);
            }
        }
        Ok(())
    }

    /// Reads the files of the folder and of those below, without hidden files and what a build makes.
    fn read_folder(&mut self) -> Result<(), HostError> {
        let (mut open, mut bytes) = (vec![PathBuf::new()], 0);
        while let Some(folder) = open.pop() {
            let whole = self.named.join(&folder);
            for path in files_in(&whole).map_err(HostError::io("list", whole.display()))? {
                let Some(name) = path.file_name() else { continue };
                let made = path.extension().is_some_and(|ending| MADE.iter().any(|made| ending == *made))
                    || name.to_string_lossy().ends_with(".mod.c");
                if name.to_string_lossy().starts_with('.') || made {
                    continue;
                }
                let inside = folder.join(name);
                // A link to a folder may lead around in a circle.
                let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
                if path.is_dir() && !is_link {
                    open.push(inside);
                } else if path.is_file() {
                    let content = read(&path, MOST_BYTES - bytes)?;
                    bytes += content.len() as u64;
                    self.files.insert(inside, content);
                }
                if self.files.len() > MOST_FILES || open.len() > MOST_FILES || bytes >= MOST_BYTES {
                    return Err(self.refused("it holds more than the sources of a driver"));
                }
            }
        }
        Ok(())
    }

    /// Makes sure that there is a build file. One C file needs none.
    fn add_build_file(&mut self) -> Result<(), HostError> {
        if BUILD_FILES.iter().any(|name| self.files.contains_key(Path::new(name))) {
            return Ok(());
        }
        let is_c =
            |path: &&PathBuf| path.extension() == Some(OsStr::new("c")) && path.components().count() == 1;
        let names: Vec<String> = self
            .files
            .keys()
            .filter(is_c)
            .map(|path| path.with_extension("o").display().to_string())
            .collect();
        match names.as_slice() {
            [one] => {
                self.files.insert("Kbuild".into(), format!("obj-m += {one}\n").into_bytes());
                Ok(())
            }
            [] => Err(self.refused("it holds neither a Kbuild file nor a C file; name the driver's folder")),
            _ => Err(self.refused("it holds several C files and no Kbuild file that says 'obj-m += NAME.o', and 'NAME-y := …' with its parts")),
        }
    }

    fn refused(&self, why: &str) -> HostError {
        HostError::Usage(format!("{}: {why}", self.named.display()))
    }

    /// A digest of the sources, and of the kernel that they are built for: one that was built here changes under its name.
    fn digest(&self, kernel: Option<&Kernel>) -> String {
        let mut digest = Sha256::new();
        if let Some(Ok(image)) = kernel.map(|kernel| fs::metadata(&kernel.vmlinuz)) {
            digest.update(format!("{} {:?}", image.len(), image.modified().ok()));
        }
        let whole = std::path::absolute(&self.named).unwrap_or_else(|_| self.named.clone());
        let names = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
        digest.update(names(&whole));
        for (path, content) in &self.files {
            digest.update([0]);
            digest.update(names(path));
            digest.update((content.len() as u64).to_le_bytes());
            digest.update(content);
        }
        format!("{:x}", digest.finalize())[..24].to_owned()
    }

    /// Builds a copy, and puts the modules into `out`.
    fn build(
        &self,
        packages: &Packages,
        headers: &Path,
        kernel: &Kernel,
        out: &Path,
    ) -> guardrail_vm::Result<()> {
        let (work, copy) = (out.join(WORK), out.join(WORK).join("src"));
        for (path, content) in &self.files {
            let file = copy.join(path);
            let put =
                fs::create_dir_all(file.parent().unwrap_or(&copy)).and_then(|()| fs::write(&file, content));
            put.map_err(|error| Error::io("write", &file, error))?;
        }
        let script = kbuild::folder("scripts", "kbuild", "GUARDRAIL_SCRIPTS")?.join("kbuild");
        let home = self.home();
        // Options of the compiler are separated by blanks.
        let name = if home.contains(char::is_whitespace) { "." } else { &home };
        let rest = [work.as_os_str(), copy.as_os_str(), OsStr::new("CFLAGS_MODULE=-g")];
        kbuild::run_with(packages, headers, &kernel.release, &script, &["--name", name], &rest).map_err(
            |error| match error {
                Error::Build { program, why, said } => {
                    let own = |text: &str| text.replace(&copy.display().to_string(), &home);
                    Error::Build { program, why: own(&why), said: own(&said) }
                }
                other => other,
            },
        )?;
        let mut open = vec![copy];
        while let Some(folder) = open.pop() {
            for path in files_in(&folder).map_err(|error| Error::io("list", &folder, error))? {
                let Some(name) = path.file_name().filter(|_| path.extension() == Some(OsStr::new("ko")))
                else {
                    open.extend(path.is_dir().then_some(path));
                    continue;
                };
                fs::copy(&path, out.join(name)).map_err(|error| Error::io("copy", &path, error))?;
            }
        }
        // A workload of its own stays beside a module.
        for (path, content) in self.files.iter().filter(|(path, _)| is_workload(path)) {
            fs::write(out.join(path), content).map_err(|error| Error::io("write", path, error))?;
        }
        fs::remove_dir_all(&work).map_err(|error| Error::io("remove", &work, error))
    }

    /// The folder of the sources.
    fn home(&self) -> String {
        let folder = if self.named.is_dir() { Some(self.named.as_path()) } else { self.named.parent() };
        let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        whole.display().to_string()
    }
}

/// Whether a file of the sources is a workload that stays beside the module.
fn is_workload(path: &Path) -> bool {
    path.components().count() == 1 && path.to_string_lossy().ends_with("workload.sh")
}

/// The beginning of a file, up to a number of bytes.
fn read(path: &Path, most: u64) -> Result<Vec<u8>, HostError> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path);
    let read = file.and_then(|file| file.take(most).read_to_end(&mut bytes));
    read.map_err(HostError::io("read", path.display()))?;
    Ok(bytes)
}

fn files_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

/// Removes the oldest builds for a kernel. Nobody needs them to go on.
fn make_room(builds: &Path, newest: &Path) {
    let written = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    let mut all: Vec<_> =
        files_in(builds).unwrap_or_default().into_iter().filter(|path| path != newest).collect();
    all.sort_by_key(|path| written(path));
    let many = (all.len() + 1).saturating_sub(KEPT);
    for old in all.into_iter().take(many) {
        let _ = fs::remove_dir_all(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn refused(files: &[(&str, &str)]) -> String {
        let folder = folder(files);
        Sources::read(folder.path()).unwrap_err().to_string()
    }

    #[test]
    fn one_c_file_needs_no_build_file() {
        let folder = folder(&[
            ("a.c", "x"),
            ("a.h", "y"),
            ("sub/b.c", "z"),
            (".git/c.c", ""),
            ("a.o", ""),
            ("a.mod.c", ""),
        ]);
        let sources = Sources::read(folder.path()).unwrap();
        let names: Vec<_> = sources.files.keys().map(|path| path.display().to_string()).collect();
        assert_eq!(names, ["Kbuild", "a.c", "a.h", "sub/b.c"]);
        assert_eq!(sources.files[Path::new("Kbuild")], b"obj-m += a.o\n");
        let file = Sources::read(&folder.path().join("a.c")).unwrap();
        let names: Vec<_> = file.files.keys().map(|path| path.display().to_string()).collect();
        assert_eq!(names, ["Kbuild", "a.c", "a.h"]);
        assert_eq!(file.home(), sources.home());
        assert_ne!(file.digest(None), sources.digest(None));
    }

    #[test]
    fn folders_that_say_too_little_are_refused() {
        assert!(refused(&[("readme", "x")]).contains("neither a Kbuild file nor a C file"));
        assert!(refused(&[("a.c", "x"), ("b.c", "x")]).contains("several C files"));
        let both = folder(&[("a.c", "x"), ("b.c", "x"), ("Makefile", "obj-m += ab.o")]);
        assert!(Sources::read(both.path()).is_ok());
    }

    #[test]
    fn sources_are_paths_and_modules_are_names() {
        let folder = folder(&[("a.c", "x")]);
        let path = |name: &str| folder.path().join(name).display().to_string();
        assert!(is_source(&path("a.c")) && is_source(&path("")) && is_source("."));
        assert!(
            !is_source("e1000") && !is_source(&path("b.c")) && !is_source("zoo/leak") && !is_source("a.ko")
        );
    }

    #[test]
    fn old_builds_make_room() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..KEPT + 5 {
            fs::create_dir(folder.path().join(number.to_string())).unwrap();
        }
        let newest = folder.path().join("0");
        make_room(folder.path(), &newest);
        assert_eq!(files_in(folder.path()).unwrap().len(), KEPT);
        assert!(newest.exists());
    }
}
