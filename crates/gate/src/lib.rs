//! The gate that stands outside the driver VM: every access of the guest to its device is held until a policy
//! passes it.
//!
//! The driver VM reaches its device through a vfio-user socket only. This crate is the server behind that socket; the
//! device itself is a stock device model in a second QEMU, which this crate starts and drives through the qtest
//! protocol. Both QEMUs map the same memory, so that the device's DMA needs no copying.
//!
//! Knows: the vfio-user protocol, PCI configuration space, qtest, and how to close.
//!
//! Must not know: what a checker looks for, or what the tracer writes. A policy is a [`Gate`] to this crate.
//!
//! **Architecture Invariant:** the gate fails closed. Whatever dies or stays silent (the policy, this process, the
//! device's QEMU), no access reaches the device afterwards, nor the device the guest's memory.
//!
//! **Architecture Invariant:** nothing that comes from a socket makes this crate panic, wait without limit, or use
//! memory without bounds.

pub mod device;
pub mod process;
pub mod vfio_user;

mod counts;
mod error;
mod policy;
mod sys;

pub use counts::{Counts, SpaceCounts};
pub use error::{Error, Result};
pub use policy::{Access, Gate, Open, Space, Verdict};
