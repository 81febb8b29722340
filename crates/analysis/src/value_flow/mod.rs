//! Definedness of values as they flow through instructions: the transfer function of x86-64.
//!
//! Knows: instruction bytes, shadow registers ([`Regs`]), and the memory accesses that an instruction
//! made. Must not know: what memory holds, who owns it, or what is worth a report; that is the business of
//! the [`Memory`] it is run against.
//!
//! General-purpose registers are tracked bit by bit, in the manner of Memcheck. The log tells addresses
//! but no values, so besides an *undefined* mask each register has a mask of bits whose value is *known*
//! (immediates, zero extension, stack addresses); bitfields and carry chains come out exact where the known
//! bits decide. Vector registers are tracked by byte; their arithmetic is all or nothing.
//!
//! Three rules follow from having no values. A conditional move whose condition is defined may have taken
//! either source: bits count as undefined where *both* sources are (quiet rather than noisy). A defined shift count of
//! unknown value smears the undefined bits in the direction of the shift. `bsf` and `bsr` count as having found a bit, unless that
//! depends on undefined ones.
//!
//! **Invariant:** apart from the conditional move, `bsf` and `bsr`, an output bit that can change when undefined input bits change is marked
//! undefined. The differential test against the real processor holds this.

mod arith;
mod bits;
mod decode;
mod decode_generic;
mod exec;
mod insn;
mod regs;
mod run;
mod shift;
mod strings;
mod vector;

#[cfg(test)]
mod tests;

pub use bits::Bits;
pub use insn::{Block, Insn};
pub use regs::{Flags, Regs, gpr_name};
pub use run::{AccessCursor, RunEnd, Status};

use guardrail_trace::event::Access;

/// Where an undefined value came from; the [`Memory`] gives the numbers their meaning. 0: nowhere.
pub type Origin = u32;

/// The definedness of a value in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// For an access of up to 8 bytes: one bit for each *bit*, set where it is undefined. For a wider
    /// one: one bit for each *byte*.
    pub undef: u64,
    /// Where the undefined part came from; 0 where nothing is undefined.
    pub origin: Origin,
}

impl Value {
    /// A wholly defined value.
    pub const DEFINED: Value = Value { undef: 0, origin: 0 };
}

/// The instruction that a callback is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsnCtx {
    /// Its address.
    pub addr: u64,
    /// Its index in the block.
    pub index: u16,
    /// Its length in bytes.
    pub len: u8,
    /// The stack pointer before it, where known.
    pub rsp: Option<u64>,
    /// How it accesses memory.
    pub access: AccessKind,
}

/// How an instruction accesses memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessKind {
    /// It is atomic with respect to other processors: a lock prefix, or `xchg` with memory.
    pub locked: bool,
    /// Its operand lies in the per-CPU area of the processor that runs it (a GS prefix).
    pub per_cpu: bool,
    /// It reads and writes the same operand.
    pub updates: bool,
    /// It is about one bit of its operand in memory: which.
    pub bit: Option<u8>,
}

/// An instruction that changes what may interrupt the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Interrupts off.
    Cli,
    /// Interrupts on.
    Sti,
    /// The flags are put away.
    Pushf,
    /// The flags are as they were put away.
    Popf,
    /// A 32-bit variable of the processor changes by a constant; it may be `preempt_count`.
    PerCpu {
        /// Its place relative to the GS base.
        place: u64,
        /// What is added.
        delta: i32,
    },
}

/// A string instruction with a repeat prefix, as the log tells it before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rep {
    /// Index of the instruction in its block.
    pub insn: u16,
    /// rcx: the number of elements left to do.
    pub count: u64,
    /// rsi.
    pub rsi: u64,
    /// rdi.
    pub rdi: u64,
}

/// Memory touched by a repeated string instruction: `count` elements of `elem` bytes.
///
/// `dst` and `src` are the *lowest* addresses touched, whatever the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepRange {
    /// Lowest address written (0 where the instruction writes no memory).
    pub dst: u64,
    /// Lowest address read (0 where the instruction reads no memory).
    pub src: u64,
    /// Number of elements.
    pub count: u64,
    /// Bytes of one element: 1, 2, 4 or 8.
    pub elem: u8,
    /// The direction flag was set: elements were done from the highest address down.
    pub backward: bool,
    /// At least one access of it is known to have touched a device.
    pub io: bool,
}

/// What instructions act upon besides registers, and whom they tell of undefined values.
///
/// After a report the undefined value counts as defined, so that one cause is told once.
pub trait Memory {
    /// The definedness of what was read.
    fn load(&mut self, ctx: &InsnCtx, access: Access) -> Value;
    /// A value was written. Undefined data for a device shows here, as a value with an `access.io`.
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
    /// `rep lods` and `rep outs`: `range.src` is read; the union of what is undefined in it.
    fn rep_read(&mut self, ctx: &InsnCtx, range: RepRange) -> Value;
    /// The stack pointer went from `old` to `new` by arithmetic or a move (not by push, pop, call or return).
    /// Where `new` is lower, `new..old` is fresh stack with nothing in it.
    fn stack_adjusted(&mut self, ctx: &InsnCtx, old: u64, new: u64);
    /// The instruction changed what may interrupt the processor.
    fn control(&mut self, _ctx: &InsnCtx, _control: Control) {}
    /// The instruction has no exact rule; its results were taken as undefined where any source was.
    fn unknown(&mut self, ctx: &InsnCtx, mnemonic: iced_x86::Mnemonic);
}
