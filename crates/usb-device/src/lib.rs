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
//! # With QEMU
//!
//! `-chardev socket,id=usb0,path=SOCKET -device qemu-xhci -device usb-redir,chardev=usb0` connects to a listening socket;
//! over QMP, `chardev-add` and `device_add` do. QEMU connects and greets before the guest runs, and reads once it runs.
//! A guest that comes from a saved state gets no greeting; add the device after it runs.
//!
//! # Plans
//!
//! Try them from 0 on until the driver binds. Those below [`CURATED`] are ordered by how many drivers of Linux they add;
//! from there on, even ones go through the caller's words, and odd ones are drawn at random, some with faults.
//!
//! Entry points: [`Descriptors::from_alias`], [`Device::new`], [`serve()`].

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
pub use random::mixed;
pub use serve::serve;
