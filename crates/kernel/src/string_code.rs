//! Functions that read words beyond the end of strings on purpose.
//!
//! A word that begins inside of an object may reach beyond it; the code uses only the bytes up to the end.
//! Two marks identify such code:
//!
//! - It has the constants that find a zero byte in a word.
//! - Its loads are repaired by the kernel's exception table when the word reaches into a page that is not
//!   there (`load_unaligned_zeropad`).

use guardrail_binfmt::KernelImage;

/// -REPEAT_BYTE(0x01) and REPEAT_BYTE(0x80), of which `has_zero` is made
/// (arch/x86/include/asm/word-at-a-time.h).
const CONSTANTS: [u64; 2] = [0xfefe_fefe_fefe_feff, 0x8080_8080_8080_8080];
/// The type of a row whose load gets zeros for what cannot be read (`EX_TYPE_ZEROPAD`), and the bits that
/// hold a type.
const ZEROPAD: u32 = 20;
const TYPE_BITS: u32 = 0xff;
const ENTRY: usize = 12;
/// Most bytes of a function of this sort.
const MAX_SIZE: u64 = 0x4000;

/// Link-time ranges of these functions, sorted.
pub fn ranges(image: &KernelImage) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> =
        repaired(image).chain(by_constants(image)).filter_map(|place| function(image, place)).collect();
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}

fn function(image: &KernelImage, place: u64) -> Option<(u64, u64)> {
    let symbol = image.symbol_at(place).filter(|symbol| symbol.size <= MAX_SIZE)?;
    let start = place - symbol.offset;
    Some((start, start + symbol.size))
}

/// Link-time addresses of loads that the exception table repairs.
fn repaired(image: &KernelImage) -> impl Iterator<Item = u64> {
    let table = image.sections().find(|section| section.0 == "__ex_table");
    let (start, bytes) =
        table.and_then(|(_, start, size)| Some((start, image.bytes_at(start, size)?))).unwrap_or((0, &[]));
    (0u64..).zip(bytes.chunks_exact(ENTRY)).filter_map(move |(i, entry)| {
        let word = |at: usize| Some(u32::from_le_bytes(entry.get(at..at + 4)?.try_into().ok()?));
        let distance = word(0)? as i32;
        let kind = word(8)? & TYPE_BITS;
        (kind == ZEROPAD).then(|| (start + i * ENTRY as u64).wrapping_add_signed(distance.into()))
    })
}

/// Addresses in the text that hold one of the constants, in functions that hold both; random bytes hardly do.
fn by_constants(image: &KernelImage) -> impl Iterator<Item = u64> {
    let text: Vec<(u64, u64)> =
        image.sections().filter(|s| image.is_text(s.1)).map(|(_, start, size)| (start, size)).collect();
    let places = move |constant: u64| -> Vec<u64> {
        let wanted = constant.to_le_bytes();
        text.iter()
            .filter_map(|&(start, size)| Some((start, image.bytes_at(start, size)?)))
            .flat_map(|(start, bytes)| {
                let found = bytes.windows(8).enumerate().filter(move |(_, window)| *window == wanted);
                found.map(move |(at, _)| start + at as u64)
            })
            .collect()
    };
    let first: Vec<u64> = places(CONSTANTS[0]);
    let second: Vec<(u64, u64)> =
        places(CONSTANTS[1]).into_iter().filter_map(|place| function(image, place)).collect();
    first
        .into_iter()
        .filter(move |&place| function(image, place).is_some_and(|range| second.contains(&range)))
}
