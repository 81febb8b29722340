//! Reads the guest's RAM in the mapping that QEMU keeps in its own process. There a word costs a load,
//! instead of a walk through QEMU's memory map.
//!
//! QEMU does not report the mapping's address, so the plugin searches for it. It accepts a mapping only
//! if the mapping holds the bytes that QEMU reads for the guest. Without the mapping, QEMU reads every
//! word.

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

/// The least RAM of a guest, in bytes. Smaller mappings need no look.
const SMALLEST: usize = 64 << 20;
/// QEMU aligns RAM to this many bytes.
const ALIGN: usize = 2 << 20;
/// First physical address that is certainly RAM; below the first megabyte lie devices and ROMs.
const FROM: u64 = 1 << 20;
/// On all machines RAM from zero is one block at least up to this address, if the guest has that much.
const TO: u64 = 2 << 30;
/// The kernel's name for memory that the gate's process made for the guest.
const SHARED: &str = "/memfd:guardrail-ram";
/// The least number of samples that must agree.
const MIN_SAMPLES: usize = 4;

/// Bytes that QEMU reads for the guest at a physical address.
pub struct Sample {
    /// Guest physical address of the first byte.
    pub physical: u64,
    /// The bytes at that address.
    pub bytes: Vec<u8>,
}

/// The host mapping of the guest's RAM.
#[derive(Debug, Default)]
pub struct Ram {
    base: AtomicUsize,
    /// Number of bytes that can be read there; 0 before the mapping is found.
    size: AtomicU64,
}

impl Ram {
    /// Whether the mapping was found.
    pub fn known(&self) -> bool {
        self.size.load(Relaxed) != 0
    }

    /// Searches for the mapping that holds all samples. If the guest changes them meanwhile, the search
    /// only fails.
    pub fn find(&self, samples: &[Sample]) {
        let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return };
        if let Some(found) = maps.lines().filter_map(candidate).find_map(|place| fits(place, samples, read)) {
            self.set(found);
        }
    }

    fn set(&self, place: Range<usize>) {
        self.base.store(place.start, Relaxed);
        self.size.store((place.len() as u64).min(TO), Release);
    }

    /// Reads four or eight bytes at a guest physical address. `None` where QEMU must read them.
    #[inline]
    pub fn word(&self, physical: u64, len: usize) -> Option<u64> {
        let size = self.size.load(Acquire);
        if physical < FROM || physical >= size || size - physical < 8 || physical & (len as u64 - 1) != 0 {
            return None;
        }
        let at = self.base.load(Relaxed) + physical as usize;
        match len {
            // SAFETY: the address is aligned and in guest RAM, which lives as long as the process. The
            // guest may change it at any time, so the load is atomic.
            8 => Some(unsafe { AtomicU64::from_ptr(at as *mut u64) }.load(Relaxed)),
            // SAFETY: as above.
            4 => Some(u64::from(unsafe { AtomicU32::from_ptr(at as *mut u32) }.load(Relaxed))),
            _ => None,
        }
    }
}

/// The address range in a line of `/proc/self/maps`, if the mapping may be guest RAM. It must be large
/// and writable. It is either private without a file, or shared memory with the name that the gate
/// outside the driver VM uses.
fn candidate(line: &str) -> Option<Range<usize>> {
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let place = usize::from_str_radix(from, 16).ok()?..usize::from_str_radix(to, 16).ok()?;
    let rights = words.next()?;
    // Skips offset and device. Private memory without a file has inode 0 and no name.
    let inode = words.nth(2)?;
    let fits = match (rights, inode, words.next()) {
        ("rw-p", "0", None) => true,
        ("rw-s", _, Some(name)) => name.starts_with(SHARED),
        _ => false,
    };
    (fits && place.len() >= SMALLEST).then_some(place)
}

/// The part of a mapping that is the RAM, if it holds all samples. Adjacent mappings appear as one, but
/// a guard page follows RAM.
fn fits(
    place: Range<usize>,
    samples: &[Sample],
    mut read: impl FnMut(usize, usize) -> Option<Vec<u8>>,
) -> Option<Range<usize>> {
    if samples.len() < MIN_SAMPLES {
        return None;
    }
    let aligned = place.start.next_multiple_of(ALIGN);
    let mut bases = std::iter::once(place.start).chain((aligned..place.end).step_by(ALIGN));
    let base = bases.find(|base| {
        samples.iter().all(|sample| {
            let at = base.checked_add(sample.physical as usize);
            at.filter(|at| place.end.saturating_sub(*at) >= sample.bytes.len())
                .and_then(|at| read(at, sample.bytes.len()))
                .is_some_and(|bytes| bytes == sample.bytes)
        })
    })?;
    Some(base..place.end)
}

/// Reads memory of this process, which another thread may unmap at any time.
fn read(at: usize, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    let to = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
    let from = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: len };
    // SAFETY: the kernel checks both addresses. It writes to the buffer, which is this function's own
    // and equally long.
    let got = unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) };
    (got == len as isize).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(places: &[u64]) -> Vec<Sample> {
        places.iter().map(|&physical| Sample { physical, bytes: vec![physical as u8 | 1; 8] }).collect()
    }

    #[test]
    fn only_large_anonymous_mappings_and_the_gates_memory_can_be_ram() {
        for line in [
            "7f0000000000-7f0020000000 rw-p 00000000 00:00 0 ",
            "7f0000000000-7f0020000000 rw-s 00000000 00:01 2063                       /memfd:guardrail-ram (deleted)",
        ] {
            assert_eq!(candidate(line), Some(0x7f00_0000_0000..0x7f00_2000_0000), "{line}");
        }
        for other in [
            "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 ",
            "7f0000000000-7f0020000000 ---p 00000000 00:00 0 ",
            "7f0000000000-7f0020000000 rw-s 00000000 00:01 77 /dev/shm/log",
            "7f0000000000-7f0020000000 rw-s 00000000 00:01 77 /memfd:other (deleted)",
            "7f0000000000-7f0020000000 r--s 00000000 00:01 77 /memfd:guardrail-ram (deleted)",
            "7f0000000000-7f0020000000 rw-p 00000000 00:00 0  [heap]",
            "",
        ] {
            assert_eq!(candidate(other), None, "{other}");
        }
    }

    #[test]
    fn ram_is_where_every_sample_is() {
        let samples = samples(&[0x10_0000, 0x20_0010, 0x30_0020, 0x40_0030]);
        let guest = |base: usize| {
            let known: Vec<_> =
                samples.iter().map(|s| (base + s.physical as usize, s.bytes.clone())).collect();
            move |at: usize, len: usize| {
                Some(known.iter().find(|k| k.0 == at).map_or(vec![0; len], |k| k.1.clone()))
            }
        };
        let place = 0x7f00_0010_0000..0x7f00_2000_0000;
        assert_eq!(fits(place.clone(), &samples, guest(place.start)), Some(place.clone()));
        // Another mapping lies directly before it.
        assert_eq!(fits(place.clone(), &samples, guest(0x7f00_0060_0000)), Some(0x7f00_0060_0000..place.end));
        assert_eq!(fits(place.clone(), &samples, guest(0x7f00_0050_0000)), None);
        assert_eq!(fits(place.clone(), &samples[..2], guest(place.start)), None);
        assert_eq!(fits(place, &samples, |_, _| None), None);
    }

    #[test]
    fn words_are_read_inside_of_ram_only() {
        let ram = Ram::default();
        assert_eq!(ram.word(FROM, 8), None);
        let memory: Vec<u64> = (0..(FROM + 0x1000) / 8).map(|i| i << 32 | 7).collect();
        let start = memory.as_ptr() as usize;
        ram.set(start..start + memory.len() * 8);
        assert_eq!(ram.word(FROM + 16, 8), Some((FROM / 8 + 2) << 32 | 7));
        assert_eq!(ram.word(FROM + 20, 4), Some(FROM / 8 + 2));
        assert_eq!(ram.word(FROM + 0xff8, 8), Some((((FROM + 0xff8) / 8) << 32) | 7));
        for (physical, len) in
            [(FROM - 8, 8), (FROM + 0x1000, 8), (FROM + 4, 8), (FROM + 2, 4), (u64::MAX - 7, 8)]
        {
            assert_eq!(ram.word(physical, len), None, "{physical:#x}");
        }
        assert_eq!(ram.word(FROM, 2), None);
    }
}
