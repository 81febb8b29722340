//! Takes from a process what it does not need before it reads what originates in a guest or in an unknown file.
//!
//! The analysis process gives rights up in two steps. First it can do nothing but open the files of its job ([`confine`]).
//! When these are open and parsed, it can open none ([`enter`]).

use crate::input::AnalysisInput;
use guardrail_jail::filter::{ALLOW, Filter, REFUSE};
use guardrail_jail::{Jail, Role, become_user, is_alone, limit, stay_alone};
use std::io;

/// The user and group without rights, which other programs of the system may have as well.
const NOBODY: u32 = 65534;
/// Address space in bytes: many times what a run needs, and far less than what would harm the machine.
const MAX_MEMORY: u64 = 8 << 30;
/// Open files: three standard ones, log, trace, and some spare ones.
const MAX_FILES: u64 = 32;

/// Leaves a process the files that a jail lists, for good: it runs no program, connects to nothing, and signals nothing.
/// Other threads that run already are not confined.
pub fn confine(jail: &Jail) -> io::Result<()> {
    // What it leaves its user by, later.
    is_alone();
    let mut filter = needed();
    for number in OPENING.iter().chain(LEAVING) {
        filter.always(*number, ALLOW);
    }
    // What asks for the terminal's size. Others would type into it.
    filter.allow_values(libc::SYS_ioctl, 1, &[libc::TCGETS as u32, libc::TIOCGWINSZ as u32]);
    guardrail_jail::confine(jail, &filter.otherwise(REFUSE))
}

/// The same for a process that also answers at sockets that listen. It makes no socket and connects none.
pub fn confine_server(jail: &Jail) -> io::Result<()> {
    let mut filter = needed();
    for number in OPENING.iter().chain(LEAVING).chain(ANSWERING) {
        filter.always(*number, ALLOW);
    }
    filter.allow_values(libc::SYS_ioctl, 1, &[libc::FIONBIO as u32]);
    // No Fast Open, by which `sendto` would connect, and no options but those of sockets.
    filter.allow_values(libc::SYS_sendto, 3, &[0, libc::MSG_NOSIGNAL as u32]);
    filter.allow_values(libc::SYS_setsockopt, 1, &[libc::SOL_SOCKET as u32]);
    limit(libc::RLIMIT_AS, MAX_MEMORY)?;
    guardrail_jail::confine(jail, &filter.otherwise(REFUSE))
}

/// The files that an analysis reads.
pub fn inputs(input: &AnalysisInput) -> Jail {
    let modules = input.modules.iter().chain(&input.others);
    let modules = modules.flat_map(|module| [Some(&module.path), module.debug.as_ref()]);
    let read = [Some(&input.kernel), input.kernel_debug.as_ref()].into_iter().chain(modules).flatten();
    read.fold(Jail::new(), Jail::reads)
}

/// Drops privileges for good. Every file that is needed must be open.
pub fn enter() -> io::Result<()> {
    leave(true)?;
    let mut filter = needed();
    filter.allow_values(libc::SYS_prctl, 0, &[libc::PR_SET_NAME as u32]);
    filter.otherwise(REFUSE).install()
}

/// The same for the process that parses, which gets each file from those that ask. It ends with its socket: the thread
/// that started it may end before.
pub fn enter_parser() -> io::Result<()> {
    leave(false)?;
    let mut filter = needed();
    for number in HANDED {
        filter.always(*number, ALLOW);
    }
    filter.allow_values(libc::SYS_prctl, 0, &[libc::PR_SET_NAME as u32]);
    filter.otherwise(REFUSE).install()
}

/// Leaves the user, and sets limits. The process ends with the thread that started it where `follows` is true.
fn leave(follows: bool) -> io::Result<()> {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        // A user namespace, such as that of a container, may not know a user of its own, or no other user at all.
        become_user(Role::Analysis.user()).or_else(|_| become_user(NOBODY)).or_else(|_| stay_alone())?;
    }
    // SAFETY: these operations of prctl take plain numbers.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        // A core file would contain the guest's memory.
        check(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0))?;
        if follows {
            // This follows the change of user, which clears it: without a supervisor the process has no purpose.
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        }
    }
    limit(libc::RLIMIT_AS, MAX_MEMORY)?;
    limit(libc::RLIMIT_NOFILE, MAX_FILES)?;
    limit(libc::RLIMIT_CORE, 0)
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

/// How files are found, opened, written and replaced.
const OPENING: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_fchmod,
    libc::SYS_flock,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_dup,
    libc::SYS_umask,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
];

/// How requests arrive with open files, how they are answered, and how one file is copied to another.
const HANDED: &[libc::c_long] = &[
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
];

/// How a server answers.
const ANSWERING: &[libc::c_long] =
    &[libc::SYS_accept4, libc::SYS_recvfrom, libc::SYS_getsockopt, libc::SYS_shutdown];

/// How the analysis leaves its user, and takes more from itself.
const LEAVING: &[libc::c_long] = &[
    libc::SYS_setgroups,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_capset,
    libc::SYS_prctl,
    libc::SYS_seccomp,
    libc::SYS_prlimit64,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
];

/// Lets what the analysis does pass, and leaves all other calls to what follows. Files cannot be opened, programs cannot be
/// run, and memory cannot become code.
fn needed() -> Filter {
    let mut filter = Filter::new();
    for number in ALLOWED {
        filter.always(*number, ALLOW);
    }
    for number in [libc::SYS_mmap, libc::SYS_mprotect] {
        filter.allow_without(number, 2, libc::PROT_EXEC as u32);
    }
    filter.threads(false);
    filter
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_host::files;
    use std::path::Path;

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
        // The parent of a forked test is no supervisor, but lives as long.
        only_computes(enter);
    }

    #[test]
    fn the_process_that_parses_can_do_no_more() {
        only_computes(enter_parser);
    }

    fn only_computes(confine: fn() -> io::Result<()>) {
        let status = in_child(|| {
            if confine().is_err() {
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

    #[test]
    fn a_confined_process_opens_what_is_listed_and_starts_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let [listed, beside, out] = ["listed", "beside", "out"].map(|name| folder.path().join(name));
        std::fs::write(&listed, "words").unwrap();
        std::fs::write(&beside, "words").unwrap();
        std::fs::create_dir(&out).unwrap();
        let has_landlock = guardrail_jail::available().restricts_files();
        let jail = Jail::new().reads(&listed).writes(files::place(&out.join("new")));
        let status = in_child(|| {
            let reads = |file: &Path| std::fs::read(file).is_ok_and(|bytes| bytes == b"words");
            // SAFETY: the calls are refused before they do anything.
            let refused_calls = || unsafe {
                refused(libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0))
                    && refused(libc::syscall(libc::SYS_kill, libc::getppid(), 0))
                    && refused(libc::syscall(libc::SYS_ptrace, 0, 0, 0, 0))
                    && refused(libc::syscall(libc::SYS_ioctl, 0, libc::TIOCSTI, c"x".as_ptr()))
                    && refused(libc::syscall(libc::SYS_execve, c"/bin/true".as_ptr(), 0, 0))
            };
            let steps: [&dyn Fn() -> bool; 9] = [
                &|| confine(&jail).is_ok(),
                &|| reads(&listed),
                &|| files::write(&out.join("new"), "words").is_ok(),
                &|| !has_landlock || !reads(&beside) && !reads(Path::new("/etc/passwd")),
                &|| !has_landlock || std::fs::write(&beside, "other").is_err(),
                &refused_calls,
                // What is not open by now stays closed.
                &|| enter().is_ok(),
                &|| !reads(&listed),
                &refused_calls,
            ];
            steps.iter().position(|step| !step()).map_or(0, |at| 1 + at as i32)
        });
        assert_eq!(status, 0, "the number of the step that failed");
        assert_eq!(std::fs::read(&beside).unwrap(), b"words");
    }
}
