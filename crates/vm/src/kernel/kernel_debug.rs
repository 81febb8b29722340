//! The debug file of a kernel's image (`vmlinux` with DWARF): kept in the cache without what no lookup needs.

use crate::error::{Context, Error, Result};
use crate::fetch::cache::Cache;
use crate::kernel::kernels::Kernel;
use crate::parser::{Given, Job, Parser};
use guardrail_binfmt::image::MAX_FILE;
use guardrail_binfmt::{DebugKernel, KernelImage};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The folder of all kernels in the cache.
const FOLDER: &str = "debug/kernels";
/// The name of the file in the folder of its kernel.
const FILE: &str = "vmlinux";

/// The debug file of a kernel in the cache; `None` where it was not fetched.
pub fn cached(cache: &Cache, kernel: &Kernel) -> Option<PathBuf> {
    // The image is read only where a kernel of this release has a file.
    let prefix = prefix(&kernel.release);
    let mut known = fs::read_dir(cache.path(FOLDER)).ok()?.flatten();
    known.find(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))?;
    Some(cache.path(&name(kernel)?).join(FILE)).filter(|path| path.is_file())
}

/// The build ID of a kernel, by which its debug file is known; `None` where it has none.
pub(super) fn build_id(parser: &Parser, kernel: &Kernel) -> Result<Option<String>> {
    let file = File::open(&kernel.vmlinuz).context("open", &kernel.vmlinuz)?;
    let job = ReadBuild { what: kernel.vmlinuz.display().to_string() };
    Ok(parser.ask(&job, &[&file], &[]).map_err(|error| error.of(&kernel.vmlinuz, bad(&kernel.vmlinuz)))?.0)
}

/// Whether a file is linked, as kernels are and modules are not.
pub(super) fn is_linked(parser: &Parser, file: &Path) -> Result<bool> {
    match read(parser, file, None) {
        Ok(found) => Ok(found.linked),
        Err(Error::BadModule { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads the headers of a debug file, and copies what lookups need where there is a file for that.
fn read(parser: &Parser, file: &Path, copy: Option<&File>) -> Result<KernelDebug> {
    let opened = File::open(file).context("open", file)?;
    let files: Vec<&File> = [&opened].into_iter().chain(copy).collect();
    let job = ReadKernelDebug { what: file.display().to_string() };
    Ok(parser.ask(&job, &files, &[]).map_err(|error| error.of(file, bad(file)))?.0)
}

fn bad(path: &Path) -> impl FnOnce(String) -> Error {
    move |why| Error::BadModule { path: path.to_path_buf(), why }
}

/// Reads the build ID of a kernel's image.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReadBuild {
    what: String,
}

impl Job for ReadBuild {
    const NAME: &'static str = "build";
    type Answer = Option<String>;

    fn run(self, mut given: Given) -> Result<(Option<String>, Vec<u8>), String> {
        let image = given.read(MAX_FILE)?;
        let image = KernelImage::parse(&self.what, image).map_err(|error| error.to_string())?;
        Ok((image.build_id().map(str::to_owned), Vec::new()))
    }
}

/// Reads the debug file of a kernel, and copies it to a second file if there is one.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReadKernelDebug {
    what: String,
}

/// What such a file says.
#[derive(Debug, Serialize, Deserialize)]
pub struct KernelDebug {
    linked: bool,
    has_lines: bool,
    build_id: Option<String>,
}

impl Job for ReadKernelDebug {
    const NAME: &'static str = "kernel-debug-file";
    type Answer = KernelDebug;

    fn run(self, mut given: Given) -> Result<(KernelDebug, Vec<u8>), String> {
        let debug = DebugKernel::read(&self.what, given.file()?).map_err(|error| error.to_string())?;
        if let Ok(copy) = given.file() {
            debug.copy(&copy).map_err(|error| format!("it cannot be copied: {error}"))?;
        }
        let (linked, has_lines, build_id) = (debug.is_linked(), debug.has_lines(), debug.build_id());
        Ok((KernelDebug { linked, has_lines, build_id }, Vec::new()))
    }
}

/// Keeps a file in the cache as the debug file of the kernel whose build it is of.
pub(super) fn keep(
    cache: &Cache,
    parser: &Parser,
    kernel: &Kernel,
    build_id: Option<&str>,
    file: &Path,
) -> Result<()> {
    let refuse = |why: String| Err(Error::BadModule { path: file.to_path_buf(), why });
    let KernelDebug { has_lines, build_id: own, .. } = read(parser, file, None)?;
    if !has_lines {
        return refuse("it has no debug information (DWARF)".into());
    }
    if own.is_none() || own.as_deref() != build_id {
        return refuse(format!(
            "it is not the debug file of kernel {}: its build ID is {}, and the kernel's is {}",
            kernel.release,
            own.as_deref().unwrap_or("absent"),
            build_id.unwrap_or("absent")
        ));
    }
    let name = name(kernel)
        .ok_or_else(|| Error::BadKernel { path: kernel.vmlinuz.clone(), why: "it cannot be read".into() })?;
    cache.ensure_tree(&name, |folder| {
        let path = folder.join(FILE);
        let copy = File::create(&path).context("create", &path)?;
        read(parser, file, Some(&copy))?;
        // The unprivileged analysis process reads it.
        copy.set_permissions(PermissionsExt::from_mode(0o644)).context("change", &path)
    })?;
    Ok(())
}

/// The folder of a kernel in the cache. It has the image's digest, since anybody can give a kernel the release and the
/// build ID of another one.
fn name(kernel: &Kernel) -> Option<String> {
    let image = fs::read(&kernel.vmlinuz).ok()?;
    Some(format!("{FOLDER}/{}{:.40x}", prefix(&kernel.release), Sha256::digest(&image)))
}

/// The beginning of the folder's name. A release may stem from a trace, and must not lead to other folders.
fn prefix(release: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "+-.".contains(c) { c } else { '_' };
    format!("{}-", release.chars().take(64).map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A program with this build ID, as a kernel's debug file.
    fn linked(folder: &Path, name: &str, id: &str, lines: &str) -> PathBuf {
        let (source, out) = (folder.join("x.c"), folder.join(name));
        fs::write(&source, "void _start(void) {}\n").unwrap();
        let id = format!("-Wl,--build-id=0x{id}");
        let mut compiler = Command::new("gcc");
        compiler.args(["-nostdlib", "-static", lines, &id, "-o"]).arg(&out).arg(&source);
        assert!(compiler.status().unwrap().success());
        out
    }

    #[test]
    fn the_file_of_this_build_is_kept_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("cache")).unwrap();
        let kernel = |release: &str| {
            let (release, vmlinuz) = (release.to_owned(), folder.path().join("vmlinuz"));
            Kernel { release, vmlinuz, modules: folder.path().to_path_buf() }
        };
        let own = kernel("../6.1.0-9+x");
        fs::write(&own.vmlinuz, "image").unwrap();
        let whole = linked(folder.path(), "whole", "0102", "-g");
        let kept = |id, file: &Path| {
            keep(&cache, &Parser::here(), &own, id, file).map_err(|error| error.to_string())
        };

        let said = kept(Some("0103"), &whole).unwrap_err();
        assert!(said.ends_with("its build ID is 0102, and the kernel's is 0103"), "{said}");
        assert!(kept(None, &whole).unwrap_err().ends_with("the kernel's is absent"));
        let said = kept(Some("0102"), &linked(folder.path(), "bare", "0102", "-g0")).unwrap_err();
        assert!(said.ends_with("it has no debug information (DWARF)"), "{said}");
        let cut = folder.path().join("cut");
        let bytes = fs::read(&whole).unwrap();
        fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
        assert!(kept(Some("0102"), &cut).unwrap_err().contains("is cut short"));
        assert!(kept(Some("0102"), &own.vmlinuz).unwrap_err().contains("is not an ELF file"));
        assert_eq!(cached(&cache, &own), None);
        let linked = |file: &Path| is_linked(&Parser::here(), file).unwrap();
        assert!(linked(&whole) && !linked(&own.vmlinuz));

        kept(Some("0102"), &whole).unwrap();
        let path = cached(&cache, &own).unwrap();
        assert!(path.starts_with(cache.path(FOLDER)), "{}", path.display());
        assert_eq!(DebugKernel::open(&path).unwrap().build_id().as_deref(), Some("0102"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        // A second file changes nothing, and another image of the same release has no file.
        kept(Some("0102"), &whole).unwrap();
        assert_eq!(cached(&cache, &kernel("6.1.0-9")), None);
        fs::write(&own.vmlinuz, "another image").unwrap();
        assert_eq!(cached(&cache, &own), None);
    }
}
