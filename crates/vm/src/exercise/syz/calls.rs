//! The calls that a program may make, by their names.

use std::fmt;

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// A system call of this number.
    System(u64),
    /// syzkaller's `syz_open_dev`: opens a device whose path has the digits of a number in the place of each `#`.
    OpenDevice,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::System(number) => write!(f, "{number:x}"),
            Call::OpenDevice => f.write_str("dev"),
        }
    }
}

/// Which argument of a call is the path of a file.
const PATHS: [(&str, usize); 6] =
    [("creat", 0), ("open", 0), ("openat", 1), ("openat2", 1), ("syz_open_dev", 0), ("mknod", 0)];

macro_rules! numbers {
    ($($name:ident = $constant:ident),* $(,)?) => { &[$((stringify!($name), libc::$constant)),*] };
}

/// System calls by name. Those that would end the program, start others, or handle its signals are left out.
const NUMBERS: &[(&str, libc::c_long)] = numbers![
    accept = SYS_accept,
    accept4 = SYS_accept4,
    access = SYS_access,
    bind = SYS_bind,
    bpf = SYS_bpf,
    chdir = SYS_chdir,
    chmod = SYS_chmod,
    clock_gettime = SYS_clock_gettime,
    close = SYS_close,
    connect = SYS_connect,
    copy_file_range = SYS_copy_file_range,
    creat = SYS_creat,
    dup = SYS_dup,
    dup2 = SYS_dup2,
    dup3 = SYS_dup3,
    epoll_create1 = SYS_epoll_create1,
    epoll_ctl = SYS_epoll_ctl,
    epoll_wait = SYS_epoll_wait,
    eventfd2 = SYS_eventfd2,
    fadvise64 = SYS_fadvise64,
    fallocate = SYS_fallocate,
    fchmod = SYS_fchmod,
    fcntl = SYS_fcntl,
    fdatasync = SYS_fdatasync,
    fgetxattr = SYS_fgetxattr,
    flock = SYS_flock,
    fsconfig = SYS_fsconfig,
    fsetxattr = SYS_fsetxattr,
    fsmount = SYS_fsmount,
    fsopen = SYS_fsopen,
    fstat = SYS_fstat,
    fstatfs = SYS_fstatfs,
    fsync = SYS_fsync,
    ftruncate = SYS_ftruncate,
    futex = SYS_futex,
    getdents64 = SYS_getdents64,
    getpeername = SYS_getpeername,
    getpid = SYS_getpid,
    getsockname = SYS_getsockname,
    getsockopt = SYS_getsockopt,
    getxattr = SYS_getxattr,
    inotify_add_watch = SYS_inotify_add_watch,
    inotify_init1 = SYS_inotify_init1,
    io_cancel = SYS_io_cancel,
    io_destroy = SYS_io_destroy,
    io_getevents = SYS_io_getevents,
    io_setup = SYS_io_setup,
    io_submit = SYS_io_submit,
    io_uring_enter = SYS_io_uring_enter,
    io_uring_register = SYS_io_uring_register,
    io_uring_setup = SYS_io_uring_setup,
    ioctl = SYS_ioctl,
    link = SYS_link,
    listen = SYS_listen,
    lseek = SYS_lseek,
    lstat = SYS_lstat,
    madvise = SYS_madvise,
    memfd_create = SYS_memfd_create,
    mincore = SYS_mincore,
    mkdir = SYS_mkdir,
    mkdirat = SYS_mkdirat,
    mknod = SYS_mknod,
    mknodat = SYS_mknodat,
    mlock = SYS_mlock,
    mmap = SYS_mmap,
    mount = SYS_mount,
    move_mount = SYS_move_mount,
    mprotect = SYS_mprotect,
    mremap = SYS_mremap,
    msync = SYS_msync,
    munlock = SYS_munlock,
    munmap = SYS_munmap,
    nanosleep = SYS_nanosleep,
    open = SYS_open,
    open_tree = SYS_open_tree,
    openat = SYS_openat,
    openat2 = SYS_openat2,
    perf_event_open = SYS_perf_event_open,
    pipe = SYS_pipe,
    pipe2 = SYS_pipe2,
    poll = SYS_poll,
    ppoll = SYS_ppoll,
    pread64 = SYS_pread64,
    preadv = SYS_preadv,
    preadv2 = SYS_preadv2,
    pselect6 = SYS_pselect6,
    pwrite64 = SYS_pwrite64,
    pwritev = SYS_pwritev,
    pwritev2 = SYS_pwritev2,
    read = SYS_read,
    readahead = SYS_readahead,
    readlink = SYS_readlink,
    readv = SYS_readv,
    recvfrom = SYS_recvfrom,
    recvmmsg = SYS_recvmmsg,
    recvmsg = SYS_recvmsg,
    rename = SYS_rename,
    renameat2 = SYS_renameat2,
    rmdir = SYS_rmdir,
    sched_yield = SYS_sched_yield,
    select = SYS_select,
    sendfile = SYS_sendfile,
    sendmmsg = SYS_sendmmsg,
    sendmsg = SYS_sendmsg,
    sendto = SYS_sendto,
    setsockopt = SYS_setsockopt,
    setxattr = SYS_setxattr,
    shutdown = SYS_shutdown,
    signalfd4 = SYS_signalfd4,
    socket = SYS_socket,
    socketpair = SYS_socketpair,
    splice = SYS_splice,
    stat = SYS_stat,
    statfs = SYS_statfs,
    statx = SYS_statx,
    symlink = SYS_symlink,
    sync = SYS_sync,
    sync_file_range = SYS_sync_file_range,
    syncfs = SYS_syncfs,
    tee = SYS_tee,
    timerfd_create = SYS_timerfd_create,
    timerfd_gettime = SYS_timerfd_gettime,
    timerfd_settime = SYS_timerfd_settime,
    truncate = SYS_truncate,
    umount2 = SYS_umount2,
    unlink = SYS_unlink,
    unlinkat = SYS_unlinkat,
    userfaultfd = SYS_userfaultfd,
    utimensat = SYS_utimensat,
    vmsplice = SYS_vmsplice,
    write = SYS_write,
    writev = SYS_writev,
];

/// The call that a name stands for, without its variant behind `$`; otherwise why none is made.
pub(super) fn find(name: &str) -> Result<Call, String> {
    let base = base(name);
    if base == "syz_open_dev" {
        return Ok(Call::OpenDevice);
    }
    match NUMBERS.iter().find(|(known, _)| *known == base) {
        Some((_, number)) => Ok(Call::System(*number as u64)),
        None if base.starts_with("syz_") => {
            Err(format!("{base} is a program of syzkaller's executor; only syz_open_dev is known here"))
        }
        None => {
            Err(format!("the call '{base}' is unknown, or would end or replace the program that makes it"))
        }
    }
}

/// The place of the call's argument that is a path; `None` where it has none.
pub(super) fn path_of(name: &str) -> Option<usize> {
    PATHS.iter().find(|(known, _)| *known == base(name)).map(|(_, place)| *place)
}

fn base(name: &str) -> &str {
    name.split('$').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_variants_do_not_count() {
        assert!(NUMBERS.is_sorted());
        assert_eq!(find("ioctl$DRM_IOCTL_VERSION"), Ok(Call::System(16)));
        assert_eq!(find("openat"), Ok(Call::System(257)));
        assert_eq!(find("syz_open_dev$char"), Ok(Call::OpenDevice));
        assert_eq!((path_of("openat$x"), path_of("ioctl")), (Some(1), None));
        for bad in ["", "$x", "execve", "exit_group", "clone", "fork", "rt_sigaction", "syz_usb_connect"] {
            assert!(find(bad).is_err(), "{bad}");
        }
    }
}
