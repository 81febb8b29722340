//! The relocation list that a relocatable kernel carries behind its ELF image.

use crate::bytes::i32_at;

/// Sorted link-time addresses of places that KASLR changes.
///
/// The build appends lists of 32-bit addresses (sign-extended), separated by zeros, to the image. The list
/// that holds a place does not matter here, so all are read as one.
pub(crate) fn relocated_places(image: &[u8], elf_end: u64) -> Vec<u64> {
    let Some(tail) = usize::try_from(elf_end).ok().and_then(|at| image.get(at..)) else { return Vec::new() };
    let mut places: Vec<u64> = tail
        .chunks_exact(4)
        .filter_map(|word| i32_at(word, 0))
        .filter(|&v| v < 0)
        .map(|v| i64::from(v) as u64)
        .collect();
    places.sort_unstable();
    places
}
