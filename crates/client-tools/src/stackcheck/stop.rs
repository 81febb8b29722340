//! Ending a thread by the kernel's own way: an instruction that does not exist. The kernel tells of it (an oops) and lets the thread
//! die; the system goes on, unless it was started with `oops=panic`.

use guardrail_client_api::binfmt::KernelImage;
use guardrail_client_api::host_slide;

/// The instruction `ud2`.
const UD2: [u8; 2] = [0x0f, 0x0b];
/// A place to send a thread to.
pub struct Stop {
    /// Link-time address.
    at: u64,
}

impl Stop {
    /// Finds an instruction in the image that does not exist, and is none of those by which the kernel tells of warnings (`BUG`
    /// and `WARN` are the same instruction, and the kernel goes on after the latter). Which function it belongs to is chance: only the
    /// kernel's message names it.
    pub fn new(image: &KernelImage) -> Result<Stop, String> {
        let known = known(image).ok_or("the kernel's table of BUG instructions cannot be read")?;
        let free = |at: &u64| known.binary_search(at).is_err();
        let within = |from: u64, len: u64| -> Option<u64> {
            let bytes = image.bytes_at(from, len)?;
            bytes
                .windows(2)
                .enumerate()
                .filter(|(_, two)| *two == UD2)
                .map(|(i, _)| from + i as u64)
                .find(free)
        };
        let text = image.sections().filter(|(_, start, _)| image.is_text(*start));
        match text.filter_map(|(_, start, size)| within(start, size)).next() {
            Some(at) => Ok(Stop { at }),
            None => Err("the kernel has no instruction that ends a thread".into()),
        }
    }

    /// Where the running kernel has it.
    pub fn address(&self) -> u64 {
        self.at.wrapping_add(host_slide())
    }
}

/// The addresses in the kernel's table of BUG instructions, sorted.
fn known(image: &KernelImage) -> Option<Vec<u64>> {
    let (start, end) = (image.address_of("__start___bug_table")?, image.address_of("__stop___bug_table")?);
    let size = image.btf().struct_named("bug_entry").and_then(|id| image.btf().size_of(id))?;
    let table = image.bytes_at(start, end.checked_sub(start)?)?;
    let entry = |(i, entry): (usize, &[u8])| {
        // The first word is the distance from the entry.
        let distance = i32::from_le_bytes(entry.get(..4)?.try_into().ok()?);
        Some((start + i as u64 * size).wrapping_add_signed(distance.into()))
    };
    let mut known: Vec<u64> = table.chunks_exact(size as usize).enumerate().filter_map(entry).collect();
    known.sort_unstable();
    Some(known)
}
