//! What an instruction does with the memory that it accesses, whether a race between two of them is likely
//! harmless, and the verdicts of triage.

use crate::machine::State;
use guardrail_finding::Severity;
use guardrail_finding::triage::{BENIGN, HARMFUL, UNDECIDED};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

/// How far back in bytes a jump may lead that closes a loop around a flag.
const LOOP: u64 = 256;

/// The reason where a run reads again under the lock of the writer.
pub(super) const DOUBLE_CHECKED: &str = "double-checked, read again under the lock";
/// The reason where a read has no consequence.
pub(super) const DROPPED: &str = "value that nothing uses";
/// The reason where a read waits for the other side.
pub(super) const POLLED: &str = "flag polled in a loop";

/// The verdict on a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A fault follows, for this reason.
    Harmful(&'static str),
    /// Neither is shown, for this reason.
    Undecided(&'static str),
    /// Nothing follows, for this reason.
    Benign(&'static str),
}

impl Verdict {
    /// The text in reports.
    pub fn text(self) -> String {
        match self {
            Verdict::Harmful(why) => format!("{HARMFUL}: {why}"),
            Verdict::Undecided(why) => format!("{UNDECIDED}: {why}"),
            Verdict::Benign(why) => format!("{BENIGN}: {why}"),
        }
    }

    /// The severity of the finding.
    pub fn severity(self) -> Severity {
        match self {
            Verdict::Harmful(_) => Severity::Error,
            Verdict::Undecided(_) => Severity::Warning,
            Verdict::Benign(_) => Severity::Note,
        }
    }
}

/// What an instruction does with its operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Reads the memory; what follows in the block decides nothing by it.
    Load,
    /// Reads the memory, and the value is overwritten before anything uses it.
    Dropped,
    /// Reads the memory and decides by these bits; `polls` where it loops until they change.
    Test { bits: u64, polls: bool },
    /// Writes a value, which may be known.
    Store(Option<u64>),
    /// Adds to the memory or subtracts from it.
    Count,
    /// Changes these bits alone.
    Bits(u64),
    /// Does anything else with the memory.
    Other,
}

/// Finds the form of the instruction at `pc` from its block.
pub(super) fn form(state: &State, pc: u64) -> Form {
    state.blocks.holding(pc).map_or(Form::Other, |block| form_in(&block.bytes, block.code.addr, pc))
}

/// Like [`form`], in the code of a given block.
pub(super) fn form_in(bytes: &[u8], address: u64, pc: u64) -> Form {
    let insns: Vec<Instruction> = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).iter().collect();
    let Some(at) = insns.iter().position(|i| i.ip() == pc) else { return Form::Other };
    let insn = &insns[at];
    let size = insn.memory_size().size().min(8);
    let all = if size >= 8 { u64::MAX } else { (1 << (8 * size)) - 1 };
    let first_is_memory = insn.op0_kind() == OpKind::Memory;
    let imm = insn.try_immediate(1).ok().map(|imm| imm & all);
    match insn.mnemonic() {
        Mnemonic::Inc | Mnemonic::Dec | Mnemonic::Add | Mnemonic::Sub | Mnemonic::Adc | Mnemonic::Sbb
            if first_is_memory =>
        {
            Form::Count
        }
        Mnemonic::Or | Mnemonic::Xor if first_is_memory => imm.map_or(Form::Other, Form::Bits),
        Mnemonic::And if first_is_memory => imm.map_or(Form::Other, |imm| Form::Bits(!imm & all)),
        Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc if first_is_memory => {
            imm.map_or(Form::Other, |bit| Form::Bits(1 << (bit & 63)))
        }
        Mnemonic::Test => Form::Test { bits: imm.unwrap_or(all), polls: polls(&insns, pc) },
        Mnemonic::Bt if first_is_memory => {
            Form::Test { bits: imm.map_or(all, |bit| 1 << (bit & 63)), polls: polls(&insns, pc) }
        }
        Mnemonic::Cmp => Form::Test { bits: all, polls: polls(&insns, pc) },
        Mnemonic::Mov if first_is_memory => match imm {
            Some(_) => Form::Store(imm),
            None => stored(&insns[..at], insn, all),
        },
        Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => {
            if is_dropped(&insns[at + 1..], insn) {
                return Form::Dropped;
            }
            loaded(&insns[at + 1..], insn, all, polls(&insns, pc))
        }
        // A register that holds a sum or a difference.
        Mnemonic::Add | Mnemonic::Sub if insn.op1_kind() == OpKind::Memory => Form::Load,
        _ => Form::Other,
    }
}

/// Whether the instruction at `pc` is part of counting by a constant.
pub(super) fn steps(state: &State, pc: u64) -> bool {
    let Some(block) = state.blocks.holding(pc) else { return false };
    let decoder = Decoder::with_ip(64, &block.bytes, block.code.addr, DecoderOptions::NONE);
    let insns: Vec<Instruction> = decoder.into_iter().collect();
    let Some(at) = insns.iter().position(|i| i.ip() == pc) else { return false };
    let constant = |i: &Instruction| match i.mnemonic() {
        Mnemonic::Inc | Mnemonic::Dec => true,
        Mnemonic::Add | Mnemonic::Sub => i.try_immediate(1).is_ok(),
        Mnemonic::Lea => i.memory_index() == Register::None,
        _ => false,
    };
    let insn = &insns[at];
    if insn.mnemonic() != Mnemonic::Mov {
        return constant(insn);
    }
    if insn.op0_kind() == OpKind::Memory {
        let register = insn.op1_register().full_register();
        return insns[..at].iter().rev().find(|i| writes(i, register)).is_some_and(constant);
    }
    let register = insn.op0_register().full_register();
    let takes = |i: &&Instruction| writes(i, register) || i.memory_base().full_register() == register;
    insns[at + 1..].iter().find(takes).is_some_and(constant)
}

fn same_operand(a: &Instruction, b: &Instruction) -> bool {
    let key = |i: &Instruction| {
        (
            i.memory_base(),
            i.memory_index(),
            i.memory_index_scale(),
            i.memory_displacement64(),
            i.segment_prefix(),
        )
    };
    key(a) == key(b)
}

fn writes(insn: &Instruction, register: Register) -> bool {
    insn.op_count() > 0
        && insn.op0_kind() == OpKind::Register
        && insn.op0_register().full_register() == register
        && !matches!(insn.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt | Mnemonic::Push)
}

fn counts(insn: &Instruction) -> bool {
    matches!(
        insn.mnemonic(),
        Mnemonic::Inc | Mnemonic::Dec | Mnemonic::Add | Mnemonic::Sub | Mnemonic::Lea | Mnemonic::Adc
    )
}

/// The form of a store of a register. The register may hold the loaded value with something added to it or
/// some bits changed.
fn stored(before: &[Instruction], store: &Instruction, all: u64) -> Form {
    let register = store.op1_register().full_register();
    let mut form = Form::Store(None);
    for insn in before.iter().rev().filter(|i| writes(i, register)) {
        let adds_memory = insn.op_count() > 1 && insn.op1_kind() == OpKind::Memory;
        match insn.mnemonic() {
            Mnemonic::Add if adds_memory && same_operand(insn, store) => return Form::Count,
            Mnemonic::Mov | Mnemonic::Movzx if adds_memory && same_operand(insn, store) => return form,
            Mnemonic::Or => {
                form = insn.try_immediate(1).ok().map_or(Form::Other, |imm| Form::Bits(imm & all))
            }
            Mnemonic::And => {
                form = insn.try_immediate(1).ok().map_or(Form::Other, |imm| Form::Bits(!imm & all))
            }
            _ if counts(insn) => form = Form::Count,
            Mnemonic::Mov if form == Form::Store(None) => {
                return Form::Store(insn.try_immediate(1).ok().map(|imm| imm & all));
            }
            // xor r,r
            Mnemonic::Xor
                if insn.op1_kind() == OpKind::Register && insn.op0_register() == insn.op1_register() =>
            {
                return if form == Form::Store(None) { Form::Store(Some(0)) } else { Form::Store(None) };
            }
            _ => return Form::Store(None),
        }
    }
    Form::Store(None)
}

/// Whether nothing uses the register of a load before it is overwritten, as with the arguments of a trace point that
/// is off.
fn is_dropped(after: &[Instruction], load: &Instruction) -> bool {
    let register = load.op0_register().full_register();
    let mut info = InstructionInfoFactory::new();
    for insn in after.iter().filter(|insn| insn.mnemonic() != Mnemonic::Nop) {
        if insn.flow_control() != FlowControl::Next {
            return false;
        }
        let used = info.info(insn).used_registers().iter();
        let mut accesses = used.filter(|used| used.register().full_register() == register).peekable();
        if accesses.peek().is_some() {
            // A part of the register keeps the rest.
            return accesses.all(|used| used.access() == OpAccess::Write && used.register().size() >= 4);
        }
    }
    false
}

/// The form of a load into a register, which depends on the later uses of the register.
fn loaded(after: &[Instruction], load: &Instruction, all: u64, polls: bool) -> Form {
    let register = load.op0_register().full_register();
    let mut added = false;
    for insn in after {
        let reads = |i: u32| {
            i < insn.op_count()
                && insn.op_kind(i) == OpKind::Register
                && insn.op_register(i).full_register() == register
        };
        if insn.memory_base().full_register() == register || insn.memory_index().full_register() == register {
            return Form::Other;
        }
        match insn.mnemonic() {
            Mnemonic::Test | Mnemonic::And if reads(0) || reads(1) => {
                let bits = insn.try_immediate(1).ok().map_or(all, |imm| imm & all);
                return Form::Test { bits, polls };
            }
            Mnemonic::Bt if reads(0) => {
                let bits = insn.try_immediate(1).ok().map_or(all, |bit| 1 << (bit & 63));
                return Form::Test { bits, polls };
            }
            Mnemonic::Cmp if reads(0) || reads(1) => return Form::Test { bits: all, polls },
            Mnemonic::Mov if reads(1) && insn.op0_kind() == OpKind::Memory && same_operand(insn, load) => {
                return if added { Form::Count } else { Form::Other };
            }
            _ if counts(insn) && writes(insn, register) => added = true,
            _ if writes(insn, register) => return Form::Load,
            _ => {}
        }
    }
    Form::Load
}

/// Whether the block ends in a conditional jump back to before `pc`.
fn polls(insns: &[Instruction], pc: u64) -> bool {
    insns.last().is_some_and(|last| {
        let target = last.near_branch_target();
        last.flow_control() == FlowControl::ConditionalBranch && target <= pc && pc - target < LOOP
    })
}

/// Why a race between two instructions is likely harmless. With `same`, both access exactly the same bytes.
pub(super) fn reason(a: Form, b: Form, same: bool) -> Option<&'static str> {
    match (a, b) {
        (Form::Dropped, _) | (_, Form::Dropped) => Some(DROPPED),
        (Form::Count, Form::Count | Form::Load) | (Form::Load, Form::Count) => Some("statistics counter"),
        (Form::Store(Some(x)), Form::Store(Some(y))) if same && x == y => Some("same value written"),
        (Form::Test { bits, .. }, Form::Bits(changed)) | (Form::Bits(changed), Form::Test { bits, .. })
            if same && bits & changed == 0 =>
        {
            Some("disjoint bits")
        }
        (Form::Test { polls: true, .. }, _) | (_, Form::Test { polls: true, .. }) => Some(POLLED),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_instructions() {
        let all = u64::from(u32::MAX);
        for (bytes, at, form) in [
            // inc dword [rdi]
            (&[0xff, 0x07][..], 0, Form::Count),
            // mov eax,[rdi]; inc eax; mov [rdi],eax
            (&[0x8b, 0x07, 0xff, 0xc0, 0x89, 0x07], 0, Form::Count),
            (&[0x8b, 0x07, 0xff, 0xc0, 0x89, 0x07], 4, Form::Count),
            // mov eax,[rdi]; ret
            (&[0x8b, 0x07, 0xc3], 0, Form::Load),
            // movzx ecx,word [rdi]; nop; mov rcx,[rsi]
            (&[0x0f, 0xb7, 0x0f, 0x90, 0x48, 0x8b, 0x0e], 0, Form::Dropped),
            // movzx ecx,word [rdi]; mov edx,ecx; mov rcx,[rsi]
            (&[0x0f, 0xb7, 0x0f, 0x89, 0xca, 0x48, 0x8b, 0x0e], 0, Form::Load),
            // movzx ecx,word [rdi]; jz +0; mov rcx,[rsi]
            (&[0x0f, 0xb7, 0x0f, 0x74, 0x00, 0x48, 0x8b, 0x0e], 0, Form::Load),
            // movzx ecx,word [rdi]; mov cl,1; ret
            (&[0x0f, 0xb7, 0x0f, 0xb1, 0x01, 0xc3], 0, Form::Load),
            // mov dword [rdi],5
            (&[0xc7, 0x07, 5, 0, 0, 0], 0, Form::Store(Some(5))),
            // xor eax,eax; mov [rdi],eax
            (&[0x31, 0xc0, 0x89, 0x07], 2, Form::Store(Some(0))),
            // mov [rdi],eax
            (&[0x89, 0x07], 0, Form::Store(None)),
            // or dword [rdi],4
            (&[0x83, 0x0f, 4], 0, Form::Bits(4)),
            // and dword [rdi],~4
            (&[0x83, 0x27, 0xfb], 0, Form::Bits(4)),
            // mov eax,[rdi]; test al,1; jz +0
            (&[0x8b, 0x07, 0xa8, 0x01, 0x74, 0x00], 0, Form::Test { bits: 1, polls: false }),
            // mov eax,[rdi]; test eax,eax; jz back
            (&[0x8b, 0x07, 0x85, 0xc0, 0x74, 0xfa], 0, Form::Test { bits: all, polls: true }),
            // sub eax,[rdi]
            (&[0x2b, 0x07], 0, Form::Load),
            // cmp dword [rdi],0; jne +0
            (&[0x83, 0x3f, 0, 0x75, 0], 0, Form::Test { bits: all, polls: false }),
        ] {
            assert_eq!(form_in(bytes, 0x1000, 0x1000 + at), form, "{bytes:x?}");
        }
    }

    #[test]
    fn reasons_hold_for_both_sides_alike() {
        let test = |bits, polls| Form::Test { bits, polls };
        for (a, b, why) in [
            (Form::Count, Form::Load, Some("statistics counter")),
            (Form::Count, test(1, false), None),
            (Form::Store(Some(1)), Form::Store(Some(1)), Some("same value written")),
            (Form::Store(Some(1)), Form::Store(Some(2)), None),
            (Form::Bits(2), test(1, false), Some("disjoint bits")),
            (Form::Bits(1), test(1, false), None),
            (Form::Bits(2), Form::Bits(1), None),
            (Form::Store(Some(1)), test(1, true), Some("flag polled in a loop")),
            (Form::Store(None), Form::Load, None),
            (Form::Store(None), Form::Dropped, Some(DROPPED)),
        ] {
            assert_eq!(reason(a, b, true), why, "{a:?} {b:?}");
            assert_eq!(reason(b, a, true), why, "{b:?} {a:?}");
        }
    }
}
