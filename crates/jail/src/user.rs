//! Users of their own for the processes of a run.

use crate::calls::{check, no_rights};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

/// The first uid that is taken. System users, users of other machines, subordinate ids and containers are below it
/// (systemd's list leaves from 1879048192 to 2147352575 unused).
const FIRST: u32 = 1_879_048_192;
/// Uids of one thread: one for each role.
const ROLES: u32 = 4;
/// One more than the largest id. The value itself is no id.
const END: u32 = u32::MAX;

/// A process of a run. Processes of different roles have different users, where this machine permits that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The guest's QEMU.
    Guest,
    /// The gate's process, and what it starts.
    Gate,
    /// The analysis.
    Analysis,
}

impl Role {
    /// A uid, and a gid, that no other process has which runs now: it follows from the number of the calling thread.
    pub fn user(self) -> u32 {
        // SAFETY: gettid has no preconditions.
        let thread = unsafe { libc::gettid() } as u32;
        // Linux has no more than 2^22 threads.
        FIRST + thread % (1 << 22) * ROLES + self as u32
    }
}

/// Takes this user and group for good, and no other groups. Safe to call between fork and exec.
pub fn become_user(user: u32) -> io::Result<()> {
    // SAFETY: an empty list of groups is given as a null pointer with length 0.
    check(unsafe { libc::setgroups(0, std::ptr::null()) }.into())?;
    // SAFETY: setresgid takes plain numbers.
    check(unsafe { libc::setresgid(user, user, user) }.into())?;
    // SAFETY: setresuid takes plain numbers.
    check(unsafe { libc::setresuid(user, user, user) }.into())
}

/// Stays who the process is, without any right in its user namespace, where the namespace has no other user: as under
/// `unshare -r`, whose root is the plain user that called it. Elsewhere it is an error.
pub fn stay_alone() -> io::Result<()> {
    match is_alone() {
        true => no_rights(),
        false => Err(io::Error::from_raw_os_error(libc::EPERM)),
    }
}

/// Whether the process's user namespace has no other user. A process that is confined cannot look, so one that will ask
/// looks before.
pub fn is_alone() -> bool {
    static ALONE: OnceLock<bool> = OnceLock::new();
    *ALONE.get_or_init(|| fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| only_one(&map)))
}

/// Whether a namespace with this map of users has one user alone.
fn only_one(map: &str) -> bool {
    let count = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    map.lines().map(count).collect::<Option<Vec<_>>>().is_some_and(|counts| counts == [1])
}

/// A user namespace by which a mount shows root's files as those of `user`, and new files of that user as root's. All
/// other owners stay.
pub(crate) fn root_as(user: u32) -> io::Result<OwnedFd> {
    let map = format!("0 {user} 1\n1 1 {}\n{} {} {}\n", user - 1, user + 1, user + 1, END - user - 1);
    let none = std::ptr::null::<libc::c_void>();
    // SAFETY: without a stack, the call forks. The child makes system calls alone.
    let holder = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::c_long::from(libc::CLONE_NEWUSER | libc::SIGCHLD),
            none,
            none,
            none,
            none,
        )
    };
    check(holder)?;
    if holder == 0 {
        // SAFETY: the calls take plain numbers. The process waits for its end, also by its parent's.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            loop {
                libc::pause();
            }
        }
    }
    let opened = fs::write(format!("/proc/{holder}/uid_map"), &map)
        .and_then(|()| fs::write(format!("/proc/{holder}/gid_map"), &map))
        .and_then(|()| File::open(format!("/proc/{holder}/ns/user")));
    // SAFETY: the process is a child that has not been waited for.
    unsafe {
        libc::kill(holder as libc::pid_t, libc::SIGKILL);
        libc::waitpid(holder as libc::pid_t, std::ptr::null_mut(), 0);
    }
    opened.map(OwnedFd::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_of_one_user_is_known_by_its_map() {
        assert!(only_one("         0       1000          1\n"));
        let others = [
            "         0          0 4294967295\n",
            "0 1000 1\n1 100000 65536\n",
            "0 1000 x\n",
            "0 1000\n",
            "",
        ];
        for other in others {
            assert!(!only_one(other), "{other:?}");
        }
        assert!(is_alone() || stay_alone().is_err());
    }
}
