//! Pushes that only make room on the stack.
//!
//! A compiler that saves space makes room for a variable with the push of some register, which is shorter than
//! `sub rsp, 8`. The value that it pushes means nothing, so the slot holds nothing yet.
//!
//! Other pushes save a register, pass an argument on the stack, or store a parameter whose address is taken.
//! The whole function decides which it is; where that leaves a doubt, a push counts as a store.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};
use rustc_hash::FxHashSet;

/// Most instructions that are looked at for one push.
const MAX_INSNS: usize = 1 << 14;
const SLOT: i64 = 8;

/// The function that is looked at.
struct Code<'a> {
    bytes: &'a [u8],
    start: u64,
}

/// What is known before an instruction. Offsets are from rsp at the function's entry.
#[derive(Clone, Copy)]
struct At {
    ip: u64,
    rsp: i64,
    /// Where rbp points, as a frame pointer.
    rbp: Option<i64>,
    /// The pushed register still has the value that was pushed.
    kept: bool,
}

/// A push at the beginning of a function, of a register that the function has not written.
struct Push {
    ip: u64,
    register: Register,
    /// Offset of the slot.
    slot: i64,
    after: At,
}

/// The addresses of the pushes in a function that only make room. `bytes` are its code, which begins at `start`
/// and may lack relocations.
pub fn rooms(bytes: &[u8], start: u64) -> Vec<u64> {
    let code = Code { bytes, start };
    let mut factory = InstructionInfoFactory::new();
    let pushes = code.first_pushes(&mut factory);
    pushes.iter().filter(|push| code.makes_room(push, &mut factory)).map(|push| push.ip).collect()
}

/// Whether a function may use a register without a word to its caller.
fn is_scratch(register: Register) -> bool {
    use Register::{R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI};
    matches!(register, RAX | RCX | RDX | RSI | RDI | R8 | R9 | R10 | R11)
}

/// Whether a function may find a parameter in a scratch register.
fn is_parameter(register: Register) -> bool {
    !matches!(register, Register::RAX | Register::R10 | Register::R11)
}

impl Code<'_> {
    fn decode(&self, ip: u64) -> Option<Instruction> {
        let rest = self.bytes.get(usize::try_from(ip.checked_sub(self.start)?).ok()?..)?;
        let mut decoder = Decoder::with_ip(64, rest, ip, DecoderOptions::NONE);
        let insn = decoder.can_decode().then(|| decoder.decode())?;
        (!insn.is_invalid()).then_some(insn)
    }

    /// The pushes of scratch registers before the function's first branch that could be about room.
    fn first_pushes(&self, factory: &mut InstructionInfoFactory) -> Vec<Push> {
        let mut written = FxHashSet::default();
        let mut found = Vec::new();
        let mut at = At { ip: self.start, rsp: 0, rbp: None, kept: true };
        let mut begun = false;
        while let Some(insn) = self.decode(at.ip) {
            let is_nop = matches!(insn.mnemonic(), Mnemonic::Endbr64 | Mnemonic::Nop);
            // The call of `__fentry__` keeps all registers.
            let is_hook = !begun && insn.flow_control() == FlowControl::Call;
            if insn.flow_control() != FlowControl::Next && !is_hook {
                break;
            }
            begun |= !is_nop;
            let Some(next) = step(&insn, at, factory) else { break };
            at = At { kept: true, ..next };
            if insn.mnemonic() == Mnemonic::Push
                && is_scratch(insn.op0_register())
                && !written.contains(&insn.op0_register())
            {
                let register = insn.op0_register();
                found.push(Push { ip: insn.ip(), register, slot: at.rsp, after: at });
            }
            let used = factory.info(&insn).used_registers();
            written.extend(used.iter().filter(|u| writes(u.access())).map(|u| u.register().full_register()));
        }
        found
    }

    /// Whether the function uses the slot as a variable that the push has not written.
    fn makes_room(&self, push: &Push, factory: &mut InstructionInfoFactory) -> bool {
        let mut seen = FxHashSet::default();
        let mut left = vec![push.after];
        let mut uses = false;
        while let Some(at) = left.pop() {
            // Behind the slot's end its place may be used for something else.
            if at.rsp > push.slot || !seen.insert(at.ip) {
                continue;
            }
            let Some(insn) = self.decode(at.ip).filter(|_| seen.len() < MAX_INSNS) else { continue };
            let again = insn.mnemonic() == Mnemonic::Push && insn.op0_register() == push.register;
            let used = factory.info(&insn).used_registers();
            if at.kept
                && !again
                && used.iter().any(|u| reads(u.access()) && u.register().full_register() == push.register)
            {
                return false;
            }
            if let Some(offset) = slot_offset(&insn, at, push.slot) {
                // A parameter begins where its slot does.
                if offset <= 0 && is_parameter(push.register) {
                    return false;
                }
                uses = true;
            }
            let kept = at.kept
                && !used.iter().any(|u| writes(u.access()) && u.register().full_register() == push.register);
            let Some(next) = step(&insn, At { kept, ..at }, factory) else { continue };
            match insn.flow_control() {
                FlowControl::Next | FlowControl::Interrupt => left.push(next),
                FlowControl::Call | FlowControl::IndirectCall => left.push(At { kept: false, ..next }),
                FlowControl::UnconditionalBranch => left.push(At { ip: insn.near_branch_target(), ..next }),
                FlowControl::ConditionalBranch => {
                    left.extend([At { ip: insn.near_branch_target(), ..next }, next]);
                }
                _ => {}
            }
        }
        uses
    }
}

fn reads(access: OpAccess) -> bool {
    use OpAccess::{CondRead, Read, ReadCondWrite, ReadWrite};
    matches!(access, Read | CondRead | ReadWrite | ReadCondWrite)
}

fn writes(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

/// What is known behind an instruction, in the order of the code; `None` where the stack pointer is not.
fn step(insn: &Instruction, at: At, factory: &mut InstructionInfoFactory) -> Option<At> {
    let mut next = At { ip: insn.next_ip(), ..at };
    let is_call = matches!(insn.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
    let used = factory.info(insn).used_registers();
    let written =
        |register| used.iter().any(|u| writes(u.access()) && u.register().full_register() == register);
    if is_call || !written(Register::RSP) {
        // The callee gives the stack back.
    } else if matches!(insn.mnemonic(), Mnemonic::Push | Mnemonic::Pop | Mnemonic::Pushfq | Mnemonic::Popfq) {
        next.rsp = at.rsp.checked_add(i64::from(insn.stack_pointer_increment()))?;
    } else if insn.op0_register() == Register::RSP {
        let by = insn.try_immediate(1).ok().map(|by| by as i64);
        next.rsp = match (insn.mnemonic(), by) {
            (Mnemonic::Sub, Some(by)) => at.rsp.checked_sub(by)?,
            (Mnemonic::Add, Some(by)) => at.rsp.checked_add(by)?,
            _ => return None,
        };
    } else {
        return None;
    }
    if written(Register::RBP) {
        let frame = insn.mnemonic() == Mnemonic::Mov && insn.op1_register() == Register::RSP;
        next.rbp = frame.then_some(at.rsp);
    }
    Some(next)
}

/// Where an instruction names bytes of the slot: the offset in it of the first one, less than 0 for one before
/// it. `None` where it names none.
fn slot_offset(insn: &Instruction, at: At, slot: i64) -> Option<i64> {
    let is_copy = insn.mnemonic() == Mnemonic::Mov
        && insn.op_count() == 2
        && insn.op1_kind() == OpKind::Register
        && insn.op1_register() == Register::RSP;
    // As a frame pointer, rbp names no variable.
    if is_copy && insn.op0_register() != Register::RBP {
        return (at.rsp == slot).then_some(0);
    }
    if !(0..insn.op_count()).any(|i| insn.op_kind(i) == OpKind::Memory) {
        return None;
    }
    let base = match insn.memory_base() {
        Register::RSP => at.rsp,
        Register::RBP => at.rbp?,
        _ => return None,
    };
    let offset = base.checked_add(insn.memory_displacement64() as i64)?.checked_sub(slot)?;
    let size = if insn.mnemonic() == Mnemonic::Lea { 1 } else { insn.memory_size().size().max(1) as i64 };
    (offset < SLOT && offset.checked_add(size)? > 0).then_some(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;
    /// call __fentry__, without its relocation
    const FENTRY: &[u8] = &[0xe8, 0, 0, 0, 0];
    const PUSH_RDX: &[u8] = &[0x52];
    const PUSH_RAX: &[u8] = &[0x50];
    /// mov eax, [rsp+4]
    const READ_UPPER: &[u8] = &[0x8b, 0x44, 0x24, 0x04];
    /// mov dword [rsp+4], 1
    const WRITE_UPPER: &[u8] = &[0xc7, 0x44, 0x24, 0x04, 1, 0, 0, 0];
    /// mov rdi, rsp
    const GIVE: &[u8] = &[0x48, 0x89, 0xe7];
    const CALL: &[u8] = &[0xe8, 0, 0, 0, 0];
    const POP_RAX: &[u8] = &[0x58];
    const RET: &[u8] = &[0xc3];

    /// The offsets of the pushes that make room, in the code of a function that begins with the call of `__fentry__`.
    fn found(parts: &[&[u8]]) -> Vec<u64> {
        let code = [FENTRY, &parts.concat()].concat();
        rooms(&code, START).into_iter().map(|at| at - START).collect()
    }

    #[test]
    fn a_variable_that_is_a_part_of_the_slot() {
        assert_eq!(found(&[PUSH_RDX, READ_UPPER, POP_RAX, RET]), [5]);
        assert_eq!(found(&[PUSH_RDX, WRITE_UPPER, READ_UPPER, CALL, POP_RAX, RET]), [5]);
    }

    #[test]
    fn a_register_that_holds_no_parameter() {
        assert_eq!(found(&[PUSH_RAX, GIVE, CALL, POP_RAX, RET]), [5]);
        // push rbx; push rax; mov rbx, rdi; lea rsi, [rsp]
        assert_eq!(found(&[&[0x53], PUSH_RAX, &[0x48, 0x89, 0xfb, 0x48, 0x8d, 0x34, 0x24], CALL, RET]), [6]);
    }

    #[test]
    fn a_variable_that_is_used_behind_a_branch_and_a_call() {
        // test edi, edi; je +5 (over the call)
        assert_eq!(found(&[PUSH_RDX, &[0x85, 0xff, 0x74, 5], CALL, READ_UPPER, POP_RAX, RET]), [5]);
    }

    #[test]
    fn a_variable_below_a_frame_pointer() {
        // push rbp; mov rbp, rsp; push rdx; mov dword [rbp-4], 1
        let code: &[u8] = &[0x55, 0x48, 0x89, 0xe5, 0x52, 0xc7, 0x45, 0xfc, 1, 0, 0, 0];
        assert_eq!(found(&[code, RET]), [9]);
    }

    #[test]
    fn saved_registers_make_no_room() {
        // push rbx, rbp, r12 .. r15
        for push in [&[0x53][..], &[0x55], &[0x41, 0x54], &[0x41, 0x55], &[0x41, 0x56], &[0x41, 0x57]] {
            assert_eq!(found(&[push, READ_UPPER, RET]), [0; 0]);
        }
    }

    #[test]
    fn arguments_on_the_stack_make_no_room() {
        assert_eq!(found(&[PUSH_RDX, CALL, POP_RAX, RET]), [0; 0]);
        assert_eq!(found(&[PUSH_RAX, CALL, POP_RAX, RET]), [0; 0]);
        // Once the argument is gone, its place is used for a variable: sub rsp, 8
        assert_eq!(found(&[PUSH_RDX, CALL, POP_RAX, &[0x48, 0x83, 0xec, 8], READ_UPPER, RET]), [0; 0]);
    }

    #[test]
    fn parameters_that_are_stored_make_no_room() {
        assert_eq!(found(&[PUSH_RDX, GIVE, CALL, POP_RAX, RET]), [0; 0]);
        assert_eq!(found(&[PUSH_RDX, READ_UPPER, GIVE, CALL, RET]), [0; 0]);
        // push rdi; mov rdi, [rsp]
        assert_eq!(found(&[&[0x57, 0x48, 0x8b, 0x3c, 0x24], RET]), [0; 0]);
        // mov eax, edx, while the register still holds the parameter
        assert_eq!(found(&[PUSH_RDX, &[0x89, 0xd0], READ_UPPER, RET]), [0; 0]);
    }

    #[test]
    fn written_registers_make_no_room() {
        // mov edx, esi; push rdx
        assert_eq!(found(&[&[0x89, 0xf2], PUSH_RDX, READ_UPPER, RET]), [0; 0]);
        // xor eax, eax; push rax
        assert_eq!(found(&[&[0x31, 0xc0], PUSH_RAX, GIVE, CALL, RET]), [0; 0]);
        // behind a call, which writes them all
        assert_eq!(found(&[&[0x90], CALL, PUSH_RAX, READ_UPPER, RET]), [0; 0]);
    }

    #[test]
    fn any_bytes_are_looked_at() {
        for seed in 0..2000u64 {
            let bytes: Vec<u8> = (0..64)
                .map(|i| (seed * 64 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7])
                .collect();
            rooms(&bytes, u64::MAX - 32);
            rooms(&[PUSH_RDX, &bytes].concat(), START);
        }
    }
}
