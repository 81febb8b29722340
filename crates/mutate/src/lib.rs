//! Mutants of a driver's binary: bugs of the kinds that programmers make, planted into a module's machine
//! code.
//!
//! **Knows**: the relocatable ELF file of a module, x86-64 code, what the kernel's tables name in it, and how
//! a kind of bug looks in code.
//!
//! **Must not know**: how a guest is run, or what a mutant does when it runs.
//!
//! **Invariants**:
//!
//! - A mutant has the size and the layout of the stock file. Instructions of the same length replace whole
//!   instructions. Every address, every table and every boundary between instructions therefore stays true.
//! - Nothing changes code that a table of the kernel names (alternatives, jump labels, static calls,
//!   exception tables, …). The kernel would write over it, or look for what it knows there. [`audit`] checks
//!   each mutant.
//! - The same file, kind, seed and number give the same bytes.
//! - Any bytes give mutants or an error, never a panic, and memory stays bounded.

mod audit;
mod code;
mod edit;
mod elf;
mod error;
mod flow;
mod kinds;
mod mutant;
mod random;
#[cfg(test)]
mod testing;

pub use audit::audit;
pub use error::Error;
pub use kinds::Kind;
pub use mutant::{Bug, Change, Description, MUTANT_SCHEMA, Mutant, Mutants, Subject};
