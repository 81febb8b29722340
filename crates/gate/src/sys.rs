//! The system calls that the standard library does not offer.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::time::{Duration, Instant};

pub use guardrail_jail::descriptors::{receive, send};

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: the system just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The size of sealed memory stays: a process that maps it can rely on that.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Memory of `size` bytes that other processes can map, and that nobody can shrink or enlarge.
pub fn memory_file(size: u64) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string.
    let fd = owned(unsafe { libc::memfd_create(c"guardrail-ram".as_ptr(), flags) })?;
    let size = libc::off_t::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the descriptor is open.
    check(unsafe { libc::ftruncate(fd.as_raw_fd(), size) })?;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
    Ok(fd)
}

/// Takes over sealed memory of `size` bytes that this process has inherited under a number. Anything else is left
/// alone.
///
/// # Safety
///
/// Nothing else in this process owns the number.
pub unsafe fn inherited_memory(number: RawFd, size: u64) -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed, and a number without a file is only an error.
    let seals = check(unsafe { libc::fcntl(number, libc::F_GET_SEALS) })?;
    if seals & SEALS != SEALS || stat(number)?.st_size as u64 != size {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: as above.
    check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: it is open, and the caller guarantees that nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Device and inode of an open file: they are equal where two descriptors mean the same file.
pub fn identity(fd: &OwnedFd) -> io::Result<(u64, u64)> {
    stat(fd.as_raw_fd()).map(|stat| (stat.st_dev, stat.st_ino))
}

fn stat(fd: RawFd) -> io::Result<libc::stat> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the structure is written by the call, and a number without a file is only an error.
    check(unsafe { libc::fstat(fd, stat.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, and all zeroes are a valid value anyhow.
    Ok(unsafe { stat.assume_init() })
}

/// A counter that can be waited for (eventfd).
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// A new counter.
    pub fn new() -> io::Result<Event> {
        // SAFETY: no pointers are passed.
        owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).map(Event)
    }

    /// Accepts a descriptor of another process, if it is such a counter; one that could block is refused.
    pub fn received(fd: OwnedFd) -> Option<Event> {
        let name = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
        if name.to_str()? != "anon_inode:[eventfd]" {
            return None;
        }
        // SAFETY: the descriptor is open.
        let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) }).ok()?;
        // SAFETY: as above.
        check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) }).ok()?;
        Some(Event(fd))
    }

    /// Adds one to the counter. A counter that is full is signaled already.
    pub fn signal(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the descriptor is open, and the buffer has eight bytes.
        let _ = unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Sets the counter to zero and returns its old value.
    pub fn take(&self) -> u64 {
        let mut bytes = [0; 8];
        // SAFETY: the descriptor is open, and the buffer has eight bytes.
        let count = unsafe { libc::read(self.0.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
        if count == 8 { u64::from_ne_bytes(bytes) } else { 0 }
    }
}

impl AsRawFd for Event {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Waits for several descriptors at once; each has a number (epoll).
#[derive(Debug)]
pub struct Waiter(OwnedFd);

impl Waiter {
    /// A waiter without descriptors.
    pub fn new() -> io::Result<Waiter> {
        // SAFETY: no pointers are passed.
        owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Waiter)
    }

    /// Adds this descriptor with its number.
    pub fn add(&self, fd: RawFd, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number };
        // SAFETY: the structure is valid for the call.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) })?;
        Ok(())
    }

    /// Removes this descriptor.
    pub fn remove(&self, fd: RawFd) {
        // SAFETY: no event is passed, and a descriptor that is not waited for is only an error.
        unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }

    /// Waits no longer than `limit` and returns the numbers of the descriptors that are readable.
    pub fn wait(&self, limit: Duration, ready: &mut Vec<u64>) -> io::Result<()> {
        ready.clear();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        // The limit is rounded up: one of less than a millisecond would be a busy loop.
        let limit = limit.as_micros().div_ceil(1000).min(1_000_000) as libc::c_int;
        // SAFETY: the buffer has room for 32 events.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), 32, limit) };
        match check(count) {
            Ok(count) => {
                ready.extend(events.iter().take(count as usize).map(|event| event.u64));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Makes the child inherit these descriptors, lead a process group of its own, and die with the thread that
/// starts it.
pub fn bind_child(command: &mut Command, inherited: Vec<RawFd>) {
    let parent = std::process::id();
    command.process_group(0);
    // SAFETY: the closure calls only async-signal-safe functions and reads copied integers.
    unsafe {
        command.pre_exec(move || {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            if libc::getppid() as u32 != parent {
                libc::_exit(1);
            }
            for fd in &inherited {
                check(libc::fcntl(*fd, libc::F_SETFD, 0))?;
            }
            Ok(())
        });
    }
}

/// A handle that can kill a process from any thread, and never another one that reuses its number (pidfd).
#[derive(Debug)]
pub struct Killer {
    process: u32,
    handle: OwnedFd,
}

impl Killer {
    /// A handle for a child that has not been waited for.
    pub fn of(process: u32) -> io::Result<Killer> {
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
        Ok(Killer { process, handle: owned(fd as libc::c_int)? })
    }

    /// The number of the process.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Kills the process, if it still exists.
    pub fn kill(&self) {
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the handle is open, and no information accompanies the signal.
        unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.handle.as_raw_fd(), libc::SIGKILL, none, 0)
        };
    }
}

/// Kills the process group that a child leads, if the child has not been waited for.
pub fn kill_group(child: &mut std::process::Child) {
    if matches!(child.try_wait(), Ok(None)) {
        // SAFETY: the child leads a group of its own and has not been waited for, so no other process has the
        // number.
        unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
    }
    let _ = child.wait();
}

/// How long a process may take to end after it closed its sockets and pipes.
const DEATH_LIMIT: Duration = Duration::from_secs(1);

/// How a process that is about to end ended: `was ended by signal 9 (SIGKILL)`. `None` where it continues.
pub fn death(child: &mut std::process::Child) -> Option<String> {
    let deadline = Instant::now() + DEATH_LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.signal().is_some() => {
                return Some(format!("was ended by {}", status.to_string().replacen(": ", " ", 1)));
            }
            Ok(Some(status)) => return Some(format!("ended with status {}", status.code().unwrap_or(-1))),
            Err(error) => return Some(format!("cannot be waited for: {error}")),
            Ok(None) if Instant::now() > deadline => return None,
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_travel_and_only_counters_are_taken() {
        let (a, b) = UnixStream::pair().unwrap();
        let event = Event::new().unwrap();
        send(&a, b"12345678", &[event.as_raw_fd()]).unwrap();
        let (mut buffer, mut fds) = ([0; 8], Vec::new());
        assert_eq!(receive(&b, &mut buffer, &mut fds).unwrap(), 8);
        let received = Event::received(fds.pop().unwrap()).unwrap();
        received.signal();
        received.signal();
        assert_eq!((event.take(), event.take()), (2, 0));
        assert_eq!(receive(&b, &mut buffer, &mut fds).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(Event::received(memory_file(1).unwrap()).is_none());
        drop(a);
        assert_eq!(receive(&b, &mut buffer, &mut fds).unwrap(), 0);
    }

    #[test]
    fn memory_keeps_its_size() {
        let memory = memory_file(8192).unwrap();
        let number = memory.as_raw_fd();
        for size in [4096, 16384] {
            // SAFETY: the descriptor is open.
            assert_eq!(unsafe { libc::ftruncate(number, size) }, -1);
        }
        let socket = UnixStream::pair().unwrap();
        for (wrong, size) in [(number, 4096), (socket.0.as_raw_fd(), 0)] {
            // SAFETY: it is refused, and so stays with its owner.
            assert!(unsafe { inherited_memory(wrong, size) }.is_err());
        }
        // SAFETY: as after exec, nothing else owns the number.
        let taken = unsafe { inherited_memory(memory.into_raw_fd(), 8192) }.unwrap();
        assert_eq!(taken.as_raw_fd(), number);
    }

    #[test]
    fn a_waiter_tells_which_descriptor_is_ready() {
        let (waiter, one, two) = (Waiter::new().unwrap(), Event::new().unwrap(), Event::new().unwrap());
        waiter.add(one.as_raw_fd(), 1).unwrap();
        waiter.add(two.as_raw_fd(), 2).unwrap();
        let mut ready = vec![7];
        waiter.wait(Duration::from_millis(1), &mut ready).unwrap();
        assert!(ready.is_empty());
        two.signal();
        waiter.wait(Duration::from_secs(5), &mut ready).unwrap();
        assert_eq!(ready, [2]);
    }
}
