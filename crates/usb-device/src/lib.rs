//! A synthetic USB device: it matches any module alias, and answers a guest through QEMU's `usb-redir`.
//!
//! **Knows**: USB descriptors and standard requests, the usbredir protocol, how answers follow from a plan.
//!
//! **Must not know**: what a driver does, how QEMU is started, findings.
//!
//! **Invariants**:
//!
//! - Bytes from the socket give replies or an error that names what was wrong, never a panic.
//! - Queues and memory are bounded, and so is the rate of what the device sends by itself.
//! - The same descriptors, plan, words and messages at the same times give the same replies.
//!
//! Entry points: [`Descriptors::from_alias`], [`Device::new`], [`serve`].

#![forbid(unsafe_code)]

pub mod alias;
pub mod counts;
pub mod descriptors;
pub mod device;
pub mod error;
mod plan;
mod random;
pub mod serve;
mod wire;

pub use counts::Counts;
pub use descriptors::Descriptors;
pub use device::Device;
pub use error::Error;
pub use plan::CURATED;
pub use serve::serve;
