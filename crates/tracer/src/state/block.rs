//! A driver block as QEMU translated it, and the data of the callbacks in it.

use super::holds::Roles;
use crate::code::gate_sites::GateSite;
use crate::code::{Operand, Target};
use guardrail_plugin::registers::Flags;
use iced_x86::Instruction;
use std::sync::atomic::AtomicU8;

/// A driver block as translated. It is never freed, because translated code points to it.
pub struct Block {
    /// Number of the block in the log.
    pub number: u64,
    /// Guest virtual address of its first byte.
    pub address: u64,
    /// Whether calls return to its start: see [`Resumes`].
    pub resumes: AtomicU8,
    /// How it leaves the driver. `None` where no record is needed before the last instruction.
    pub leave: Option<Leave>,
    /// Its port accesses.
    pub ports: Box<[Port]>,
    /// One row per instruction, for memory callbacks.
    pub sites: Box<[MemSite]>,
    /// Its instructions that can be held.
    pub holds: Box<[HoldSite]>,
    /// The sides of pairs that come near where the block runs.
    pub approaches: Roles,
    /// Its instructions that may access devices. Empty in runs without a gate.
    pub gated: Box<[GateSite]>,
    /// True where threads can be delayed at its start, because the kernel returns there.
    pub stalls: bool,
}

/// Whether calls return to the start of a block. Any other value means that this is not known yet.
pub struct Resumes;

impl Resumes {
    /// Calls return there.
    pub const CAN: u8 = 1;
    /// A function begins there, so no call returns there.
    pub const NEVER: u8 = 2;
}

/// An instruction that can be held.
pub struct HoldSite {
    /// Guest virtual address of the instruction.
    pub address: u64,
    /// Index of the instruction in its block.
    pub index: u16,
    /// The decoded instruction.
    pub insn: Instruction,
    /// The memory operand that is compared with other accesses.
    pub operand: Operand,
    /// State of the arithmetic flags before it, which decides whether a vCPU can return to it.
    pub flags: Flags,
    /// Pairs that it belongs to, with the side in each.
    pub roles: Roles,
    /// True where it was picked at random.
    pub sampled: bool,
}

/// An instruction of a block, as its memory callback gets it.
pub struct MemSite {
    /// Number of its block in the log.
    pub block: u64,
    /// Guest virtual address of the instruction.
    pub address: u64,
    /// Index of the instruction in its block.
    pub index: u16,
    /// What the callback does besides logging the access: [`MemFlags`].
    pub flags: u16,
}

/// A transfer out of the driver, or through a register or memory.
pub struct Leave {
    /// True for a jump, false for a call.
    pub jump: bool,
    /// Source of the target address.
    pub target: Target,
    /// Number of registers that may hold arguments.
    pub args: u8,
    /// The decoded instruction.
    pub insn: Instruction,
    /// True where no memory access of the instruction follows. The segment is then closed before the
    /// transfer.
    pub last: bool,
}

/// A port access in a block.
pub struct Port {
    /// Index of the instruction in its block.
    pub index: u16,
    /// Bytes per access, plus 0x80 for `out`.
    pub small: u8,
    /// Number of the port; `None` where dx has it.
    pub port: Option<u8>,
}

/// Bits that say what a memory callback does besides logging the access.
pub struct MemFlags;

impl MemFlags {
    /// Log accesses to devices only.
    pub const DEVICES_ONLY: u16 = 1;
    /// The instruction's store begins a new order point.
    pub const LOCKED: u16 = 2;
    /// The driver is left after the instruction's store.
    pub const LEAVE_AFTER_STORE: u16 = 4;
    /// The driver is left after the instruction's load, unless the load is a jump table's.
    pub const LEAVE_AFTER_LOAD: u16 = 8;
    /// The instruction's load is a return address.
    pub const RETURN: u16 = 16;
    /// The instruction can be held.
    pub const HELD: u16 = 32;
    /// The instruction locks the bus.
    pub const ATOMIC: u16 = 64;
    /// The instruction accesses only the stack.
    pub const STACK: u16 = 128;
    /// Any of the bits for which the callback does more than log.
    pub const ANY_SPECIAL: u16 =
        Self::LOCKED | Self::LEAVE_AFTER_STORE | Self::LEAVE_AFTER_LOAD | Self::RETURN | Self::HELD;
}
