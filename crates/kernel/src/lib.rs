//! A kernel image put together with what is known about kernels: what its functions do, the plan that the tracer
//! follows, layouts, and the gate's configuration.
//!
//! **Knows**: how kernel versions differ, and where the image at hand has what `guardrail_knowledge` names.
//!
//! **Must not know**: the guest, QEMU, the events of a run, the checkers.
//!
//! **Invariant**: any image gives a value or an error, never a panic, and memory stays bounded.

pub mod charts;
mod closure;
mod gate;
pub mod isolation;
mod needs;
pub mod plan;
pub mod slab;
pub mod string_code;
pub mod summaries;

pub use closure::returns;
pub use gate::gate;
pub use plan::{hook_modules, module_list, module_tables, tracer_config};
pub use summaries::SummaryTable;
