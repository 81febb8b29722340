//! What every QEMU plugin needs from QEMU and from a running kernel:
//! - the plugin API, registers and guest memory;
//! - the KASLR slide;
//! - the loading and unloading of modules;
//! - calls that have not returned, and call stacks.
//!
//! **Knows**: QEMU's plugin API (version 7), and the layout of x86-64 Linux as far as a
//! [`TracerConfig`](guardrail_trace::config::TracerConfig) describes it.
//!
//! **Must not know**: logs, checkers, clients, kernel versions.
//!
//! **Invariants**: nothing here blocks a vCPU; guest data that cannot be read is `None`, never a guess.

pub mod block;
pub mod cpu;
pub mod entries;
pub mod ffi;
pub mod hooked;
pub mod install;
pub mod modules;
pub mod probe;
pub mod ram;
pub mod ranges;
pub mod registers;
pub mod unwind;
