//! The driver VM: from nothing to a driver that runs under a workload.
//!
//! Knows: Debian packages, kernel trees, module files and what they depend on, which QEMU device a driver
//! binds, the initramfs, QEMU's command line, QMP, the progress channel, and how a run ends.
//!
//! Must not know: what the tracer writes, what a checker looks for, or how findings are printed. A
//! plugin is a path and a configuration file to this crate, nothing more.
//!
//! **Architecture Invariant:** the system's own apt state and files are never changed; everything that is fetched
//! lives in the cache folder.
//!
//! **Architecture Invariant:** no QEMU process outlives the thread that called [`run::run`].
//!
//! **Architecture Invariant:** what the guest says is bounded text; it never names a file on the host.

pub mod cache;
pub mod catalog;
pub mod cpio;
pub mod cut;
pub mod disk;
pub mod doctor;
pub mod error;
pub mod http;
pub mod initramfs;
pub mod installed;
pub mod kbuild;
pub mod kernels;
pub mod modules;
pub mod packages;
pub mod packets;
pub mod prepare;

pub mod progress;
pub mod qemu;
pub mod qmp;
pub mod rerun;
pub mod run;
pub mod runtime;
pub mod sectors;
pub mod software;
pub mod sources;
pub mod workload;

mod console;
mod guest;
mod machine;
mod pattern;

pub use cache::Cache;
pub use console::without_time;
pub use error::{Error, Result};
