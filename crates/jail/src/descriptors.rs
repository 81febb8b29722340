//! Descriptors that one process hands to another over a Unix socket.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The most descriptors that one message may carry; QEMU sends at most 16.
const MAX_DESCRIPTORS: usize = 64;
/// The most that are sent with a message.
const MAX_SENT: usize = 4;

/// Room for the descriptors of a message, aligned as the system wants it.
#[repr(C, align(8))]
struct Control([u8; 512]);

/// Reads the bytes that have arrived, without waiting, and the descriptors with them. 0 means the other end
/// is closed.
pub fn receive(socket: &impl AsRawFd, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    receive_with(socket, buffer, fds, libc::MSG_DONTWAIT)
}

/// The same, but waits until there are some.
pub fn wait(socket: &impl AsRawFd, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    receive_with(socket, buffer, fds, 0)
}

fn receive_with(
    socket: &impl AsRawFd,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    flags: libc::c_int,
) -> io::Result<usize> {
    let mut control = Control([0; 512]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeroes are a valid message header.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    let flags = flags | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header names buffers that live during the call, with their lengths.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, flags) };
    if count < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system filled the control buffer; the macros walk within its length.
    let mut head = unsafe { libc::CMSG_FIRSTHDR(&message) };
    while !head.is_null() {
        // SAFETY: a head that the macros return is valid, and so are as many descriptors as its length says.
        unsafe {
            if (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_RIGHTS {
                let bytes = ((*head).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(head).cast::<RawFd>();
                for index in 0..bytes / size_of::<RawFd>() {
                    fds.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            head = libc::CMSG_NXTHDR(&message, head);
        }
    }
    if message.msg_flags & libc::MSG_CTRUNC != 0 || fds.len() > MAX_DESCRIPTORS {
        return Err(io::Error::other("too many descriptors in a message"));
    }
    Ok(count as usize)
}

/// Sends all bytes, with descriptors beside the first. The socket's own timeout limits it.
pub fn send(socket: &impl AsRawFd, bytes: &[u8], fds: &[RawFd]) -> io::Result<()> {
    if fds.len() > MAX_SENT {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut control = Control([0; 512]);
    let mut sent = 0;
    while sent < bytes.len() {
        let rest = &bytes[sent..];
        let mut part = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
        // SAFETY: all zeroes are a valid message header.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        if !fds.is_empty() && sent == 0 {
            let size = size_of_val(fds) as u32;
            message.msg_control = control.0.as_mut_ptr().cast();
            // SAFETY: the buffer is larger than the space for so many descriptors, and the macros stay within it.
            unsafe {
                message.msg_controllen = libc::CMSG_SPACE(size) as usize;
                let head = libc::CMSG_FIRSTHDR(&message);
                (*head).cmsg_level = libc::SOL_SOCKET;
                (*head).cmsg_type = libc::SCM_RIGHTS;
                (*head).cmsg_len = libc::CMSG_LEN(size) as usize;
                let data = libc::CMSG_DATA(head).cast::<RawFd>();
                for (index, fd) in fds.iter().enumerate() {
                    data.add(index).write_unaligned(*fd);
                }
            }
        }
        // SAFETY: the header names buffers that live during the call.
        let count = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL) };
        match count {
            0.. => sent += count as usize,
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}
