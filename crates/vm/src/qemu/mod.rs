//! QEMU as a program: where it is, and its machine protocol.
//!
//! **Knows**: which QEMU is new enough, how it is started from an unpacked tree, QMP. **Must not know**: what the guest runs.

pub mod qmp;

use crate::error::{Error, Result};
use crate::fetch::packages::{Fetch, Packages};
use guardrail_jail::Jail;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The oldest version whose plugin interface the tracer supports.
pub const MIN_VERSION: (u32, u32) = (11, 0);

const PROGRAM: &str = "qemu-system-x86_64";

/// QEMU's own filter of system calls: it starts no programs, and changes neither its user nor its priorities. Threads
/// are allowed.
const SANDBOX: [&str; 2] =
    ["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"];

/// Address space in bytes that QEMU takes besides the guest's memory, at most: its translated code, and what its plugins
/// note of all memory. A run takes about 1.5 GB of it, and some clients take 2 GiB more at once.
const OWN_MEMORY: u64 = 16 << 30;

/// A usable QEMU.
#[derive(Clone, Debug)]
pub struct Qemu {
    /// Version, major and minor.
    pub version: (u32, u32),
    /// The path of the program file.
    pub program: PathBuf,
    /// The unpacked tree that contains it; `None` for an installed one.
    tree: Option<PathBuf>,
    /// True where it was built with its filter of system calls.
    sandbox: bool,
}

impl Qemu {
    /// The QEMU that `$GUARDRAIL_QEMU` names, else the system's if new enough, else the private one (fetched if absent).
    pub fn find(packages: &Packages) -> Result<Qemu> {
        if let Some(program) = std::env::var_os("GUARDRAIL_QEMU").filter(|value| !value.is_empty()) {
            return Qemu::installed(Path::new(&program));
        }
        if let Some(qemu) = Qemu::system() {
            return Ok(qemu);
        }
        Qemu::in_tree(&Qemu::fetched(packages)?)
    }

    /// The tree of the private copy with all libraries that it needs, fetched if absent.
    pub fn fetched(packages: &Packages) -> Result<PathBuf> {
        let fetch = Fetch::WithDependencies { name: "qemu-system-x86", suite: "trixie-backports" };
        packages.ensure_tree("qemu", "QEMU 11", fetch)
    }

    /// The system's own QEMU, if there is one and it is new enough.
    pub fn system() -> Option<Qemu> {
        Qemu::installed(&system_program()?).ok()
    }

    /// The version of the system's own QEMU, however old.
    pub fn system_version() -> Option<(u32, u32)> {
        Qemu { version: (0, 0), program: system_program()?, tree: None, sandbox: false }.ask_version().ok()
    }

    /// The private copy, if the cache has it.
    pub fn cached(packages: &Packages) -> Option<Qemu> {
        Qemu::in_tree(&packages.cache().path("qemu")).ok()
    }

    /// An installed QEMU at `program`.
    pub fn installed(program: &Path) -> Result<Qemu> {
        Qemu { version: (0, 0), program: program.to_path_buf(), tree: None, sandbox: true }.checked()
    }

    /// A QEMU in a folder of unpacked packages.
    pub fn in_tree(tree: &Path) -> Result<Qemu> {
        let program = tree.join("usr/bin").join(PROGRAM);
        Qemu { version: (0, 0), program, tree: Some(tree.to_path_buf()), sandbox: true }.checked()
    }

    fn checked(mut self) -> Result<Qemu> {
        let version = match self.ask_version() {
            Ok(version) => version,
            // One that was built without the filter refuses its option, and prints no version.
            Err(_) => {
                self.sandbox = false;
                self.ask_version()?
            }
        };
        if version < MIN_VERSION {
            let why = format!(
                "it is version {}.{}, and {}.{} or newer is needed (unset GUARDRAIL_QEMU to use a private copy)",
                version.0, version.1, MIN_VERSION.0, MIN_VERSION.1
            );
            return Err(Error::BadQemu { path: self.program, why });
        }
        self.version = version;
        Ok(self)
    }

    fn ask_version(&self) -> Result<(u32, u32)> {
        let bad = |why: String| Error::BadQemu { path: self.program.clone(), why };
        let mut command = self.command();
        let output = command.arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| bad(error.to_string()))?;
        parse_version(&String::from_utf8_lossy(&output.stdout))
            .ok_or_else(|| bad("it does not print its version".into()))
    }

    /// A command that runs it, with nothing but what it needs to start.
    ///
    /// A private copy may be built for a newer C library than the machine's, so its own dynamic loader runs
    /// it.
    pub fn command(&self) -> Command {
        let mut command = self.unfiltered();
        command.args(SANDBOX.iter().filter(|_| self.sandbox));
        command
    }

    fn unfiltered(&self) -> Command {
        let Some(tree) = &self.tree else { return Command::new(&self.program) };
        let libraries = tree.join("usr/lib/x86_64-linux-gnu");
        let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
        command
            .arg("--library-path")
            .arg(format!("{0}:{0}/pulseaudio", libraries.display()))
            .arg(&self.program)
            .arg("-L")
            .arg(tree.join("usr/share/qemu"))
            .arg("-L")
            .arg(tree.join("usr/share/seabios"))
            .env("QEMU_MODULE_DIR", libraries.join("qemu"));
        command
    }

    /// What it reaches to start, whatever it runs.
    pub fn jail(&self) -> Jail {
        let jail = READ.iter().fold(Jail::new(), Jail::reads).writes("/dev/null").memory(OWN_MEMORY);
        let Some(tree) = &self.tree else { return own_files(&self.program).iter().fold(jail, Jail::reads) };
        jail.reads(tree)
    }

    /// The names of all devices that this QEMU models.
    pub fn devices(&self) -> Result<Vec<String>> {
        Ok(parse_devices(&self.help()?, ""))
    }

    /// The names of those among them that are PCI functions.
    pub fn pci_devices(&self) -> Result<Vec<String>> {
        Ok(parse_devices(&self.help()?, "bus PCI"))
    }

    fn help(&self) -> Result<String> {
        let output = self
            .command()
            .args(["-machine", "none", "-device", "help"])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Error::BadQemu { path: self.program.clone(), why: error.to_string() })?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// What every QEMU reads, with the libraries that its plugins were linked to.
const READ: [&str; 23] = [
    // Programs and libraries of the system.
    "/usr",
    "/bin",
    "/lib",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    // Settings of its libraries: the time zone, ciphers, addresses of name servers for the guest.
    "/etc/localtime",
    "/etc/resolv.conf",
    "/etc/gnutls",
    "/etc/crypto-policies",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/openssl.cnf",
    // Random bytes, and the size of the machine.
    "/dev/urandom",
    "/dev/random",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/kernel/mm/transparent_hugepage",
    "/proc/sys/vm",
    "/proc/sys/crypto",
    "/proc/filesystems",
    "/proc/cpuinfo",
];

/// The folders with the files of an installed QEMU, or of one that is where it was built.
fn own_files(program: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .filter(|folder| folder.is_absolute())
        .collect();
    for program in [Some(program.to_path_buf()), program.canonicalize().ok()].into_iter().flatten() {
        let Some(folder) = program.parent() else { continue };
        let above = folder.parent().filter(|above| *above != Path::new("/"));
        // An installed one has its files beside `bin`, and a built one in its source, above where it was built.
        let wide =
            folder.file_name().is_some_and(|name| name == "bin") || folder.join("qemu-bundle").is_dir();
        folders.push(above.filter(|_| wide).unwrap_or(folder).to_path_buf());
    }
    folders
}

fn system_program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(PROGRAM)).find(|file| file.is_file())
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let rest = text.split("version ").nth(1)?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The names of the devices whose line in the list also contains this word.
fn parse_devices(text: &str, word: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in text.lines() {
        if let Some((name, rest)) = line.strip_prefix("name \"").and_then(|rest| rest.split_once('"'))
            && (word.is_empty() || rest.split(", ").any(|part| part == word))
        {
            names.push(name.to_owned());
            // Some devices have an alias, too.
            let alias = rest.split(", ").find_map(|part| part.strip_prefix("alias \"")?.strip_suffix('"'));
            names.extend(alias.map(str::to_owned));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_devices_are_read() {
        assert_eq!(parse_version("QEMU emulator version 11.1.3 (Debian 1:11)"), Some((11, 1)));
        assert_eq!(parse_version("hello"), None);
        let text = "Network devices:\nname \"e1000\", bus PCI, alias \"e1000-82540em\", desc \"x\"\nname \"igb\", bus PCI\n";
        assert_eq!(parse_devices(text, "bus PCI"), ["e1000", "e1000-82540em", "igb"]);
        let text = "name \"ib700\", bus ISA\nname \"isa-x\"\n";
        assert_eq!(parse_devices(text, ""), ["ib700", "isa-x"]);
        assert!(parse_devices(text, "bus PCI").is_empty());
    }
}
