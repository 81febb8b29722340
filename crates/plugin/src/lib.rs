//! What plugins of QEMU need of QEMU and of a running kernel, whatever they are for: the plugin API, registers, guest
//! memory, where KASLR put the kernel, modules that come and go, calls that have not returned.
//!
//! **Knows**: QEMU's plugin API (version 7), how x86-64 Linux lays itself out as far as a
//! [`TracerConfig`](guardrail_trace::config::TracerConfig) says.
//!
//! **Must not know**: logs, checkers, clients, kernel versions.
//!
//! **Invariants**: nothing here blocks a vCPU; what cannot be read of the guest is `None`, never a guess.

pub mod block;
pub mod cpu;
pub mod ffi;
pub mod hooked;
pub mod install;
pub mod modules;
pub mod probe;
pub mod ram;
pub mod ranges;
pub mod registers;
