//! Computes how much of the stack a block takes, as far as its instructions say it.

use guardrail_client_api::Vcpu;
use guardrail_client_api::iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

/// Stack use of a block.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Decline {
    /// The lowest point below the stack pointer at the block's start, in bytes.
    pub bytes: u64,
    /// Indexes of instructions that take as many bytes as a register says.
    pub unknown: Vec<usize>,
}

/// Computes the stack use of a block.
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
            // After this, rsp has an unknown value; the next block sees it.
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

/// Bytes that the instruction at `pc` takes, from its register operand.
pub fn by_register(vcpu: &mut Vcpu, pc: u64) -> Option<u64> {
    let bytes = vcpu.read(pc, 8)?.to_vec();
    let insn = Decoder::with_ip(64, &bytes, pc, DecoderOptions::NONE).decode();
    let amount = match insn.op1_kind() {
        OpKind::Register => vcpu.register(insn.op1_register().full_register().number()),
        _ => return None,
    };
    // A larger value is negative: the stack pointer rises.
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
