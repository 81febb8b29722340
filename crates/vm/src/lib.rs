//! The driver VM: from nothing to a driver that runs under a workload.
//!
//! Knows: Debian packages, kernel trees, module files and their dependencies, and which QEMU device a driver
//! binds. It also knows the initramfs, QEMU's command line, QMP, the progress channel, and how a run ends.
//!
//! Must not know: what the tracer writes, what a checker looks for, or how findings are printed. A
//! plugin is a path and a configuration file to this crate, nothing more.
//!
//! **Architecture Invariant:** the system's own apt state and files are never changed; everything that is
//! fetched is in the cache folder.
//!
//! **Architecture Invariant:** no QEMU process outlives the thread that called [`run::run`].
//!
//! **Architecture Invariant:** text from the guest is bounded; it never names a file on the host.

pub mod cpio;
pub mod doctor;
pub mod ending;
pub mod error;

mod exercise;
mod fetch;
mod guest_image;
#[cfg(feature = "talk")]
pub mod heard;
mod kernel;
mod libraries;
mod oracle;
pub mod parser;
pub mod qemu;
pub mod run;

pub use error::{Error, Result};
pub use exercise::{catalog, disk, http, settings, workload};
pub use fetch::cache::Cache;
pub use fetch::owned::{OwnedFolder, try_lock};
pub use fetch::{cache, carried, packages, software, sources};
pub use guest_image::{admission, brought, initramfs, prepare, root};
pub use kernel::{installed, jobs, kbuild, kernels, modules, runtime, symbols};
pub use oracle::{packets, sectors};
pub use qemu::qmp;
pub use run::console::without_time;
pub use run::{cut, progress, rerun};
