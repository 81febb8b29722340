//! Definedness of values as they flow through instructions: the transfer function of x86-64.
//!
//! The objects that [pointers](Pointer) came from flow with the values.
//!
//! Knows: instruction bytes, shadow registers ([`Regs`]), and the memory accesses that an instruction made.
//! Must not know: what memory holds, who owns it, or what is worth a report. That is the business of the
//! [`Memory`] that it runs against.
//!
//! General-purpose registers are tracked bit by bit, like in Memcheck. The log holds addresses but no values.
//! So besides an *undefined* mask, each register has a mask of bits whose value is *known* (immediates, zero
//! extension, stack addresses). Bitfields and carry chains are exact where the known bits decide. Vector
//! registers are tracked by byte; their arithmetic is all or nothing.
//!
//! Three rules follow from the lack of values:
//!
//! - A conditional move whose condition is defined may have taken either source. Bits count as undefined
//!   where *both* sources are (quiet rather than noisy).
//! - A defined shift count of unknown value smears the undefined bits in the direction of the shift.
//! - `bsf` and `bsr` count as having found a bit, unless that depends on undefined ones.
//!
//! **Invariant:** an output bit that can change when undefined input bits change is marked undefined. The
//! exceptions are the conditional move, `bsf` and `bsr`. The differential test against the real processor
//! enforces this.

mod arith;
mod bits;
mod decode;
mod decode_generic;
mod decode_pointers;
mod exec;
mod follow;
mod insn;
mod pointer;
mod quick;
mod regs;
mod run;
mod shift;
mod strings;
mod vector;

#[cfg(test)]
mod tests;

pub use bits::{Bits, mask};
pub use insn::{Block, Insn};
pub use pointer::{MIXED, Pointer, Reach};
pub use regs::{Flags, Regs, gpr_name};
pub use run::{AccessCursor, RunEnd, Status};

use guardrail_trace::event::Access;

/// The source of an undefined value. The [`Memory`] defines what the numbers mean; 0 means that there is no
/// source.
pub type Origin = u32;

/// The definedness of a value in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// For an access of up to 8 bytes: one bit for each *bit*, set where it is undefined. For a wider access:
    /// one bit for each *byte*.
    pub undef: u64,
    /// The source of the undefined part; 0 where nothing is undefined.
    pub origin: Origin,
}

impl Value {
    /// A wholly defined value.
    pub const DEFINED: Value = Value { undef: 0, origin: 0 };
}

/// The instruction that a callback is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsnCtx {
    /// Guest address of its first byte.
    pub addr: u64,
    /// Index in its block.
    pub index: u16,
    /// Length in bytes.
    pub len: u8,
    /// The stack pointer before it, where known.
    pub rsp: Option<u64>,
    /// How the instruction accesses memory.
    pub access: AccessKind,
}

/// How an instruction accesses memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessKind {
    /// The access is atomic with respect to other processors: a lock prefix, or `xchg` with memory.
    pub locked: bool,
    /// The operand lies in the per-CPU area of the processor that runs the instruction (a GS prefix).
    pub per_cpu: bool,
    /// The instruction reads and writes the same operand.
    pub updates: bool,
    /// Number of the only bit of the operand in memory that the instruction is about; `None` where it is
    /// about more.
    pub bit: Option<u8>,
}

/// How an instruction changes what may interrupt the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Interrupts are off from now on.
    Cli,
    /// Interrupts are on from now on.
    Sti,
    /// The flags are saved.
    Pushf,
    /// The saved flags are restored.
    Popf,
    /// A 32-bit variable of the processor changes by a constant; it may be `preempt_count`.
    PerCpu {
        /// Offset of the variable from the GS base.
        place: u64,
        /// The number that is added.
        delta: i32,
    },
}

/// A string instruction with a repeat prefix, as the log holds it from before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rep {
    /// Index of the instruction in its block.
    pub insn: u16,
    /// The value of rcx: the number of elements left to do.
    pub count: u64,
    /// The value of rsi: address of the next element that is read.
    pub rsi: u64,
    /// The value of rdi: address of the next element that is written.
    pub rdi: u64,
}

/// The memory that a repeated string instruction accesses: `count` elements of `elem` bytes.
///
/// `dst` and `src` are the *lowest* accessed addresses, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepRange {
    /// Lowest address written (0 where the instruction writes no memory).
    pub dst: u64,
    /// Lowest address read (0 where the instruction reads no memory).
    pub src: u64,
    /// Number of elements.
    pub count: u64,
    /// Size of one element in bytes: 1, 2, 4 or 8.
    pub elem: u8,
    /// The direction flag was set: elements were processed from the highest address down.
    pub backward: bool,
    /// At least one of the accesses is known to be to a device.
    pub io: bool,
}

impl RepRange {
    /// Bytes that are written or read.
    pub fn bytes(&self) -> u64 {
        self.count.saturating_mul(u64::from(self.elem))
    }
}

/// What instructions act upon besides registers; it gets the reports of undefined values.
///
/// After a report the undefined value counts as defined, so that one cause is reported once.
pub trait Memory {
    /// An instruction read memory. Returns the definedness of the value.
    fn load(&mut self, ctx: &InsnCtx, access: Access) -> Value;
    /// An instruction wrote memory. Undefined data for a device shows here, as a value with an `access.io`.
    fn store(&mut self, ctx: &InsnCtx, access: Access, value: Value);
    /// A jump's condition or target, or a repeat count, is undefined.
    fn undefined_branch(&mut self, ctx: &InsnCtx, origin: Origin);
    /// Register number `reg` (rax = 0 … r15 = 15), part of the address of `access`, is undefined.
    fn undefined_address(&mut self, ctx: &InsnCtx, access: Access, reg: u8, origin: Origin);
    /// An undefined value is written to a port.
    fn undefined_port_output(&mut self, ctx: &InsnCtx, origin: Origin);
    /// `rep movs`: `range.dst` takes over the definedness of `range.src`.
    fn rep_move(&mut self, ctx: &InsnCtx, range: RepRange);
    /// `rep stos` (and `rep ins`, with a defined value): each element of `range.dst` becomes `value`.
    fn rep_set(&mut self, ctx: &InsnCtx, range: RepRange, value: Value);
    /// `rep lods` and `rep outs`: `range.src` is read. Returns the union of what is undefined in it.
    fn rep_read(&mut self, ctx: &InsnCtx, range: RepRange) -> Value;
    /// The stack pointer moved from `old` to `new` by arithmetic or a move (not by push, pop, call or
    /// return). Where `new` is lower, `new..old` is fresh stack that holds nothing.
    fn stack_adjusted(&mut self, ctx: &InsnCtx, old: u64, new: u64);
    /// The instruction changed what may interrupt the processor.
    fn control(&mut self, _ctx: &InsnCtx, _control: Control) {}
    /// The object that a pointer of 8 bytes, which an instruction has just loaded, came from; `None` where it is not
    /// known.
    fn pointer_at(&mut self, _ctx: &InsnCtx, _access: Access) -> Option<Pointer> {
        None
    }
    /// An instruction has just stored a pointer of 8 bytes.
    fn pointer_stored(&mut self, _ctx: &InsnCtx, _access: Access, _pointer: Pointer) {}
    /// A pointer was compared with a value that came from elsewhere. Returns whether it may stand for that value from
    /// now on.
    fn pointer_compared(&mut self, _pointer: Pointer) -> bool {
        false
    }
    /// An instruction is about to access memory through a pointer.
    fn reached(&mut self, _ctx: &InsnCtx, _reach: Reach) {}
    /// The instruction has no exact rule; its results count as undefined where any source was.
    fn unknown(&mut self, ctx: &InsnCtx, mnemonic: iced_x86::Mnemonic);
}
