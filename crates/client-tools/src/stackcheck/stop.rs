//! Ends a thread in the kernel's own way: by an invalid instruction. The kernel reports it (an oops) and
//! ends the thread. The system continues, unless it was started with `oops=panic`.

use guardrail_client_api::binfmt::KernelImage;
use guardrail_client_api::host_slide;

/// The bytes of the instruction `ud2`.
const UD2: [u8; 2] = [0x0f, 0x0b];
/// The instruction to which a thread is sent.
pub struct Stop {
    /// Link-time address of the instruction.
    at: u64,
}

impl Stop {
    /// Finds an invalid instruction in the image that is not in the kernel's table of warnings. `BUG`
    /// and `WARN` use the same instruction, and the kernel continues after a `WARN`. The instruction may
    /// belong to any function, and only the kernel's message names that function.
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

    /// Guest virtual address of the instruction.
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
        // The first word is the distance from the row itself.
        let distance = i32::from_le_bytes(entry.get(..4)?.try_into().ok()?);
        Some((start + i as u64 * size).wrapping_add_signed(distance.into()))
    };
    let mut known: Vec<u64> = table.chunks_exact(size as usize).enumerate().filter_map(entry).collect();
    known.sort_unstable();
    Some(known)
}
