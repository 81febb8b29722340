//! Rewrites stock kernel modules: a `.ko` in, a `.ko` out that loads into the same kernel, with code of ours between its instructions.
//!
//! **Knows**: relocatable ELF objects, x86-64 code, the tables by which the kernel finds and patches a module's code.
//!
//! **Must not know**: what the passes are for, guests, the command line.
//!
//! **Invariants**: any bytes give a module or an error, never a panic. The result depends on the input and the options alone. What is not
//! understood is refused with its place, never guessed.

mod asks;
pub mod assembly;
pub mod checks;
pub mod code;
mod emit;
mod error;
pub mod flow;
mod guard;
pub mod inspect;
pub mod interpose;
pub mod life;
mod module;
pub mod object;
mod orc;
pub mod pass;
pub mod patch;
mod place;
mod refs;
pub mod spread;
mod tables;
#[cfg(test)]
mod tests;
mod thunks;
pub mod trace;
mod verify;
pub mod wrap;

pub use error::{Result, RewriteError};
pub use module::{Counts, FIELD, Rewritten, TRUSTED, rewrite};
pub use object::Object;
pub use pass::Pass;
