//! Mutants of a driver's binary: bugs of the kinds that programmers make, planted into a module's machine code.
//!
//! Knows: the relocatable ELF file of a module, x86-64 code, what the kernel's tables name in it, and how a kind of bug
//! looks in code.
//!
//! Must not know: how a guest is run, or what a mutant does when it runs.
//!
//! **Architecture Invariant:** a mutant has the size and the layout of the stock file. Whole instructions are replaced by
//! instructions of the same length, so every address, every table and every boundary between instructions stays true.
//!
//! **Architecture Invariant:** what a table of the kernel's names (alternatives, jump labels, static calls, exception tables, …)
//! is never touched, for the kernel would write over it or look for what it knows there. [`audit`] checks each mutant.
//!
//! **Architecture Invariant:** the same file, kind, seed and number give the same bytes.
//!
//! **Architecture Invariant:** any bytes give mutants or an error, never a panic, and memory stays bounded.

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
