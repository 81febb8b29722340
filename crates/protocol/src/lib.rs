//! Message protocols between the kernel and active drivers: their language, their machines, and what is made from them.
//!
//! **Knows**: the `protocol` blocks of `knowledge/CLASS/protocol.chart`, and how their states and messages join.
//!
//! **Must not know**: a kernel, a module, a driver's code.
//!
//! **Invariant**: any text gives a value or an error that names the line, never a panic.
//!
//! Entry points: [`stock::machines`] for the protocols of this repository, [`library::Library`] with a user's files.

pub mod accept;
pub mod boxes;
pub mod decompose;
pub mod draw;
pub mod equivalence;
pub mod error;
#[cfg(test)]
mod examples;
pub mod export;
pub mod header;
pub mod library;
pub mod lint;
pub mod machine;
pub mod model;
pub mod parse;
pub mod stock;
pub mod summary;
pub mod walk;

pub use error::ProtocolError;
pub use guardrail_knowledge::chart::parse::ChartError;
pub use machine::Machine;
