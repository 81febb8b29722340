//! The instructions that the tracer needs to see, found from bytes, addresses and the configuration alone.
//!
//! **Must not know**: vCPUs, the log, what runs now.

pub mod gate_sites;
mod insn;
pub mod kernel_entries;

pub use insn::{
    Addresses, Exit, Operand, Special, Target, decode, exit, flags, is_return, only_stack, operand,
    operand_address, resume_site, special,
};
