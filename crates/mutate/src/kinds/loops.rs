//! Bugs in upper bounds of loops.

use super::{Plan, Site, grow::Grow};
use crate::code::{Function, Insn, Registers, bit, branch_target};
use crate::elf::Elf;
use crate::flow::flags_from;
use iced_x86::{ConditionCode, Mnemonic, OpKind, Register};

/// Finds every loop whose bound is a number in the code: one that it counts up to, or one that it counts down
/// from.
pub(super) fn bounds(elf: &Elf, function: &Function, index: usize, sites: &mut Vec<Site>) {
    let mut found: Vec<Grow> = Vec::new();
    for (head, end) in loops(elf, function) {
        for i in head..=end {
            let insn = &function.insns[i];
            if !insn.instr.is_jcc_short_or_near() {
                continue;
            }
            let inside = branch_target(elf, function.section, insn)
                .and_then(|to| function.index_at(to))
                .is_some_and(|to| (head..=end).contains(&to));
            let goes_on = match (inside, i == end) {
                (true, true) => insn.instr.condition_code(),
                (false, _) => opposite(insn.instr.condition_code()),
                // This is a branch within the loop's body.
                (true, false) => continue,
            };
            let Some(from) = flags_from(function, i).filter(|from| (head..=end).contains(from)) else {
                continue;
            };
            let bound =
                up(function, head, end, from, goes_on).or_else(|| down(function, head, from, goes_on));
            found.extend(bound.filter(|grow| {
                grow.is_count(elf, function) && function.insns[grow.insn].relocations.is_empty()
            }));
        }
    }
    found.sort_by_key(|grow| grow.insn);
    found.dedup_by_key(|grow| grow.insn);
    sites.extend(found.into_iter().map(|grow| Site {
        function: index,
        insn: grow.insn,
        plan: Plan::Grow(grow),
    }));
}

/// Loops as first and last instruction: each jump that leads back ends one.
fn loops(elf: &Elf, function: &Function) -> Vec<(usize, usize)> {
    let back = |(i, insn): (usize, &Insn)| {
        let to = branch_target(elf, function.section, insn).filter(|to| *to <= insn.at())?;
        Some((function.index_at(to)?, i))
    };
    function.insns.iter().enumerate().filter_map(back).collect()
}

fn opposite(condition: ConditionCode) -> ConditionCode {
    use ConditionCode::{a, ae, b, be, e, g, ge, l, le, ne};
    match condition {
        e => ne,
        ne => e,
        a => be,
        be => a,
        b => ae,
        ae => b,
        l => ge,
        ge => l,
        le => g,
        g => le,
        other => other,
    }
}

/// A comparison of a counter with a number, where the loop continues while the counter is below it.
fn up(function: &Function, head: usize, end: usize, compare: usize, goes_on: ConditionCode) -> Option<Grow> {
    use ConditionCode::{b, be, l, le, ne};
    let insn = &function.insns[compare];
    let instr = &insn.instr;
    let size = insn.offsets.immediate_size();
    if instr.mnemonic() != Mnemonic::Cmp || size == 0 || instr.op_count() != 2 {
        return None;
    }
    let step = match instr.op0_kind() {
        OpKind::Register => step(function, head, end, bit(instr.op0_register())),
        _ => None,
    };
    let each = match (goes_on, step) {
        (l | le | b | be, step) => step.unwrap_or(1),
        // A counter that jumps over the bound never meets it.
        (ne, Some(step)) => step,
        _ => return None,
    };
    let at = insn.offsets.immediate_offset();
    Some(Grow { insn: compare, at, size, each, per: 1, what: "the bound of the loop" })
}

/// By how much a loop raises a register in each round; `None` unless one instruction alone does it.
fn step(function: &Function, head: usize, end: usize, register: Registers) -> Option<u64> {
    let mut changes = function.insns[head..=end].iter().filter(|insn| insn.writes & register != 0);
    let (one, None) = (changes.next()?, changes.next()) else { return None };
    if bit(one.instr.op0_register()) != register || one.instr.op0_kind() != OpKind::Register {
        return None;
    }
    match one.instr.mnemonic() {
        Mnemonic::Inc => Some(1),
        Mnemonic::Add if one.offsets.has_immediate() => match one.instr.immediate(1) {
            step @ 1..=4096 => Some(step),
            _ => None,
        },
        _ => None,
    }
}

/// A counter that is set before the loop and lowered by one in each round, until it is zero.
fn down(function: &Function, head: usize, lowers: usize, goes_on: ConditionCode) -> Option<Grow> {
    use ConditionCode::{a, g, ne};
    let instr = &function.insns[lowers].instr;
    let by_one = match instr.mnemonic() {
        Mnemonic::Dec => true,
        Mnemonic::Sub if function.insns[lowers].offsets.has_immediate() => instr.immediate(1) == 1,
        Mnemonic::Add if function.insns[lowers].offsets.has_immediate() => {
            // The immediate is as wide as the register.
            instr.immediate(1) as i8 == -1
        }
        _ => false,
    };
    if !by_one || instr.op0_kind() != OpKind::Register || !matches!(goes_on, ne | g | a) {
        return None;
    }
    let register = bit(instr.op0_register());
    // Nothing but this sets the counter on the way into the loop.
    let (set, insn) = function.insns[..head]
        .iter()
        .enumerate()
        .rev()
        .take(16)
        .take_while(|(_, insn)| !insn.ends_flow())
        .find(|(_, insn)| insn.writes & register != 0)?;
    let number = insn.instr.mnemonic() == Mnemonic::Mov
        && insn.instr.op0_register() != Register::None
        && insn.offsets.immediate_size() == 4;
    let at = insn.offsets.immediate_offset();
    number.then_some(Grow { insn: set, at, size: 4, each: 1, per: 1, what: "the count of the loop" })
}
