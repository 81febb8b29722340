//! Finds the code that ends a call of a function: the function, its cold part, and the functions that it
//! leaves to by tail jump.

use guardrail_binfmt::KernelImage;
use iced_x86::{Decoder, DecoderOptions, FlowControl, OpKind};

/// Most functions in a chain of tail jumps; nothing that matters chains deeper.
const MAX_FUNCTIONS: usize = 12;
/// Most bytes of a hooked function.
const MAX_SIZE: u64 = 0x4000;

/// Link-time ranges whose returns end a call of the function at `address`.
pub fn returns(image: &KernelImage, address: u64, thunks: &[u64]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut wanted = vec![address];
    while let Some(start) = wanted.pop() {
        if ranges.len() >= MAX_FUNCTIONS || ranges.iter().any(|&(a, b)| (a..b).contains(&start)) {
            continue;
        }
        let Some(symbol) = image.symbol_at(start) else { continue };
        let (begin, size) = (start - symbol.offset, symbol.size.min(MAX_SIZE));
        let Some(bytes) = image.bytes_at(begin, size) else { continue };
        ranges.push((begin, begin + size));
        let mut decoder = Decoder::with_ip(64, bytes, begin, DecoderOptions::NONE);
        while decoder.can_decode() {
            let insn = decoder.decode();
            let leaves = matches!(
                insn.flow_control(),
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
            );
            if !leaves || insn.op0_kind() != OpKind::NearBranch64 {
                continue;
            }
            let target = insn.near_branch_target();
            if !(begin..begin + size).contains(&target) && !thunks.contains(&target) && image.is_text(target)
            {
                wanted.push(target);
            }
        }
    }
    ranges.sort_unstable();
    ranges
}
