//! The log: the tracer writes it and every checker reads it.
//!
//! Knows: event words ([`event`]), the tracer's configuration ([`config`]), per-vCPU rings in shared
//! memory ([`log`]), trace files ([`file`]) and the rules for every trace ([`invariants`]).
//!
//! Must not know: any kernel, any QEMU, any checker. It imports none of our crates.

pub mod client;
pub mod config;
pub mod event;
pub mod file;
pub mod invariants;
pub mod log;
pub mod meet;
pub mod pci;
mod segment;
pub mod source;

pub use segment::Segment;
