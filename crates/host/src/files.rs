//! Small files that the program keeps in its own folders.

use crate::error::HostError;
use serde::Serialize;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest file that is read, in bytes; a survey's table holds the reports of all runs.
const MAX_FILE: u64 = 256 << 20;

/// Reads one of the program's files; `None` where it is absent.
pub fn read(file: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(file).ok()?.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Reads a file that the user named, of at most `limit` bytes.
pub fn input(file: &Path, limit: u64) -> Result<Vec<u8>, HostError> {
    let name = file.display();
    let mut bytes = Vec::new();
    fs::File::open(file)
        .and_then(|opened| opened.take(limit + 1).read_to_end(&mut bytes))
        .map_err(|error| HostError::Usage(format!("cannot read {name}: {error}")))?;
    match bytes.len() as u64 > limit {
        true => Err(HostError::Usage(format!("{name} is too large; at most {} MiB are read", limit >> 20))),
        false => Ok(bytes),
    }
}

/// Reads a text that the user named, of at most `limit` bytes; `expected` says of what.
pub fn text(file: &Path, limit: u64, expected: &str) -> Result<String, HostError> {
    String::from_utf8(input(file, limit)?)
        .map_err(|_| HostError::Usage(format!("{} is no text; expected {expected}", file.display())))
}

/// The largest file of charts that is read, in bytes.
const MAX_CHARTS: u64 = 64 << 20;

/// Reads a file of charts that the user named.
pub fn charts(file: &Path) -> Result<String, HostError> {
    text(file, MAX_CHARTS, "a file of charts")
}

/// Refuses a file that could not be written, before a run that would end without it; `option` names it. An absent folder
/// is such a reason.
pub fn refuse_without_folder(option: &str, file: &Path) -> Result<(), HostError> {
    match file.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        Some(folder) => Err(HostError::Usage(format!("{option}: there is no folder {}", folder.display()))),
        None => Ok(()),
    }
}

/// Writes a file whole or not at all. A device, a pipe or a link is written to, not replaced.
pub fn write(file: &Path, bytes: impl AsRef<[u8]>) -> Result<(), HostError> {
    let failed = HostError::io("write", file.display());
    if fs::symlink_metadata(file).is_ok_and(|kind| !kind.is_file()) {
        return fs::write(file, bytes).map_err(failed);
    }
    // Nobody else has a file of this name.
    let mut name = OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let new = file.with_file_name(name);
    fs::write(&new, bytes).and_then(|()| fs::rename(&new, file)).map_err(|error| {
        let _ = fs::remove_file(&new);
        failed(error)
    })
}

/// A folder, and what the links in it lead to.
pub fn linked(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    let targets = links.filter_map(|entry| entry.path().canonicalize().ok());
    [folder.to_path_buf()].into_iter().chain(targets).collect()
}

/// What must be writable so that a file can be written: itself where it is there, else the folder that it will be in.
pub fn place(file: &Path) -> &Path {
    if file.exists() { file } else { folder(file) }
}

/// What must be writable so that a file can be replaced: the folder that it is in. A device, a pipe or a link is not
/// replaced ([`write`]), so for these it is the file itself.
pub fn place_of_new(file: &Path) -> &Path {
    if fs::symlink_metadata(file).map_or(true, |kind| kind.is_file()) { folder(file) } else { file }
}

fn folder(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Any value as JSON, indented for people.
pub fn json(value: &impl Serialize) -> Result<String, HostError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| HostError::Run(error.to_string()))?;
    Ok(text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_user_is_bounded() {
        let endless = input(Path::new("/dev/zero"), 1 << 20).unwrap_err();
        assert_eq!(endless.to_string(), "/dev/zero is too large; at most 1 MiB are read");
        let absent = input(Path::new("/nonexistent"), 1).unwrap_err();
        assert_eq!(absent.status() as u8, 2);
        assert!(absent.to_string().starts_with("cannot read /nonexistent: No such file"), "{absent}");
    }

    #[test]
    fn a_file_is_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x");
        assert_eq!(read(&file), None);
        write(&file, b"1").unwrap();
        write(&file, json(&[2]).unwrap()).unwrap();
        assert_eq!(read(&file).unwrap(), b"[\n  2\n]\n");
        let neighbor = folder.path().join("x.new");
        fs::write(&neighbor, "mine").unwrap();
        write(&file, b"2").unwrap();
        assert_eq!(read(&neighbor).unwrap(), b"mine");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(write(&folder.path().join("no/x"), b"").is_err());
    }

    #[test]
    fn a_device_is_written_to_and_stays() {
        use std::os::unix::fs::FileTypeExt;
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        write(&link, b"1").unwrap();
        assert!(fs::metadata(&link).unwrap().file_type().is_char_device());
        // As /dev/stdout is, where standard output goes to a file.
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "a longer text").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, b"1").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(read(&file).unwrap(), b"1");
        assert!(write(folder.path(), b"1").is_err());
    }

    #[test]
    fn what_must_be_writable_is_as_little_as_possible() {
        let folder = tempfile::tempdir().unwrap();
        let [file, absent] = ["file", "absent"].map(|name| folder.path().join(name));
        fs::write(&file, "").unwrap();
        assert_eq!((place(&file), place(&absent)), (file.as_path(), folder.path()));
        assert_eq!((place_of_new(&file), place_of_new(&absent)), (folder.path(), folder.path()));
        let device = Path::new("/dev/null");
        assert_eq!((place(device), place_of_new(device)), (device, device));
        assert_eq!(place_of_new(Path::new("absent")), Path::new("."));
    }
}
