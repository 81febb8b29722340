//! Bugs in conditions: inverted, or strict where they should not be.

use super::Site;
use crate::code::{Function, branch_target};
use crate::edit::{bytes, change};
use crate::elf::Elf;
use crate::flow::{condition, flags_from};
use iced_x86::Mnemonic;

/// Finds every conditional jump forward; those backward are loops.
pub(super) fn flips(elf: &Elf, function: &Function, index: usize, sites: &mut Vec<Site>) {
    for (i, insn) in function.insns.iter().enumerate() {
        if !insn.instr.is_jcc_short_or_near()
            || branch_target(elf, function.section, insn).is_some_and(|to| to <= insn.at())
        {
            continue;
        }
        let edit = condition(bytes(elf, function, insn)).and_then(|(at, _)| {
            let old = *bytes(elf, function, insn).get(at)?;
            change(elf, function, i, at, &[old ^ 1])
        });
        sites.extend(edit.map(|edit| Site::fixed(index, i, vec![edit], "the condition is inverted")));
    }
}

/// The condition that differs only where both sides are equal.
fn neighbor(condition: u8) -> Option<u8> {
    match condition {
        // Swaps below and below-or-equal, and not below and above.
        2 | 3 | 6 | 7 => Some(condition ^ 4),
        // Swaps less and less-or-equal, and not less and greater.
        12..=15 => Some(condition ^ 2),
        _ => None,
    }
}

/// Finds every condition that depends on which of two numbers is larger.
pub(super) fn off_by_one(elf: &Elf, function: &Function, index: usize, sites: &mut Vec<Site>) {
    for (i, insn) in function.insns.iter().enumerate() {
        let bytes = bytes(elf, function, insn);
        let Some((at, old)) = condition(bytes) else { continue };
        let Some(new) = neighbor(old) else { continue };
        // The carry flag can also hold a bit that was tested.
        let compared = flags_from(function, i).is_some_and(|from| {
            matches!(function.insns[from].instr.mnemonic(), Mnemonic::Cmp | Mnemonic::Sub)
        });
        if !compared {
            continue;
        }
        let edit = change(elf, function, i, at, &[bytes[at] & 0xf0 | new]);
        sites.extend(edit.map(|edit| Site::fixed(index, i, vec![edit], "the comparison is off by one")));
    }
}
