//! From events to findings: keeps the state of the machine that the log describes, and runs checkers over it.
//!
//! **Knows**: event words, shadow registers and memory, threads and contexts, objects, call summaries.
//!
//! **Must not know**: offsets of any kernel (questions about kernels and modules pass through
//! [`machine::World`]), QEMU, how a report is printed.
//!
//! **Invariant**: the log is never trusted. Any words produce findings or are skipped, never a panic; memory
//! stays bounded. Equal words produce equal findings, on every host.
//!
//! # A checker of one's own
//!
//! ```
//! use guardrail_analysis::checker::{Checker, Cx, Draft, Site};
//! use guardrail_analysis::machine::{ModuleMap, Region, World};
//! use guardrail_analysis::replay::Replay;
//! use guardrail_analysis::value_flow::{InsnCtx, Value};
//! use guardrail_knowledge::effect::Summary;
//! use guardrail_trace::event::Access;
//! use std::sync::Arc;
//!
//! /// Reports stores to the first page.
//! struct NullStores;
//!
//! impl Checker for NullStores {
//!     fn name(&self) -> &'static str {
//!         "nullstores"
//!     }
//!     fn store(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, access: Access, _: Value) {
//!         if access.addr < 4096 {
//!             let draft = || Draft::error(format!("store to {:#x}", access.addr));
//!             cx.report("nullstores", "null-store", Site::Insn(insn.addr), draft);
//!         }
//!     }
//! }
//!
//! /// A kernel of which nothing is known.
//! struct Unknown;
//!
//! impl World for Unknown {
//!     fn function_at(&self, _: u64) -> Option<(String, u64)> { None }
//!     fn hook(&self, _: u64) -> Option<Arc<Summary>> { None }
//!     fn hook_args(&self, _: u64) -> usize { 0 }
//!     fn hook_address(&self, _: u64) -> u64 { 0 }
//!     fn call(&self, name: &str) -> Arc<Summary> { Arc::new(Summary::unknown(name)) }
//!     fn module(&self, _: &str, _: &[Region], _: &[u64]) -> Option<ModuleMap> { None }
//! }
//!
//! let mut replay = Replay::new(Box::new(Unknown), vec![Box::new(NullStores)]);
//! // The words of each segment of the log, in the order of the run; the first number is the vCPU.
//! replay.segment(0, &[]);
//! assert!(replay.finish().findings.is_empty());
//! ```
//!
//! Order: level < stacks < value_flow < order < machine < provenance < definedness < reports < outcome < checker < checkers < replay

pub mod checker;
pub mod checkers;
pub mod definedness;
pub mod level;
pub mod machine;
pub mod order;
pub mod outcome;
pub mod provenance;
pub mod replay;
pub mod reports;
pub mod stacks;
pub mod value_flow;

#[cfg(test)]
mod tests;

pub use outcome::{Outcome, Statistics};
