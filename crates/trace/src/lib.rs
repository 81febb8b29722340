//! The log: what the tracer writes and every checker reads.
//!
//! Knows: event words ([`event`]), what the tracer is told to watch ([`config`]), per-vCPU rings in
//! shared memory ([`log`]), trace files ([`file`]) and what every trace must satisfy ([`invariants`]).
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
