//! Classifies a block's instructions by what the tracer needs: transfers out of the driver, bus locks,
//! ports.

use guardrail_plugin::block;
use guardrail_plugin::registers::{Flags, GS_BASE};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register, RflagsBits,
};

/// The target of a control transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// A fixed address.
    Direct(u64),
    /// The address in a general register, by hardware number.
    Register(u8),
    /// The address stored in memory, at the instruction's operand.
    Memory,
}

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Exit {
    /// It continues in the driver; the block's bytes say where.
    Stays,
    /// A call, with its return address.
    Call(Target, u64),
    /// A jump out of the driver, or through a register or memory.
    Jump(Target),
    /// A conditional jump to this address out of the driver.
    MaybeJump(u64),
    /// A return instruction.
    Return,
    /// A jump to a return thunk.
    ReturnThunk,
    /// A far transfer, `iret` and the like, whose target is unknown.
    Far,
}

/// What an instruction is, besides its memory accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// None of the others.
    None,
    /// A lock prefix, or an exchange with memory.
    Locked,
    /// A port access.
    Port {
        /// Bytes per access: 1, 2 or 4.
        size: u8,
        /// True for `out` and `outs`.
        out: bool,
        /// Number of the port; `None` where dx has it.
        port: Option<u8>,
        /// True for a repeated string instruction.
        rep: bool,
    },
    /// `rep movs`, `rep stos`, `rep lods`.
    Rep,
}

/// What the tracer knows about addresses when it looks at code.
pub trait Addresses {
    /// Whether the address belongs to a watched module.
    fn watched(&self, addr: u64) -> bool;
    /// Hardware number of the register that the indirect thunk at this address jumps through.
    fn indirect_thunk(&self, addr: u64) -> Option<u8>;
    /// Whether a return thunk begins at this address.
    fn return_thunk(&self, addr: u64) -> bool;
}

/// Decodes a block's bytes; undecodable bytes end it early.
pub fn decode(address: u64, bytes: &[u8]) -> Vec<Instruction> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut insns = Vec::new();
    while decoder.can_decode() {
        let insn = decoder.decode();
        if insn.is_invalid() {
            break;
        }
        insns.push(insn);
    }
    insns
}

/// How a block with this last instruction ends.
pub fn exit(insn: &Instruction, addresses: &impl Addresses) -> Exit {
    let target = || match insn.op0_kind() {
        OpKind::NearBranch64 => addresses
            .indirect_thunk(insn.near_branch_target())
            .map_or(Target::Direct(insn.near_branch_target()), Target::Register),
        OpKind::Register => Target::Register(insn.op0_register().number() as u8),
        _ => Target::Memory,
    };
    match insn.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall
            if matches!(insn.mnemonic(), Mnemonic::Call) && !insn.is_call_far_indirect() =>
        {
            match target() {
                Target::Direct(to) if addresses.watched(to) => Exit::Stays,
                target => Exit::Call(target, insn.next_ip()),
            }
        }
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
            if matches!(insn.mnemonic(), Mnemonic::Jmp) && !insn.is_jmp_far_indirect() =>
        {
            match target() {
                Target::Direct(to) if addresses.return_thunk(to) => Exit::ReturnThunk,
                Target::Direct(to) if addresses.watched(to) => Exit::Stays,
                target => Exit::Jump(target),
            }
        }
        FlowControl::ConditionalBranch if insn.op0_kind() == OpKind::NearBranch64 => {
            let to = insn.near_branch_target();
            if addresses.watched(to) { Exit::Stays } else { Exit::MaybeJump(to) }
        }
        FlowControl::Return => {
            if insn.mnemonic() == Mnemonic::Ret {
                Exit::Return
            } else {
                Exit::Far
            }
        }
        FlowControl::Call | FlowControl::IndirectCall if insn.mnemonic() == Mnemonic::Call => Exit::Far,
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => Exit::Far,
        // The kernel returns from traps and system calls through a discontinuity, if at all.
        _ => Exit::Stays,
    }
}

/// Whether this is a near return, or a jump to a return thunk.
pub fn is_return(insn: &Instruction, addresses: &impl Addresses) -> bool {
    block::is_return(insn, |addr| addresses.return_thunk(addr))
}

/// The address after the block's last instruction, if the driver may resume there.
pub fn resume_site(insn: &Instruction, exit: Exit) -> Option<u64> {
    (insn.mnemonic() == Mnemonic::Call || matches!(exit, Exit::MaybeJump(_))).then(|| insn.next_ip())
}

/// Classifies an instruction that locks the bus, accesses ports or repeats.
pub fn special(insn: &Instruction) -> Special {
    let rep = insn.has_rep_prefix() || insn.has_repne_prefix();
    let port = |size, out| Special::Port { size, out, port: None, rep };
    let memory = (0..insn.op_count()).any(|i| insn.op_kind(i) == OpKind::Memory);
    match insn.mnemonic() {
        Mnemonic::In | Mnemonic::Out => {
            let out = insn.mnemonic() == Mnemonic::Out;
            let (data, port) = if out { (1, 0) } else { (0, 1) };
            let port = (insn.op_kind(port) == OpKind::Immediate8).then(|| insn.immediate8());
            Special::Port { size: insn.op_register(data).size() as u8, out, port, rep: false }
        }
        Mnemonic::Insb => port(1, false),
        Mnemonic::Insw => port(2, false),
        Mnemonic::Insd => port(4, false),
        Mnemonic::Outsb => port(1, true),
        Mnemonic::Outsw => port(2, true),
        Mnemonic::Outsd if insn.is_string_instruction() => port(4, true),
        Mnemonic::Movsb
        | Mnemonic::Movsw
        | Mnemonic::Movsd
        | Mnemonic::Movsq
        | Mnemonic::Stosb
        | Mnemonic::Stosw
        | Mnemonic::Stosd
        | Mnemonic::Stosq
        | Mnemonic::Lodsb
        | Mnemonic::Lodsw
        | Mnemonic::Lodsd
        | Mnemonic::Lodsq
            if rep && insn.is_string_instruction() =>
        {
            Special::Rep
        }
        Mnemonic::Xchg if memory => Special::Locked,
        _ if insn.has_lock_prefix() => Special::Locked,
        _ => Special::None,
    }
}

/// Whether the instruction accesses memory through rsp only.
pub fn only_stack(insn: &Instruction) -> bool {
    let through_rsp = |kind| match kind {
        OpKind::Memory => insn.memory_base() == Register::RSP && insn.segment_prefix() == Register::None,
        OpKind::Register
        | OpKind::NearBranch64
        | OpKind::Immediate8
        | OpKind::Immediate8to32
        | OpKind::Immediate8to64
        | OpKind::Immediate32
        | OpKind::Immediate32to64 => true,
        _ => false,
    };
    (0..insn.op_count()).all(|i| through_rsp(insn.op_kind(i)))
}

/// Computes the address of the memory operand from the values of registers, by hardware number or
/// [`GS_BASE`].
pub fn operand_address(insn: &Instruction, mut register: impl FnMut(usize) -> u64) -> u64 {
    let mut value = |reg: Register| match reg {
        Register::None => 0,
        // The decoder has already added rip to the displacement.
        Register::RIP | Register::EIP => 0,
        reg => register(reg.number()),
    };
    let base = value(insn.memory_base());
    let index = value(insn.memory_index()).wrapping_mul(u64::from(insn.memory_index_scale()));
    let segment = if insn.segment_prefix() == Register::GS { register(GS_BASE) } else { 0 };
    segment.wrapping_add(base).wrapping_add(index).wrapping_add(insn.memory_displacement64())
}

/// The memory that an instruction reads or writes, independent of register values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Length in bytes, at most 128.
    pub size: u8,
    /// True where the instruction writes it.
    pub store: bool,
    /// The register that points to the operand of a string instruction.
    pointer: Option<u8>,
}

impl Operand {
    /// Computes its address from the values of registers, as [`operand_address`] does.
    pub fn address(self, insn: &Instruction, mut register: impl FnMut(usize) -> u64) -> Option<u64> {
        match self.pointer {
            Some(pointer) => Some(register(usize::from(pointer))),
            None if insn.segment_prefix() == Register::FS => None,
            None => Some(operand_address(insn, register)),
        }
    }
}

/// The memory operand of an instruction, if it accesses one. Of the two operands of a string
/// instruction, this is the written one.
pub fn operand(insn: &Instruction) -> Option<Operand> {
    let mut info = InstructionInfoFactory::new();
    let info = info.info(insn);
    let size = insn.memory_size().size().min(128) as u8;
    let operand = |i: u32| {
        let store = match info.op_access(i) {
            OpAccess::None | OpAccess::NoMemAccess => return None,
            access => !matches!(access, OpAccess::Read | OpAccess::CondRead),
        };
        let pointer = match insn.op_kind(i) {
            OpKind::Memory => None,
            OpKind::MemoryESRDI => Some(Register::RDI.number() as u8),
            OpKind::MemorySegRSI => Some(Register::RSI.number() as u8),
            _ => return None,
        };
        Some(Operand { size, store, pointer })
    };
    (0..insn.op_count())
        .filter_map(operand)
        .max_by_key(|operand| operand.store)
        .filter(|operand| operand.size > 0)
}

/// State of the flags before the instruction with index `at` of a block.
pub fn flags(insns: &[Instruction], at: usize) -> Flags {
    let touches = |insn: &Instruction| insn.rflags_modified() != 0 || insn.rflags_read() != 0;
    if !insns[..at].iter().any(touches) {
        return Flags::Untouched;
    }
    if dead(&insns[at..]) { Flags::Dead } else { Flags::Live }
}

/// Whether no instruction needs the flags as they are before the first of these.
fn dead(insns: &[Instruction]) -> bool {
    let mut live =
        RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::AF | RflagsBits::CF | RflagsBits::PF;
    for insn in insns {
        if insn.rflags_read() & live != 0 {
            return false;
        }
        // Shifts by a register and repeated comparisons keep the flags when their count is zero.
        let conditional =
            insn.op_count() > 1 && insn.op1_kind() == OpKind::Register && insn.op1_register() == Register::CL
                || insn.op_count() > 2
                    && insn.op2_kind() == OpKind::Register
                    && insn.op2_register() == Register::CL
                || insn.has_rep_prefix()
                || insn.has_repne_prefix();
        if !conditional {
            live &= !insn.rflags_modified();
        }
        if live == 0 {
            return true;
        }
    }
    // Functions pass no flags.
    insns.last().is_some_and(|last| matches!(last.mnemonic(), Mnemonic::Call | Mnemonic::Ret))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: u64 = 0xffff_ffff_c000_1000;
    const RETURN_THUNK: u64 = HERE + 0x10_0000;
    const RAX_THUNK: u64 = HERE + 0x20_0000;

    struct Driver;
    impl Addresses for Driver {
        fn watched(&self, addr: u64) -> bool {
            (HERE - 0x1000..HERE + 0x1000).contains(&addr)
        }
        fn indirect_thunk(&self, addr: u64) -> Option<u8> {
            (addr == RAX_THUNK).then_some(0)
        }
        fn return_thunk(&self, addr: u64) -> bool {
            addr == RETURN_THUNK
        }
    }

    fn one(bytes: &[u8]) -> Instruction {
        let insns = decode(HERE, bytes);
        assert_eq!(insns.len(), 1, "{bytes:x?}");
        insns[0]
    }

    fn near(opcode: u8, to: u64) -> Vec<u8> {
        let mut bytes = vec![opcode];
        bytes.extend_from_slice(&((to.wrapping_sub(HERE + 5)) as u32).to_le_bytes());
        bytes
    }

    #[test]
    fn exits_of_a_block() {
        let out = HERE + 0x30_0000;
        for (bytes, expected) in [
            (near(0xe8, HERE + 0x20), Exit::Stays),
            (near(0xe9, HERE + 0x20), Exit::Stays),
            (near(0xe8, out), Exit::Call(Target::Direct(out), HERE + 5)),
            (near(0xe9, out), Exit::Jump(Target::Direct(out))),
            (near(0xe9, RETURN_THUNK), Exit::ReturnThunk),
            (near(0xe8, RAX_THUNK), Exit::Call(Target::Register(0), HERE + 5)),
            (near(0xe9, RAX_THUNK), Exit::Jump(Target::Register(0))),
            (vec![0xc3], Exit::Return),
            (vec![0xc2, 8, 0], Exit::Return),
            (vec![0x48, 0xcf], Exit::Far),
            (vec![0x41, 0xff, 0xd3], Exit::Call(Target::Register(11), HERE + 3)),
            (vec![0xff, 0xe0], Exit::Jump(Target::Register(0))),
            (vec![0xff, 0x50, 0x10], Exit::Call(Target::Memory, HERE + 3)),
            (vec![0xff, 0x24, 0xc5, 0, 0x10, 0, 0xc0], Exit::Jump(Target::Memory)),
            (vec![0x74, 0x10], Exit::Stays),
            (vec![0x0f, 0x84, 0, 0, 0x40, 0], Exit::MaybeJump(HERE + 0x40_0006)),
            (vec![0x0f, 0x0b], Exit::Stays),
            (vec![0x90], Exit::Stays),
        ] {
            assert_eq!(exit(&one(&bytes), &Driver), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn returns_of_kernel_functions() {
        assert!(is_return(&one(&[0xc3]), &Driver));
        assert!(is_return(&one(&near(0xe9, RETURN_THUNK)), &Driver));
        assert!(!is_return(&one(&near(0xe9, HERE)), &Driver));
        assert!(!is_return(&one(&[0xff, 0xe0]), &Driver));
    }

    #[test]
    fn special_instructions() {
        for (bytes, expected) in [
            (&[0xf0, 0x48, 0x0f, 0xb1, 0x0f][..], Special::Locked),
            (&[0x87, 0x07], Special::Locked),
            (&[0x87, 0xc3], Special::None),
            (&[0xec], Special::Port { size: 1, out: false, port: None, rep: false }),
            (&[0x66, 0xef], Special::Port { size: 2, out: true, port: None, rep: false }),
            (&[0xe7, 0x70], Special::Port { size: 4, out: true, port: Some(0x70), rep: false }),
            (&[0xf3, 0x6d], Special::Port { size: 4, out: false, port: None, rep: true }),
            (&[0xf3, 0x48, 0xab], Special::Rep),
            (&[0xf3, 0xa4], Special::Rep),
            (&[0xa4], Special::None),
            (&[0xf2, 0xae], Special::None),
            (&[0xf3, 0xc3], Special::None),
            (&[0xf2, 0x0f, 0x10, 0x07], Special::None),
        ] {
            assert_eq!(special(&one(bytes)), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn accesses_to_the_stack() {
        // push rax; pop rbx; ret; call; mov [rsp+8], rax; mov eax, [rsp+rcx*4]; add qword [rsp], 1
        for bytes in [
            &[0x50][..],
            &[0x5b],
            &[0xc3],
            &near(0xe8, HERE + 0x20),
            &[0x48, 0x89, 0x44, 0x24, 0x08],
            &[0x8b, 0x04, 0x8c],
            &[0x48, 0x83, 0x04, 0x24, 0x01],
        ] {
            assert!(only_stack(&one(bytes)), "{bytes:x?}");
        }
        // push [rdi]; call [rax+0x10]; mov [rdi], al; movsb; mov rax, gs:[rsp]; mov eax, [moffs]
        for bytes in [
            &[0xff, 0x37][..],
            &[0xff, 0x50, 0x10],
            &[0x88, 0x07],
            &[0xa4],
            &[0x65, 0x48, 0x8b, 0x04, 0x24],
            &[0xa1, 0, 0, 0, 0, 0, 0, 0, 0x80],
        ] {
            assert!(!only_stack(&one(bytes)), "{bytes:x?}");
        }
    }

    #[test]
    fn addresses_of_memory_operands() {
        // call [rax + rcx*8 + 0x10]
        let insn = one(&[0xff, 0x54, 0xc8, 0x10]);
        assert_eq!(operand_address(&insn, |r| [0x1000, 2][r]), 0x1020);
        // call [rip + 0x100]
        let insn = one(&[0xff, 0x15, 0, 1, 0, 0]);
        assert_eq!(operand_address(&insn, |_| unreachable!()), HERE + 0x106);
        // jmp gs:[rdx]
        let insn = one(&[0x65, 0xff, 0x22]);
        assert_eq!(operand_address(&insn, |r| if r == GS_BASE { 0x7000 } else { 0x10 * r as u64 }), 0x7020);
    }

    #[test]
    fn memory_operands() {
        for (bytes, expected) in [
            // add [rdi], rax; mov eax, [rdi]; mov [rdi], al; cmp word [rdi], 1
            (&[0x48, 0x01, 0x07][..], Some((8, true))),
            (&[0x8b, 0x07], Some((4, false))),
            (&[0x88, 0x07], Some((1, true))),
            (&[0x66, 0x83, 0x3f, 1], Some((2, false))),
            // lea, a nop with an operand, ret
            (&[0x48, 0x8d, 0x07], None),
            (&[0x0f, 0x1f, 0x00], None),
            (&[0xc3], None),
            // movsq, lodsb
            (&[0x48, 0xa5], Some((8, true))),
            (&[0xac], Some((1, false))),
        ] {
            let found = operand(&one(bytes)).map(|operand| (operand.size, operand.store));
            assert_eq!(found, expected, "{bytes:x?}");
        }
        let copy = one(&[0x48, 0xa5]);
        assert_eq!(operand(&copy).unwrap().address(&copy, |r| r as u64), Some(7));
    }

    #[test]
    fn blocks_can_begin_anew_where_no_flags_are_needed() {
        let all = |bytes: &[u8]| decode(HERE, bytes);
        // mov eax, [rdi]; add eax, 1; mov [rdi], eax
        let block = all(&[0x8b, 0x07, 0x83, 0xc0, 1, 0x89, 0x07, 0x74, 0]);
        assert_eq!((flags(&block, 0), flags(&block, 1)), (Flags::Untouched, Flags::Untouched));
        // The conditional jump needs the flags of the addition.
        assert_eq!(flags(&block, 2), Flags::Live);
        // cmp eax, 1; mov [rdi], eax; add eax, 1; je
        assert_eq!(flags(&all(&[0x83, 0xf8, 1, 0x89, 0x07, 0x83, 0xc0, 1, 0x74, 0]), 1), Flags::Dead);
        // cmp eax, 1; mov [rdi], eax; shl eax, cl; je
        assert_eq!(flags(&all(&[0x83, 0xf8, 1, 0x89, 0x07, 0xd3, 0xe0, 0x74, 0]), 1), Flags::Live);
        // cmp eax, 1; mov [rdi], eax; ret
        assert_eq!(flags(&all(&[0x83, 0xf8, 1, 0x89, 0x07, 0xc3]), 1), Flags::Dead);
        // cmp eax, 1; mov [rdi], eax; jmp
        assert_eq!(flags(&all(&[0x83, 0xf8, 1, 0x89, 0x07, 0xeb, 0]), 1), Flags::Live);
    }

    #[test]
    fn undecodable_bytes_end_the_block() {
        assert_eq!(decode(HERE, &[0x90, 0x06, 0x90]).len(), 1);
    }
}
