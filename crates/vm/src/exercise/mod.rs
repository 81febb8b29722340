//! What exercises a driver: its device, the workload, and the host's side of both.
//!
//! **Knows**: the catalog, workload scripts, the disk image, the HTTP server. **Must not know**: how the guest is started.

pub mod catalog;
pub mod disk;
pub mod http;
pub(crate) mod pattern;
pub mod settings;
pub(crate) mod syz;
pub mod workload;
