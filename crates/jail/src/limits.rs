//! How much a jailed process takes from the machine.
//!
//! CPU time is not limited: the supervisor ends a run by its time limit, and kills its processes then.

use crate::calls::check;
use std::io;

/// Open files. QEMU with a gate has some hundreds of counters; each process of a run has few files beside them.
const MAX_FILES: u64 = 4096;
/// Processes and threads of one user. QEMU has one for each vCPU, and up to 64 for its disks.
const MAX_PROCESSES: u64 = 1024;

/// Lowers a resource limit of this process for good. A lower one that holds already stays.
pub fn limit(resource: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives through the call and is writable.
    check(unsafe { libc::getrlimit(resource, &raw mut now) }.into())?;
    let value = libc::rlimit { rlim_cur: value.min(now.rlim_cur), rlim_max: value.min(now.rlim_max) };
    // SAFETY: the structure lives through the call.
    check(unsafe { libc::setrlimit(resource, &raw const value) }.into())
}

/// Limits this process. Safe to call between fork and exec: it allocates nothing.
///
/// The number of processes is that of the user's, so that it is limited only where the process has a user of its own.
pub(crate) fn enter(memory: Option<u64>, own_user: bool) -> io::Result<()> {
    // A core file would hold the guest's memory.
    limit(libc::RLIMIT_CORE, 0)?;
    limit(libc::RLIMIT_NOFILE, MAX_FILES)?;
    if own_user {
        limit(libc::RLIMIT_NPROC, MAX_PROCESSES)?;
    }
    memory.map_or(Ok(()), |bytes| limit(libc::RLIMIT_AS, bytes))
}
