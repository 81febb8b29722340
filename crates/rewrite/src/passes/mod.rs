//! The passes: each decides what stands in front of which instruction.
//!
//! **Knows**: the engine, the functions of the runtime that code asks or notifies (`thunks`, `asks`), and
//! how a module is made a guarded one (`border`).
//!
//! **Must not know**: where code comes to lie, other passes.
//!
//! **Invariants**: a patch keeps all registers and flags that are needed at its instruction. It notes for
//! which instruction it asks.

pub(crate) mod asks;
pub mod checks;
pub mod spread;
pub(crate) mod thunks;
pub mod trace;
