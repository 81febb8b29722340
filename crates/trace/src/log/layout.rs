//! Layout of the shared file, and its mapping.

use super::error::LogError;
use super::{LogOptions, futex};
use memmap2::MmapRaw;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The most readers that a log can have.
pub const MAX_READERS: usize = 8;
/// The most rings, including the control ring.
const MAX_RINGS: u32 = 257;
/// Number of address spaces of device accesses.
pub(super) const SPACES: usize = 3;
/// The most devices whose accesses are held.
const MAX_DEVICES: usize = 16;

const MAGIC: u64 = u64::from_le_bytes(*b"GRDLOG\r\n");
const VERSION: u64 = 2;
const HEADER_BYTES: u64 = 4096;
const CONTROL_BYTES: u64 = 1024;

/// A reader asks for a wake-up at the next close of a segment.
pub(super) const ATTENTION_SLEEPER: u32 = 1;
/// The log has failed.
pub(super) const ATTENTION_FAILED: u32 = 2;

/// No reader has taken the slot yet. Its tails stand at 0, so writers overwrite nothing.
pub(super) const READER_FREE: u32 = 0;
/// A reader holds the slot.
pub(super) const READER_ACTIVE: u32 = 1;
/// The reader has detached. Writers ignore its tails.
pub(super) const READER_LEFT: u32 = 2;

/// A value alone on its cache line, so that its owner's stores do not disturb other threads.
#[repr(C, align(64))]
pub(super) struct Line<T>(pub(super) T);

impl<T> std::ops::Deref for Line<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// The slot of one reader.
#[repr(C)]
pub(super) struct ReaderSlot {
    pub(super) state: AtomicU32,
    pub(super) pid: AtomicU32,
}

/// The first page of the file.
#[repr(C)]
pub(super) struct Header {
    magic: AtomicU64,
    version: AtomicU64,
    rings: AtomicU64,
    words: AtomicU64,
    readers_expected: AtomicU64,
    wait_limit_ms: AtomicU64,
    reserve: AtomicU64,
    /// The ticket that the next segment gets; the one counter that all vCPUs share.
    pub(super) next_ticket: Line<AtomicU64>,
    /// Bits that writers check when they close a segment. They change rarely.
    pub(super) attention: Line<AtomicU32>,
    pub(super) fail_reason: Line<AtomicU32>,
    pub(super) producer_dead: AtomicU32,
    /// Futex word on which readers sleep. It changes with every wake-up of readers.
    pub(super) wake_seq: Line<AtomicU32>,
    pub(super) readers: Line<[ReaderSlot; MAX_READERS]>,
    pub(super) gate: GateWords,
}

/// The gate's words in shared memory.
#[repr(C)]
pub(super) struct GateWords {
    /// The analysis has checked every segment with a smaller ticket.
    pub(super) checked: Line<AtomicU64>,
    /// Futex word of the waiters. It changes at every wake-up of a sleeping waiter.
    pub(super) sequence: Line<AtomicU32>,
    /// The smallest ticket that a sleeping waiter waits for; all ones while none sleeps.
    pub(super) wanted: Line<AtomicU64>,
    /// 0 while the gate is open, else the code of the reason for closing it.
    pub(super) closed: Line<AtomicU32>,
    pub(super) counts: [Line<GateCountWords>; SPACES],
    /// Accesses for which their vCPU did not wait.
    pub(super) posted: AtomicU64,
    /// When the first gated device was bound, in microseconds since the epoch; 0 before that.
    pub(super) since: AtomicU64,
    /// Gated devices: 0 for an unused slot, else 1 << 16 plus its [`PciAddress::id`](crate::pci::PciAddress::id).
    pub(super) devices: [AtomicU32; MAX_DEVICES],
}

/// The counts of one address space.
#[repr(C)]
pub(super) struct GateCountWords {
    pub(super) held: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) ungated: AtomicU64,
    pub(super) wait_nanos: AtomicU64,
    pub(super) longest_nanos: AtomicU64,
}

/// The control block of one ring. Positions count words from the beginning of the run and never wrap.
#[repr(C)]
pub(super) struct RingControl {
    /// The writer's position: everything before it is complete segments.
    pub(super) published: Line<AtomicU64>,
    pub(super) ended: Line<AtomicU32>,
    pub(super) writer_taken: AtomicU32,
    pub(super) waits: AtomicU64,
    pub(super) wait_nanos: AtomicU64,
    pub(super) lost: AtomicU64,
    /// Nonzero while the writer waits for space and wants a wake-up.
    pub(super) waiting: Line<AtomicU32>,
    /// Futex word on which the writer sleeps. It changes when a reader frees space for a waiting writer.
    pub(super) space_seq: AtomicU32,
    /// One position per reader: the writer may overwrite everything before it, as far as this reader is
    /// concerned.
    pub(super) tails: [Line<AtomicU64>; MAX_READERS],
}

const _: () = assert!(size_of::<Header>() as u64 <= HEADER_BYTES);
const _: () = assert!(size_of::<RingControl>() as u64 <= CONTROL_BYTES);

/// The header word of a segment: ticket (its low 40 bits), flags (4 bits), length (20 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHead {
    pub(super) ticket: u64,
    pub(super) continuation: bool,
    pub(super) len: u64,
}

const TICKET_BITS: u32 = 40;
const LEN_BITS: u32 = 20;
const FLAG_CONTINUATION: u64 = 1;
/// The longest segment that a header word can express, in words.
const MAX_LEN: u64 = (1 << LEN_BITS) - 1;

impl SegmentHead {
    #[inline]
    pub(super) fn encode(self) -> u64 {
        self.ticket << (64 - TICKET_BITS)
            | (u64::from(self.continuation) * FLAG_CONTINUATION) << LEN_BITS
            | self.len & MAX_LEN
    }

    /// Decodes a header word. `near` is a ticket less than 2^39 away; it supplies the high bits that the
    /// word has no room for.
    #[inline]
    pub(super) fn decode(word: u64, near: u64) -> SegmentHead {
        let distance = (word >> (64 - TICKET_BITS)).wrapping_sub(near) << (64 - TICKET_BITS);
        SegmentHead {
            ticket: near.wrapping_add((distance as i64 >> (64 - TICKET_BITS)) as u64),
            continuation: word >> LEN_BITS & FLAG_CONTINUATION != 0,
            len: word & MAX_LEN,
        }
    }
}

/// The mapped file. The sizes are checked once and kept here, where other processes cannot change them.
#[derive(Debug)]
pub(super) struct Mapping {
    map: MmapRaw,
    pub(super) rings: u32,
    pub(super) words: u64,
    pub(super) readers_expected: usize,
    pub(super) wait_limit: std::time::Duration,
    pub(super) reserve: u64,
}

/// The sizes in a valid header.
struct Sizes {
    rings: u64,
    words: u64,
    readers: u64,
    wait_limit_ms: u64,
    reserve: u64,
}

impl Sizes {
    fn check(&self) -> Result<(), &'static str> {
        if !(2..=u64::from(MAX_RINGS)).contains(&self.rings) {
            return Err("the number of vCPUs is not in 1..=256");
        }
        if !self.words.is_power_of_two() || !(1 << 10..=1 << 28).contains(&self.words) {
            return Err("the ring size is not a power of two in 1024..=268435456");
        }
        if self.readers > MAX_READERS as u64 {
            return Err("there are more readers than 8");
        }
        if self.reserve > self.words / 4 {
            return Err("the reserve is more than a quarter of a ring");
        }
        Ok(())
    }

    fn data_offset(&self) -> u64 {
        (HEADER_BYTES + self.rings * CONTROL_BYTES).next_multiple_of(4096)
    }

    fn file_bytes(&self) -> u64 {
        self.data_offset() + self.rings * self.words * 8
    }

    fn mapping(&self, map: MmapRaw) -> Mapping {
        Mapping {
            map,
            rings: self.rings as u32,
            words: self.words,
            readers_expected: self.readers as usize,
            wait_limit: std::time::Duration::from_millis(self.wait_limit_ms),
            reserve: self.reserve,
        }
    }
}

fn reserve_blocks(file: &File, bytes: u64) -> io::Result<()> {
    file.set_len(bytes)?;
    // This allocates blocks for every page. A full file system then shows here, not as SIGBUS inside
    // QEMU.
    // SAFETY: plain system call on an open descriptor.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t) };
    if result != 0 {
        let error = io::Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) {
            return Err(error);
        }
    }
    Ok(())
}

impl Mapping {
    pub(super) fn create(path: &Path, options: &LogOptions) -> Result<Mapping, LogError> {
        let sizes = Sizes {
            rings: u64::from(options.vcpus) + 1,
            words: options.words_per_ring,
            readers: u64::from(options.readers),
            wait_limit_ms: options.wait_limit.as_millis().min(u128::from(u64::MAX)) as u64,
            reserve: options.reserve.min(options.words_per_ring / 4),
        };
        sizes.check().map_err(|what| LogError::BadOptions { what })?;
        let io = |what| move |source| LogError::Io { what, path: path.to_owned(), source };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(io("create"))?;
        let map = reserve_blocks(&file, sizes.file_bytes()).and_then(|()| MmapRaw::map_raw(&file));
        let map = match map {
            Ok(map) => map,
            Err(source) => {
                let _ = std::fs::remove_file(path);
                return Err(if source.raw_os_error() == Some(libc::ENOSPC) {
                    LogError::NoSpace { path: path.to_owned(), bytes: sizes.file_bytes() }
                } else {
                    io("allocate")(source)
                });
            }
        };
        let mapping = sizes.mapping(map);
        let header = mapping.header();
        header.version.store(VERSION, Relaxed);
        header.rings.store(sizes.rings, Relaxed);
        header.words.store(sizes.words, Relaxed);
        header.readers_expected.store(sizes.readers, Relaxed);
        header.wait_limit_ms.store(sizes.wait_limit_ms, Relaxed);
        header.reserve.store(sizes.reserve, Relaxed);
        // The magic is stored last: a process that sees it also sees the rest.
        header.magic.store(MAGIC, Release);
        Ok(mapping)
    }

    pub(super) fn open(path: &Path) -> Result<Mapping, LogError> {
        let io = |what| move |source| LogError::Io { what, path: path.to_owned(), source };
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(io("open"))?;
        let not_a_log = |what| LogError::NotALog { path: path.to_owned(), what };
        let meta = file.metadata().map_err(io("examine"))?;
        if !meta.is_file() || meta.len() < HEADER_BYTES {
            return Err(not_a_log("it is too short"));
        }
        let map = MmapRaw::map_raw(&file).map_err(io("map"))?;
        if (map.len() as u64) < HEADER_BYTES {
            return Err(not_a_log("it is too short"));
        }
        // SAFETY: the mapping is page-aligned and at least a page long; Header is atomics only.
        let header = unsafe { &*(map.as_ptr() as *const Header) };
        if header.magic.load(Acquire) != MAGIC {
            return Err(not_a_log("its first bytes are something else"));
        }
        if header.version.load(Relaxed) != VERSION {
            return Err(not_a_log("its version differs"));
        }
        let sizes = Sizes {
            rings: header.rings.load(Relaxed),
            words: header.words.load(Relaxed),
            readers: header.readers_expected.load(Relaxed),
            wait_limit_ms: header.wait_limit_ms.load(Relaxed),
            reserve: header.reserve.load(Relaxed),
        };
        sizes.check().map_err(not_a_log)?;
        if map.len() as u64 != sizes.file_bytes() {
            return Err(not_a_log("its length does not fit its header"));
        }
        Ok(sizes.mapping(map))
    }

    pub(super) fn header(&self) -> &Header {
        // SAFETY: the mapping is page-aligned, as long as `file_bytes` says, and lives as long as self;
        // Header is atomics only, for which any bytes are valid and concurrent stores are fine.
        unsafe { &*(self.map.as_ptr() as *const Header) }
    }

    pub(super) fn control(&self, ring: u32) -> &RingControl {
        assert!(ring < self.rings);
        let offset = HEADER_BYTES + u64::from(ring) * CONTROL_BYTES;
        // SAFETY: inside the mapping because ring < rings; aligned; atomics only.
        unsafe { &*(self.map.as_ptr().add(offset as usize) as *const RingControl) }
    }

    pub(super) fn data(&self, ring: u32) -> &[AtomicU64] {
        assert!(ring < self.rings);
        let start = (HEADER_BYTES + u64::from(self.rings) * CONTROL_BYTES).next_multiple_of(4096);
        let offset = start + u64::from(ring) * self.words * 8;
        // SAFETY: `file_bytes` covers `words` words at this offset for each ring < rings; aligned; atomics.
        unsafe {
            std::slice::from_raw_parts(
                self.map.as_ptr().add(offset as usize) as *const AtomicU64,
                self.words as usize,
            )
        }
    }

    /// The longest segment in words, without its header word.
    pub(super) fn max_segment(&self) -> u64 {
        (self.words / 2).min(MAX_LEN)
    }

    /// Wakes all readers, even those that did not ask for a wake-up.
    #[cold]
    pub(super) fn wake_readers(&self) {
        let header = self.header();
        header.attention.fetch_and(!ATTENTION_SLEEPER, SeqCst);
        header.wake_seq.fetch_add(1, SeqCst);
        futex::wake_all(&header.wake_seq);
    }

    /// Wakes the writer of a ring if it waits for space.
    pub(super) fn wake_writer(&self, ring: u32) {
        let control = self.control(ring);
        if control.waiting.load(SeqCst) != 0 {
            control.space_seq.fetch_add(1, SeqCst);
            futex::wake_all(&control.space_seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_word_survives_a_round_trip_near_any_ticket() {
        for near in [0, 1, (1 << 40) - 1, 1 << 40, (1 << 52) + 12345] {
            for ahead in [0, 1, 1000, 1 << 30] {
                let head = SegmentHead { ticket: near + ahead, continuation: ahead == 1, len: 77 };
                assert_eq!(SegmentHead::decode(head.encode(), near), head);
            }
        }
        let before = SegmentHead { ticket: 5, continuation: false, len: 0 };
        assert_eq!(SegmentHead::decode(before.encode(), 9).ticket, 5);
    }
}
