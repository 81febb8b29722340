//! Drops the privileges that the analysis process does not need. The bytes that it reads afterwards originate
//! in a guest.

use guardrail_jail::filter::{ALLOW, Filter, REFUSE};
use std::io;

/// The user and group without rights.
const NOBODY: u32 = 65534;
/// Address space in bytes: many times what a run needs, and far less than what would harm the machine.
const MAX_MEMORY: u64 = 8 << 30;
/// Open files: three standard ones, log, trace, and some spare ones.
const MAX_FILES: u64 = 32;

/// Drops privileges for good. Every file that is needed must be open.
pub fn enter() -> io::Result<()> {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        // SAFETY: an empty list of groups is given as a null pointer with length 0.
        check(unsafe { libc::setgroups(0, std::ptr::null()) })?;
        // SAFETY: setresgid takes plain numbers.
        check(unsafe { libc::setresgid(NOBODY, NOBODY, NOBODY) })?;
        // SAFETY: setresuid takes plain numbers.
        check(unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) })?;
    }
    // SAFETY: these operations of prctl take plain numbers.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        // A core file would contain the guest's memory.
        check(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0))?;
        // This follows the change of user, which clears it: without a supervisor the process has no purpose.
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
    }
    limit(libc::RLIMIT_AS, MAX_MEMORY)?;
    limit(libc::RLIMIT_NOFILE, MAX_FILES)?;
    limit(libc::RLIMIT_CORE, 0)?;
    allow_needed()
}

fn limit(what: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    // SAFETY: `rlimit` is plain data for which all zeros is a value.
    let mut limits: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: the structure lives through the call and is writable.
    check(unsafe { libc::getrlimit(what, &mut limits) })?;
    let value = value.min(limits.rlim_max);
    let limits = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: the structure lives through the call.
    check(unsafe { libc::setrlimit(what, &limits) })
}

/// What the analysis does: it computes, reads and writes what is open, and runs threads.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_fcntl,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];
/// Allows what the analysis does. Files cannot be opened, programs cannot be run, and memory cannot become code.
fn allow_needed() -> io::Result<()> {
    let mut filter = Filter::new();
    for number in ALLOWED {
        filter.always(*number, ALLOW);
    }
    for number in [libc::SYS_mmap, libc::SYS_mprotect] {
        filter.allow_if(number, 2, libc::BPF_JSET, libc::PROT_EXEC as u32, false);
    }
    filter.allow_if(libc::SYS_prctl, 0, libc::BPF_JEQ, libc::PR_SET_NAME as u32, true);
    filter.threads(false);
    filter.otherwise(REFUSE).install()
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs code in a process of its own, and returns its exit status.
    fn in_child(code: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child runs `code` alone, and ends without returning.
        match unsafe { libc::fork() } {
            // SAFETY: `_exit` has no preconditions.
            0 => unsafe { libc::_exit(code()) },
            child => {
                let mut status = 0;
                // SAFETY: the status is writable, and the child is this process's own.
                unsafe { libc::waitpid(child, &mut status, 0) };
                if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 200 + libc::WTERMSIG(status) }
            }
        }
    }

    fn refused(result: libc::c_long) -> bool {
        result == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
    }

    #[test]
    fn what_the_analysis_does_is_allowed_and_nothing_else() {
        let status = in_child(|| {
            // The parent of a forked test is no supervisor, but lives as long.
            if enter().is_err() {
                return 1;
            }
            let path = c"/etc/passwd".as_ptr();
            // SAFETY: the calls are refused before they do anything; paths are terminated.
            let calls = unsafe {
                [
                    libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY),
                    libc::syscall(libc::SYS_open, path, libc::O_RDONLY),
                    libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0),
                    libc::syscall(libc::SYS_execve, path, 0, 0),
                    libc::syscall(libc::SYS_fork),
                    libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0),
                    libc::syscall(libc::SYS_clone, libc::CLONE_THREAD | libc::CLONE_NEWUSER, 0, 0, 0, 0),
                    libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUSER),
                    libc::syscall(libc::SYS_mknod, path, libc::S_IFIFO, 0),
                    libc::syscall(libc::SYS_chmod, path, 0o777),
                    libc::syscall(libc::SYS_kill, libc::getpid(), 0),
                    libc::syscall(libc::SYS_ptrace, 0, 0, 0, 0),
                    libc::syscall(libc::SYS_prctl, libc::PR_SET_DUMPABLE, 1, 0, 0, 0),
                    libc::syscall(
                        libc::SYS_mmap,
                        0,
                        4096,
                        libc::PROT_READ | libc::PROT_EXEC,
                        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                        -1,
                        0,
                    ),
                    libc::syscall(libc::SYS_io_uring_setup, 1, 0),
                ]
            };
            if let Some(at) = calls.iter().position(|result| *result != -1) {
                return 10 + at as i32;
            }
            // SAFETY: as above; the last call's error is still there.
            if !refused(unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY) }) {
                return 2;
            }
            let worker =
                std::thread::Builder::new().name("worker".into()).spawn(|| vec![7_u8; 1 << 20].len());
            let worked = worker.is_ok_and(|worker| worker.join().is_ok_and(|len| len == 1 << 20));
            std::thread::sleep(std::time::Duration::from_millis(1));
            if worked { 0 } else { 3 }
        });
        assert_eq!(status, 0);
    }
}
