//! Drops the privileges that the analysis process does not need. The bytes that it reads afterwards originate
//! in a guest.

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
    filter()
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

/// System calls that the analysis does not need and an attacker inside it could use. They concern other
/// programs, sockets, names in the file system, other processes, and kernel interfaces.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_creat,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_chmod,
    libc::SYS_fchmodat,
    libc::SYS_chown,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
];

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// Numbers from here on belong to the x32 ABI.
const X32: u32 = 0x4000_0000;

/// Installs a filter that answers [`REFUSED`] with EPERM, on all later threads.
fn filter() -> io::Result<()> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let jump = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut program = vec![
        // `seccomp_data`: the number at 0, the architecture at 4.
        statement(load, 4),
        jump(equal, AUDIT_ARCH_X86_64, 1, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS),
        statement(load, 0),
        jump(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, X32, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, refuse),
    ];
    for number in REFUSED {
        program.push(jump(equal, *number as u32, 0, 1));
        program.push(statement(libc::BPF_RET | libc::BPF_K, refuse));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: `filter` names `program`, which lives through the call; the kernel copies it.
    check(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
