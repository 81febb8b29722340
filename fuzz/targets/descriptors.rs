//! Messages of a driver VM to the gate, with descriptors of any kind beside them: the server ends when the client
//! does, and has closed every descriptor by then.
//!
//! Input: a choice of policy, then messages: a command, the words of its body, descriptors, and where it is cut in two.

#![no_main]

use guardrail_gate::vfio_user::converse;
use guardrail_gate::{Access, Gate, Verdict};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most descriptors that the system passes at once.
const MOST: usize = 253;
/// How long threads of the policy may take to end.
const LIMIT: Duration = Duration::from_secs(5);

/// Decides at once or on another thread, by the offset.
struct Policy(u8);

impl Gate for Policy {
    fn admit(&self, access: &Access) -> Verdict {
        if access.offset & 4 == 0 { Verdict::Pass } else { Verdict::Drop }
    }

    fn admit_now(&self, access: &Access) -> Option<Verdict> {
        (self.0 & 2 == 0 || access.offset & 32 == 0).then(|| self.admit(access))
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let before = open_files();
    let mut input = Unstructured::new(data);
    let Ok(choice) = input.arbitrary::<u8>() else { return };
    let (ours, theirs) = UnixStream::pair().expect("there are sockets");
    theirs.set_nonblocking(true).expect("a socket can be made so");
    let memory = memory(1 << 20, true);
    let file = File::from(memory.try_clone().expect("there are descriptors"));
    let (device, inode) = file.metadata().map(|file| (file.dev(), file.ino())).expect("it is open");
    drop(file);
    while !input.is_empty() && message(&mut input, &theirs, &memory).is_ok() {}
    let _ = theirs.shutdown(std::net::Shutdown::Write);
    drop(memory);
    let gate: Arc<dyn Gate> = Arc::new(Policy(choice));
    converse(ours, (device, inode), choice & 1 != 0, &gate);
    drop(theirs);
    let since = Instant::now();
    while open_files() != before {
        assert!(since.elapsed() < LIMIT, "{} descriptors were open, and {} are now", before, open_files());
        std::thread::yield_now();
    }
});

/// How many descriptors this process has.
fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("there is /proc").count()
}

/// Sends a message that is nearly one of the protocol's; an error where the input or the socket's room ends.
fn message(input: &mut Unstructured<'_>, to: &UnixStream, memory: &OwnedFd) -> Result<()> {
    let [command, shape, count, cut] = input.arbitrary::<[u8; 4]>()?;
    let mut body = Vec::new();
    let mut word = |value: u32| body.extend(value.to_le_bytes());
    let fields: &[u8] = match command % 16 {
        2 => &[4, 4, 8, 8, 8],
        3 => &[4, 4, 8, 8],
        5 | 7 => &[4, 4, 4],
        8 => &[4, 4, 4, 4, 4],
        9 => &[8, 4, 4],
        10 => &[8, 4, 4, 4],
        _ => &[2, 2],
    };
    for (number, size) in fields.iter().enumerate() {
        let value = input.arbitrary::<u8>()?;
        let flags = command % 16 == 8 && number == 1;
        match (size, shape >> 6) {
            (2, _) => word(u32::from(value)),
            // Kinds of actions on interrupts.
            (4, _) if flags => word([0x24, 0x21, 0x11, 0x09, 0x24, 0x24, 0x24, 0xff][usize::from(value) % 8]),
            (4, _) => word(u32::from(value) % 32),
            (_, 0) => [u32::from(value) * 4, 0].into_iter().for_each(&mut word),
            (_, 1) => [u32::from(value) << 12, 0].into_iter().for_each(&mut word),
            _ => [u32::from(value) << 24, u32::from(value) % 2].into_iter().for_each(&mut word),
        }
    }
    let mut bytes = vec![1, 0, command % 16, 0];
    let size = (16 + body.len()) as u32 + u32::from(shape & 0x10);
    bytes.extend([size, if shape & 0x20 == 0 { 0 } else { 0x10 }, 0].into_iter().flat_map(u32::to_le_bytes));
    bytes.extend(body);
    // Few messages carry many.
    let count = if shape & 8 == 0 { usize::from(count % 6) } else { usize::from(count).min(MOST) };
    let kind = input.arbitrary::<u8>()?;
    let fds: Vec<OwnedFd> =
        (0..count).filter_map(|n| descriptor(kind.wrapping_add(n as u8 % 3), to, memory)).collect();
    let cut = usize::from(cut) % bytes.len();
    let pieces = if shape & 4 == 0 { vec![&bytes[..]] } else { vec![&bytes[..cut], &bytes[cut..]] };
    for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
        send(to, piece, &fds).ok_or(libfuzzer_sys::arbitrary::Error::NotEnoughData)?;
    }
    Ok(())
}

/// A descriptor of this kind.
fn descriptor(kind: u8, to: &UnixStream, memory_of_guest: &OwnedFd) -> Option<OwnedFd> {
    // SAFETY: no pointers are passed, or such as are valid; what is returned belongs to nobody else.
    let owned = |fd: RawFd| (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) });
    match kind % 14 {
        0 | 1 => memory_of_guest.try_clone().ok(),
        2 => Some(memory(1 << 20, false)),
        3 => Some(memory(0, true)),
        // SAFETY: as above.
        4..=6 => owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }),
        7 => {
            // SAFETY: as above.
            let full = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) })?;
            let most = (u64::MAX - 1).to_ne_bytes();
            // SAFETY: the buffer has eight bytes.
            unsafe { libc::write(full.as_raw_fd(), most.as_ptr().cast(), most.len()) };
            Some(full)
        }
        8 => std::io::pipe().ok().map(|(read, _)| read.into()),
        9 => std::io::pipe().ok().map(|(_, write)| write.into()),
        10 => File::open("/dev/null").ok().map(OwnedFd::from),
        11 => to.try_clone().ok().map(OwnedFd::from),
        // SAFETY: as above.
        12 => owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }),
        _ => File::open("/proc/self").ok().map(OwnedFd::from),
    }
}

/// A file in memory, with the seals of a guest's memory or without.
fn memory(size: i64, sealed: bool) -> OwnedFd {
    // SAFETY: the name is a C string, and the descriptor belongs to nobody else.
    let file = unsafe {
        let fd = libc::memfd_create(c"fuzz".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        assert!(fd >= 0, "there are descriptors");
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: the descriptor is open.
    unsafe {
        libc::ftruncate(file.as_raw_fd(), size);
        if sealed {
            let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
            libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals);
        }
    }
    file
}

/// Sends bytes with descriptors; `None` where there is no room.
fn send(to: &UnixStream, bytes: &[u8], fds: &[OwnedFd]) -> Option<()> {
    let numbers: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let size = size_of_val(&numbers[..]) as u32;
    let mut control = vec![0u64; 256];
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeroes are a valid header; it names buffers that live during the call, and the macros stay within
    // them: the control buffer has room for more descriptors than the system passes.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        if !numbers.is_empty() {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size) as usize;
            let head = libc::CMSG_FIRSTHDR(&message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(size) as usize;
            std::ptr::copy_nonoverlapping(numbers.as_ptr(), libc::CMSG_DATA(head).cast(), numbers.len());
        }
        libc::sendmsg(to.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    };
    (sent == bytes.len() as isize).then_some(())
}
