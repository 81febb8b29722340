//! Synthetic devices: for drivers whose device no QEMU models, a device that has the driver's IDs, and answers by plan.
//!
//! A driver binds by IDs alone, and then asks its device. A synthetic device answers without knowing what is meant: with
//! what was written last, zeros, ones, random values, and values that the driver's own code compares with. Each way to
//! answer is a [plan](answers::Answers); a run goes from plan to plan until the driver takes the device. The plans that
//! the driver refuses are not lost: its error paths ran under all checkers.
//!
//! **Knows**: PCI IDs and configuration space, and how to serve a device to a driver VM ([`guardrail_gate`] for PCI,
//! [`guardrail_usb_device`] for USB). **Must not know**: what any driver wants, by name.

pub mod accesses;
pub mod answers;
pub mod constants;
pub mod ids;
pub mod pci;
pub mod process;
pub mod shape;
pub mod usb;

mod config;
mod functions;
mod ticks;

pub use ids::{Ids, PciIds};
