//! The gate outside the driver VM: it holds every access of the guest to its device until a policy passes it.
//!
//! The driver VM reaches its device through a vfio-user socket only. This crate is the server behind that
//! socket. The device itself is a stock device model in a second QEMU, which this crate starts and drives
//! through the qtest protocol. Both QEMUs map the same memory, so that the device's DMA needs no copying.
//!
//! Knows: the vfio-user protocol, PCI configuration space, qtest, and how to close.
//!
//! Must not know: what a checker looks for, or what the tracer writes. A policy is a [`Gate`] to this crate.
//!
//! **Architecture Invariant:** the gate fails closed. After any of them (the policy, this process, the
//! device's QEMU) dies or stops answering, no access reaches the device. Nor does the device reach the
//! guest's memory.
//!
//! **Architecture Invariant:** no input from a socket makes this crate panic, wait without limit, or use
//! memory without bounds.

pub mod device;
pub mod lines;
pub mod process;
pub mod vfio_user;

mod counts;
mod error;
#[cfg(feature = "talk")]
pub mod heard;
mod memory;
mod policy;
mod sys;

pub use counts::{Counts, SpaceCounts};
pub use error::{Error, Result};
pub use memory::Memory;
pub use policy::{Access, Gate, Open, Space, Verdict};
