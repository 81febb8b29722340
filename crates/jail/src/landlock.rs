//! The Landlock rules of a jail.

use crate::list::Jail;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope, make_bitflags,
};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The newest version that the rules use. Older kernels enforce as much of them as they know.
const NEWEST: ABI = ABI::V6;
/// `LANDLOCK_CREATE_RULESET_VERSION`: asks for the version and creates nothing.
const ASK_VERSION: u32 = 1;

/// The version of Landlock that this machine's kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Landlock {
    /// The kernel lacks it, or was started without it.
    Absent,
    /// The kernel has this version of its interface.
    Abi(u32),
}

impl Landlock {
    /// Files outside a jail are refused.
    pub fn restricts_files(self) -> bool {
        self >= Landlock::Abi(1)
    }

    /// TCP ports outside a jail are refused.
    pub fn restricts_ports(self) -> bool {
        self >= Landlock::Abi(4)
    }

    /// Signals to processes outside a jail, and abstract Unix sockets there, are refused.
    pub fn restricts_signals(self) -> bool {
        self >= Landlock::Abi(6)
    }

    /// What a jailed process reaches in spite of its jail; `None` where the kernel enforces all of it.
    pub fn gap(self) -> Option<&'static str> {
        match self {
            Landlock::Absent => {
                Some("files, TCP ports, signals and the memory of other processes are not restricted")
            }
            Landlock::Abi(..=3) => Some("TCP ports and signals are not restricted"),
            Landlock::Abi(..=5) => Some("signals are not restricted"),
            Landlock::Abi(_) => None,
        }
    }
}

impl fmt::Display for Landlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Landlock::Absent => f.write_str("absent"),
            Landlock::Abi(version) => write!(f, "ABI {version}"),
        }
    }
}

/// Asks the kernel.
pub fn available() -> Landlock {
    // SAFETY: with this flag the call takes no attributes, and returns a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, ASK_VERSION) };
    u32::try_from(version).ok().filter(|version| *version > 0).map_or(Landlock::Absent, Landlock::Abi)
}

/// The rules of a jail, ready to be entered; `None` where the kernel has no Landlock.
pub(crate) fn rules(jail: &Jail) -> io::Result<Option<OwnedFd>> {
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(NEWEST)))
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create);
    let mut rules = rules.map_err(io::Error::other)?;
    let writes = AccessFs::from_all(NEWEST) & !AccessFs::Execute;
    for (paths, access) in [(&jail.reads, AccessFs::from_read(NEWEST)), (&jail.writes, writes)] {
        for path in paths {
            rules = beneath(rules, path, access)?;
        }
    }
    for (ports, access) in [(&jail.connects, AccessNet::ConnectTcp), (&jail.binds, AccessNet::BindTcp)] {
        for port in ports {
            rules = rules.add_rule(NetPort::new(*port, access)).map_err(io::Error::other)?;
        }
    }
    Ok(rules.into())
}

/// What a folder never permits below it: devices take commands only where they are named themselves.
const DEVICES: BitFlags<AccessFs> = make_bitflags!(AccessFs::{IoctlDev | MakeChar | MakeBlock});

/// Adds a rule for a file, or for a folder with all below it.
fn beneath(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> io::Result<RulesetCreated> {
    let Ok(meant) = std::fs::metadata(path) else { return Ok(rules) };
    if !meant.is_dir() && path.canonicalize().is_err() {
        // A pipe that was inherited is in no file system, and needs no permission.
        return Ok(rules);
    }
    let access = access & if meant.is_dir() { !DEVICES } else { AccessFs::from_file(NEWEST) };
    let add = |file| rules.add_rule(PathBeneath::new(file, access));
    let fail = |error: &dyn fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let file = PathFd::new(path).map_err(|error| fail(&error))?;
    add(file).map_err(|error: RulesetError| fail(&error))
}

/// The rights on its own folder in `/proc` that a process gets, as the kernel's bits: to read files and folders.
pub(crate) const OWN_PROC: u64 = AccessFs::ReadFile as u64 | AccessFs::ReadDir as u64;
