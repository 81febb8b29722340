//! The shared libraries that programs need, as the dynamic loader would find them.

use crate::error::{Context, Error, Result};
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, EM_X86_64, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, SectionIndex};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders of a machine that hold libraries, besides those that programs name.
const OF_MACHINE: [&str; 7] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];

/// What an ELF file says of the libraries that it needs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The path of its dynamic loader; `None` where it has none, as libraries and static programs.
    pub(crate) loader: Option<String>,
    /// The names of the libraries.
    libraries: Vec<String>,
    /// Folders where it wants them to be looked for first (`DT_RUNPATH`, `DT_RPATH`).
    folders: Vec<String>,
}

/// Libraries of some folders, as programs need them.
#[derive(Debug)]
pub(crate) struct Libraries {
    places: Vec<PathBuf>,
    /// Whether the folders that programs name count.
    heeds_programs: bool,
    /// What an error says of a library that is nowhere.
    missing: &'static str,
    found: BTreeMap<String, PathBuf>,
}

/// The longest name of a library, of folders or of a loader, in bytes, and the most names of a program.
const LONGEST_NAME: usize = 4096;
const MOST_NAMES: usize = 4096;

impl Needs {
    /// Reads an ELF file for x86-64; `None` for anything else.
    pub(crate) fn of(bytes: &[u8]) -> Option<Needs> {
        let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
        let endian = header.endian().ok()?;
        if header.e_machine(endian) != EM_X86_64 {
            return None;
        }
        let programs = header.program_headers(endian, bytes).ok()?;
        let loader = programs.iter().find_map(|program| program.interpreter(endian, bytes).ok()?);
        if loader.is_some_and(|path| path.len() > LONGEST_NAME) {
            return None;
        }
        let loader = loader.map(|path| String::from_utf8_lossy(path).into_owned());
        let mut needs = Needs { loader, libraries: Vec::new(), folders: Vec::new() };
        let sections = header.sections(endian, bytes).ok()?;
        let Some((entries, link)) = sections.dynamic(endian, bytes).ok()? else { return Some(needs) };
        let strings = sections.strings(endian, bytes, SectionIndex(link.0)).ok()?;
        for entry in entries {
            let tag = entry.tag32(endian);
            if !matches!(tag, Some(DT_NEEDED | DT_RUNPATH | DT_RPATH)) {
                continue;
            }
            let text = std::str::from_utf8(Dyn::string(entry, endian, strings).ok()?).ok()?;
            // A file may name one text many times.
            let many = needs.libraries.len() + needs.folders.len() >= MOST_NAMES;
            if text.len() > LONGEST_NAME || many {
                return None;
            }
            match tag {
                Some(DT_NEEDED) if text.contains('/') => return None,
                Some(DT_NEEDED) => needs.libraries.push(text.to_owned()),
                _ => needs.folders.extend(text.split(':').map(str::to_owned)),
            }
        }
        Some(needs)
    }
}

impl Libraries {
    /// Those of these folders alone.
    pub(crate) fn among(places: &[&Path]) -> Libraries {
        let places = places.iter().map(|place| place.to_path_buf()).collect();
        let missing = "which none of the packages has";
        Libraries { places, heeds_programs: false, missing, found: BTreeMap::new() }
    }

    /// Those of this machine.
    pub(crate) fn of_machine() -> Libraries {
        let places = OF_MACHINE.map(PathBuf::from).to_vec();
        let missing = "which this machine does not have; install it, or link the program with -static";
        Libraries { places, heeds_programs: true, missing, found: BTreeMap::new() }
    }

    /// Adds a library by its name.
    pub(crate) fn add(&mut self, name: &str, of: &Path) -> Result<()> {
        self.follow(vec![(name.to_owned(), Vec::new(), of.to_path_buf())])
    }

    /// Adds the libraries that an ELF file needs, and those that these need.
    pub(crate) fn add_needs(&mut self, bytes: &[u8], path: &Path) -> Result<()> {
        let open = self.needs(bytes, path)?;
        self.follow(open)
    }

    /// The libraries by their names.
    pub(crate) fn found(&self) -> &BTreeMap<String, PathBuf> {
        &self.found
    }

    /// Finds libraries: name, folders to look in first, and the file that needs it.
    fn follow(&mut self, mut open: Vec<(String, Vec<PathBuf>, PathBuf)>) -> Result<()> {
        while let Some((name, folders, of)) = open.pop() {
            let mut places = folders.iter().chain(&self.places).map(|place| place.join(&name));
            let file = places.find(|path| path.is_file());
            match (self.found.get(&name), file) {
                (Some(old), Some(new)) if same(old, &new) => {}
                (Some(old), Some(new)) => {
                    return Err(bad(
                        &of,
                        &format!("it needs {}, and another file {}", new.display(), old.display()),
                    ));
                }
                (Some(_), None) => {}
                (None, Some(file)) => {
                    let bytes = fs::read(&file).context("read", &file)?;
                    open.extend(self.needs(&bytes, &file)?);
                    self.found.insert(name, file);
                }
                (None, None) => return Err(bad(&of, &format!("it needs {name}, {}", self.missing))),
            }
        }
        Ok(())
    }

    fn needs(&self, bytes: &[u8], path: &Path) -> Result<Vec<(String, Vec<PathBuf>, PathBuf)>> {
        let needs = Needs::of(bytes).ok_or_else(|| bad(path, "it is no program for this machine"))?;
        let origin = path.parent().unwrap_or(Path::new("")).display().to_string();
        let folder =
            |text: &String| PathBuf::from(text.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin));
        let folders: Vec<PathBuf> =
            needs.folders.iter().filter(|_| self.heeds_programs).map(folder).collect();
        Ok(needs.libraries.into_iter().map(|name| (name, folders.clone(), path.to_path_buf())).collect())
    }
}

fn same(a: &Path, b: &Path) -> bool {
    a == b || fs::canonicalize(a).ok().is_some_and(|a| fs::canonicalize(b).is_ok_and(|b| a == b))
}

fn bad(path: &Path, why: &str) -> Error {
    Error::BadValue(format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_names_its_libraries_and_other_files_are_refused() {
        // The test itself is a program.
        let path = std::env::current_exe().unwrap();
        let bytes = fs::read(&path).unwrap();
        let needs = Needs::of(&bytes).unwrap();
        assert!(needs.libraries.iter().any(|name| name == "libc.so.6"), "{needs:?}");
        assert!(needs.loader.is_some_and(|loader| loader.contains("ld-linux")));
        assert_eq!(Needs::of(b"#!/bin/sh\n"), None);
        let error = Libraries::among(&[]).add_needs(&bytes, &path).unwrap_err().to_string();
        assert!(error.contains("which none of the packages has"), "{error}");
    }

    #[test]
    fn the_libraries_of_this_machine_come_with_those_that_they_need() {
        let path = std::env::current_exe().unwrap();
        let mut libraries = Libraries::of_machine();
        libraries.add_needs(&fs::read(&path).unwrap(), &path).unwrap();
        let names: Vec<&str> = libraries.found().keys().map(String::as_str).collect();
        assert!(names.contains(&"libc.so.6") && names.contains(&"ld-linux-x86-64.so.2"), "{names:?}");
        let error = libraries.add("libnobody.so.7", &path).unwrap_err().to_string();
        assert!(error.contains("needs libnobody.so.7, which this machine does not have"), "{error}");
    }

    #[test]
    fn programs_of_other_machines_have_no_needs_here() {
        let mut bytes = fs::read(std::env::current_exe().unwrap()).unwrap();
        // The low byte of e_machine: 183 is AArch64.
        bytes[18] = 183;
        assert_eq!(Needs::of(&bytes), None);
        bytes.truncate(100);
        assert_eq!(Needs::of(&bytes), None);
    }
}
