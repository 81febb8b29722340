//! A kernel that is started without its own decompressor: the unpacked ELF image, moved by the relocation lists
//! behind it.
//!
//! The entry is the one for PVH guests (`Documentation/arch/x86/boot.rst`, the ELF note of `XEN_ELFNOTE_PHYS32_ENTRY`).
//! The lists are those that `handle_relocations` (`arch/x86/boot/compressed/misc.c`) reads.

use crate::bytes::{slice, u16_at, u32_at, u64_at};
use crate::decompress::{self, decompress};
use crate::elf::Elf;
use crate::error::KernelError;
use crate::image::BzImage;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PHYS32_ENTRY: u32 = 18;
/// Sizes of the ELF header and of a program header.
const HEADER: u64 = 64;
const PROGRAM_HEADER: u64 = 56;
/// The most that a shift is a multiple of: a page of the kernel's own mapping.
pub const STEP: u64 = 2 << 20;
/// The addresses that the kernel's mapping has (`KERNEL_IMAGE_SIZE` with KASLR).
const MAPPED: u64 = 1 << 30;

/// An unpacked kernel, and what moves in it.
#[derive(Debug)]
pub struct DirectImage {
    data: Vec<u8>,
    segments: Vec<Segment>,
    /// Where the file has the entry's physical address, how many bytes it takes, and the address.
    entry: (usize, usize, u64),
    lists: Lists,
}

/// A program header of the kind that is loaded.
#[derive(Debug)]
struct Segment {
    /// Where the file has its physical address.
    field: usize,
    offset: u64,
    physical: u64,
    in_file: u64,
    in_memory: u64,
}

/// Offsets in the file of the words to which a shift is added, or from which it is subtracted.
#[derive(Debug)]
struct Lists {
    wide: Vec<usize>,
    inverse: Vec<usize>,
    narrow: Vec<usize>,
}

/// The unpacked image of a bzImage, with its relocation lists; `what` names it in errors.
pub fn unpack(what: &str, file: &[u8]) -> Result<Vec<u8>, KernelError> {
    let payload = BzImage::parse(what, file)?.payload;
    Ok(decompress(what, payload, decompress::LIMIT)?.unwrap_or_else(|| payload.to_vec()))
}

impl DirectImage {
    /// Reads what [`unpack`] returned; `what` names it in errors.
    pub fn parse(what: &str, data: Vec<u8>) -> Result<DirectImage, KernelError> {
        let damaged = |detail: &str| KernelError::damaged(what, detail);
        let elf = Elf::parse(what, &data)?;
        let headers =
            program_headers(&data).ok_or_else(|| damaged("its program headers lie beyond its end"))?;
        let mut segments = Vec::new();
        let mut entry = None;
        let mut base = None;
        for (at, raw) in headers {
            let word = |at| u64_at(raw, at).unwrap_or(0);
            let (offset, in_file) = (word(8), word(32));
            let bytes =
                slice(&data, offset, in_file).ok_or_else(|| damaged("a segment lies beyond its end"))?;
            match u32_at(raw, 0) {
                Some(PT_LOAD) => {
                    base = base.or_else(|| word(16).checked_sub(word(24)));
                    let (physical, in_memory) = (word(24), word(40));
                    segments.push(Segment { field: at + 24, offset, physical, in_file, in_memory });
                }
                Some(PT_NOTE) => entry = entry.or_else(|| entry_note(bytes, offset)),
                _ => {}
            }
        }
        let entry = entry.ok_or_else(|| damaged("it has no entry for PVH guests"))?;
        let base = base.ok_or_else(|| damaged("it has nothing to load"))?;
        let fits = |segment: &Segment| {
            segment.in_file <= segment.in_memory
                && segment.physical.checked_add(segment.in_memory).is_some_and(|end| end <= MAPPED)
        };
        if !segments.iter().all(fits) {
            return Err(damaged("its segments do not fit into the kernel's mapping"));
        }
        let tail = usize::try_from(elf.headers_end).ok().and_then(|at| data.get(at..)).unwrap_or(&[]);
        let lists = Lists::read(tail, base, &segments)
            .ok_or_else(|| damaged("its relocation lists are not those of a kernel"))?;
        Ok(DirectImage { data, segments, entry, lists })
    }

    /// The physical address behind the kernel, before any shift.
    pub fn end(&self) -> u64 {
        self.segments.iter().map(|segment| segment.physical + segment.in_memory).max().unwrap_or(0)
    }

    /// The shifts that are possible where the kernel must end at or below the physical address `limit`: all
    /// multiples of [`STEP`] below this number of steps.
    pub fn places(&self, limit: u64) -> u64 {
        limit.min(MAPPED).checked_sub(self.end()).map_or(0, |room| room / STEP + 1)
    }

    /// An image whose physical and virtual addresses are `by` higher, without the lists and the section headers.
    pub fn shifted(mut self, by: u64) -> Vec<u8> {
        for &at in &self.lists.wide {
            add::<8>(&mut self.data, at, by);
        }
        for &at in &self.lists.inverse {
            add::<4>(&mut self.data, at, by.wrapping_neg());
        }
        for &at in &self.lists.narrow {
            add::<4>(&mut self.data, at, by);
        }
        for segment in &self.segments {
            add::<8>(&mut self.data, segment.field, by);
        }
        // Some kernels list the note among the relocations, others do not.
        let (at, size, address) = self.entry;
        let address = address.wrapping_add(by).to_le_bytes();
        self.data[at..at + size].copy_from_slice(&address[..size]);
        let loaded = self.segments.iter().map(|segment| segment.offset + segment.in_file).max().unwrap_or(0);
        self.data.truncate(usize::try_from(loaded).unwrap_or(usize::MAX));
        // e_shoff; e_shnum and e_shstrndx.
        self.data[0x28..0x30].fill(0);
        self.data[0x3c..0x40].fill(0);
        self.data
    }
}

/// The program headers with their offsets.
fn program_headers(data: &[u8]) -> Option<Vec<(usize, &[u8])>> {
    let (table, size, count) = (u64_at(data, 0x20)?, u16_at(data, 0x36)?, u16_at(data, 0x38)?);
    if u64::from(size) != PROGRAM_HEADER || table < HEADER {
        return None;
    }
    let one = |i: u16| {
        let at = table.checked_add(u64::from(i) * PROGRAM_HEADER)?;
        Some((usize::try_from(at).ok()?, slice(data, at, PROGRAM_HEADER)?))
    };
    (0..count).map(one).collect()
}

/// Place, size and value of the note that names the entry, in notes that begin at `offset` of the file.
fn entry_note(notes: &[u8], offset: u64) -> Option<(usize, usize, u64)> {
    let mut at = 0usize;
    loop {
        let (name, size) = (u32_at(notes, at)? as usize, u32_at(notes, at + 4)? as usize);
        let kind = u32_at(notes, at + 8)?;
        let value = (at + 12).checked_add(name.checked_next_multiple_of(4)?)?;
        if kind == PHYS32_ENTRY && slice(notes, at as u64 + 12, name as u64)? == b"Xen\0" {
            let address = match size {
                4 => u64::from(u32_at(notes, value)?),
                8 => u64_at(notes, value)?,
                _ => return None,
            };
            return Some((usize::try_from(offset).ok()? + value, size, address));
        }
        at = value.checked_add(size.checked_next_multiple_of(4)?)?;
    }
}

impl Lists {
    /// Reads a zero, then lists of link-time addresses with zeros between: of 64-bit words, of 32-bit words from
    /// which the shift is subtracted (kernels before 6.15), and of 32-bit words. `base` is the difference between
    /// virtual and physical addresses.
    fn read(tail: &[u8], base: u64, segments: &[Segment]) -> Option<Lists> {
        let words: Vec<u32> = tail.chunks_exact(4).filter_map(|word| u32_at(word, 0)).collect();
        let (&0, words) = words.split_first()? else { return None };
        let lists: Vec<&[u32]> = words.split(|&word| word == 0).collect();
        let place = |size: u64| {
            move |&word: &u32| {
                let physical = (i64::from(word as i32) as u64).checked_sub(base)?;
                let segment = segments.iter().find(|segment| {
                    let within = physical.checked_sub(segment.physical);
                    within.and_then(|at| at.checked_add(size)).is_some_and(|end| end <= segment.in_file)
                })?;
                usize::try_from(segment.offset + (physical - segment.physical)).ok()
            }
        };
        let read = |list: &[u32], size| list.iter().map(place(size)).collect::<Option<Vec<usize>>>();
        let (wide, inverse, narrow) = match lists[..] {
            [wide, narrow] => (wide, &[][..], narrow),
            [wide, inverse, narrow] => (wide, inverse, narrow),
            _ => return None,
        };
        Some(Lists { wide: read(wide, 8)?, inverse: read(inverse, 4)?, narrow: read(narrow, 4)? })
    }
}

/// Adds to a little-endian word of `N` bytes.
fn add<const N: usize>(data: &mut [u8], at: usize, by: u64) {
    let mut word = [0; 8];
    word[..N].copy_from_slice(&data[at..at + N]);
    let sum = u64::from_le_bytes(word).wrapping_add(by).to_le_bytes();
    data[at..at + N].copy_from_slice(&sum[..N]);
}

#[cfg(test)]
pub(crate) mod kernel;

#[cfg(test)]
mod tests {
    use super::kernel::{BASE, PHYSICAL, at, kernel};
    use super::*;

    #[test]
    fn a_shift_moves_what_the_lists_name() {
        let image = DirectImage::parse("x", kernel(&[0, at(0), 0, at(8), 0, at(16)])).unwrap();
        assert_eq!(image.end(), PHYSICAL + 0x2000);
        assert_eq!(image.places(PHYSICAL + 0x2000), 1);
        assert_eq!(image.places(PHYSICAL + 0x2000 + 2 * STEP), 3);
        assert_eq!(image.places(PHYSICAL), 0);
        let by = 3 * STEP;
        let data = image.shifted(by);
        let word = |at| u64_at(&data, at).unwrap();
        assert_eq!(data.len(), 0x1040);
        assert_eq!(word(0x1000), BASE + PHYSICAL + 0x10 + by);
        assert_eq!(word(0x1008), 0x5000_0000 - by);
        assert_eq!(word(0x1010), BASE + PHYSICAL + by);
        assert_eq!(word(0x1018), 7);
        assert_eq!(word(0x1030), PHYSICAL + 0x10 + by);
        assert_eq!(word(64 + 24), PHYSICAL + by);
        assert_eq!(word(0x28), 0);
    }

    #[test]
    fn the_entry_moves_once_where_it_is_listed_too() {
        let image = DirectImage::parse("x", kernel(&[0, at(0x30), 0, at(16)])).unwrap();
        assert_eq!(u64_at(&image.shifted(STEP), 0x1030), Some(PHYSICAL + 0x10 + STEP));
    }

    #[test]
    fn other_lists_are_refused() {
        for lists in [&[][..], &[0], &[at(0), 0, at(16)], &[0, at(0x39), 0, 0], &[0, 0, 0, 0, 0], &[0, 5, 0]]
        {
            assert!(DirectImage::parse("x", kernel(lists)).is_err(), "{lists:?}");
        }
        let mut without = kernel(&[0, 0]);
        assert!(DirectImage::parse("x", without.clone()).is_ok());
        without[0x1028] = 17;
        assert!(DirectImage::parse("x", without).unwrap_err().to_string().contains("PVH"));
    }

    #[test]
    fn segments_beyond_the_mapping_are_refused() {
        for (at, word) in [(64 + 24, u64::MAX - 0x1000), (64 + 40, MAPPED), (64 + 40, 0x3f)] {
            let mut data = kernel(&[0, 0]);
            data[at..at + 8].copy_from_slice(&word.to_le_bytes());
            assert!(DirectImage::parse("x", data).is_err(), "{at}");
        }
    }

    #[test]
    fn a_cut_image_is_an_error() {
        let whole = kernel(&[0, at(0), 0, at(16)]);
        for length in 0..0x1140 {
            assert!(DirectImage::parse("x", whole[..length].to_vec()).is_err(), "{length}");
        }
    }
}
