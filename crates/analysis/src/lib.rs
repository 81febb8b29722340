//! From events to findings: keeps the state of the machine that the log tells of, and runs checkers over it.
//!
//! **Knows**: event words, shadow registers and memory, threads and contexts, objects, call summaries.
//!
//! **Must not know**: offsets of any kernel (what it asks about kernels and modules goes through [`world::World`]),
//! QEMU, how a report is printed.
//!
//! **Invariant**: the log is never trusted. Any words give findings or are skipped, never a panic; memory stays
//! bounded. Equal words give equal findings, whatever the host.

pub mod blocks;
pub mod checkers;
pub mod context;
pub mod effect;
pub mod finding;
pub mod flow;
pub mod machine;
pub mod modules;
pub mod objects;
pub mod reports;
pub mod session;
pub mod shadow;
pub mod stacks;
pub mod sync;
pub mod world;

#[cfg(test)]
mod tests;

pub use finding::{Finding, Report, Statistics};
pub use session::{Config, Session, SessionError};
