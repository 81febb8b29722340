//! Address space of this process, to which the host assigns memory at the first use.

use std::io;

/// A mapping that begins as zeros and takes no memory until the first write.
pub(crate) struct Region {
    start: *mut u8,
    len: usize,
}

// SAFETY: the value only names a mapping; what is in it is shared as atomics.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Makes a writable mapping.
    pub(crate) fn writable(len: usize) -> io::Result<Region> {
        Region::map(len, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Makes a read-only mapping of zeros.
    pub(crate) fn zeros(len: usize) -> io::Result<Region> {
        Region::map(len, libc::PROT_READ)
    }

    fn map(len: usize, protection: i32) -> io::Result<Region> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the host chooses touches nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A huge page would take 2 MB for one marked byte. A host without huge pages refuses the call,
        // which is harmless.
        // SAFETY: the range is the mapping that was just made.
        unsafe { libc::madvise(start, len, libc::MADV_NOHUGEPAGE) };
        Ok(Region { start: start.cast(), len })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own mapping, and no borrow of it is left.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// Returns pages to the host. They read as zeros from then on.
///
/// # Safety
///
/// The range is whole pages of a writable [`Region`] whose content is used as atomics only.
pub(crate) unsafe fn discard(start: *mut u8, len: usize) {
    // SAFETY: the caller promises it.
    unsafe { libc::madvise(start.cast(), len, libc::MADV_DONTNEED) };
}
