//! What straight-line code shows about registers and flags.

use crate::code::{Function, Insn, bit};
use crate::elf::Elf;
use iced_x86::{Register, RflagsBits};

/// Most instructions that a search for the source of a value, or for a reader of the flags, looks at.
const FAR: usize = 32;

/// The flags that comparisons set.
const CONDITIONS: u32 = RflagsBits::ZF | RflagsBits::SF | RflagsBits::CF | RflagsBits::OF | RflagsBits::PF;

/// The instruction that gives a register its value before instruction `at`; `None` unless only one can.
pub(crate) fn definition(function: &Function, at: usize, register: Register) -> Option<usize> {
    let wanted = bit(register);
    before(function, at).find(|(_, insn)| insn.writes & wanted != 0).map(|(index, _)| index)
}

/// The instruction that sets the flags which instruction `at` reads; `None` unless only one can.
pub(crate) fn flags_from(function: &Function, at: usize) -> Option<usize> {
    before(function, at)
        .find(|(_, insn)| insn.instr.rflags_modified() & CONDITIONS != 0 || insn.instr.is_call_near())
        .map(|(index, _)| index)
}

/// The instructions that surely ran before instruction `at`, last first.
fn before(function: &Function, at: usize) -> impl Iterator<Item = (usize, &Insn)> {
    let mut joined = function.insns.get(at).is_none_or(|insn| insn.target);
    (0..at).rev().take(FAR).map(|index| (index, &function.insns[index])).take_while(move |(_, insn)| {
        let on = !joined && !insn.ends_flow();
        joined = insn.target;
        on
    })
}

/// False where it is certain that nobody reads the flags that instruction `at` leaves before others are set.
pub(crate) fn flags_live_after(elf: &Elf, function: &Function, at: usize) -> bool {
    flags_live(elf, function, at + 1, FAR)
}

fn flags_live(elf: &Elf, function: &Function, from: usize, mut room: usize) -> bool {
    let mut index = from;
    while let Some(insn) = function.insns.get(index) {
        if room == 0 || insn.instr.rflags_read() & CONDITIONS != 0 {
            return true;
        }
        room -= 1;
        let set = insn.instr.rflags_modified() & CONDITIONS;
        let over = insn.instr.is_call_near() || insn.instr.is_call_near_indirect();
        if set == CONDITIONS || over {
            return false;
        }
        if insn.ends_flow() {
            let target = crate::code::branch_target(elf, function.section, insn);
            let Some(next) = target.and_then(|target| function.index_at(target)) else {
                // This is a return, or a jump to another function: flags are no result.
                return false;
            };
            index = next;
            continue;
        }
        index += 1;
    }
    false
}

/// The condition of a jump, a conditional move or a `setcc`: where its byte is, and which it is.
pub(crate) fn condition(bytes: &[u8]) -> Option<(usize, u8)> {
    if let [byte @ 0x70..=0x7f, _] = bytes {
        return Some((0, byte & 15));
    }
    let mut at = 0;
    if bytes.first() == Some(&0x66) {
        at += 1;
    }
    if matches!(bytes.get(at), Some(0x40..=0x4f)) {
        at += 1;
    }
    match bytes.get(at..)? {
        [0x0f, byte @ (0x40..=0x4f | 0x80..=0x8f | 0x90..=0x9f), ..] => Some((at + 1, byte & 15)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::functions;
    use crate::testing::Function as Code;

    fn of(code: &[u8]) -> (Elf, Function) {
        let elf = Elf::parse("x", &Code::new().code(code).module()).unwrap();
        let function = functions(&elf).remove(0);
        (elf, function)
    }

    #[test]
    fn definitions_end_at_joins() {
        // mov ecx,5; test edi,edi; je +2; xor eax,eax; (target) mov edx,ecx; ret
        let code = [0xb9, 5, 0, 0, 0, 0x85, 0xff, 0x74, 2, 0x31, 0xc0, 0x89, 0xca, 0xc3];
        let (_, function) = of(&code);
        assert_eq!(definition(&function, 3, Register::ECX), Some(0));
        assert_eq!(definition(&function, 4, Register::ECX), None);
        assert_eq!(flags_from(&function, 2), Some(1));
    }

    #[test]
    fn flags_are_followed_along_jumps() {
        // add eax,1; jmp +1; nop; cmp eax,2; ret
        let (elf, function) = of(&[0x83, 0xc0, 1, 0xeb, 1, 0x90, 0x83, 0xf8, 2, 0xc3]);
        assert!(!flags_live_after(&elf, &function, 0));
        // add eax,1; nop; je 0; ret
        let (elf, function) = of(&[0x83, 0xc0, 1, 0x90, 0x74, 0xfa, 0xc3]);
        assert!(flags_live_after(&elf, &function, 0));
        assert!(!flags_live_after(&elf, &function, 2));
    }

    #[test]
    fn conditions_are_found_in_all_encodings() {
        assert_eq!(condition(&[0x74, 1]), Some((0, 4)));
        assert_eq!(condition(&[0x0f, 0x8f, 1, 0, 0, 0]), Some((1, 15)));
        assert_eq!(condition(&[0x48, 0x0f, 0x47, 0xc1]), Some((2, 7)));
        assert_eq!(condition(&[0x0f, 0x92, 0xc0]), Some((1, 2)));
        assert_eq!(condition(&[0x0f, 0xb6, 0xc0]), None);
        assert_eq!(condition(&[]), None);
    }
}
