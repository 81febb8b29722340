//! From events to findings: keeps the state of the machine that the log tells of, and runs checkers over it.
//!
//! **Knows**: event words, shadow registers and memory, threads and contexts, objects, call summaries.
//!
//! **Must not know**: offsets of any kernel (what it asks about kernels and modules goes through [`machine::World`]),
//! QEMU, how a report is printed.
//!
//! **Invariant**: the log is never trusted. Any words give findings or are skipped, never a panic; memory stays
//! bounded. Equal words give equal findings, whatever the host.
//!
//! Order: level < stacks < value_flow < definedness < order < machine < reports < outcome < checker < checkers < replay < session

pub mod checker;
pub mod checkers;
pub mod definedness;
pub mod level;
pub mod machine;
pub mod order;
pub mod outcome;
pub mod replay;
pub mod reports;
pub mod session;
pub mod stacks;
pub mod value_flow;

#[cfg(test)]
mod tests;

pub use outcome::{Outcome, Statistics};
pub use session::{Config, Session, SessionError};
