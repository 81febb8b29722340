//! Starts a process in its jail.

use crate::calls::{check, no_rights};
use crate::filter::{self, Program};
use crate::landlock;
use crate::limits;
use crate::list::Jail;
use crate::reach::out_of_reach;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// Capabilities have numbers below this one; the kernel says which is the last.
const MOST_CAPABILITIES: libc::c_ulong = 64;
/// The kind of a Landlock rule about a path (`LANDLOCK_RULE_PATH_BENEATH`).
const PATH_BENEATH: libc::c_int = 1;

/// Why a process did not start in its jail.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The jail cannot be made or entered.
    #[error("its jail cannot be applied: {step}: {source}")]
    Jail {
        /// The part of the jail that failed.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Only a capability of root, which the program does not have, opens this file.
    #[error(
        "it runs without root's right to read other users' files, so it cannot open {}; let root read it, or run \
         Guardrail as its owner",
        path.display()
    )]
    OutOfReach {
        /// The file or folder.
        path: PathBuf,
    },
    /// The program cannot be started.
    #[error(transparent)]
    Start(io::Error),
}

/// The parts of a jail, in the order in which a child enters them. A child sends the number of the part that fails.
const STEPS: [&str; 6] =
    ["its own folder in /proc", "capabilities", "no new privileges", "limits", "Landlock", "system calls"];

/// Starts the command in the jail, after all that the command itself does before it starts.
pub fn spawn(command: &mut Command, jail: &Jail) -> Result<Child, Error> {
    let program = Path::new(command.get_program());
    if let Some(path) = out_of_reach([program].into_iter()) {
        return Err(Error::OutOfReach { path });
    }
    let entrance = Entrance::new(jail)?;
    let failed = entrance.failed.try_clone().map_err(|source| Error::Jail { step: "a counter", source })?;
    // SAFETY: the closure makes system calls alone. It allocates nothing, takes no lock, and touches no memory but
    // what it owns.
    unsafe { command.pre_exec(move || entrance.enter()) };
    command.spawn().map_err(|source| match take(&failed).and_then(|step| STEPS.get(step)) {
        Some(step) => Error::Jail { step, source },
        None => Error::Start(source),
    })
}

/// Puts this process in a jail for good, with all that it starts. Threads that run already stay outside.
pub fn enter(jail: &Jail) -> Result<(), Error> {
    let entrance = Entrance::new(jail)?;
    entrance.enter().map_err(|source| match take(&entrance.failed).and_then(|step| STEPS.get(step)) {
        Some(step) => Error::Jail { step, source },
        None => Error::Start(source),
    })
}

/// All that a child needs to enter its jail, made before it is forked.
struct Entrance {
    /// `None` where the kernel has no Landlock.
    rules: Option<OwnedFd>,
    calls: Program,
    memory: Option<u64>,
    /// Holds one more than the number of the step that failed.
    failed: OwnedFd,
}

impl Entrance {
    fn new(jail: &Jail) -> Result<Entrance, Error> {
        let broken = |step| move |source| Error::Jail { step, source };
        Ok(Entrance {
            rules: landlock::rules(jail).map_err(broken("Landlock"))?,
            calls: filter::of_jail(jail),
            memory: jail.memory,
            failed: counter().map_err(broken("a counter"))?,
        })
    }

    /// Enters the jail. Runs between fork and exec, too.
    fn enter(&self) -> io::Result<()> {
        // The kernel takes the filter and the rules only from a process that can gain no privileges.
        let steps: [&dyn Fn() -> io::Result<()>; STEPS.len()] = [
            &|| self.rules.as_ref().map_or(Ok(()), permit_own_proc),
            &drop_capabilities,
            // SAFETY: this operation takes plain numbers.
            &|| check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into()),
            &|| limits::enter(self.memory),
            &|| self.rules.as_ref().map_or(Ok(()), restrict),
            &|| self.calls.install(),
        ];
        for (number, step) in steps.iter().enumerate() {
            if let Err(error) = step() {
                let number = (number as u64 + 1).to_ne_bytes();
                // SAFETY: the descriptor is open, and the buffer has eight bytes.
                let _ = unsafe { libc::write(self.failed.as_raw_fd(), number.as_ptr().cast(), number.len()) };
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Lets the process read its own folder in `/proc`. The folder's number is known in the child alone.
///
/// The descriptor stays open: without it, the kernel may forget the folder that the rule means.
fn permit_own_proc(rules: &OwnedFd) -> io::Result<()> {
    #[repr(C, packed)]
    struct PathBeneath {
        allowed: u64,
        folder: RawFd,
    }
    // SAFETY: the name is a C string.
    let folder = unsafe { libc::open(c"/proc/self".as_ptr(), libc::O_PATH | libc::O_DIRECTORY) };
    if folder < 0 {
        // Without /proc there is nothing to permit.
        return Ok(());
    }
    let rule = PathBeneath { allowed: landlock::OWN_PROC, folder };
    // SAFETY: both descriptors are open, and the rule lives through the call.
    check(unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), PATH_BENEATH, &raw const rule, 0)
    })
}

pub(crate) fn restrict(rules: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is open, and no flags are given.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) })
}

/// Drops all capabilities, also those that a program of root would gain.
fn drop_capabilities() -> io::Result<()> {
    for number in 0..MOST_CAPABILITIES {
        // SAFETY: this operation takes plain numbers.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) } != 0 {
            // The last capability is passed, or the process may not lower its bound. It then has the right to
            // few or none, and gains none, because it can gain no privileges.
            break;
        }
    }
    // SAFETY: this operation takes plain numbers.
    check(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) }.into())?;
    no_rights()
}

fn counter() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    check(fd.into())?;
    // SAFETY: the system just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The number of the step that failed, if one did.
fn take(failed: &OwnedFd) -> Option<usize> {
    let mut bytes = [0; 8];
    // SAFETY: the descriptor is open, and the buffer has eight bytes.
    let count = unsafe { libc::read(failed.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
    (count == 8).then(|| u64::from_ne_bytes(bytes) as usize).and_then(|number| number.checked_sub(1))
}
