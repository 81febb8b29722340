//! What one machine has fetched, in a file for another one that has no network.

use crate::error::{Context, Error, Result};
use crate::fetch::cache::Cache;
use crate::fetch::owned;
use crate::fetch::software::TREE;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Trees of the cache that are carried whole: QEMU, the guest's programs, those of benchmarks.
const TREES: [&str; 3] = ["guest", "qemu", TREE];
/// Folders of the cache whose entries are carried one by one.
const FOLDERS: [&str; 3] = ["headers", "kernels", "pins"];
/// What the file is called where it cannot be read as one.
const KIND: &str = "it is no whole file of 'guardrail cache export'";

/// Writes all that was fetched to a file, which appears when it is whole. Returns the names of what is in it.
pub fn export(cache: &Cache, file: &Path) -> Result<Vec<String>> {
    let names: Vec<String> = entries(cache.root())?;
    if names.is_empty() {
        return Err(Error::BadValue(format!(
            "the cache {} is empty; run a check first",
            cache.root().display()
        )));
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // As any other file that a user makes, and not as a secret.
    let mode = fs::Permissions::from_mode(0o644);
    let part = tempfile::Builder::new().permissions(mode).tempfile_in(folder);
    let mut part = part.context("create a file in", folder)?;
    let mut tar = Command::new("tar");
    tar.arg("-cf").arg("-").arg("-C").arg(cache.root()).arg("--").args(&names);
    tar.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut tar =
        owned::bound(&mut tar).spawn().map_err(|error| Error::io("start", Path::new("tar"), error))?;
    let packed = tar.stdout.take().map_or(Ok(()), |files| pack(files, part.as_file_mut()));
    // Without a reader it ends.
    let status = tar.wait().context("wait for", Path::new("tar"))?;
    packed.context("write", file)?;
    if !status.success() {
        return Err(Error::BadValue(format!(
            "the cache {} changes; try again when nothing runs",
            cache.root().display()
        )));
    }
    part.persist(file).map_err(|error| Error::io("write", file, error.error))?;
    Ok(names)
}

/// Takes what a file has and the cache lacks. Returns the names of what is new.
pub fn import(cache: &Cache, file: &Path) -> Result<Vec<String>> {
    let source = File::open(file).context("open", file)?;
    let folder = cache.unfinished()?;
    let mut tar = Command::new("tar");
    tar.args(["-xf", "-", "--no-same-owner", "-C"]).arg(folder.path());
    tar.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut tar =
        owned::bound(&mut tar).spawn().map_err(|error| Error::io("start", Path::new("tar"), error))?;
    let unpacked = tar.stdin.take().map_or(Ok(()), |files| unpack(source, files));
    let status = tar.wait().context("wait for", Path::new("tar"))?;
    let found = entries(folder.path())?;
    if unpacked.is_err() || !status.success() || found.is_empty() {
        return Err(Error::BadValue(format!("{}: {KIND}", file.display())));
    }
    let mut new = Vec::new();
    for name in found {
        let (from, to) = (folder.path().join(&name), cache.path(&name));
        if to.exists() {
            continue;
        }
        if from.is_dir() {
            cache.ensure_tree(&name, |into| move_entries(&from, into))?;
        } else {
            cache.write_atomically(&name, fs::read(&from).context("read", &from)?)?;
        }
        new.push(name);
    }
    Ok(new)
}

/// The names below a root of what is carried.
fn entries(root: &Path) -> Result<Vec<String>> {
    let mut names: Vec<String> =
        TREES.iter().filter(|name| root.join(name).is_dir()).map(|name| (*name).to_owned()).collect();
    for name in FOLDERS {
        let folder = root.join(name);
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let entry = entry.context("list", &folder)?;
            // What leads to a folder of this machine is of no use elsewhere.
            let inside = entry.file_name().into_string().ok().filter(|name| !name.starts_with("built-"));
            names.extend(inside.map(|inside| format!("{name}/{inside}")));
        }
    }
    names.sort();
    Ok(names)
}

fn move_entries(from: &Path, into: &Path) -> Result<()> {
    for entry in fs::read_dir(from).context("list", from)? {
        let entry = entry.context("list", from)?;
        fs::rename(entry.path(), into.join(entry.file_name())).context("rename", &entry.path())?;
    }
    Ok(())
}

fn pack(files: impl Read, into: &mut File) -> io::Result<()> {
    let mut into = BufWriter::new(into);
    zstd::stream::copy_encode(files, &mut into, 3)?;
    into.flush()
}

fn unpack(packed: File, into: impl Write) -> io::Result<()> {
    zstd::stream::copy_decode(BufReader::new(packed), into)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(files: &[(&str, &str)]) -> (tempfile::TempDir, Cache) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join("cache").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let cache = Cache::at(&folder.path().join("cache")).unwrap();
        (folder, cache)
    }

    #[test]
    fn what_is_carried_arrives_and_what_is_there_stays() {
        let (folder, from) = cache(&[
            ("qemu/usr/bin/q", "new"),
            ("kernels/6.1/boot/vmlinuz", "image"),
            ("kernels/built-1/x", "here"),
            ("pins/6.1", "pin"),
            ("pins/7.2", "pin"),
            ("booted/x", "no"),
        ]);
        let file = folder.path().join("carried");
        let names = export(&from, &file).unwrap();
        assert_eq!(names, ["kernels/6.1", "pins/6.1", "pins/7.2", "qemu"]);
        let (_kept, to) = cache(&[("qemu/usr/bin/q", "old"), ("pins/7.2", "own")]);
        assert_eq!(import(&to, &file).unwrap(), ["kernels/6.1", "pins/6.1"]);
        let text = |name: &str| fs::read_to_string(to.path(name)).unwrap();
        assert_eq!(text("kernels/6.1/boot/vmlinuz"), "image");
        assert_eq!(
            (text("qemu/usr/bin/q"), text("pins/7.2"), text("pins/6.1")),
            ("old".into(), "own".into(), "pin".into())
        );
        assert!(!to.path("booted").exists());
        assert_eq!(import(&to, &file).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_file_that_is_cut_or_foreign_changes_nothing() {
        let (folder, from) = cache(&[("kernels/6.1/boot/vmlinuz", &"image".repeat(100_000))]);
        let file = folder.path().join("carried");
        export(&from, &file).unwrap();
        let whole = fs::read(&file).unwrap();
        let (_kept, to) = cache(&[("locks/x", "")]);
        for bytes in [&whole[..whole.len() / 2], b"no archive", b""] {
            fs::write(&file, bytes).unwrap();
            let error = import(&to, &file).unwrap_err().to_string();
            assert!(error.ends_with(KIND), "{error}");
        }
        assert!(!to.path("kernels").exists());
        let (_empty, empty) = cache(&[]);
        assert!(export(&empty, &file).unwrap_err().to_string().ends_with("is empty; run a check first"));
    }
}
