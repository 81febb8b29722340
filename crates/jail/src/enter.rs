//! Starts a process in its jail.

use crate::apart::means;
use crate::calls::{check, no_rights};
use crate::filter::{self, Program};
use crate::landlock;
use crate::limits;
use crate::list::Jail;
use crate::reach::out_of_reach;
use crate::root::Root;
use crate::user::become_user;
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
const STEPS: [&str; 10] = [
    "namespaces",
    "its own root",
    "its own folder in /proc",
    "the bound of capabilities",
    "its own user",
    "capabilities",
    "no new privileges",
    "limits",
    "Landlock",
    "system calls",
];

/// Starts the command in the jail, after all that the command itself does before it starts.
pub fn spawn(command: &mut Command, jail: &Jail) -> Result<Child, Error> {
    spawn_under(landlock::rules, command, jail)
}

/// How the rules of a jail are made.
type Rules = fn(&Jail) -> io::Result<Option<OwnedFd>>;

/// The same with other rules than those of the jail.
pub(crate) fn spawn_under(rules: Rules, command: &mut Command, jail: &Jail) -> Result<Child, Error> {
    let program = Path::new(command.get_program());
    if let Some(path) = out_of_reach([program].into_iter()) {
        return Err(Error::OutOfReach { path });
    }
    let entrance = Entrance::new(jail, rules, root(command, jail))?;
    let failed = entrance.failed.try_clone().map_err(|source| Error::Jail { step: "a counter", source })?;
    // SAFETY: the closure makes system calls alone. It allocates nothing, takes no lock, and touches no memory but
    // what it owns.
    unsafe { command.pre_exec(move || entrance.enter()) };
    command.spawn().map_err(|source| match take(&failed).and_then(|step| STEPS.get(step)) {
        Some(step) => Error::Jail { step, source },
        None => Error::Start(source),
    })
}

/// Puts this process in a jail for good, with all that it starts; it keeps its user and its root. Threads that run already
/// stay outside.
pub fn enter(jail: &Jail) -> Result<(), Error> {
    let entrance = Entrance::new(jail, landlock::rules, Ok(None))?;
    entrance.enter().map_err(|source| match take(&entrance.failed).and_then(|step| STEPS.get(step)) {
        Some(step) => Error::Jail { step, source },
        None => Error::Start(source),
    })
}

/// The private root of a process that is kept apart, if this machine can make one.
fn root(command: &Command, jail: &Jail) -> io::Result<Option<Root>> {
    let (Some(role), (Some(right), users)) = (jail.role, means()) else { return Ok(None) };
    let start = command.get_current_dir().map(Path::to_path_buf).or_else(|| std::env::current_dir().ok());
    Root::new(jail, right, &start.unwrap_or("/".into()), users.then(|| role.user()))
}

/// All that a child needs to enter its jail, made before it is forked.
struct Entrance {
    /// `None` where the process keeps the root of its parent.
    root: Option<Root>,
    /// `None` where the kernel has no Landlock.
    rules: Option<OwnedFd>,
    calls: Program,
    memory: Option<u64>,
    /// Holds one more than the number of the step that failed.
    failed: OwnedFd,
}

impl Entrance {
    fn new(jail: &Jail, rules: Rules, root: io::Result<Option<Root>>) -> Result<Entrance, Error> {
        let broken = |step| move |source| Error::Jail { step, source };
        Ok(Entrance {
            root: root.map_err(broken("its own root"))?,
            rules: rules(jail).map_err(broken("Landlock"))?,
            calls: filter::of_jail(jail),
            memory: jail.memory,
            failed: counter().map_err(broken("a counter"))?,
        })
    }

    /// Enters the jail. Runs between fork and exec, too.
    fn enter(&self) -> io::Result<()> {
        // The kernel takes the filter and the rules only from a process that can gain no privileges.
        let user = self.root.as_ref().and_then(|root| root.user);
        let steps: [&dyn Fn() -> io::Result<()>; STEPS.len()] = [
            &|| self.root.as_ref().map_or(Ok(()), Root::enter_namespaces),
            &|| self.root.as_ref().map_or(Ok(()), Root::enter),
            &|| self.rules.as_ref().map_or(Ok(()), permit_own_proc),
            &no_capabilities_later,
            &|| user.map_or(Ok(()), leave_user),
            &no_rights,
            // SAFETY: this operation takes plain numbers.
            &|| check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into()),
            &|| limits::enter(self.memory, user.is_some()),
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

/// Drops the capabilities that a program of root would gain.
fn no_capabilities_later() -> io::Result<()> {
    for number in 0..MOST_CAPABILITIES {
        // SAFETY: this operation takes plain numbers.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) } != 0 {
            // The last capability is passed, or the process may not lower its bound. It then has the right to
            // few or none, and gains none, because it can gain no privileges.
            break;
        }
    }
    // SAFETY: this operation takes plain numbers.
    check(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) }.into())
}

/// Takes a user of its own, and keeps the signal that the process gets when its parent ends: a change of user clears it.
fn leave_user(user: u32) -> io::Result<()> {
    // SAFETY: getppid has no preconditions.
    let parent = unsafe { libc::getppid() };
    let mut signal: libc::c_int = 0;
    // SAFETY: the number lives through the call and is writable.
    check(unsafe { libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut signal) }.into())?;
    become_user(user)?;
    // SAFETY: this operation takes plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) }.into())?;
    // SAFETY: getppid has no preconditions.
    match unsafe { libc::getppid() } == parent {
        true => Ok(()),
        // The parent ended meanwhile, and sends no signal any more.
        false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
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
