//! Files and a program of the user's that a guest gets.
//!
//! A program comes with its loader and its libraries, which stay out of the usual folders. A static program of the guest
//! would find them there, and would crash where their build differs from its own.

use crate::cpio::Archive;
use crate::error::{Context, Error, Result};
use crate::exercise::workload::shell_quoted;
use crate::libraries::{Libraries, Needs};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// Where a guest has what belongs to programs of the user's.
const OWN: &str = "guardrail/brought";
/// Where files are that have no other place, and where the user's program runs.
const HOME: &str = "root";
/// Folders that a guest mounts something over, or that are Guardrail's.
const TAKEN: [&str; 5] = ["dev", "guardrail", "proc", "sys", "tmp"];
/// Files that a guest cannot do without.
const NEEDED: [&str; 3] = ["bin/busybox", "bin/sh", "init"];
/// Interpreters of scripts that every guest has.
const SHELLS: [&str; 3] = ["/bin/sh", "/bin/ash", "/bin/busybox"];
/// The part of a guest's memory that the files may take: it has them twice while it unpacks them.
const PART: u64 = 4;
/// Where firmware is: the kernel looks for it in the guest's own root alone.
const FIRMWARE: &str = "lib/firmware/";
/// Where the files are that belong into a root of the user's.
const FOR_ROOT: &str = "guardrail/files";
/// The most files of a run.
const MOST: usize = 20_000;

/// A file or folder that a guest gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestFile {
    /// The file or folder of this machine.
    pub from: PathBuf,
    /// Its path in the guest, without the slash in front.
    to: String,
}

/// A program that is the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestProgram {
    /// The program's path on this machine.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// What a guest gets, read.
#[derive(Clone, Debug, Default)]
pub struct Brought {
    entries: Vec<Entry>,
    bytes: u64,
    room: u64,
    /// True where files belong into a root of the user's.
    for_root: bool,
}

/// One entry of the guest's root, in the order in which they are made.
#[derive(Clone, Debug)]
enum Entry {
    Folder(String),
    File { name: String, mode: u32, bytes: Vec<u8> },
    Link { name: String, target: String },
}

impl FromStr for GuestFile {
    type Err = Error;

    /// Reads `SRC` or `SRC:DST`.
    fn from_str(text: &str) -> Result<GuestFile> {
        let bad = |why: &str| Err(Error::BadValue(format!("--file {text}: {why}")));
        let (from, to) = match text.rsplit_once(':') {
            Some((from, to)) if to.starts_with('/') => (from, to),
            _ => (text, "/root/"),
        };
        let from = PathBuf::from(from);
        let Some(name) = fs::canonicalize(&from).ok().and_then(|path| Some(path.file_name()?.to_owned()))
        else {
            return bad("there is no such file or folder");
        };
        if !from.is_file() && !from.is_dir() {
            return bad("it is neither a file nor a folder");
        }
        let name = from.file_name().unwrap_or(&name).to_string_lossy().into_owned();
        let to = if to.ends_with('/') { format!("{to}{name}") } else { to.to_owned() };
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if !Path::new(&to).components().all(plain) || to.contains(char::is_control) {
            return bad("the path in the guest has to be absolute and without '..'");
        }
        let parts: Vec<&str> = to.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let to = parts.join("/");
        if parts.first().is_some_and(|first| TAKEN.contains(first)) || NEEDED.contains(&to.as_str()) {
            return bad("the guest has its own there; choose another place, such as /root or /lib/firmware");
        }
        Ok(GuestFile { from, to })
    }
}

impl GuestFile {
    /// Whether it is at this path in the guest, or is a folder above it.
    pub(crate) fn is_at(&self, path: &str) -> bool {
        path.strip_prefix('/').is_some_and(|path| Path::new(path).starts_with(&self.to))
    }

    /// The same with the file's whole path.
    pub fn whole(&self) -> GuestFile {
        GuestFile { from: whole(&self.from), to: self.to.clone() }
    }
}

impl fmt::Display for GuestFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:/{}", self.from.display(), self.to)
    }
}

impl FromStr for GuestProgram {
    type Err = Error;

    /// Reads a program and its arguments, as a shell would.
    fn from_str(text: &str) -> Result<GuestProgram> {
        let bad = |why: &str| Error::BadValue(format!("--exec {text}: {why}"));
        let mut words = shlex::split(text).ok_or_else(|| bad("a quotation mark has no end"))?.into_iter();
        let path = words.next().map(PathBuf::from).ok_or_else(|| bad("there is no program"))?;
        Ok(GuestProgram { path, arguments: words.collect() })
    }
}

impl fmt::Display for GuestProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.to_string_lossy();
        let words = std::iter::once(path.as_ref()).chain(self.arguments.iter().map(String::as_str));
        f.write_str(&words.map(shell_quoted).collect::<Vec<_>>().join(" "))
    }
}

impl GuestProgram {
    /// The same with the program's whole path.
    pub fn whole(&self) -> GuestProgram {
        GuestProgram { path: whole(&self.path), arguments: self.arguments.clone() }
    }

    /// Refuses a program that this machine does not have.
    pub fn refuse_absent(&self) -> Result<()> {
        match self.path.is_file() {
            true => Ok(()),
            false => Err(Error::BadValue(format!("--exec {self}: there is no such program; give its path"))),
        }
    }

    /// The command by which the guest's shell starts it in a root that has it.
    pub(crate) fn command_in_root(&self) -> String {
        self.to_string()
    }

    /// The command by which the guest's shell starts it.
    pub(crate) fn command(&self) -> String {
        let words = std::iter::once(format!("./{}", name(&self.path))).chain(self.arguments.iter().cloned());
        words.map(|word| shell_quoted(&word)).collect::<Vec<_>>().join(" ")
    }
}

impl Brought {
    /// Reads what a guest with so much memory gets.
    pub fn load(files: &[GuestFile], program: Option<&GuestProgram>, memory_mib: u32) -> Result<Brought> {
        let mut brought = Brought { room: room(memory_mib), ..Brought::default() };
        brought.load_all(files, program)?;
        Ok(brought)
    }

    /// Reads files that belong into a root of the user's. Firmware stays outside, where the kernel finds it.
    pub(crate) fn load_for_root(files: &[GuestFile], memory_mib: u32) -> Result<Brought> {
        let mut brought = Brought { room: room(memory_mib), for_root: true, ..Brought::default() };
        brought.load_all(files, None)?;
        Ok(brought)
    }

    fn load_all(&mut self, files: &[GuestFile], program: Option<&GuestProgram>) -> Result<()> {
        let brought = self;
        let mut loading =
            Loading { libraries: Libraries::of_machine(), loaders: BTreeSet::new(), programs: 0 };
        for GuestFile { from, to } in files {
            brought.add(&mut loading, from, to)?;
        }
        if let Some(program) = program {
            program.refuse_absent()?;
            let path = &program.path;
            let to = format!("{HOME}/{}", name(path));
            let bytes = brought.read(path)?;
            refuse_program(&bytes, path, files)?;
            brought.folders_of(&to)?;
            brought.add_file(&mut loading, &to, path, bytes, 0o755)?;
        }
        loading.finish(brought)
    }

    /// About how many bytes the guest gets.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Adds it to the guest's root.
    pub(crate) fn add_to(&self, archive: &mut Archive) {
        if self.for_root {
            archive.folder(FOR_ROOT);
        }
        let place = |name: &str| {
            let outside =
                !self.for_root || name.starts_with(FIRMWARE) || FIRMWARE.starts_with(&format!("{name}/"));
            if outside { name.to_owned() } else { format!("{FOR_ROOT}/{name}") }
        };
        for entry in &self.entries {
            match entry {
                Entry::Folder(name) => {
                    archive.folder(&place(name));
                    // What is above firmware may hold other files, which are for the root.
                    if self.for_root && FIRMWARE.starts_with(&format!("{name}/")) {
                        archive.folder(&format!("{FOR_ROOT}/{name}"));
                    }
                }
                Entry::File { name, mode, bytes } => archive.file(&place(name), *mode, bytes),
                Entry::Link { name, target } => archive.link(&place(name), target),
            }
        }
    }

    /// Adds a file, or a folder with all that is in it.
    fn add(&mut self, loading: &mut Loading, from: &Path, to: &str) -> Result<()> {
        self.folders_of(to)?;
        let mut open = vec![(from.to_path_buf(), to.to_owned())];
        while let Some((path, to)) = open.pop() {
            // What the user names may be a link; links in a folder stay links.
            let named = path == from;
            let found = if named { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
            let found = found.context("read", &path)?;
            let kind = found.file_type();
            if kind.is_symlink() {
                let target = fs::read_link(&path).context("read", &path)?;
                self.push(Entry::Link { name: to, target: target.to_string_lossy().into_owned() }, 0)?;
            } else if kind.is_dir() {
                self.push(Entry::Folder(to.clone()), 0)?;
                for entry in fs::read_dir(&path).context("list", &path)? {
                    let entry = entry.context("list", &path)?;
                    let Ok(name) = entry.file_name().into_string() else {
                        return Err(refused(&entry.path(), "its name is no UTF-8"));
                    };
                    open.push((entry.path(), format!("{to}/{name}")));
                }
            } else if kind.is_file() {
                let bytes = self.read(&path)?;
                self.add_file(loading, &to, &path, bytes, found.permissions().mode() & 0o777)?;
            } else {
                return Err(refused(&path, "it is neither a file nor a folder"));
            }
        }
        Ok(())
    }

    /// Adds a file. One that is a program of this machine gets what it needs to run.
    fn add_file(
        &mut self,
        loading: &mut Loading,
        to: &str,
        from: &Path,
        bytes: Vec<u8>,
        mode: u32,
    ) -> Result<()> {
        let needs = if mode & 0o111 != 0 { Needs::of(&bytes) } else { None };
        let Some(loader) = needs.and_then(|needs| needs.loader) else {
            return self.push_file(to, mode, bytes);
        };
        let loader = loading.needs_of(&bytes, from, &loader)?;
        // The last part of the path is what the program finds as its own name.
        let place = format!("{OWN}/{}", loading.programs);
        loading.programs += 1;
        let own = format!("{place}/{}", name(from));
        self.folders_of(&own)?;
        self.push_file(&own, 0o755, bytes)?;
        let run = shell_quoted(&format!("/{own}"));
        let wrapper = format!("#!/bin/sh\nexec /{OWN}/lib/{loader} --library-path /{OWN}/lib {run} \"$@\"\n");
        self.push_file(to, 0o755, wrapper.into_bytes())
    }

    /// Adds the folders above a path.
    fn folders_of(&mut self, path: &str) -> Result<()> {
        let ends = path.match_indices('/').map(|(at, _)| at);
        ends.map(|at| path[..at].to_owned()).try_for_each(|folder| self.push(Entry::Folder(folder), 0))
    }

    fn push_file(&mut self, name: &str, mode: u32, bytes: Vec<u8>) -> Result<()> {
        let size = bytes.len() as u64;
        self.push(Entry::File { name: name.to_owned(), mode, bytes }, size)
    }

    fn push(&mut self, entry: Entry, size: u64) -> Result<()> {
        self.refuse_size(size)?;
        if self.entries.len() >= MOST {
            return Err(Error::BadValue(format!(
                "the files of --file and --exec are more than {MOST}; give an archive of them, and unpack it in the guest"
            )));
        }
        self.bytes += size;
        self.entries.push(entry);
        Ok(())
    }

    /// Reads a file, of which no more than fits is needed. Some have a size of zero and no end.
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = fs::File::open(path).context("open", path)?;
        file.take(self.room + 1).read_to_end(&mut bytes).context("read", path)?;
        self.refuse_size(bytes.len() as u64)?;
        Ok(bytes)
    }

    fn refuse_size(&self, more: u64) -> Result<()> {
        let whole = self.bytes.saturating_add(more);
        if whole <= self.room {
            return Ok(());
        }
        Err(Error::BadValue(format!(
            "the files of --file and --exec have {} MiB or more, and this guest has room for {}; give it more with --memory",
            whole >> 20,
            self.room >> 20
        )))
    }
}

/// The bytes of files for which a guest with so much memory has room.
pub(crate) fn room(memory_mib: u32) -> u64 {
    (u64::from(memory_mib) << 20) / PART
}

/// What programs need besides themselves.
struct Loading {
    libraries: Libraries,
    loaders: BTreeSet<PathBuf>,
    /// How many programs there are.
    programs: usize,
}

impl Loading {
    /// Finds what a program needs. Returns the name of its loader.
    fn needs_of(&mut self, bytes: &[u8], path: &Path, loader: &str) -> Result<String> {
        self.libraries.add_needs(bytes, path)?;
        let loader = PathBuf::from(loader);
        if !loader.is_absolute() || !loader.is_file() {
            let why = format!("its loader {} does not exist here; link it with -static", loader.display());
            return Err(refused(path, &why));
        }
        let name = name(&loader);
        self.loaders.insert(loader);
        Ok(name)
    }

    fn finish(self, brought: &mut Brought) -> Result<()> {
        if self.programs == 0 {
            return Ok(());
        }
        let found = self.libraries.found();
        let loaders = self.loaders.iter().map(|path| (name(path), path));
        let loaders = loaders.filter(|(name, _)| !found.contains_key(name));
        let all: Vec<(String, &PathBuf)> =
            found.iter().map(|(name, path)| (name.clone(), path)).chain(loaders).collect();
        for (name, path) in all {
            let place = format!("{OWN}/lib/{name}");
            brought.folders_of(&place)?;
            let bytes = fs::read(path).context("read", path)?;
            brought.push_file(&place, 0o755, bytes)?;
        }
        Ok(())
    }
}

/// Refuses a program that the guest cannot start.
fn refuse_program(bytes: &[u8], path: &Path, files: &[GuestFile]) -> Result<()> {
    if let Some(line) = bytes.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let shell = line.split_whitespace().next().unwrap_or_default().to_owned();
        let brought = files.iter().any(|file| shell.strip_prefix('/') == Some(&file.to));
        return if brought || SHELLS.contains(&shell.as_str()) {
            Ok(())
        } else {
            let why = format!(
                "it is run by {shell}, which the guest lacks; it has /bin/sh, or bring that with --file"
            );
            Err(refused(path, &why))
        };
    }
    match Needs::of(bytes) {
        Some(_) => Ok(()),
        None if bytes.starts_with(b"\x7fELF") => {
            Err(refused(path, "it is a program for another machine; the guest runs those for x86-64 Linux"))
        }
        None => Err(refused(path, "it is neither an ELF program nor a script that begins with #!")),
    }
}

/// The path from the root, with links as they are: the file keeps its name.
fn whole(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn refused(path: &Path, why: &str) -> Error {
    Error::BadValue(format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> String {
        text.parse::<GuestFile>().map_or_else(|error| error.to_string(), |file| file.to_string())
    }

    #[test]
    fn files_have_a_place_in_the_guest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fw.bin").display().to_string();
        fs::write(&path, "x").unwrap();
        assert_eq!(file(&path), format!("{path}:/root/fw.bin"));
        assert_eq!(file(&format!("{path}:/lib/firmware/")), format!("{path}:/lib/firmware/fw.bin"));
        assert_eq!(file(&format!("{path}:/lib/./firmware//a")), format!("{path}:/lib/firmware/a"));
        for taken in ["/tmp/x", "/guardrail/driver.ko", "/init", "/bin/sh", "/proc/1"] {
            assert!(file(&format!("{path}:{taken}")).contains("the guest has its own there"), "{taken}");
        }
        assert!(file(&format!("{path}:/a/../init")).contains("without '..'"));
        assert!(file("/nowhere").ends_with("there is no such file or folder"));
        assert!(file("/dev/zero").ends_with("it is neither a file nor a folder"));
    }

    #[test]
    fn programs_are_read_with_their_arguments() {
        let program: GuestProgram = "/bin/sh -c 'echo \"a b\"' x".parse().unwrap();
        assert_eq!(program.arguments, ["-c", "echo \"a b\"", "x"]);
        assert_eq!(program.to_string().parse::<GuestProgram>().unwrap(), program);
        assert_eq!(program.command(), "'./sh' '-c' 'echo \"a b\"' 'x'");
        for bad in ["", "  ", "/bin/sh 'x"] {
            assert!(bad.parse::<GuestProgram>().is_err(), "{bad}");
        }
        let absent = "/nowhere/prog x".parse::<GuestProgram>().unwrap().refuse_absent().unwrap_err();
        assert!(absent.to_string().ends_with("there is no such program; give its path"), "{absent}");
    }

    #[test]
    fn a_program_comes_with_what_it_needs() {
        let program = GuestProgram { path: std::env::current_exe().unwrap(), arguments: Vec::new() };
        let brought = Brought::load(&[], Some(&program), 2048).unwrap();
        let names: Vec<&str> = brought
            .entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::File { name, .. } => Some(name.as_str()),
                _ => None,
            })
            .collect();
        assert!(names.contains(&"guardrail/brought/lib/libc.so.6"), "{names:?}");
        assert!(names.contains(&"guardrail/brought/lib/ld-linux-x86-64.so.2"), "{names:?}");
        assert!(names.contains(&format!("root/{}", name(&program.path)).as_str()), "{names:?}");
        assert!(names.iter().any(|name| name.starts_with("guardrail/brought/0/")), "{names:?}");
        let error = Brought::load(&[], Some(&program), 4).unwrap_err().to_string();
        assert!(error.contains("give it more with --memory"), "{error}");
    }

    #[test]
    fn programs_that_no_guest_can_start_are_refused() {
        let refused =
            |bytes: &[u8]| refuse_program(bytes, Path::new("p"), &[]).err().map(|error| error.to_string());
        assert_eq!(refused(b"#!/bin/sh -e\n"), None);
        assert!(refused(b"#! /usr/bin/python3\n").is_some_and(|why| why.contains("run by /usr/bin/python3")));
        assert!(refused(b"#!").is_some() && refused(b"hello").is_some());
        assert!(refused(b"\x7fELF\x01").is_some_and(|why| why.contains("another machine")));
        let python = GuestFile { from: "/usr/bin/python3".into(), to: "usr/bin/python3".into() };
        assert!(refuse_program(b"#!/usr/bin/python3\n", Path::new("p"), &[python]).is_ok());
    }

    #[test]
    fn a_folder_comes_with_its_links_and_other_entries_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(folder.path().join("sub/a"), "1").unwrap();
        std::os::unix::fs::symlink("a", folder.path().join("sub/b")).unwrap();
        let wanted: GuestFile = format!("{}:/data", folder.path().display()).parse().unwrap();
        let brought = Brought::load(std::slice::from_ref(&wanted), None, 64).unwrap();
        let mut archive = Archive::new();
        brought.add_to(&mut archive);
        let text = String::from_utf8_lossy(&archive.finish()).into_owned();
        assert!(text.contains("data/sub/a") && text.contains("data/sub/b"), "{text}");
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("s")).unwrap();
        let error = Brought::load(&[wanted], None, 64).unwrap_err().to_string();
        assert!(error.contains("neither a file nor a folder"), "{error}");
    }
}
