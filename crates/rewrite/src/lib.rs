//! Rewrites stock kernel modules: a `.ko` in, a `.ko` out that loads into the same kernel, with code of ours
//! between its instructions.
//!
//! **Knows**: relocatable ELF objects, x86-64 code, the tables by which the kernel finds and patches a
//! module's code.
//!
//! **Must not know**: guests, the command line.
//!
//! **Invariants**: any bytes give a module or an error, never a panic. The result depends on the input and
//! the options alone. What is not understood is refused with its place, never guessed. Imports run down:
//! [`passes`] know [`border`], and both know the engine, which knows neither.

pub mod border;
mod engine;
mod error;
pub mod inspect;
pub mod passes;
mod rewrite;
#[cfg(test)]
mod tests;
mod verify;

pub use engine::object::{self, Object};
pub use engine::pass::{FunctionView, Pass};
pub use error::{Result, RewriteError};
pub use guardrail_abi::FIELD;
pub use rewrite::{Counts, Rewritten, rewrite};
