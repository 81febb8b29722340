//! What any pass needs: the engine takes a module apart, and puts it together with patches between its
//! instructions.
//!
//! **Knows**: the ELF object ([`object`]), its code ([`code`]), and what the code needs where ([`flow`]). It
//! knows the kernel's tables ([`tables`], [`orc`]), patches and new code ([`patch`], [`emit`]), and where all
//! of it comes to lie ([`layout`], [`relocate`]).
//!
//! **Must not know**: what passes are for, the runtime, the border.
//!
//! **Invariants**: an instruction that the kernel patches keeps its bytes, with nothing in front. Registers
//! and flags that may be needed are in [`flow`]'s sets; where nothing is known, all are. A reference that is
//! not understood is an error.

pub mod code;
pub mod emit;
pub mod flow;
pub mod layout;
pub mod object;
pub mod orc;
pub mod pass;
pub mod patch;
pub mod relocate;
pub mod tables;
