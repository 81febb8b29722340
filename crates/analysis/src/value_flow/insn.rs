//! Instructions, translated once into what execution needs.

use super::{AccessKind, Control};
use iced_x86::Mnemonic;

/// A translated block.
#[derive(Clone, Debug)]
pub struct Block {
    /// Address of the first instruction.
    pub addr: u64,
    /// The instructions, in order.
    pub insns: Vec<Insn>,
    /// Number of bytes decoded; less than what was given where bytes are no instruction.
    pub len: u32,
}

impl Block {
    /// Index of the instruction that begins at `addr`.
    pub fn index_of(&self, addr: u64) -> Option<usize> {
        self.insns.binary_search_by_key(&addr, |i| i.addr).ok()
    }
}

/// A translated instruction.
#[derive(Clone, Debug)]
pub struct Insn {
    /// Its address.
    pub addr: u64,
    /// Its index in the block.
    pub index: u16,
    /// Its length in bytes.
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
}

impl Insn {
    /// Whether it is a string instruction with a repeat prefix whose effect the log tells in a repeat record.
    #[inline]
    pub fn is_rep(&self) -> bool {
        matches!(self.op, Op::Rep(_))
    }

    /// Whether it makes at least one access that the log tells.
    #[inline]
    pub fn touches_memory(&self) -> bool {
        self.needs_access
    }

    /// Its mnemonic.
    pub fn mnemonic(&self) -> Mnemonic {
        self.mnemonic
    }

    /// Whether it has no rule of its own.
    pub fn is_unknown(&self) -> bool {
        matches!(&self.op, Op::Generic(g) if g.unknown)
    }
}

/// Where an operand is.
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

pub(super) const NO_REG: u8 = 0xff;

/// The registers of an effective address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemRef {
    pub base: u8,
    pub index: u8,
    pub scale: u8,
    /// A segment base is added.
    pub segment: bool,
    /// Includes the instruction pointer where it is the base.
    pub disp: u64,
}

impl MemRef {
    pub const NONE: MemRef = MemRef { base: NO_REG, index: NO_REG, scale: 1, segment: false, disp: 0 };
}

/// A string instruction.
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

/// Shifts and rotates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shift {
    Shl,
    Shr,
    Sar,
    Rol,
    Ror,
}

/// What `bt` and its kin do to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BitOp {
    Test,
    Set,
    Reset,
    Complement,
}

/// Binary logic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logic {
    And,
    Or,
    Xor,
    AndNot,
}

/// A rule. Operands, sizes and the immediate are in the [`Insn`].
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// No effect on definedness.
    Nop,
    Mov,
    MovSx,
    Lea,
    Xchg,
    CmpXchg,
    /// cmpxchg8b (4) and cmpxchg16b (8): size of one half.
    CmpXchgPair(u8),
    Xadd,
    Bswap,
    Push,
    Pop,
    PushFlags,
    PopFlags,
    Leave,
    /// `imm` bytes are popped besides the return address.
    Ret,
    CallDirect,
    CallIndirect,
    JmpIndirect,
    /// The flags it reads.
    Jcc(u8),
    /// jrcxz, loop; the flags it reads besides rcx; whether it counts down.
    Jcxz(u8, bool),
    Setcc(u8),
    Cmov(u8),
    Logic(Logic),
    Test,
    /// The destination is zero whatever it was.
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
    /// Two- and three-operand imul.
    Imul,
    /// One-operand mul and imul.
    MulWide,
    Mulx,
    Div,
    Shift(Shift),
    /// shlx, shrx, sarx, rorx: no flags.
    ShiftX(Shift),
    /// rcl, rcr.
    RotateCarry,
    /// shld (true), shrd.
    ShiftDouble(bool),
    Bit(BitOp),
    /// bsf, bsr, tzcnt, lzcnt, popcnt; the flags it writes.
    BitScan(u8),
    /// adcx (CF), adox (OF).
    AddFlag(u8),
    /// Result wholly undefined where a source is; flags written; flags become.
    Whole(u8),
    /// blsr, blsi, blsmsk: left smear.
    LowBit,
    /// cbw, cwde, cdqe: size of the source.
    SignExtendA,
    /// cwd, cdq, cqo.
    SignExtendD,
    Str(Str),
    Rep(Str),
    /// repe/repne cmps and scas.
    RepCompare(Str),
    In,
    Out,
    /// rdtsc, cpuid, rdmsr …: the registers in the mask become defined.
    Define(u16),
    Lahf,
    Sahf,
    /// clc, stc, cmc: a flag mask that becomes defined.
    FlagDefine(u8),
    SetDf(bool),
    SetAc(bool),
    /// Vector moves: number of bytes; whether the rest of the destination becomes zero.
    VecMov(u8, bool),
    /// Union of sources into all destinations.
    Generic(Box<Generic>),
}

/// A register and how much of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegUse {
    pub opnd: Opnd,
    pub size: u8,
    /// The write leaves the rest of the register, or happens under a condition.
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
    /// Counted as unknown.
    pub unknown: bool,
}
