//! Filters of system calls (seccomp).

use crate::list::Jail;
use std::io;

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// Numbers from here on belong to the x32 ABI.
const X32: u32 = 0x4000_0000;
/// Offsets in `seccomp_data`; of an argument, that of its low half.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const fn argument(number: u32) -> u32 {
    16 + 8 * number
}

/// The answer that lets a call pass.
pub const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
/// The answer that refuses a call: `EPERM`.
pub const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
/// The answer of a kernel that lacks the call: `ENOSYS`. The C library then takes another one.
pub const UNKNOWN: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

/// Flags of `clone` and `unshare` that make namespaces.
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// A filter of system calls: a program of BPF statements.
pub struct Filter(Vec<libc::sock_filter>);

impl Default for Filter {
    fn default() -> Filter {
        Filter::new()
    }
}

impl Filter {
    /// A filter that kills a caller with calls of another architecture.
    pub fn new() -> Filter {
        let mut filter = Filter(Vec::new());
        filter.load(ARCHITECTURE);
        filter.jump(libc::BPF_JEQ, AUDIT_ARCH_X86_64, 1, 0);
        filter.answer(libc::SECCOMP_RET_KILL_PROCESS);
        filter.load(NUMBER);
        filter.jump(libc::BPF_JGE, X32, 0, 1);
        filter.answer(REFUSE);
        filter
    }

    fn load(&mut self, offset: u32) {
        let code = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        self.0.push(libc::sock_filter { code: code as u16, jt: 0, jf: 0, k: offset });
    }

    /// Compares what was loaded with `k`, and skips as many statements where that holds, or where it does not.
    fn jump(&mut self, test: u32, k: u32, holds: u8, else_: u8) {
        let code = (libc::BPF_JMP | test | libc::BPF_K) as u16;
        self.0.push(libc::sock_filter { code, jt: holds, jf: else_, k });
    }

    fn answer(&mut self, answer: u32) {
        let code = (libc::BPF_RET | libc::BPF_K) as u16;
        self.0.push(libc::sock_filter { code, jt: 0, jf: 0, k: answer });
    }

    /// Answers a call in the same way whatever its arguments are.
    pub fn always(&mut self, number: libc::c_long, answer: u32) {
        self.jump(libc::BPF_JEQ, number as u32, 0, 1);
        self.answer(answer);
    }

    /// Allows a call where an argument has none of these bits, and refuses it elsewhere.
    pub fn allow_without(&mut self, number: libc::c_long, at: u32, bits: u32) {
        self.jump(libc::BPF_JEQ, number as u32, 0, 4);
        self.load(argument(at));
        self.jump(libc::BPF_JSET, bits, 1, 0);
        self.answer(ALLOW);
        self.answer(REFUSE);
    }

    /// Allows a call where an argument has one of these values, and refuses it elsewhere.
    pub fn allow_values(&mut self, number: libc::c_long, at: u32, values: &[u32]) {
        let skipped = 2 + 2 * values.len();
        self.jump(libc::BPF_JEQ, number as u32, 0, skipped as u8);
        self.load(argument(at));
        for value in values {
            self.jump(libc::BPF_JEQ, *value, 0, 1);
            self.answer(ALLOW);
        }
        self.answer(REFUSE);
    }

    /// Allows threads, and refuses namespaces. Processes are allowed where `processes` is true.
    pub fn threads(&mut self, processes: bool) {
        self.jump(libc::BPF_JEQ, libc::SYS_clone as u32, 0, 5);
        self.load(argument(0));
        self.jump(libc::BPF_JSET, NAMESPACES as u32, 2, 0);
        self.jump(libc::BPF_JSET, libc::CLONE_THREAD as u32, 0, u8::from(!processes));
        self.answer(ALLOW);
        self.answer(REFUSE);
        // Its flags are in memory, which a filter cannot read. The C library then takes `clone`.
        self.always(libc::SYS_clone3, UNKNOWN);
    }

    /// The filter with the answer for all other calls.
    pub fn otherwise(mut self, answer: u32) -> Program {
        self.answer(answer);
        Program(self.0.into_boxed_slice())
    }
}

/// A whole filter, ready to be installed.
pub struct Program(Box<[libc::sock_filter]>);

impl Program {
    /// Installs the filter on this thread and all that it starts. The caller can gain no privileges any more
    /// (`PR_SET_NO_NEW_PRIVS`). Safe to call between fork and exec: it allocates nothing.
    pub fn install(&self) -> io::Result<()> {
        let filter = libc::sock_fprog { len: self.0.len() as u16, filter: self.0.as_ptr().cast_mut() };
        // SAFETY: `filter` names the program, which lives through the call; the kernel copies it.
        match unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Calls that no process of a run needs, and by which kernels were broken into or other processes are reached.
const NEEDLESS: &[libc::c_long] = &[
    libc::SYS_ptrace,
    // The tracer reads its own memory by `process_vm_readv`; Landlock refuses that of processes outside the jail.
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
];

/// The filter of a jail. It allows what it does not name.
pub(crate) fn of_jail(jail: &Jail) -> Program {
    let mut filter = Filter::new();
    for number in NEEDLESS {
        filter.always(*number, REFUSE);
    }
    // QEMU waits by other means where the kernel has no io_uring.
    for number in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register] {
        filter.always(number, UNKNOWN);
    }
    // Keys that another process of the terminal would read.
    filter.refuse_if(libc::SYS_ioctl, 1, libc::TIOCSTI as u32);
    filter.sockets(jail.unix_sockets, jail.udp);
    filter.threads(true);
    filter.otherwise(ALLOW)
}

impl Filter {
    /// Allows sockets of TCP, whose ports Landlock knows, and those that ask the kernel for addresses; Unix and UDP sockets
    /// where they are permitted. All others are refused.
    fn sockets(&mut self, unix: bool, udp: bool) {
        const KIND: u32 = 0xf;
        let mut body = Filter(Vec::new());
        body.load(argument(0));
        for family in [Some(libc::AF_NETLINK), unix.then_some(libc::AF_UNIX)].into_iter().flatten() {
            body.jump(libc::BPF_JEQ, family as u32, 0, 1);
            body.answer(ALLOW);
        }
        body.jump(libc::BPF_JEQ, libc::AF_INET as u32, 2, 0);
        body.jump(libc::BPF_JEQ, libc::AF_INET6 as u32, 1, 0);
        body.answer(REFUSE);
        body.load(argument(1));
        // The kind has further flags beside it.
        let code = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
        body.0.push(libc::sock_filter { code: code as u16, jt: 0, jf: 0, k: KIND });
        if udp {
            body.jump(libc::BPF_JEQ, libc::SOCK_DGRAM as u32, 0, 1);
            body.answer(ALLOW);
        }
        body.jump(libc::BPF_JEQ, libc::SOCK_STREAM as u32, 1, 0);
        body.answer(REFUSE);
        // Other protocols with streams have ports that Landlock does not know.
        body.load(argument(2));
        body.jump(libc::BPF_JEQ, libc::IPPROTO_IP as u32, 1, 0);
        body.jump(libc::BPF_JEQ, libc::IPPROTO_TCP as u32, 0, 1);
        body.answer(ALLOW);
        body.answer(REFUSE);
        self.jump(libc::BPF_JEQ, libc::SYS_socket as u32, 0, body.0.len() as u8);
        self.0.append(&mut body.0);
    }

    /// Refuses a call where the argument has this value, and lets the rest of the filter decide elsewhere.
    fn refuse_if(&mut self, number: libc::c_long, at: u32, value: u32) {
        self.jump(libc::BPF_JEQ, number as u32, 0, 4);
        self.load(argument(at));
        self.jump(libc::BPF_JEQ, value, 0, 1);
        self.answer(REFUSE);
        self.load(NUMBER);
    }
}
