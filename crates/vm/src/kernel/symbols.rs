//! Debug files of modules and of their kernel: kept in the cache, and fetched from debuginfod or from the kernel's
//! debug package.

use crate::error::{Context, Error, Result};
use crate::fetch::cache::{Cache, free_space};
use crate::fetch::packages::{Fetch, Packages, extract};
use crate::kernel::kernel_debug;
use crate::kernel::kernels::Kernel;
use crate::kernel::modules::{ModuleFile, build_id, has_lines, normalized};
use crate::parser::{Given, Job, Parser};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub use crate::kernel::kernel_debug::cached as cached_kernel;

/// Disk space for a debug package, and for the files of a kernel and a few modules out of it.
const PACKAGE_SPACE: u64 = 2 << 30;
/// The largest debug file of a module.
const MAX_FILE: u64 = 512 << 20;

/// The debug file of a module in the cache. `None` where it was not fetched, or where the module holds its debug
/// information itself.
pub fn cached(cache: &Cache, module: &ModuleFile) -> Option<PathBuf> {
    kept(cache, module).filter(|_| !module.facts.has_lines)
}

/// The module's file in the cache, if there is one.
fn kept(cache: &Cache, module: &ModuleFile) -> Option<PathBuf> {
    Some(cache.path(&name(module))).filter(|path| path.is_file())
}

/// Keeps a file of the user's in the cache, as the debug file of the kernel or of a module.
pub fn keep(
    cache: &Cache,
    parser: &Parser,
    kernel: &Kernel,
    modules: &[&ModuleFile],
    file: &Path,
) -> Result<()> {
    let known = fs::metadata(file).context("open", file)?;
    if !known.is_file() {
        return Err(Error::BadModule { path: file.to_path_buf(), why: "it is no plain file".into() });
    }
    if kernel_debug::is_linked(parser, file)? {
        let id = kernel_debug::build_id(parser, kernel)?;
        return kernel_debug::keep(cache, parser, kernel, id.as_deref(), file);
    }
    keep_module(cache, parser, modules, file)
}

/// Keeps a file in the cache as the debug file of the module whose build it is of.
fn keep_module(cache: &Cache, parser: &Parser, modules: &[&ModuleFile], file: &Path) -> Result<()> {
    let bad = |why: String| Error::BadModule { path: file.to_path_buf(), why };
    let known = fs::metadata(file).context("open", file)?;
    if known.len() > MAX_FILE {
        return Err(bad("it is larger than any debug file can be".into()));
    }
    let bytes = fs::read(file).context("read", file)?;
    let (id, _) = parser.ask(&ReadDebug {}, &[], &bytes).map_err(|error| error.of(file, bad))?;
    let module = match &id {
        Some(id) => modules.iter().find(|module| module.facts.build_id.as_ref() == Some(id)),
        // Without build IDs the names have to do; the sections are compared when the file is read.
        None => modules.iter().find(|module| module.facts.build_id.is_none() && is_named(file, module)),
    };
    let Some(module) = module else {
        let theirs = modules.iter().map(|module| {
            format!("{}'s is {}", module.name, module.facts.build_id.as_deref().unwrap_or("absent"))
        });
        return Err(bad(format!(
            "it is the debug file of no driver of this run: its build ID is {}; {}",
            id.as_deref().unwrap_or("absent"),
            theirs.collect::<Vec<_>>().join(", ")
        )));
    };
    let path = cache.write_atomically(&name(module), &bytes)?;
    // The unprivileged analysis process reads it.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    // Not by its name: a confined process may change what it has open alone.
    File::open(&path).and_then(|file| file.set_permissions(mode)).context("change", &path)
}

/// Reads the debug file of a module. The answer is its build ID; a file without debug information is refused.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReadDebug {}

impl Job for ReadDebug {
    const NAME: &'static str = "debug-file";
    type Answer = Option<String>;

    fn run(self, given: Given) -> Result<(Option<String>, Vec<u8>), String> {
        let file = object::File::parse(given.bytes.as_slice()).ok();
        let file = file.filter(|file| given.bytes.starts_with(b"\x7fELF") && has_lines(file));
        let absent = "it has no debug information (DWARF); a debug file is a module before 'strip -g'";
        Ok((build_id(&file.ok_or(absent)?), Vec::new()))
    }
}

/// Fetches the debug files of modules and of the kernel that are absent. What cannot be had is a sentence in the
/// result.
pub fn fetch(
    packages: &Packages,
    parser: &Parser,
    kernel: &Kernel,
    modules: &[&ModuleFile],
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<String>> {
    let cache = packages.cache();
    let is_missing = |module: &&ModuleFile| {
        !module.facts.has_lines && kept(cache, module).is_none() && !from_server(cache, parser, module)
    };
    let (of_kernel, others): (Vec<&ModuleFile>, Vec<&ModuleFile>) = modules
        .iter()
        .copied()
        .filter(is_missing)
        .partition(|module| module.path.starts_with(&kernel.modules));
    let mut lacks: Vec<String> = others
        .iter()
        .map(|module| {
            format!(
                "{} has no debug information; give its debug file with --debug-file",
                module.path.display()
            )
        })
        .collect();
    let mut wanted = Wanted { kernel, modules: of_kernel, build_id: None };
    if cached_kernel(cache, kernel).is_none() {
        wanted.build_id = kernel_debug::build_id(parser, kernel)?;
        match &wanted.build_id {
            None => lacks
                .push(format!("kernel {} has no build ID, so its functions have no lines", kernel.release)),
            Some(id) if kernel_from_server(cache, parser, kernel, id) => wanted.build_id = None,
            Some(_) => {}
        }
    }
    if !wanted.modules.is_empty() || wanted.build_id.is_some() {
        lacks.extend(from_package(packages, parser, &wanted, tell)?);
    }
    Ok(lacks)
}

/// What is looked for in a kernel's debug package.
struct Wanted<'a> {
    kernel: &'a Kernel,
    modules: Vec<&'a ModuleFile>,
    /// The kernel's build ID, where its own debug file is wanted.
    build_id: Option<String>,
}

/// Asks the servers of `DEBUGINFOD_URLS`; false where there are none, or where they do not have the file.
fn from_server(cache: &Cache, parser: &Parser, module: &ModuleFile) -> bool {
    let file = module.facts.build_id.as_deref().and_then(served);
    file.is_some_and(|file| keep_module(cache, parser, &[module], &file).is_ok())
}

/// The same for the kernel.
fn kernel_from_server(cache: &Cache, parser: &Parser, kernel: &Kernel, id: &str) -> bool {
    served(id).is_some_and(|file| kernel_debug::keep(cache, parser, kernel, Some(id), &file).is_ok())
}

/// The debug file of a build ID from the servers of `DEBUGINFOD_URLS`, where there are any that have it.
fn served(id: &str) -> Option<PathBuf> {
    std::env::var_os("DEBUGINFOD_URLS").filter(|urls| !urls.is_empty())?;
    // It becomes a word of a command line.
    Some(id).filter(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    // The program has time limits of its own (debuginfod-find(1), DEBUGINFOD_TIMEOUT).
    let output = Command::new("debuginfod-find").args(["debuginfo", id]).stdin(Stdio::null()).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

/// Takes debug files out of the kernel's debug package.
fn from_package(
    packages: &Packages,
    parser: &Parser,
    wanted: &Wanted<'_>,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<String>> {
    let (cache, release) = (packages.cache(), &wanted.kernel.release);
    let package = format!("linux-image-{release}-dbg");
    if !packages.names(&package)?.contains(&package) {
        return Ok(vec![format!("the archive has no package {package}; give debug files with --debug-file")]);
    }
    let tree = format!("debug/packages/{release}");
    if !cache.path(&tree).is_dir() && free_space(cache.root()).is_some_and(|free| free < PACKAGE_SPACE) {
        return Err(Error::DiskFull { path: cache.root().to_path_buf() });
    }
    tell(&format!("debug information: {package} (about 1 GB; the first time only)"));
    let tree = packages.ensure_debs(&tree, &package, Fetch::Exactly(&[&package]))?;
    let folder = tempfile::tempdir_in(cache.root()).context("create", cache.root())?;
    for deb in crate::fetch::packages::deb_files(&tree)? {
        extract(&deb, folder.path(), &wanted.patterns())?;
    }
    Ok(wanted.keep(cache, parser, &package, &files_below(folder.path())))
}

impl Wanted<'_> {
    /// The files of the package, as patterns of `tar`.
    fn patterns(&self) -> Vec<String> {
        let modules = self.modules.iter().map(|module| module.name.replace('_', "[-_]"));
        let mut patterns: Vec<String> = modules.map(|name| format!("*/{name}.ko*")).collect();
        patterns.extend(self.kernel_files().iter().map(|file| format!("*/{file}")));
        patterns
    }

    /// Where packages have the kernel's file: beside the others of `/boot`, or with the modules. The one place is then a
    /// link to the other.
    fn kernel_files(&self) -> Vec<String> {
        let release = &self.kernel.release;
        let places = [format!("boot/vmlinux-{release}"), format!("lib/modules/{release}/vmlinux")];
        if self.build_id.is_some() { places.into() } else { Vec::new() }
    }

    /// Keeps what the package had. What it did not have is a sentence in the result.
    fn keep(&self, cache: &Cache, parser: &Parser, package: &str, found: &[PathBuf]) -> Vec<String> {
        let mut lacks = Vec::new();
        for module in &self.modules {
            let of_module = found.iter().filter(|file| is_named(file, module));
            if !of_module.into_iter().any(|file| keep_module(cache, parser, &[module], file).is_ok()) {
                lacks.push(format!("{package} has no debug file of this build of {}", module.name));
            }
        }
        if let Some(id) = &self.build_id {
            let places = self.kernel_files();
            let file = found.iter().find(|file| places.iter().any(|place| file.ends_with(place)));
            let kept = file.map(|file| kernel_debug::keep(cache, parser, self.kernel, Some(id), file));
            match kept {
                Some(Ok(())) => {}
                // The path is that of a temporary file.
                Some(Err(Error::BadModule { why, .. })) => {
                    lacks.push(format!("{package} does not fit the kernel: {why}"));
                }
                Some(Err(error)) => lacks.push(format!("{package} cannot be used: {error}")),
                None => lacks.push(format!("{package} has no debug file of the kernel itself")),
            }
        }
        lacks
    }
}

/// All files below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_path_buf()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files
}

/// Whether a file is named like a module: `e1000.ko`, `e1000.ko.debug`.
fn is_named(file: &Path, module: &ModuleFile) -> bool {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.split_once(".ko").is_some_and(|(stem, _)| normalized(stem) == module.name)
}

/// The name of a module's debug file in the cache. It has the module's digest, since anybody can give a module the
/// build ID of another one.
fn name(module: &ModuleFile) -> String {
    format!("debug/{:.40x}.ko.debug", Sha256::digest(&module.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::modules::Facts;

    fn module(name: &str, bytes: &[u8]) -> ModuleFile {
        ModuleFile {
            name: name.to_owned(),
            path: PathBuf::from(format!("/x/{name}.ko")),
            bytes: bytes.to_vec(),
            facts: Facts::default(),
        }
    }

    #[test]
    fn only_the_files_of_the_modules_leave_a_package() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, out) = (folder.path().join("tree"), folder.path().join("out"));
        let deep = tree.join("usr/lib/debug/lib/modules/6.1/kernel");
        for name in ["snd-pcm.ko", "snd-pcm-oss.ko", "mii.ko.debug", "vmlinux"] {
            fs::create_dir_all(&deep).unwrap();
            fs::write(deep.join(name), name).unwrap();
        }
        fs::create_dir_all(tree.join("DEBIAN")).unwrap();
        let control =
            "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n";
        fs::write(tree.join("DEBIAN/control"), control).unwrap();
        let deb = folder.path().join("x.deb");
        let mut built = Command::new("dpkg-deb");
        assert!(built.args(["--build", "-Znone"]).arg(&tree).arg(&deb).output().unwrap().status.success());
        fs::create_dir(&out).unwrap();
        let patterns = ["*/snd[-_]pcm.ko*", "*/mii.ko*", "*/absent.ko*"].map(str::to_owned);
        extract(&deb, &out, &patterns).unwrap();
        let mut found: Vec<String> = files_below(&out)
            .iter()
            .map(|file| file.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        found.sort();
        assert_eq!(found, ["mii.ko.debug", "snd-pcm.ko"]);
        assert!(is_named(Path::new("a/snd-pcm.ko"), &module("snd_pcm", b"")));
        assert!(!is_named(Path::new("a/snd-pcm-oss.ko"), &module("snd_pcm", b"")));
        fs::write(&deb, "no package").unwrap();
        assert!(extract(&deb, &out, &patterns).is_err());
    }

    #[test]
    fn a_file_without_debug_information_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let file = folder.path().join("text.ko");
        fs::write(&file, "text").unwrap();
        let module = module("text", b"text");
        let said = keep_module(&cache, &Parser::here(), &[&module], &file).unwrap_err().to_string();
        assert!(said.contains("it has no debug information (DWARF)"), "{said}");
        assert_eq!(cached(&cache, &module), None);
    }

    #[test]
    fn a_package_without_the_kernels_file_is_said_in_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("cache")).unwrap();
        let kernel = Kernel {
            release: "6.1.0-9".into(),
            vmlinuz: folder.path().join("vmlinuz"),
            modules: folder.path().to_path_buf(),
        };
        let driver = module("snd_pcm", b"");
        let wanted = Wanted { kernel: &kernel, modules: vec![&driver], build_id: Some("0102".into()) };
        let of_kernel = ["*/boot/vmlinux-6.1.0-9", "*/lib/modules/6.1.0-9/vmlinux"];
        assert_eq!(wanted.patterns(), [&["*/snd[-_]pcm.ko*"], &of_kernel[..]].concat());
        let wanted = Wanted { modules: Vec::new(), ..wanted };
        assert_eq!(
            wanted.keep(&cache, &Parser::here(), "x-dbg", &[]),
            ["x-dbg has no debug file of the kernel itself"]
        );
        for place in of_kernel {
            let file = folder.path().join(place.trim_start_matches("*/"));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "text").unwrap();
            let lacks = wanted.keep(&cache, &Parser::here(), "x-dbg", &[file]);
            assert!(lacks[0].starts_with("x-dbg does not fit the kernel: "), "{lacks:?}");
            assert_eq!((lacks.len(), cached_kernel(&cache, &kernel)), (1, None));
        }
    }
}
