//! Instructions, translated once into what execution needs.

use super::pointer::Uses;
use super::regs::{MASKS, MMX, X87};
use super::{AccessKind, Control};
use iced_x86::{Mnemonic, Register};

/// A translated block of code.
#[derive(Clone, Debug)]
pub struct Block {
    /// Guest address of the first instruction.
    pub addr: u64,
    /// The instructions, in order.
    pub insns: Vec<Insn>,
    /// Number of decoded bytes; less than the given number where bytes are no instruction.
    pub len: u32,
}

impl Block {
    /// Index of the instruction that begins at `addr`; `None` where none does.
    pub fn index_of(&self, addr: u64) -> Option<usize> {
        self.insns.binary_search_by_key(&addr, |i| i.addr).ok()
    }
}

/// An instruction, translated once.
#[derive(Clone, Debug)]
pub struct Insn {
    /// Guest address of its first byte.
    pub addr: u64,
    /// Index in its block.
    pub index: u16,
    /// Length in bytes.
    pub len: u8,
    pub(super) size: u8,
    pub(super) src_size: u8,
    /// How many accesses it needs at least (0 or 1).
    pub(super) needs_access: bool,
    pub(super) op: Op,
    pub(super) dst: Opnd,
    pub(super) src: Opnd,
    pub(super) src2: Opnd,
    pub(super) imm: u64,
    pub(super) mem: MemRef,
    pub(super) mnemonic: Mnemonic,
    pub(super) access: AccessKind,
    pub(super) control: Option<Control>,
    pub(super) uses: Uses,
    pub(super) quick: Quick,
}

impl Insn {
    /// Whether it is a string instruction with a repeat prefix whose effect the log holds in a repeat record.
    #[inline]
    pub fn is_rep(&self) -> bool {
        matches!(self.op, Op::Rep(_))
    }

    /// Whether the log holds at least one access of it.
    #[inline]
    pub fn touches_memory(&self) -> bool {
        self.needs_access
    }

    /// The mnemonic, as iced names it.
    pub fn mnemonic(&self) -> Mnemonic {
        self.mnemonic
    }

    /// Whether it has no rule of its own.
    pub fn is_unknown(&self) -> bool {
        matches!(&self.op, Op::Generic(g) if g.unknown)
    }
}

/// What an instruction does where it can run quickly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Quick {
    /// It cannot.
    #[default]
    Never,
    /// It changes no register and no flag.
    Nothing,
    /// It branches by these flags.
    Branch(u8),
    /// It compares two general-purpose registers, or one with a constant, and sets all flags.
    Compare,
    /// It moves a register to another one, 4 or 8 bytes. None of the destinations here is the stack pointer.
    Move,
    /// It moves a constant to a register.
    Constant,
    /// It clears a register, and sets all flags.
    Zero,
    /// It loads a register.
    Load,
    /// It stores a register or a constant.
    Store,
}

/// The place of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opnd {
    None,
    /// A general-purpose register, from bit 0.
    Reg(u8),
    /// Bits 8..16 of a general-purpose register.
    High(u8),
    /// A vector, mmx, mask or x87 register.
    Vec(u8),
    Mem,
    Imm,
}

/// The place of register `reg`, and its size in bytes.
pub(super) fn register(reg: Register) -> (Opnd, u8) {
    let size = reg.size() as u8;
    let number = reg.number() as u8;
    let opnd = match reg {
        Register::AH | Register::CH | Register::DH | Register::BH => {
            Opnd::High(reg as u8 - Register::AH as u8)
        }
        // For byte registers, iced counts ah to bh too.
        _ if reg.is_gpr() => Opnd::Reg(reg.full_register().number() as u8),
        _ if reg.is_vector_register() => Opnd::Vec(number),
        _ if reg.is_mm() => Opnd::Vec(MMX + number),
        _ if reg.is_k() => Opnd::Vec(MASKS + number),
        _ if reg.is_st() => Opnd::Vec(X87),
        _ => Opnd::None,
    };
    (opnd, size)
}

pub(super) const NO_REG: u8 = 0xff;

/// The registers of an effective address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemRef {
    pub base: u8,
    pub index: u8,
    pub scale: u8,
    /// The processor adds a segment base.
    pub segment: bool,
    /// The displacement; includes the instruction pointer where that is the base.
    pub disp: u64,
}

impl MemRef {
    pub const NONE: MemRef = MemRef { base: NO_REG, index: NO_REG, scale: 1, segment: false, disp: 0 };
}

/// The kind of a string instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Str {
    Movs,
    Stos,
    Lods,
    Cmps,
    Scas,
    Ins,
    Outs,
}

/// The kind of a shift or rotate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shift {
    Shl,
    Shr,
    Sar,
    Rol,
    Ror,
}

/// What `bt` and its variants do to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BitOp {
    Test,
    Set,
    Reset,
    Complement,
}

/// The kind of a binary logic instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logic {
    And,
    Or,
    Xor,
    AndNot,
}

/// The rule of an instruction. Operands, sizes and the immediate are in the [`Insn`].
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// No effect on definedness.
    Nop,
    Mov,
    MovSx,
    Lea,
    Xchg,
    CmpXchg,
    /// cmpxchg8b (4) and cmpxchg16b (8), with the size of one half in bytes.
    CmpXchgPair(u8),
    Xadd,
    Bswap,
    Push,
    /// A push that only makes room on the stack.
    Room,
    Pop,
    PushFlags,
    PopFlags,
    Leave,
    /// Pops the return address and `imm` more bytes.
    Ret,
    CallDirect,
    CallIndirect,
    JmpIndirect,
    /// The flags that the jump reads.
    Jcc(u8),
    /// jrcxz and loop: the flags that they read besides rcx, and whether they count down.
    Jcxz(u8, bool),
    Setcc(u8),
    Cmov(u8),
    Logic(Logic),
    Test,
    /// The destination becomes zero, whatever it was.
    Zero,
    Add,
    Adc,
    Sub,
    Sbb,
    /// `sbb r,r`: every bit is the carry.
    SbbSelf,
    Cmp,
    Inc,
    Dec,
    Neg,
    Not,
    /// imul with two or three operands.
    Imul,
    /// mul and imul with one operand.
    MulWide,
    Mulx,
    Div,
    Shift(Shift),
    /// shlx, shrx, sarx, rorx: they write no flags.
    ShiftX(Shift),
    /// rcl and rcr.
    RotateCarry,
    /// shld (true) and shrd.
    ShiftDouble(bool),
    Bit(BitOp),
    /// bsf, bsr, tzcnt, lzcnt, popcnt, with the flags that they write.
    BitScan(u8),
    /// adcx (CF) and adox (OF).
    AddFlag(u8),
    /// The result and the written flags are wholly undefined where a source is; the mask holds those flags.
    Whole(u8),
    /// blsr, blsi, blsmsk: undefined bits smear to the left.
    LowBit,
    /// cbw, cwde, cdqe, with the size of the source.
    SignExtendA,
    /// cwd, cdq and cqo.
    SignExtendD,
    Str(Str),
    Rep(Str),
    /// cmps and scas with repe or repne.
    RepCompare(Str),
    In,
    Out,
    /// rdtsc, cpuid, rdmsr and others: the registers in the mask become defined.
    Define(u16),
    Lahf,
    Sahf,
    /// clc, stc, cmc: the flags in the mask become defined.
    FlagDefine(u8),
    SetDf(bool),
    SetAc(bool),
    /// A vector move: number of bytes, and whether the rest of the destination becomes zero.
    VecMov(u8, bool),
    /// The union of all sources into all destinations.
    Generic(Box<Generic>),
}

/// A register, and how many of its bytes an instruction uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegUse {
    pub opnd: Opnd,
    pub size: u8,
    /// The write leaves the rest of the register, or depends on a condition.
    pub keep: bool,
}

/// What an instruction without a rule of its own reads and writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Generic {
    pub reads: Vec<RegUse>,
    pub writes: Vec<RegUse>,
    pub flags_read: u8,
    pub flags_written: u8,
    /// The result does not depend on the sources (zeroing idioms).
    pub zero: bool,
    /// The instruction is counted as unknown.
    pub unknown: bool,
}
