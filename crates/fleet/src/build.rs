//! Which build of Guardrail this is, by its bytes: the program and the libraries of Guardrail beside it.
//!
//! Guest scripts and knowledge are in the program. The digest is kept in the cache, and computed again when a file changes.

use crate::canonical::digest;
use guardrail_host::folders::program;
use guardrail_host::{HostError, files};
use guardrail_vm::Cache;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The beginning and the end of the names of Guardrail's libraries.
const LIBRARY: (&str, &str) = ("libguardrail_", ".so");
/// The folder of the cache for digests.
const KEPT: &str = "builds";
/// The digits of a digest that name a build.
const DIGITS: usize = 16;
/// The most bytes of a file of a build, and of a kept digest.
const MOST_BYTES: u64 = 4 << 30;
const MOST_KEPT: u64 = 256;

/// The name of this build: the version, as `guardrail version` prints it, and a digest of its files.
pub fn identity(version: &str, cache: &Cache) -> Result<String, HostError> {
    let files = parts(&program()?)?;
    let digest = kept(&files, cache)?;
    Ok(format!("{version} {}", &digest[..DIGITS]))
}

/// True where the files have the bytes of a build of this name.
pub fn is_still(name: &str, cache: &Cache) -> bool {
    let digest = program().and_then(|program| kept(&parts(&program)?, cache));
    digest.is_ok_and(|digest| name.ends_with(&digest[..DIGITS]))
}

/// The state of this build's files, which differs where one was replaced, and may differ where none was.
pub fn state() -> Result<String, HostError> {
    parts(&program()?)?.iter().map(|part| stamp(part)).collect()
}

/// The state of a file without its bytes: which one it is, its size, and when it changed.
pub fn stamp(file: &Path) -> Result<String, HostError> {
    let data = fs::metadata(file).map_err(HostError::io("read", file.display()))?;
    let times = (data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec());
    Ok(format!("{file:?} {} {} {} {times:?}\n", data.dev(), data.ino(), data.len()))
}

/// The files of the build of a program. Its libraries are beside it, or in the folder above.
fn parts(program: &Path) -> Result<Vec<PathBuf>, HostError> {
    let folder = program.parent().unwrap_or(Path::new("/"));
    let mut parts = libraries(folder)?;
    if parts.is_empty()
        && let Some(above) = folder.parent()
    {
        parts = libraries(above)?;
    }
    parts.push(program.to_path_buf());
    parts.sort();
    Ok(parts)
}

/// Guardrail's libraries in a folder.
fn libraries(folder: &Path) -> Result<Vec<PathBuf>, HostError> {
    let listed = fs::read_dir(folder).map_err(HostError::io("list", folder.display()))?;
    let is_library = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name.starts_with(LIBRARY.0) && name.ends_with(LIBRARY.1))
    };
    Ok(listed.flatten().filter(is_library).map(|entry| entry.path()).collect())
}

/// The digest of files, from the cache where they are as they were.
fn kept(parts: &[PathBuf], cache: &Cache) -> Result<String, HostError> {
    let stamps = parts.iter().map(|part| stamp(part)).collect::<Result<String, HostError>>()?;
    let stamp = digest(&[stamps.as_bytes()]);
    let names: Vec<&[u8]> = parts.iter().map(|part| part.as_os_str().as_encoded_bytes()).collect();
    let name = format!("{KEPT}/{}", &digest(&names)[..DIGITS]);
    let known = files::input(&cache.path(&name), MOST_KEPT).unwrap_or_default();
    let known = String::from_utf8(known).unwrap_or_default();
    if let Some((of, digest)) = known.split_once(' ')
        && of == stamp
        && digest.len() == 2 * Sha256::output_size()
        && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        return Ok(digest.to_owned());
    }
    let digest = of_files(parts)?;
    // Without a cache that can be written to, the next process computes it again.
    let _ = cache.write_atomically(&name, format!("{stamp} {digest}"));
    Ok(digest)
}

/// The digest of files by their names and bytes, wherever they are.
fn of_files(parts: &[PathBuf]) -> Result<String, HostError> {
    let mut all = Vec::new();
    for part in parts {
        let mut hash = Sha256::new();
        let copied = File::open(part).and_then(|file| io::copy(&mut file.take(MOST_BYTES), &mut hash));
        copied.map_err(HostError::io("read", part.display()))?;
        let name = part.file_name().unwrap_or_default().as_encoded_bytes().to_vec();
        all.extend([name, hash.finalize().to_vec()]);
    }
    Ok(digest(&all.iter().map(Vec::as_slice).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_known_by_the_bytes_of_all_its_parts() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("cache")).unwrap();
        let of = |build: &str| {
            let program = folder.path().join(build).join("guardrail");
            kept(&parts(&program).unwrap(), &cache).unwrap()
        };
        for build in ["one", "two"] {
            fs::create_dir(folder.path().join(build)).unwrap();
            fs::write(folder.path().join(build).join("guardrail"), "program").unwrap();
            fs::write(folder.path().join(build).join("libguardrail_x.so"), "library").unwrap();
        }
        let first = of("one");
        assert_eq!((of("two"), of("one")), (first.clone(), first.clone()));
        // Other files beside the program do not count.
        fs::write(folder.path().join("one/libguardrail_x.d"), "x").unwrap();
        assert_eq!(of("one"), first);
        fs::write(folder.path().join("one/libguardrail_x.so"), "Library").unwrap();
        let second = of("one");
        fs::write(folder.path().join("one/guardrail"), "Program").unwrap();
        assert!(second != first && of("one") != second);
    }

    #[test]
    fn a_file_in_the_place_of_another_has_another_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("vmlinuz"), folder.path().join("new"));
        fs::write(&file, "one").unwrap();
        let before = stamp(&file).unwrap();
        assert_eq!(stamp(&file).unwrap(), before);
        fs::write(&other, "two").unwrap();
        fs::rename(&other, &file).unwrap();
        assert_ne!(stamp(&file).unwrap(), before);
        assert!(stamp(&other).is_err());
    }

    #[test]
    fn a_digest_is_kept_and_a_damaged_one_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("cache")).unwrap();
        let program = folder.path().join("guardrail");
        fs::write(&program, "program").unwrap();
        let of = || kept(&parts(&program).unwrap(), &cache).unwrap();
        let first = of();
        let file = fs::read_dir(cache.path(KEPT)).unwrap().next().unwrap().unwrap().path();
        let text = fs::read_to_string(&file).unwrap();
        let forged = "0".repeat(64);
        fs::write(&file, text.replace(&first, &forged)).unwrap();
        assert_eq!(of(), forged);
        fs::write(&file, &text[..80]).unwrap();
        assert_eq!(of(), first);
    }
}
