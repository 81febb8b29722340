//! System calls that several parts of a jail make.

use std::io;

/// The version of the structures of `capset` (`_LINUX_CAPABILITY_VERSION_3`).
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Drops the capabilities of this thread.
pub(crate) fn no_rights() -> io::Result<()> {
    let head: [u32; 2] = [CAPABILITY_VERSION, 0];
    // Effective, permitted and inheritable ones, of the low and the high half.
    let none = [0_u32; 6];
    // SAFETY: both arrays have the layout that this version wants, and live through the call.
    check(unsafe { libc::syscall(libc::SYS_capset, head.as_ptr(), none.as_ptr()) })
}

pub(crate) fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Capabilities by which a supervisor reads, kills and starts processes of other users, and takes their files.
const NEEDED: [u32; 5] = [CAP_DAC_OVERRIDE, CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN];
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_KILL: u32 = 5;
const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;
const CAP_SYS_ADMIN: u32 = 21;

/// True where this thread has the rights over processes of other users that a supervisor needs.
pub(crate) fn outranks_all() -> bool {
    let head: [u32; 2] = [CAPABILITY_VERSION, 0];
    let mut sets = [0_u32; 6];
    // SAFETY: both arrays have the layout that this version wants, and live through the call.
    let asked = check(unsafe { libc::syscall(libc::SYS_capget, head.as_ptr(), sets.as_mut_ptr()) });
    asked.is_ok() && NEEDED.iter().all(|number| sets[0] & 1 << number != 0)
}
