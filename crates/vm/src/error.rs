//! The errors of this crate, each with one clear sentence.

use std::io;
use std::path::{Path, PathBuf};

/// Text of guests and of what users bring is printed on terminals, so control characters are dropped.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation of this crate failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An unknown name, with similar ones.
    #[error("there is no {what} named '{name}'{}", nearest(.near))]
    Unknown {
        /// The kind of name: "driver", "kernel", "device", "workload".
        what: &'static str,
        /// The name as given.
        name: String,
        /// Similar names, best first.
        near: Vec<String>,
    },
    /// A driver that is part of the kernel image and so cannot be loaded as a module.
    #[error("'{name}' is built into kernel {release} and cannot be loaded as a module")]
    BuiltIn {
        /// The module's name.
        name: String,
        /// The kernel's release.
        release: String,
    },
    /// A module file that cannot be used.
    #[error("{}: {why}", .path.display())]
    BadModule {
        /// The module file.
        path: PathBuf,
        /// The defect, as text for the user.
        why: String,
    },
    /// A module that needs another one that the kernel does not have.
    #[error("the module '{module}' needs '{missing}', which kernel {release} does not have")]
    MissingDependency {
        /// The module whose load was planned.
        module: String,
        /// The module that it depends on.
        missing: String,
        /// The kernel's release.
        release: String,
    },
    /// A kernel without any module.
    #[error(
        "kernel {release} has no modules in {}; build it with CONFIG_MODULES=y and its drivers as =m, and run make modules (or modules_install)",
        .folder.display()
    )]
    NoModules {
        /// The kernel's release.
        release: String,
        /// The folder of its modules.
        folder: PathBuf,
    },
    /// A kernel path that holds no usable kernel.
    #[error("{}: {why}", .path.display())]
    BadKernel {
        /// The path as given.
        path: PathBuf,
        /// The defect, as text for the user.
        why: String,
    },
    /// A workload script that cannot be read.
    #[error("{}: {why}", .path.display())]
    BadWorkload {
        /// The path as given.
        path: PathBuf,
        /// The defect, as text for the user.
        why: String,
    },
    /// A value outside its range.
    #[error("{0}")]
    BadValue(String),
    /// No network, and the cache does not hold what is needed.
    #[error(
        "{what} is not in the cache {} and the Debian mirror cannot be reached; connect to the network once and run again, or carry it here by guardrail cache export and import",
        .cache.display()
    )]
    Unreachable {
        /// A description of what was to be fetched.
        what: String,
        /// The cache folder.
        cache: PathBuf,
    },
    /// A cache that takes nothing.
    #[error(
        "the cache {} takes no files, since {why}; what it holds works as it is, and for all else GUARDRAIL_CACHE has to name a folder of yours",
        .cache.display()
    )]
    UnwritableCache {
        /// The cache folder.
        cache: PathBuf,
        /// The reason, in a few words.
        why: &'static str,
    },
    /// Something that such a cache does not hold.
    #[error(
        "{what} is not in the cache {}, and cannot be added, since {why}; what it holds works as it is, and for all else GUARDRAIL_CACHE has to name a folder of yours",
        .cache.display()
    )]
    NotInCache {
        /// The name in the cache of what is wanted.
        what: String,
        /// The cache folder.
        cache: PathBuf,
        /// The reason, in a few words.
        why: &'static str,
    },
    /// The machine's apt sources name no Debian mirror.
    #[error(
        "the apt sources of this machine name no Debian mirror; add one to /etc/apt/sources.list (Debian 12 or newer is needed)"
    )]
    NoMirror,
    /// An index of packages that is too old, or of a time to come.
    #[error(
        "{why}: correct this machine's clock, name a newer mirror, or set {variable}=1 to accept any date"
    )]
    IndexDate {
        /// What apt says.
        why: String,
        /// The environment variable that accepts it.
        variable: &'static str,
    },
    /// An index of packages that nobody signed whose keys are known here.
    #[error(
        "{what} cannot be fetched, since no key of {} vouches for the mirror ({why}); set {variable} to the mirror's keyring, or name another mirror",
        .keyring.display()
    )]
    Untrusted {
        /// What was to be fetched.
        what: String,
        /// What apt says.
        why: String,
        /// The file with the keys.
        keyring: PathBuf,
        /// The environment variable that names another one.
        variable: &'static str,
    },
    /// A package whose bytes differ from those that were fetched before under its name and version.
    #[error(
        "the package {package} differs from the one of the same version that was fetched before; where that is right, remove its line from {}",
        .pins.display()
    )]
    Replaced {
        /// The file's name, with version and architecture.
        package: String,
        /// The file with the digests.
        pins: PathBuf,
    },
    /// A disk without free space.
    #[error("no space left on the disk that holds {}; free some, or point GUARDRAIL_CACHE elsewhere", .path.display())]
    DiskFull {
        /// The file or folder that could not be written.
        path: PathBuf,
    },
    /// A program of the system that is needed but absent.
    #[error("the program '{program}' is missing; install it with: apt-get install {package}")]
    MissingProgram {
        /// The program's name.
        program: &'static str,
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// A QEMU that cannot be used.
    #[error("QEMU at {} cannot be used: {why}", .path.display())]
    BadQemu {
        /// The path of the QEMU program.
        path: PathBuf,
        /// The defect, as text for the user.
        why: String,
    },
    /// A program that failed for another reason.
    #[error("{program} failed: {why}")]
    Program {
        /// The program's name.
        program: String,
        /// The last lines of its error output.
        why: String,
    },
    /// Sources that do not build.
    #[error("{program} failed: {why}")]
    Build {
        /// The build script's name.
        program: String,
        /// The line of its output that explains it.
        why: String,
        /// All that the script and the compiler said.
        said: String,
    },
    /// A file that the process which parses gave no answer about.
    #[error("{} cannot be read: the process that parses it {why}", .what.display())]
    Parser {
        /// The file.
        what: PathBuf,
        /// How the process failed.
        why: String,
    },
    /// A file operation that failed.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// The operation, as a verb.
        doing: &'static str,
        /// The file that it was tried on.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// True where the user's input is wrong, false where the machine or the run failed.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Error::Unknown { .. }
                | Error::BuiltIn { .. }
                | Error::BadModule { .. }
                | Error::MissingDependency { .. }
                | Error::NoModules { .. }
                | Error::BadKernel { .. }
                | Error::BadWorkload { .. }
                | Error::BadValue(_)
        )
    }

    /// True where this machine lacks something that another may have: the network, space, or a program.
    pub fn is_of_machine(&self) -> bool {
        matches!(
            self,
            Error::Unreachable { .. }
                | Error::NoMirror
                | Error::IndexDate { .. }
                | Error::Replaced { .. }
                | Error::DiskFull { .. }
                | Error::UnwritableCache { .. }
                | Error::NotInCache { .. }
                | Error::Untrusted { .. }
                | Error::MissingProgram { .. }
                | Error::BadQemu { .. }
                | Error::Program { .. }
        )
    }

    /// Wraps an I/O error; a full disk gets its own kind.
    pub fn io(doing: &'static str, path: &Path, source: io::Error) -> Error {
        if source.raw_os_error() == Some(libc::ENOSPC) || source.raw_os_error() == Some(libc::EDQUOT) {
            return Error::DiskFull { path: path.to_path_buf() };
        }
        Error::Io { doing, path: path.to_path_buf(), source }
    }
}

/// Adds the operation and the file to an I/O result.
pub(crate) trait Context<T> {
    /// `cannot {doing} {path}: {source}`.
    fn context(self, doing: &'static str, path: &Path) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, doing: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::io(doing, path, source))
    }
}

fn nearest(near: &[String]) -> String {
    match near {
        [] => String::new(),
        [one] => format!("; the nearest is '{one}'"),
        many => format!(
            "; the nearest are {}",
            many.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
        ),
    }
}

/// The names most similar to `name` among `known`, best first, at most three; empty where none is similar.
pub fn suggest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let name = name.to_lowercase();
    let mut scored: Vec<(f64, &str)> = known
        .into_iter()
        .map(|other| (strsim::jaro_winkler(&name, &other.to_lowercase()), other))
        .filter(|(score, _)| *score >= 0.8)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.into_iter().take(3).map(|(_, other)| other.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_comes_with_near_ones() {
        let near = suggest("e100o", ["e1000", "e1000e", "nvme", "pcnet32"]);
        let error = Error::Unknown { what: "driver", name: "e100o".into(), near };
        assert_eq!(error.to_string(), "there is no driver named 'e100o'; the nearest are 'e1000', 'e1000e'");
        assert!(suggest("zzz", ["e1000"]).is_empty());
    }

    #[test]
    fn a_full_disk_has_its_own_sentence() {
        let error = Error::io("write", Path::new("/x"), io::Error::from_raw_os_error(libc::ENOSPC));
        assert!(matches!(error, Error::DiskFull { .. }));
    }
}
