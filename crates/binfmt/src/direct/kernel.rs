//! A kernel with relocation lists, made from scratch.
//!
//! The seeds of the fuzzer are made of it too (`examples/binfmt_seed`), so nothing here knows the crate.

const PT_LOAD: u64 = 1;
const PT_NOTE: u64 = 4;
const PHYS32_ENTRY: u32 = 18;
/// Distance from physical to virtual addresses, and the physical address of the segment.
pub(crate) const BASE: u64 = 0xffff_ffff_8000_0000;
pub(crate) const PHYSICAL: u64 = 0x100_0000;

/// A kernel of one segment at offset 0x1000: four words, and the note. Its section header table is empty but
/// for the names.
pub(crate) fn kernel(lists: &[u32]) -> Vec<u8> {
    let mut data = vec![0; 0x1000];
    data[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
    data[16..20].copy_from_slice(&[2, 0, 62, 0]);
    let words = |data: &mut Vec<u8>, at: usize, words: &[u64]| {
        for (i, word) in words.iter().enumerate() {
            data[at + i * 8..at + i * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
    };
    words(&mut data, 0x18, &[0, 64, 0x1100]);
    data[0x36..0x40].copy_from_slice(&[56, 0, 2, 0, 64, 0, 1, 0, 0, 0]);
    words(&mut data, 64, &[PT_LOAD, 0x1000, BASE + PHYSICAL, PHYSICAL, 0x40, 0x2000, 0]);
    words(&mut data, 120, &[PT_NOTE, 0x1020, 0, 0, 24, 24, 4]);
    for word in [BASE + PHYSICAL + 0x10, 0x5000_0000, BASE + PHYSICAL, 7] {
        data.extend(word.to_le_bytes());
    }
    for word in [4u32, 8, PHYS32_ENTRY] {
        data.extend(word.to_le_bytes());
    }
    data.extend(b"Xen\0");
    data.extend((PHYSICAL + 0x10).to_le_bytes());
    data.resize(0x1100, 0);
    // One section header, whose names are the empty string at its own first byte.
    data.resize(0x1140, 0);
    data[0x1104..0x1108].copy_from_slice(&3u32.to_le_bytes());
    words(&mut data, 0x1118, &[0x1100, 1]);
    for word in lists {
        data.extend(word.to_le_bytes());
    }
    data
}

/// The virtual address of a byte of the segment, as lists have it.
pub(crate) fn at(offset: u32) -> u32 {
    (BASE + PHYSICAL) as u32 + offset
}
