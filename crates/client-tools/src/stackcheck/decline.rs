//! How much of the stack a block takes, as far as its instructions say it.

use guardrail_client_api::Vcpu;
use guardrail_client_api::iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

/// What a block takes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Decline {
    /// The most below the stack pointer at its begin, in bytes.
    pub bytes: u64,
    /// Instructions that take as much as a register says.
    pub unknown: Vec<usize>,
}

/// The decline of a block.
pub fn of(insns: &[Instruction]) -> Decline {
    let mut decline = Decline::default();
    let mut at = 0i64;
    for (index, insn) in insns.iter().enumerate() {
        let to_rsp = insn.op0_kind() == OpKind::Register && insn.op0_register() == Register::RSP;
        match insn.mnemonic() {
            Mnemonic::Sub if to_rsp && insn.op1_kind() == OpKind::Register => decline.unknown.push(index),
            Mnemonic::Sub if to_rsp => at -= insn.immediate(1) as i64,
            Mnemonic::Add if to_rsp && insn.op1_kind() != OpKind::Register => at += insn.immediate(1) as i64,
            Mnemonic::And if to_rsp && insn.op1_kind() != OpKind::Register => {
                at -= (insn.immediate(1) as i64).wrapping_neg().wrapping_sub(1).clamp(0, 4096);
            }
            Mnemonic::Lea
                if to_rsp && insn.memory_base() == Register::RSP && insn.memory_index() == Register::None =>
            {
                at += insn.memory_displacement64() as i64;
            }
            // From here on it is somewhere else, which the next block sees.
            Mnemonic::Mov | Mnemonic::Leave | Mnemonic::Xchg | Mnemonic::Pop
                if to_rsp || insn.mnemonic() == Mnemonic::Leave =>
            {
                break;
            }
            _ => at += i64::from(insn.stack_pointer_increment()),
        }
        decline.bytes = decline.bytes.max(at.saturating_neg().max(0) as u64);
    }
    decline
}

/// How much the instruction at `pc` takes, which says it by a register.
pub fn by_register(vcpu: &mut Vcpu, pc: u64) -> Option<u64> {
    let bytes = vcpu.read(pc, 8)?.to_vec();
    let insn = Decoder::with_ip(64, &bytes, pc, DecoderOptions::NONE).decode();
    let amount = match insn.op1_kind() {
        OpKind::Register => vcpu.register(insn.op1_register().full_register().number()),
        _ => return None,
    };
    // More is nonsense: then it goes up.
    (amount <= 1 << 20).then_some(amount)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decline(bytes: &[u8]) -> Decline {
        let insns: Vec<Instruction> =
            Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE).into_iter().collect();
        of(&insns)
    }

    #[test]
    fn what_goes_down_is_added_up() {
        // push rbp; push rbx; sub rsp, 0x20; call
        assert_eq!(decline(b"\x55\x53\x48\x83\xec\x20\xe8\0\0\0\0").bytes, 8 + 8 + 0x20 + 8);
        // add rsp, 0x20; pop rbx; ret
        assert_eq!(decline(b"\x48\x83\xc4\x20\x5b\xc3").bytes, 0);
        // pop rbx; push rbp
        assert_eq!(decline(b"\x5b\x55").bytes, 0);
        // lea rsp, [rsp-0x40]; and rsp, -16; push rax
        assert_eq!(decline(b"\x48\x8d\x64\x24\xc0\x48\x83\xe4\xf0\x50").bytes, 0x40 + 15 + 8);
    }

    #[test]
    fn registers_and_other_stacks_are_not_guessed() {
        // push rbp; sub rsp, rax; push rbx
        assert_eq!(decline(b"\x55\x48\x29\xc4\x53"), Decline { bytes: 16, unknown: vec![1] });
        // push rbp; mov rsp, rdi; push rbx
        assert_eq!(decline(b"\x55\x48\x89\xfc\x53").bytes, 8);
    }
}
