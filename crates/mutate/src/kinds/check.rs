//! Results of calls that nobody checks.

use super::Site;
use crate::code::{Function, Registers, bit, branch_target};
use crate::edit::{Edit, Place, bytes, remove};
use crate::elf::Elf;
use crate::flow::flags_live_after;
use iced_x86::{ConditionCode, Mnemonic, OpKind, Register};

/// How many instructions behind a call its result may be tested.
const NEAR: usize = 5;

/// How a result shows that the call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    Taken,
    NotTaken,
}

/// Finds every call whose result is tested at once.
pub(super) fn checks(elf: &Elf, function: &Function, index: usize, sites: &mut Vec<Site>) {
    for (i, insn) in function.insns.iter().enumerate() {
        if !insn.instr.is_call_near() && !insn.instr.is_call_near_indirect() {
            continue;
        }
        let Some((test, branch)) = test(function, i) else { continue };
        let Some(failed) = failed(function, test, branch) else { continue };
        // Further branches may read the same comparison.
        if flags_live_after(elf, function, branch) {
            continue;
        }
        let edit = match failed {
            Failed::Taken => Some(remove(function, branch)),
            Failed::NotTaken => always(elf, function, branch),
        };
        let Some(edit) = edit else { continue };
        let edits = vec![remove(function, test), edit];
        sites.push(Site::fixed(index, i, edits, "the result of the call is not looked at"));
    }
}

/// The test of a call's result and the branch on it.
fn test(function: &Function, call: usize) -> Option<(usize, usize)> {
    let mut results: Registers = bit(Register::RAX);
    for i in call + 1..(call + 1 + NEAR).min(function.insns.len()) {
        let insn = &function.insns[i];
        let instr = &insn.instr;
        // Control that arrives from elsewhere did not call.
        if insn.target || insn.ends_flow() || instr.is_call_near() || instr.is_jcc_short_or_near() {
            return None;
        }
        let tested = instr.op0_kind() == OpKind::Register && bit(instr.op0_register()) & results != 0;
        let looks = match instr.mnemonic() {
            Mnemonic::Test => {
                instr.op1_kind() == OpKind::Register && instr.op0_register() == instr.op1_register()
            }
            Mnemonic::Cmp => insn.offsets.has_immediate(),
            _ => false,
        };
        if tested && looks {
            let branch = function.insns.get(i + 1)?;
            let branches = branch.instr.is_jcc_short_or_near() && !branch.target;
            return (branches && branch.instr.len() <= 6).then_some((i, i + 1));
        }
        if instr.rflags_modified() != 0 {
            return None;
        }
        let copies = instr.mnemonic() == Mnemonic::Mov
            && instr.op1_kind() == OpKind::Register
            && bit(instr.op1_register()) & results != 0;
        results &= !insn.writes;
        if copies && instr.op0_kind() == OpKind::Register {
            results |= bit(instr.op0_register());
        }
    }
    None
}

/// Whether the branch is taken when the call failed. Functions that return a number fail with one that is not
/// zero. Those that return a pointer or a truth value fail with zero. Pointers beyond all memory are errors,
/// too.
fn failed(function: &Function, test: usize, branch: usize) -> Option<Failed> {
    use ConditionCode::{a, ae, b, be, e, g, ge, l, le, ne, ns, s};
    let instr = &function.insns[test].instr;
    let condition = function.insns[branch].instr.condition_code();
    let register = instr.op0_register();
    let bad = |taken: bool| Some(if taken { Failed::Taken } else { Failed::NotTaken });
    if instr.mnemonic() == Mnemonic::Cmp {
        let number = instr.immediate(1) as i64;
        return match condition {
            // The number lies beyond the last possible pointer.
            a | ae if number < 0 => bad(true),
            b | be if number < 0 => bad(false),
            // The result is compared with one number among others: for all expected results, the mutant has
            // no check.
            e | l | le => bad(true),
            ne | g | ge => bad(false),
            _ => None,
        };
    }
    match condition {
        s | l | le => bad(true),
        ns | ge | g => bad(false),
        e => bad(!register.is_gpr32()),
        ne => bad(register.is_gpr32()),
        _ => None,
    }
}

/// Makes the branch always taken.
fn always(elf: &Elf, function: &Function, branch: usize) -> Option<Edit> {
    let insn = &function.insns[branch];
    // The relocation of a branch that leaves the function would have to move.
    branch_target(elf, function.section, insn).filter(|_| insn.relocations.is_empty())?;
    let bytes = match *bytes(elf, function, insn) {
        [0x70..=0x7f, distance] => vec![0xeb, distance],
        [0x0f, 0x80..=0x8f, a, b, c, d] => {
            // The jump is one byte shorter.
            let distance = i32::from_le_bytes([a, b, c, d]).checked_add(1)?;
            let mut bytes = vec![0xe9];
            bytes.extend(distance.to_le_bytes());
            bytes.push(0x90);
            bytes
        }
        _ => return None,
    };
    Some(Edit { insn: branch, bytes, place: Place::Keep })
}
