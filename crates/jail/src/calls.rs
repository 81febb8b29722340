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
