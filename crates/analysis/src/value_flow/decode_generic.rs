//! Translation of vector moves, and of instructions that have no rule of their own.

use super::insn::{Generic, Insn, Op, Opnd, RegUse, register};
use super::regs::flags;
use iced_x86::{EncodingKind, Instruction, Mnemonic, OpAccess, OpKind, Register};

/// The rule of a vector move, which keeps the definedness of each byte, or of a zeroing idiom. `None` for
/// other instructions.
pub(super) fn vector_rule(instr: &Instruction, insn: &mut Insn) -> Option<Op> {
    use Mnemonic as M;
    let vex = instr.code().encoding() != EncodingKind::Legacy;
    let masked = instr.op_mask() != Register::None;
    if masked {
        return None;
    }
    // A move to memory or a general-purpose register has the size of its destination. A move to a vector
    // register has the size of its source.
    let bytes = if matches!(insn.dst, Opnd::Vec(_)) { insn.size.min(insn.src_size) } else { insn.size };
    let to_vector = matches!(insn.dst, Opnd::Vec(_));
    let both = to_vector && matches!(insn.src, Opnd::Vec(_));
    Some(match instr.mnemonic() {
        M::Movdqa
        | M::Movdqu
        | M::Movaps
        | M::Movups
        | M::Movapd
        | M::Movupd
        | M::Movntdq
        | M::Movntps
        | M::Movntpd
        | M::Movntdqa
        | M::Lddqu => Op::VecMov(bytes, false),
        M::Vmovdqa
        | M::Vmovdqu
        | M::Vmovaps
        | M::Vmovups
        | M::Vmovapd
        | M::Vmovupd
        | M::Vmovntdq
        | M::Vmovntps
        | M::Vmovntdqa
        | M::Vmovdqa32
        | M::Vmovdqa64
        | M::Vmovdqu8
        | M::Vmovdqu16
        | M::Vmovdqu32
        | M::Vmovdqu64
        | M::Vlddqu => Op::VecMov(bytes, to_vector),
        M::Movd | M::Vmovd => Op::VecMov(4, to_vector),
        M::Movq | M::Vmovq => Op::VecMov(8, to_vector),
        M::Movss | M::Vmovss if instr.op_count() == 2 => Op::VecMov(4, to_vector && (!both || vex)),
        M::Movsd | M::Vmovsd if instr.op_count() == 2 => Op::VecMov(8, to_vector && (!both || vex)),
        _ => return None,
    })
}

fn is_zeroing(instr: &Instruction) -> bool {
    use Mnemonic::*;
    let xor_like = matches!(
        instr.mnemonic(),
        Pxor | Xorps
            | Xorpd
            | Vpxor
            | Vxorps
            | Vxorpd
            | Vpxord
            | Vpxorq
            | Pcmpeqb
            | Pcmpeqw
            | Pcmpeqd
            | Pcmpeqq
            | Vpcmpeqb
            | Vpcmpeqw
            | Vpcmpeqd
            | Vpcmpeqq
            | Psubb
            | Psubw
            | Psubd
            | Psubq
            | Vpsubb
            | Vpsubd
            | Vpsubq
            | Kxorb
            | Kxorw
            | Kxord
            | Kxorq
    );
    let n = instr.op_count();
    xor_like
        && n >= 2
        && instr.op_kind(n - 1) == OpKind::Register
        && instr.op_kind(n - 2) == OpKind::Register
        && instr.op_register(n - 1) == instr.op_register(n - 2)
}

/// The union of sources into destinations. This is the rule of vector arithmetic; other instructions with it
/// are counted as unknown.
pub(super) fn generic(instr: &Instruction, info: &iced_x86::InstructionInfo) -> Op {
    let mut generic = Generic {
        flags_read: flags(instr.rflags_read()),
        flags_written: flags(instr.rflags_modified()),
        zero: is_zeroing(instr),
        unknown: true,
        ..Generic::default()
    };
    if instr.is_vsib() || instr.cpuid_features().iter().any(|f| is_vector_feature(*f)) {
        generic.unknown = false;
    }
    for used in info.used_registers() {
        let (opnd, size) = register(used.register());
        if opnd == Opnd::None {
            continue;
        }
        if matches!(opnd, Opnd::Vec(_)) {
            generic.unknown = false;
        }
        let access = used.access();
        if matches!(
            access,
            OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        ) {
            generic.reads.push(RegUse { opnd, size, keep: false });
        }
        if matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        ) {
            let keep = matches!(access, OpAccess::CondWrite | OpAccess::ReadCondWrite);
            generic.writes.push(RegUse { opnd, size, keep });
        }
    }
    Op::Generic(Box::new(generic))
}

fn is_vector_feature(feature: iced_x86::CpuidFeature) -> bool {
    let name = format!("{feature:?}");
    ["SSE", "AVX", "MMX", "FPU", "AES", "PCLMUL", "SHA", "GFNI", "VAES", "VPCLMUL", "FMA", "F16C"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}
