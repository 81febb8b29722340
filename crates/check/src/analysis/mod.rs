//! The analysis of a log: the checkers, and the process that runs them beside a guest.
//!
//! Knows: the protocol between supervisor and analysis process, what the process may do, the policy at findings.
//!
//! Must not know: how a guest is built or run, options of QEMU, what a report looks like.
//!
//! Invariants: the process opens everything, drops its privileges for good, and only then reads bytes that a guest influences.

pub mod engine;
pub mod policy;
pub mod supervisor;
pub mod wire;

pub(crate) mod inbox;
pub(crate) mod keeper;
pub(crate) mod kernel_log;
pub mod process;
pub(crate) mod recorder;
pub(crate) mod run_log;
pub(crate) mod sources;
pub(crate) mod world;
