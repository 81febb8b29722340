//! Programs of Debian that benchmarks use, in the guest and outside it.
//!
//! A tree in the cache holds each program with only the libraries that its ELF headers name, and the loader
//! that these libraries were built with. So the programs run in a guest without any other software, and on
//! any machine, and nothing is installed.

use crate::cpio::Archive;
use crate::error::{Context, Error, Result};
use crate::fetch::packages::{Fetch, Packages};
use crate::libraries::Libraries;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tree's name in the cache. Its number changes with the tables below.
pub(crate) const TREE: &str = "software-3";
/// The suite that provides the programs.
const SUITE: &str = "bookworm";
/// The packages, with all their dependencies.
const PACKAGES: [&str; 16] = [
    "alsa-utils",
    "apache2-utils",
    "dbench",
    "e2fsprogs",
    "iperf3",
    "libmemcached-tools",
    "linux-perf",
    "make",
    "memcached",
    "nftables",
    "nginx-light",
    "postmark",
    "sockperf",
    "stress-ng",
    "tcc",
    "wrk",
];
/// Packages that are unpacked without their dependencies. One is a C library with its headers, whose
/// dependencies include a compiler much larger than ours. The other contains C programs of one file each, to
/// compile.
const ALONE: [&str; 2] = ["libstb-dev/bookworm", "musl-dev/bookworm"];
/// The programs, and their paths in the packages.
const PROGRAMS: [(&str, &str); 17] = [
    ("ab", "usr/bin/ab"),
    ("aplay", "usr/bin/aplay"),
    ("dbench", "usr/bin/dbench"),
    ("e2fsck", "sbin/e2fsck"),
    ("iperf3", "usr/bin/iperf3"),
    ("make", "usr/bin/make"),
    ("memaslap", "usr/bin/memcaslap"),
    ("memcached", "usr/bin/memcached"),
    ("mke2fs", "sbin/mke2fs"),
    ("nft", "usr/sbin/nft"),
    ("nginx", "usr/sbin/nginx"),
    ("perf", "usr/bin/perf"),
    ("postmark", "usr/bin/postmark"),
    ("sockperf", "usr/bin/sockperf"),
    ("stress-ng", "usr/bin/stress-ng"),
    ("tcc", "usr/bin/tcc"),
    ("wrk", "usr/bin/wrk"),
];
/// A program's data, by the program's name: a folder of the packages that it expects at the same path in the
/// guest.
const DATA: [(&str, &str); 6] = [
    ("aplay", "usr/share/alsa"),
    ("dbench", "usr/share/dbench"),
    ("make", "usr/include/stb"),
    ("tcc", "usr/include/x86_64-linux-musl"),
    ("tcc", "usr/lib/x86_64-linux-gnu/tcc"),
    ("tcc", "usr/lib/x86_64-linux-musl"),
];
/// The folders of the packages that hold libraries.
const LIBRARIES: [&str; 3] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib64"];
/// The dynamic loader, which runs all other programs.
const LOADER: &str = "ld-linux-x86-64.so.2";
/// The folder in the guest for the programs and their libraries.
const IN_GUEST: &str = "guardrail/software";
/// The guest's users: servers look up the user that they run as.
const USERS: &str = "root:x:0:0:root:/:/bin/sh\n";
const GROUPS: &str = "root:x:0:\n";

/// The tree with the programs, in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Software {
    tree: PathBuf,
}

impl Software {
    /// The tree, fetched if the cache has none.
    pub fn find(packages: &Packages) -> Result<Software> {
        let tree = packages.cache().ensure_tree(TREE, |folder| {
            let whole = packages.cache().unfinished()?;
            let fetch = Fetch::Together { names: &PACKAGES, suite: SUITE };
            packages.fill(whole.path(), "the programs of benchmarks", fetch)?;
            packages.fill(whole.path(), "what benchmarks compile", Fetch::Exactly(&ALONE))?;
            pick(whole.path(), folder)
        })?;
        Ok(Software { tree })
    }

    /// A command that runs one of the programs on this machine.
    pub fn command(&self, program: &str) -> Result<Command> {
        let libraries = self.tree.join("lib");
        let mut command = Command::new(libraries.join(LOADER));
        command.arg("--library-path").arg(&libraries).arg(self.program(program)?);
        Ok(command)
    }

    fn program(&self, name: &str) -> Result<PathBuf> {
        let path = self.tree.join("bin").join(name);
        match path.is_file() {
            true => Ok(path),
            false => Err(damaged(&self.tree, name)),
        }
    }

    /// Adds these programs and what they need to a guest's root; each can be called by its name.
    pub(crate) fn add_to(&self, archive: &mut Archive, programs: &[&str]) -> Result<()> {
        for folder in
            ["etc", "var", "usr", "usr/include", "usr/lib", "usr/lib/x86_64-linux-gnu", "usr/share", IN_GUEST]
        {
            archive.folder(folder);
        }
        archive.file("etc/passwd", 0o644, USERS.as_bytes());
        archive.file("etc/group", 0o644, GROUPS.as_bytes());
        archive.folder(&format!("{IN_GUEST}/lib"));
        let folder = self.tree.join("lib");
        let mut libraries = Libraries::among(&[&folder]);
        for name in programs {
            let path = self.program(name)?;
            let bytes = fs::read(&path).context("read", &path)?;
            libraries.add_needs(&bytes, &path)?;
            archive.file(&format!("{IN_GUEST}/{name}"), 0o755, &bytes);
            archive.file(&format!("sbin/{name}"), 0o755, wrapper(name).as_bytes());
            for (_, data) in DATA.iter().filter(|(program, _)| program == name) {
                add_folder(archive, &self.tree.join("data").join(data), data)?;
            }
        }
        libraries.add(LOADER, &self.tree)?;
        for (name, path) in libraries.found() {
            let bytes = fs::read(path).context("read", path)?;
            archive.file(&format!("{IN_GUEST}/lib/{name}"), 0o755, &bytes);
        }
        Ok(())
    }
}

/// Runs a program through the loader beside its libraries, which stay out of the usual folders. A static
/// program would find them there and would crash where their build differs from its own.
fn wrapper(name: &str) -> String {
    format!(
        "#!/bin/sh\nexec /{IN_GUEST}/lib/{LOADER} --library-path /{IN_GUEST}/lib /{IN_GUEST}/{name} \"$@\"\n"
    )
}

/// Copies what the programs need from unpacked packages.
fn pick(whole: &Path, folder: &Path) -> Result<()> {
    let places = LIBRARIES.map(|place| whole.join(place));
    let places: Vec<&Path> = places.iter().map(PathBuf::as_path).collect();
    let mut libraries = Libraries::among(&places);
    libraries.add(LOADER, whole)?;
    for name in ["bin", "lib", "data"] {
        let path = folder.join(name);
        fs::create_dir(&path).context("create", &path)?;
    }
    for (name, place) in PROGRAMS {
        let path = whole.join(place);
        let bytes = fs::read(&path).context("read", &path)?;
        libraries.add_needs(&bytes, &path)?;
        copy(&path, &folder.join("bin").join(name))?;
    }
    for (name, path) in libraries.found() {
        copy(path, &folder.join("lib").join(name))?;
    }
    for (_, data) in DATA {
        copy_folder(&whole.join(data), &folder.join("data").join(data))?;
    }
    Ok(())
}

fn damaged(tree: &Path, name: &str) -> Error {
    Error::BadValue(format!(
        "the cached tree {} holds no {name}; remove that folder and run again",
        tree.display()
    ))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).context("copy", from).map(|_| ())
}

/// Copies the plain files of a folder and of the folders below it.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).context("create", to)?;
    for path in listed(from)? {
        let target = to.join(path.file_name().unwrap_or_default());
        match path.is_dir() {
            true => copy_folder(&path, &target)?,
            false => copy(&path, &target)?,
        }
    }
    Ok(())
}

fn add_folder(archive: &mut Archive, from: &Path, name: &str) -> Result<()> {
    archive.folder(name);
    for path in listed(from)? {
        let name = format!("{name}/{}", path.file_name().unwrap_or_default().to_string_lossy());
        if path.is_dir() {
            add_folder(archive, &path, &name)?;
        } else {
            archive.file(&name, 0o644, &fs::read(&path).context("read", &path)?);
        }
    }
    Ok(())
}

/// The files in a folder, without links, in an order that does not depend on the disk.
fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).context("list", folder)? {
        let entry = entry.context("list", folder)?;
        if !entry.file_type().context("read", &entry.path())?.is_symlink() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_the_tree_lacks_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let software = Software { tree: folder.path().to_path_buf() };
        let error = software.add_to(&mut Archive::new(), &["nginx"]).unwrap_err().to_string();
        assert!(error.ends_with("holds no nginx; remove that folder and run again"), "{error}");
    }

    #[test]
    fn a_folder_comes_with_what_is_below_it() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/b/c"), "x").unwrap();
        std::os::unix::fs::symlink("/", from.join("loop")).unwrap();
        copy_folder(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("a/b/c")).unwrap(), "x");
        assert!(!to.join("loop").exists());
        let mut archive = Archive::new();
        add_folder(&mut archive, &to, "usr").unwrap();
        assert!(String::from_utf8_lossy(&archive.finish()).contains("usr/a/b/c"));
    }
}
