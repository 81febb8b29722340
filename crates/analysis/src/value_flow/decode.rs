//! Translation of decoded instructions into [`Insn`]s.

use super::decode_generic::{generic, vector_rule};
use super::insn::{BitOp, Block, Insn, Logic, MemRef, NO_REG, Op, Opnd, Quick, Shift, Str, register};
use super::pointer::{Flow, Uses};
use super::regs::{Flags, flags};
use super::{AccessKind, Control};
use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

impl Block {
    /// Decodes `bytes`, which begin at `addr`. Stops at the first bytes that are no instruction.
    pub fn decode(addr: u64, bytes: &[u8]) -> Block {
        let mut decoder = Decoder::with_ip(64, bytes, addr, DecoderOptions::NONE);
        let mut factory = InstructionInfoFactory::new();
        let mut block = Block { addr, insns: Vec::new(), len: 0 };
        let mut instr = Instruction::default();
        while decoder.can_decode() && block.insns.len() < usize::from(u16::MAX) {
            decoder.decode_out(&mut instr);
            if instr.is_invalid() {
                break;
            }
            block.insns.push(translate(&instr, block.insns.len() as u16, &mut factory));
            block.len += instr.len() as u32;
        }
        block
    }

    /// Lets the pushes at the addresses for which `is` holds only make room on the stack: what they push counts
    /// as nothing.
    pub fn make_room(&mut self, is: impl Fn(u64) -> bool) {
        for insn in &mut self.insns {
            if matches!(insn.op, Op::Push) && is(insn.addr) {
                insn.op = Op::Room;
                insn.uses.flow = Flow::Other;
            }
        }
    }
}

/// The place of operand `i`, and its size in bytes.
fn operand(instr: &Instruction, i: u32) -> (Opnd, u8) {
    if i >= instr.op_count() {
        return (Opnd::None, 0);
    }
    match instr.op_kind(i) {
        OpKind::Register => register(instr.op_register(i)),
        OpKind::Memory => (Opnd::Mem, instr.memory_size().size().min(64) as u8),
        _ if instr.try_immediate(i).is_ok() => (Opnd::Imm, 8),
        _ => (Opnd::None, 0),
    }
}

fn address(instr: &Instruction) -> MemRef {
    let number = |reg: Register| if reg.is_gpr() { reg.full_register().number() as u8 } else { NO_REG };
    MemRef {
        base: number(instr.memory_base()),
        index: number(instr.memory_index()),
        scale: instr.memory_index_scale() as u8,
        segment: matches!(instr.memory_segment(), Register::GS | Register::FS),
        disp: instr.memory_displacement64(),
    }
}

fn translate(instr: &Instruction, index: u16, factory: &mut InstructionInfoFactory) -> Insn {
    let has_memory = (0..instr.op_count()).any(|i| instr.op_kind(i) == OpKind::Memory);
    let (dst, size) = operand(instr, 0);
    let (src, src_size) = operand(instr, 1);
    let mut insn = Insn {
        addr: instr.ip(),
        index,
        len: instr.len() as u8,
        size,
        src_size,
        needs_access: false,
        op: Op::Nop,
        dst,
        src,
        src2: operand(instr, 2).0,
        imm: 0,
        mem: if has_memory { address(instr) } else { MemRef::NONE },
        mnemonic: instr.mnemonic(),
        access: AccessKind::default(),
        control: None,
        uses: Uses::default(),
        quick: Quick::Never,
    };
    if let Some(i) = (0..instr.op_count()).find(|&i| operand(instr, i).0 == Opnd::Imm) {
        insn.imm = instr.immediate(i);
    }
    let info = factory.info(instr);
    insn.needs_access = info.used_memory().iter().any(|m| {
        matches!(m.access(), OpAccess::Read | OpAccess::Write | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
    });
    insn.access = AccessKind {
        locked: instr.has_lock_prefix() || instr.mnemonic() == Mnemonic::Xchg && has_memory,
        per_cpu: has_memory && instr.memory_segment() == Register::GS,
        updates: info
            .used_memory()
            .iter()
            .any(|m| matches!(m.access(), OpAccess::ReadWrite | OpAccess::ReadCondWrite)),
        bit: if insn.dst == Opnd::Mem { bit(instr, &insn) } else { None },
    };
    insn.control = control(instr, &insn);
    match rule(instr, &mut insn) {
        Some(op) => insn.op = op,
        None => insn.op = generic(instr, info),
    }
    insn.uses = Uses::of(&insn, instr, info);
    match insn.op {
        Op::Nop | Op::Lea => insn.needs_access = false,
        Op::Cmov(_) => insn.needs_access = has_memory,
        Op::RepCompare(_) | Op::Rep(_) => insn.needs_access = false,
        _ => {}
    }
    insn.quick = Quick::of(&insn);
    insn
}

/// The bit of an operand in memory that the instruction is about; `None` where no constant selects one bit.
fn bit(instr: &Instruction, insn: &Insn) -> Option<u8> {
    if insn.src != Opnd::Imm || !(1..=8).contains(&insn.size) {
        return None;
    }
    let width = u32::from(insn.size) * 8;
    let all = u64::MAX >> (64 - width);
    let single = |bits: u64| (bits & all).is_power_of_two().then(|| (bits & all).trailing_zeros() as u8);
    match instr.mnemonic() {
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc => {
            Some((insn.imm as u32 & (width - 1)) as u8)
        }
        Mnemonic::Or | Mnemonic::Xor | Mnemonic::Test => single(insn.imm),
        Mnemonic::And => single(!insn.imm),
        _ => None,
    }
}

/// How the instruction changes what may interrupt the processor; `None` where it does not.
fn control(instr: &Instruction, insn: &Insn) -> Option<Control> {
    let delta = match instr.mnemonic() {
        Mnemonic::Cli => return Some(Control::Cli),
        Mnemonic::Sti => return Some(Control::Sti),
        Mnemonic::Pushf | Mnemonic::Pushfq => return Some(Control::Pushf),
        Mnemonic::Popf | Mnemonic::Popfq => return Some(Control::Popf),
        Mnemonic::Inc => 1,
        Mnemonic::Dec => -1,
        Mnemonic::Add if insn.src == Opnd::Imm => insn.imm as i32,
        Mnemonic::Sub if insn.src == Opnd::Imm => (insn.imm as i32).wrapping_neg(),
        _ => return None,
    };
    let fixed = insn.mem.base == NO_REG && insn.mem.index == NO_REG;
    (insn.access.per_cpu && insn.dst == Opnd::Mem && insn.size == 4 && fixed)
        .then_some(Control::PerCpu { place: insn.mem.disp, delta })
}

/// Whether this is the kernel's `smp_mb()`: a locked instruction on the stack that changes nothing, often
/// below the live frame.
fn is_fence(instr: &Instruction) -> bool {
    instr.has_lock_prefix()
        && matches!(instr.mnemonic(), Mnemonic::Add | Mnemonic::Or)
        && instr.memory_base() == Register::RSP
        && matches!(operand(instr, 1).0, Opnd::Imm)
        && instr.immediate(1) == 0
}

/// The exact rule of an instruction; `None` where it has no exact rule. Adjusts operands and sizes that are
/// implied.
fn rule(instr: &Instruction, insn: &mut Insn) -> Option<Op> {
    use Mnemonic as M;
    let reads = flags(instr.rflags_read());
    let same = insn.dst == insn.src && matches!(insn.dst, Opnd::Reg(_) | Opnd::High(_));
    let direct = insn.dst == Opnd::None;
    if instr.is_string_instruction() {
        return string(instr, insn);
    }
    if is_fence(instr) {
        return Some(Op::Nop);
    }
    if instr.is_jcc_short_or_near() {
        return Some(Op::Jcc(reads));
    }
    if instr.is_jcx_short() || instr.is_loop() || instr.is_loopcc() {
        return Some(Op::Jcxz(reads, !instr.is_jcx_short()));
    }
    if let Some(op) = vector_rule(instr, insn) {
        return Some(op);
    }
    match (instr.condition_code() != ConditionCode::None, instr.op_count()) {
        (true, 1) => return Some(Op::Setcc(reads)),
        (true, 2) => return Some(Op::Cmov(reads)),
        _ => {}
    }
    Some(match instr.mnemonic() {
        M::Mov | M::Movzx | M::Movnti => {
            if insn.src == Opnd::Imm || insn.src == Opnd::None {
                insn.src_size = insn.size;
            }
            if direct {
                insn.size = insn.src_size;
            }
            Op::Mov
        }
        M::Str | M::Sldt | M::Smsw | M::Vmread => {
            insn.src = Opnd::None;
            insn.src_size = insn.size;
            Op::Mov
        }
        M::Bswap => {
            insn.src = insn.dst;
            insn.src_size = insn.size;
            Op::Bswap
        }
        M::Push => {
            insn.size = if instr.stack_pointer_increment() == -2 { 2 } else { 8 };
            Op::Push
        }
        M::Pop => {
            insn.size = if instr.stack_pointer_increment() == 2 { 2 } else { 8 };
            Op::Pop
        }
        M::Call if direct => Op::CallDirect,
        M::Jmp if direct => Op::Nop,
        M::Xor | M::Sub if same => Op::Zero,
        M::Sbb if same => Op::SbbSelf,
        M::Cmp if same => Op::FlagDefine(Flags::ALL),
        M::Imul if instr.op_count() == 1 => Op::MulWide,
        M::Imul => {
            if instr.op_count() == 2 {
                insn.src2 = insn.src;
                insn.src = insn.dst;
            }
            Op::Imul
        }
        M::Crc32 => {
            insn.src2 = insn.dst;
            Op::Whole(0)
        }
        M::Cbw => sign_a(insn, 1),
        M::Cwde => sign_a(insn, 2),
        M::Cdqe => sign_a(insn, 4),
        M::Cwd => sign_d(insn, 2),
        M::Cdq => sign_d(insn, 4),
        M::Cqo => sign_d(insn, 8),
        M::Out => {
            // The operands are port and accumulator, in this order.
            std::mem::swap(&mut insn.dst, &mut insn.src);
            std::mem::swap(&mut insn.size, &mut insn.src_size);
            Op::Out
        }
        M::Rdrand | M::Rdseed | M::Rdpid | M::Rdfsbase | M::Rdgsbase => {
            let number = if let Opnd::Reg(n) = insn.dst { n } else { 0 };
            Op::Define(1 << number)
        }
        m if is_without_effect(m) => Op::Nop,
        m => return plain(m, flags(instr.rflags_modified())),
    })
}

/// The rules that follow from the mnemonic alone; `writes` are the flags that the instruction writes.
fn plain(mnemonic: Mnemonic, writes: u8) -> Option<Op> {
    use Mnemonic as M;
    Some(match mnemonic {
        M::Movdiri => Op::Mov,
        M::Movsx | M::Movsxd => Op::MovSx,
        M::Lea => Op::Lea,
        M::Xchg => Op::Xchg,
        M::Cmpxchg => Op::CmpXchg,
        M::Cmpxchg8b => Op::CmpXchgPair(4),
        M::Cmpxchg16b => Op::CmpXchgPair(8),
        M::Xadd => Op::Xadd,
        M::Movbe => Op::Bswap,
        M::Pushfq | M::Pushf => Op::PushFlags,
        M::Popfq | M::Popf => Op::PopFlags,
        M::Leave => Op::Leave,
        M::Ret => Op::Ret,
        M::Call => Op::CallIndirect,
        M::Jmp => Op::JmpIndirect,
        M::And => Op::Logic(Logic::And),
        M::Or => Op::Logic(Logic::Or),
        M::Xor => Op::Logic(Logic::Xor),
        M::Andn => Op::Logic(Logic::AndNot),
        M::Test => Op::Test,
        M::Add => Op::Add,
        M::Adc => Op::Adc,
        M::Sub => Op::Sub,
        M::Sbb => Op::Sbb,
        M::Cmp => Op::Cmp,
        M::Inc => Op::Inc,
        M::Dec => Op::Dec,
        M::Neg => Op::Neg,
        M::Not => Op::Not,
        M::Mul => Op::MulWide,
        M::Mulx => Op::Mulx,
        M::Div | M::Idiv => Op::Div,
        M::Shl | M::Sal => Op::Shift(Shift::Shl),
        M::Shr => Op::Shift(Shift::Shr),
        M::Sar => Op::Shift(Shift::Sar),
        M::Rol => Op::Shift(Shift::Rol),
        M::Ror => Op::Shift(Shift::Ror),
        M::Shlx => Op::ShiftX(Shift::Shl),
        M::Shrx => Op::ShiftX(Shift::Shr),
        M::Sarx => Op::ShiftX(Shift::Sar),
        M::Rorx => Op::ShiftX(Shift::Ror),
        M::Rcl | M::Rcr => Op::RotateCarry,
        M::Shld => Op::ShiftDouble(true),
        M::Shrd => Op::ShiftDouble(false),
        M::Bt => Op::Bit(BitOp::Test),
        M::Bts => Op::Bit(BitOp::Set),
        M::Btr => Op::Bit(BitOp::Reset),
        M::Btc => Op::Bit(BitOp::Complement),
        M::Bsf | M::Bsr | M::Tzcnt | M::Lzcnt | M::Popcnt => Op::BitScan(writes),
        M::Adcx => Op::AddFlag(Flags::CF),
        M::Adox => Op::AddFlag(Flags::OF),
        M::Pdep | M::Pext | M::Bextr | M::Bzhi => Op::Whole(writes),
        M::Blsr | M::Blsi | M::Blsmsk => Op::LowBit,
        M::In => Op::In,
        M::Vmcall | M::Vmmcall => Op::Define(1),
        M::Rdtsc | M::Rdmsr | M::Xgetbv | M::Rdpmc | M::Rdpkru => Op::Define(1 | 1 << 2),
        M::Rdtscp => Op::Define(1 | 1 << 1 | 1 << 2),
        M::Cpuid => Op::Define(1 | 1 << 1 | 1 << 2 | 1 << 3),
        M::Lahf => Op::Lahf,
        M::Sahf => Op::Sahf,
        M::Clc | M::Stc => Op::FlagDefine(Flags::CF),
        M::Cld => Op::SetDf(false),
        M::Std => Op::SetDf(true),
        M::Stac => Op::SetAc(true),
        M::Clac => Op::SetAc(false),
        _ => return None,
    })
}

/// A table of instructions that change neither registers nor memory whose definedness is followed.
fn is_without_effect(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        Nop | Endbr64
            | Endbr32
            | Lfence
            | Mfence
            | Sfence
            | Pause
            | Ud0
            | Ud1
            | Ud2
            | Int3
            | Int1
            | Int
            | Hlt
            | Cli
            | Sti
            | Clflush
            | Clflushopt
            | Clwb
            | Cldemote
            | Prefetchnta
            | Prefetcht0
            | Prefetcht1
            | Prefetcht2
            | Prefetchw
            | Prefetch
            | Invlpg
            | Invpcid
            | Invlpga
            | Wbinvd
            | Wbnoinvd
            | Invd
            | Swapgs
            | Monitor
            | Mwait
            | Monitorx
            | Mwaitx
            | Serialize
            | Wrmsr
            | Xsetbv
            | Wrpkru
            | Lgdt
            | Lidt
            | Lldt
            | Ltr
            | Sgdt
            | Sidt
            | Lmsw
            | Clts
            | Wait
            | Verw
            | Wrfsbase
            | Wrgsbase
            | Clgi
            | Stgi
            | Iretq
            | Iret
            | Sysretq
            | Tpause
            | Umonitor
            | Umwait
            | Emms
            | Fninit
            | Fnclex
            | Fnop
            | Vzeroupper
            | Ldmxcsr
            | Vldmxcsr
            | Xrstor
            | Xrstor64
            | Xrstors
            | Xrstors64
            | Fxrstor
            | Fxrstor64
            | Fxsave
            | Fxsave64
            | Xsave
            | Xsave64
            | Xsaveopt
            | Xsaveopt64
            | Xsavec
            | Xsavec64
            | Xsaves
            | Xsaves64
            | Vmload
            | Vmsave
            | Vmrun
            | Skinit
            | Vmptrld
            | Vmclear
            | Vmwrite
            | Vmxon
            | Vmxoff
            | Invept
            | Invvpid
            | Vmlaunch
            | Vmresume
            | Encls
            | Enclu
            | Enqcmds
            | Movdir64b
            | Cmc
    )
}

fn sign_a(insn: &mut Insn, from: u8) -> Op {
    (insn.src, insn.dst) = (Opnd::Reg(0), Opnd::Reg(0));
    (insn.src_size, insn.size) = (from, from * 2);
    Op::SignExtendA
}

fn sign_d(insn: &mut Insn, size: u8) -> Op {
    (insn.src, insn.dst) = (Opnd::Reg(0), Opnd::Reg(2));
    (insn.src_size, insn.size) = (size, size);
    Op::SignExtendD
}

fn string(instr: &Instruction, insn: &mut Insn) -> Option<Op> {
    use Mnemonic as M;
    let (what, size) = match instr.mnemonic() {
        M::Movsb => (Str::Movs, 1),
        M::Movsw => (Str::Movs, 2),
        M::Movsd => (Str::Movs, 4),
        M::Movsq => (Str::Movs, 8),
        M::Stosb => (Str::Stos, 1),
        M::Stosw => (Str::Stos, 2),
        M::Stosd => (Str::Stos, 4),
        M::Stosq => (Str::Stos, 8),
        M::Lodsb => (Str::Lods, 1),
        M::Lodsw => (Str::Lods, 2),
        M::Lodsd => (Str::Lods, 4),
        M::Lodsq => (Str::Lods, 8),
        M::Cmpsb => (Str::Cmps, 1),
        M::Cmpsw => (Str::Cmps, 2),
        M::Cmpsd => (Str::Cmps, 4),
        M::Cmpsq => (Str::Cmps, 8),
        M::Scasb => (Str::Scas, 1),
        M::Scasw => (Str::Scas, 2),
        M::Scasd => (Str::Scas, 4),
        M::Scasq => (Str::Scas, 8),
        M::Insb => (Str::Ins, 1),
        M::Insw => (Str::Ins, 2),
        M::Insd => (Str::Ins, 4),
        M::Outsb => (Str::Outs, 1),
        M::Outsw => (Str::Outs, 2),
        M::Outsd => (Str::Outs, 4),
        _ => return None,
    };
    insn.size = size;
    insn.src_size = size;
    let repeated = instr.has_rep_prefix() || instr.has_repne_prefix();
    Some(match (repeated, what) {
        (false, _) => Op::Str(what),
        (true, Str::Cmps | Str::Scas) => Op::RepCompare(what),
        (true, _) => Op::Rep(what),
    })
}
