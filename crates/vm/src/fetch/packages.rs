//! Debian packages without installing them: a private apt configuration, downloads, unpacked trees.
//!
//! Everything works for any user. `apt-get download` and `dpkg-deb -x` need no root, and apt's state, lists
//! and cache are private ones in our cache folder.

use crate::error::{Context, Error, Result};
use crate::fetch::apt::{Archive, OLD_MIRROR, quote};
use crate::fetch::cache::{Cache, free_space};
use crate::fetch::owned;
use crate::fetch::pins;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub use crate::fetch::apt::{OWN_KEYRING, OWN_MIRROR};

/// Disk space for the package index and apt's work on it.
const INDEX_SPACE: u64 = 400 << 20;

/// Fetches packages into the cache.
#[derive(Clone, Debug)]
pub struct Packages {
    cache: Cache,
    archive: Archive,
}

/// How a set of packages is fetched.
#[derive(Clone, Copy, Debug)]
pub enum Fetch<'a> {
    /// These packages alone; a name may end in `=VERSION` or `/SUITE`.
    Exactly(&'a [&'a str]),
    /// This package from this suite with all its dependencies, as on an empty system.
    WithDependencies {
        /// The package's name.
        name: &'a str,
        /// The suite that provides its version.
        suite: &'a str,
    },
    /// The same for several packages.
    Together {
        /// The packages' names.
        names: &'a [&'a str],
        /// The suite that provides their versions.
        suite: &'a str,
    },
}

impl Packages {
    /// Packages that are kept in `cache`.
    pub fn new(cache: &Cache) -> Packages {
        Packages::of(cache, Archive::of_this_machine())
    }

    /// Packages of another archive.
    pub(super) fn of(cache: &Cache, archive: Archive) -> Packages {
        Packages { cache: cache.clone(), archive }
    }

    /// The cache that holds the trees.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The tree `tree` in the cache, fetched and unpacked if it is not there yet. `what` names it in messages.
    pub fn ensure_tree(&self, tree: &str, what: &str, fetch: Fetch<'_>) -> Result<PathBuf> {
        self.cache.ensure_tree(tree, |folder| self.fill(folder, what, fetch))
    }

    /// The folder `tree` in the cache with the packages themselves, fetched if it is not there yet.
    pub(crate) fn ensure_debs(&self, tree: &str, what: &str, fetch: Fetch<'_>) -> Result<PathBuf> {
        self.cache.ensure_tree(tree, |folder| self.download(what, fetch, folder))
    }

    /// Fetches packages and unpacks them into an empty folder.
    pub fn fill(&self, folder: &Path, what: &str, fetch: Fetch<'_>) -> Result<()> {
        let debs = folder.join(".debs");
        fs::create_dir(&debs).context("create", &debs)?;
        self.download(what, fetch, &debs)?;
        let mut files = deb_files(&debs)?;
        files.sort();
        if files.is_empty() {
            return Err(Error::Program {
                program: "apt-get".into(),
                why: format!("it fetched nothing for {what}"),
            });
        }
        for file in &files {
            unpack(file, folder)?;
        }
        fs::remove_dir_all(&debs).context("remove", &debs)
    }

    /// Names of known packages that begin with `prefix`. Fetches the index if the cache has none.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>> {
        self.ensure_index()?;
        let output = self.apt("apt-cache", &["pkgnames", prefix])?;
        let mut names: Vec<String> =
            String::from_utf8_lossy(&output.stdout).lines().map(|line| line.trim().to_owned()).collect();
        names.sort();
        Ok(names)
    }

    /// Removes a file from the cache, if it is there.
    pub(crate) fn forget(&self, name: &str) -> Result<()> {
        let path = self.cache.path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("remove", &path, error))
            }
            _ => Ok(()),
        }
    }

    /// True where the package index is in the cache with the checks that this run wants, and apt finds it there: a
    /// cache that was moved has none.
    pub fn has_index(&self) -> bool {
        let read = |name: &str| fs::read_to_string(self.cache.path(name)).unwrap_or_default();
        read("apt/updated") == self.archive.checked() && read("apt/apt.conf").starts_with(&self.state())
    }

    /// The archive that packages are fetched from.
    pub(crate) fn archive(&self) -> &Archive {
        &self.archive
    }

    /// The setting of apt's folder, which is the first one.
    fn state(&self) -> String {
        format!("Dir::State {};\n", quote(&self.folder().join("state")))
    }

    /// The folder of apt's files. Where a cache has that of another one by a link, it is the other's path, which stays
    /// when the link is gone.
    fn folder(&self) -> PathBuf {
        let folder = self.cache.path("apt");
        folder.canonicalize().unwrap_or(folder)
    }

    /// Fetches the package index anew.
    pub fn update(&self) -> Result<()> {
        let _lock = self.cache.lock("apt")?;
        self.update_locked()
    }

    fn ensure_index(&self) -> Result<()> {
        if self.has_index() {
            return Ok(());
        }
        let _lock = self.cache.lock("apt")?;
        if self.has_index() {
            return Ok(());
        }
        self.update_locked()
    }

    fn update_locked(&self) -> Result<()> {
        // apt hangs where the disk fills up under its indexes, so the space is checked before.
        if free_space(self.cache.root()).is_some_and(|free| free < INDEX_SPACE) {
            return Err(Error::DiskFull { path: self.cache.root().to_path_buf() });
        }
        self.configure()?;
        self.cache.say("fetching the package index");
        let output = self.apt("apt-get", &["update", "-qq", "--error-on=any"])?;
        self.check(&output, "the package index")?;
        self.cache.write_atomically("apt/updated", self.archive.checked()).map(|_| ())
    }

    fn configure(&self) -> Result<()> {
        let sources = self.archive.sources_list()?;
        for name in ["apt/state/lists/partial", "apt/cache/archives/partial", "apt/etc"] {
            let folder = self.cache.path(name);
            fs::create_dir_all(&folder).context("create", &folder)?;
        }
        self.cache.write_atomically("apt/status", "")?;
        self.cache.write_atomically("apt/etc/sources.list", sources)?;
        let dir = |name: &str| quote(&self.folder().join(name));
        let text = format!(
            "{}Dir::State::status {};\nDir::Cache {};\nDir::Etc {};\n\
             Dir::Etc::sourcelist {};\nDir::Etc::sourceparts \"/dev/null\";\nDir::Etc::parts \"/dev/null\";\n\
             Dir::Etc::main \"/dev/null\";\nDir::Etc::preferences \"/dev/null\";\n\
             Dir::Etc::preferencesparts \"/dev/null\";\nDir::Etc::trustedparts \"/dev/null\";\n\
             Dir::Log \"/dev/null\";\nAPT::Architecture \"amd64\";\nAPT::Architectures \"amd64\";\n\
             APT::Sandbox::User \"\";\nAPT::Install-Recommends \"false\";\nAcquire::Languages \"none\";\n\
             Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\nAcquire::Retries \"2\";\nAcquire::GzipIndexes \"true\";\n{}",
            self.state(),
            dir("status"),
            dir("cache"),
            dir("etc"),
            dir("etc/sources.list"),
            self.archive.settings(),
        );
        self.cache.write_atomically("apt/apt.conf", &text).map(|_| ())
    }

    fn download(&self, what: &str, fetch: Fetch<'_>, into: &Path) -> Result<()> {
        self.ensure_index()?;
        self.cache.say(&format!("fetching {what}"));
        // One apt at a time: its caches are shared.
        let _lock = self.cache.lock("apt")?;
        let mut output = self.download_once(fetch, into)?;
        if !output.status.success() {
            // The index may be older than the mirror, which drops superseded versions.
            self.update_locked().map_err(|error| match error {
                Error::Unreachable { cache, .. } => Error::Unreachable { what: what.to_owned(), cache },
                other => other,
            })?;
            output = self.download_once(fetch, into)?;
        }
        self.check(&output, what)?;
        pins::check(&self.cache, &deb_files(into)?)
    }

    fn download_once(&self, fetch: Fetch<'_>, into: &Path) -> Result<Output> {
        match fetch {
            Fetch::Exactly(names) => {
                let mut arguments = vec!["download", "-qq"];
                arguments.extend(names);
                self.apt_in("apt-get", &arguments, into)
            }
            Fetch::WithDependencies { name, suite } => self.download_all(&[name], suite, into),
            Fetch::Together { names, suite } => self.download_all(names, suite, into),
        }
    }

    /// Downloads packages with all their dependencies.
    fn download_all(&self, names: &[&str], suite: &str, into: &Path) -> Result<Output> {
        let archives = format!("Dir::Cache::archives={}", into.display());
        fs::create_dir_all(into.join("partial")).context("create", into)?;
        let mut arguments = vec!["install", "-qq", "-y", "--download-only", "-o", &archives, "-t", suite];
        arguments.extend(names);
        self.apt_in("apt-get", &arguments, into)
    }

    fn apt(&self, program: &'static str, arguments: &[&str]) -> Result<Output> {
        self.apt_in(program, arguments, self.cache.root())
    }

    fn apt_in(&self, program: &'static str, arguments: &[&str], folder: &Path) -> Result<Output> {
        owned::bound(&mut Command::new(program))
            .args(arguments)
            .env("APT_CONFIG", self.cache.path("apt/apt.conf"))
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| program_error(program, "apt", error))
    }

    fn check(&self, output: &Output, what: &str) -> Result<()> {
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        if is_disk_full(&text) {
            return Err(Error::DiskFull { path: self.cache.root().to_path_buf() });
        }
        let line = last_line(&text);
        if ["is expired", "is not valid yet"].iter().any(|sign| line.contains(sign)) {
            return Err(Error::IndexDate { why: line, variable: OLD_MIRROR });
        }
        let untrusted = ["GPG error", "is not signed", "is not available"];
        if let Some(line) = text.lines().find(|line| untrusted.iter().any(|sign| line.contains(sign))) {
            let why = line.trim_start_matches(['E', 'W', ':', ' ']).to_owned();
            let keyring = self.archive.keyring.clone();
            return Err(Error::Untrusted { what: what.to_owned(), why, keyring, variable: OWN_KEYRING });
        }
        let refused = ["Hash Sum mismatch", "unexpected size"];
        if let Some(line) = text.lines().find(|line| refused.iter().any(|sign| line.contains(sign))) {
            let why = line.trim_start_matches(['E', 'W', ':', ' ']).to_owned();
            return Err(Error::Program { program: format!("apt-get, fetching {what},"), why });
        }
        let unreachable =
            ["Could not resolve", "Temporary failure resolving", "Could not connect", "Unable to connect"];
        let cut = ["Failed to fetch", "Connection failed", "Connection timed out", "Network is unreachable"];
        if unreachable.iter().chain(&cut).any(|sign| text.contains(sign)) && !text.contains("404") {
            return Err(Error::Unreachable { what: what.to_owned(), cache: self.cache.root().to_path_buf() });
        }
        Err(Error::Program { program: format!("apt-get, fetching {what},"), why: line })
    }
}

/// The `.deb` files in a folder.
pub fn deb_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).context("list", folder)? {
        let path = entry.context("list", folder)?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            files.push(path);
        }
    }
    Ok(files)
}

/// Unpacks a package's files into a folder.
pub fn unpack(deb: &Path, folder: &Path) -> Result<()> {
    let mut command = Command::new("dpkg-deb");
    unpacked(command.arg("-x").arg(deb).arg(folder), ["dpkg-deb", "dpkg"], deb, folder)
}

/// Unpacks those of a package's files that a pattern of `tar` fits, the first for each pattern.
pub(crate) fn extract(deb: &Path, folder: &Path, patterns: &[String]) -> Result<()> {
    let mut package = Command::new("dpkg-deb");
    package.arg("--fsys-tarfile").arg(deb).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut package =
        owned::bound(&mut package).spawn().map_err(|error| program_error("dpkg-deb", "dpkg", error))?;
    let files = package.stdout.take().map_or_else(Stdio::null, Stdio::from);
    // With `--occurrence` tar ends when it has all of them.
    let output = owned::bound(&mut Command::new("tar"))
        .args(["--extract", "--no-same-owner", "--wildcards", "--occurrence=1", "--file=-", "--directory"])
        .arg(folder)
        .args(patterns)
        .env("LC_ALL", "C")
        .stdin(files)
        .output();
    let output = output.map_err(|error| program_error("tar", "tar", error));
    // Where tar has read to the end, the package has ended too; otherwise nobody reads what follows.
    let to_the_end = output.as_ref().is_ok_and(|output| !output.status.success());
    if !to_the_end {
        let _ = package.kill();
    }
    let whole = package.wait().is_ok_and(|status| status.success()) || !to_the_end;
    let output = output?;
    let text = String::from_utf8_lossy(&output.stderr);
    let found = output.status.success() || text.contains("Not found in archive");
    match (found, whole) {
        (true, true) => Ok(()),
        _ if is_disk_full(&text) => Err(Error::DiskFull { path: folder.to_path_buf() }),
        _ => {
            let why = if found { "it is no whole package" } else { &*last_line(&text) };
            let why = format!("{} cannot be unpacked: {why}", deb.display());
            Err(Error::Program { program: "tar".into(), why })
        }
    }
}

/// Runs a program, of a package, that unpacks a file into a folder.
pub(crate) fn unpacked(
    command: &mut Command,
    [program, package]: [&'static str; 2],
    file: &Path,
    folder: &Path,
) -> Result<()> {
    let output = owned::bound(command).env("LC_ALL", "C").stdin(Stdio::null()).output();
    let output = output.map_err(|error| program_error(program, package, error))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    if is_disk_full(&text) {
        return Err(Error::DiskFull { path: folder.to_path_buf() });
    }
    let why = format!("{} cannot be unpacked: {}", file.display(), last_line(&text));
    Err(Error::Program { program: program.into(), why })
}

/// A part of a kernel's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourcePart {
    /// All but documentation, architectures, graphics drivers and tools.
    Kernel,
    /// The tools that make monitors of automata, and that read the results of tests.
    Tools,
}

/// Unpacks the compressed source of a kernel into a folder, without the parts that no driver is built from.
pub(crate) fn unpack_source(archive: &Path, folder: &Path, part: SourcePart) -> Result<()> {
    let mut command = Command::new("tar");
    command
        .args([
            "--extract",
            "--xz",
            "--strip-components=1",
            "--no-same-owner",
            "--anchored",
            "--no-wildcards-match-slash",
        ])
        .arg("--directory")
        .arg(folder)
        .arg("--file")
        .arg(archive);
    match part {
        SourcePart::Kernel => {
            let excluded = ["Documentation", "arch", "drivers/gpu", "tools"];
            command.args(excluded.map(|part| format!("--exclude=*/{part}")))
        }
        SourcePart::Tools => command.args(["--wildcards", "*/tools/verification", "*/tools/testing/kunit"]),
    };
    unpacked(&mut command, ["tar", "tar"], archive, folder)
}

fn program_error(program: &'static str, package: &'static str, error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        Error::MissingProgram { program, package }
    } else {
        Error::io("run", Path::new(program), error)
    }
}

fn is_disk_full(text: &str) -> bool {
    text.contains("No space left on device") || text.contains("enough free space")
}

/// The line of a program's error output that explains most.
fn last_line(text: &str) -> String {
    let says = |line: &&str| !line.ends_with("Error exit delayed from previous errors.");
    let line = text.lines().rev().find(|line| line.starts_with("E:"));
    let line = line.or_else(|| text.lines().rev().find(says));
    line.unwrap_or("it gave no reason").trim_start_matches("E:").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_apt_does_not_find_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let packages = |name: &str| Packages::new(&Cache::at(&folder.path().join(name)).unwrap());
        let (own, linked) = (packages("own"), packages("linked"));
        let apt = own.cache.path("apt");
        fs::create_dir(&apt).unwrap();
        fs::write(apt.join("updated"), own.archive.checked()).unwrap();
        assert!(!own.has_index());
        fs::write(apt.join("apt.conf"), own.state()).unwrap();
        assert!(own.has_index());
        std::os::unix::fs::symlink(&apt, linked.cache.path("apt")).unwrap();
        assert!(linked.has_index());
        assert_eq!(linked.state(), own.state());
        fs::rename(folder.path().join("own"), folder.path().join("moved")).unwrap();
        assert!(!packages("moved").has_index());
    }
}
