//! Shadow state of one thread's registers.

use super::bits::{mask, top};
use super::pointer::{MIXED, Pointer, Pointers};
use super::{Bits, Origin};
use iced_x86::RflagsBits;

/// Masks of the arithmetic flags, for the undefined mask of [`Regs::flags`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags;

impl Flags {
    /// Mask of the carry flag.
    pub const CF: u8 = 1;
    /// Mask of the parity flag.
    pub const PF: u8 = 2;
    /// Mask of the auxiliary carry flag.
    pub const AF: u8 = 4;
    /// Mask of the zero flag.
    pub const ZF: u8 = 8;
    /// Mask of the sign flag.
    pub const SF: u8 = 16;
    /// Mask of the overflow flag.
    pub const OF: u8 = 32;
    /// Mask of all six flags.
    pub const ALL: u8 = 63;
}

/// The undefined ones of the sign, zero and parity flags of a result.
#[inline]
pub(super) fn result_flags(r: Bits, size: u8) -> u8 {
    if r.undef == 0 {
        return 0;
    }
    let mut flags = 0;
    // A bit that is known to be one means that the result is not zero.
    if r.value & mask(size) == 0 {
        flags |= Flags::ZF;
    }
    if r.undef & top(size) != 0 {
        flags |= Flags::SF;
    }
    if r.undef & 0xff != 0 {
        flags |= Flags::PF;
    }
    flags
}

pub(super) fn if_undefined(undefined: bool, flags: u8) -> u8 {
    if undefined { flags } else { 0 }
}

/// Converts iced's flag bits into those of [`Flags`].
pub(super) fn flags(bits: u32) -> u8 {
    let mut out = 0;
    for (theirs, ours) in [
        (RflagsBits::CF, Flags::CF),
        (RflagsBits::PF, Flags::PF),
        (RflagsBits::AF, Flags::AF),
        (RflagsBits::ZF, Flags::ZF),
        (RflagsBits::SF, Flags::SF),
        (RflagsBits::OF, Flags::OF),
    ] {
        if bits & theirs != 0 {
            out |= ours;
        }
    }
    out
}

/// Number of slots in [`Regs`] for registers other than the general-purpose ones.
pub(super) const VECTORS: usize = 32 + 8 + 8 + 1;
/// First mmx register in the vector file.
pub(super) const MMX: u8 = 32;
/// First mask register (k0) in the vector file.
pub(super) const MASKS: u8 = 40;
/// The x87 stack, which has one slot.
pub(super) const X87: u8 = 48;

/// Register number of rsp.
pub(super) const RSP: u8 = 4;

/// A vector register: which of its (up to 64) bytes are undefined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Vector {
    pub undef: u64,
    pub origin: Origin,
}

/// The shadow of one thread's registers.
#[derive(Clone, Debug)]
pub struct Regs {
    pub(super) gpr: [Bits; 16],
    /// The undefined arithmetic flags, as a mask of [`Flags`].
    pub flags: u8,
    /// The source of the undefined flags.
    pub flags_origin: Origin,
    /// RFLAGS.AC: the kernel may access user memory.
    pub ac: bool,
    /// RFLAGS.DF: string instructions run downwards.
    pub df: bool,
    pub(super) pointers: Pointers,
    pub(super) vec: [Vector; VECTORS],
    /// Some slot of `vec` is or was undefined. Without that, the common case skips the vector registers.
    pub(super) vec_dirty: bool,
}

impl Default for Regs {
    fn default() -> Self {
        Regs::new()
    }
}

impl Regs {
    /// Registers that are all defined and not known, as a driver function finds them when the kernel calls
    /// it.
    pub fn new() -> Regs {
        Regs {
            gpr: [Bits::DEFINED; 16],
            flags: 0,
            flags_origin: 0,
            ac: false,
            df: false,
            pointers: Pointers::default(),
            vec: [Vector::default(); VECTORS],
            vec_dirty: false,
        }
    }

    /// Like [`Regs::new`], with the stack pointer known.
    pub fn at_entry(rsp: u64) -> Regs {
        let mut regs = Regs::new();
        regs.set_rsp(Some(rsp));
        regs
    }

    /// The stack pointer, where known.
    #[inline]
    pub fn rsp(&self) -> Option<u64> {
        self.gpr[usize::from(RSP)].constant()
    }

    /// Sets the stack pointer; it is defined.
    #[inline]
    pub fn set_rsp(&mut self, rsp: Option<u64>) {
        self.gpr[usize::from(RSP)] = rsp.map_or(Bits::DEFINED, Bits::of);
    }

    /// Register `reg` (rax = 0, rcx = 1, rdx = 2, rbx = 3, rsp, rbp, rsi, rdi, r8 … r15 = 15).
    #[inline]
    pub fn get(&self, reg: u8) -> Bits {
        self.gpr[usize::from(reg & 15)]
    }

    /// Replaces register `reg`, numbered as in [`Regs::get`].
    #[inline]
    pub fn set(&mut self, reg: u8, bits: Bits) {
        self.gpr[usize::from(reg & 15)] = bits;
    }

    /// The pointer in register `reg`, numbered as in [`Regs::get`]; `None` where it came from no known object.
    pub fn pointer(&self, reg: u8) -> Option<Pointer> {
        self.pointers.get(reg).filter(|pointer| pointer.from != MIXED)
    }

    /// Sets where the pointer in register `reg` came from.
    pub fn set_pointer(&mut self, reg: u8, pointer: Pointer) {
        self.pointers.set(reg, Some(pointer));
    }

    /// A kernel function returned. The registers that it may clobber, and the flags, become defined and
    /// unknown. With `result_undefined`, rax becomes undefined, with no origin.
    pub fn clobber_call(&mut self, result_undefined: bool) {
        for reg in [0u8, 1, 2, 6, 7, 8, 9, 10, 11] {
            self.gpr[usize::from(reg)] = Bits::DEFINED;
            self.pointers.drop(1 << reg);
        }
        if result_undefined {
            self.gpr[0] = Bits::undefined(0);
        }
        self.flags = 0;
        self.flags_origin = 0;
        self.df = false;
        if self.vec_dirty {
            self.vec = [Vector::default(); VECTORS];
            self.vec_dirty = false;
        }
    }
}

/// The name of register `reg`, numbered as in [`Regs::get`].
pub fn gpr_name(reg: u8) -> &'static str {
    const NAMES: [&str; 16] = [
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
        "r14", "r15",
    ];
    NAMES[usize::from(reg & 15)]
}
