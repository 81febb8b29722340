//! Rules for the border of guarded drivers, derived from binaries.
//!
//! **Knows**: what functions do with their arguments, by interprocedural analysis of a kernel's and its modules' code,
//! how that becomes rows of `rights.txt`, and which functions of a module lead to which.
//!
//! **Must not know**: where kernels are stored, how drivers are rewritten, the command line.
//!
//! **Invariant**: any image gives rows or an error, never a panic. What cannot be decided gives no row.

mod calls;
mod derived;
mod flow;
mod graph;
mod known;
mod names;
mod program;
mod rows;
mod summary;
#[cfg(test)]
mod tests;
mod types;
mod unit;
mod value;

pub use calls::{Call, Calls};
pub use derived::{Coverage, LearnError, Learned, VERSION, coverage, idle, read};
pub use graph::Graph;
pub use names::Names;
pub use program::Program;
pub use rows::Derived;
pub use summary::{Deep, Effects, Extent, Site, Sites, Summary, Unknown};
pub use value::{ARGS, Fresh, Kind, Size, Val};
