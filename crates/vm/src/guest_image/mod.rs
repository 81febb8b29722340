//! What the guest boots: everything that a run needs, checked, and the initramfs made of it.
//!
//! **Knows**: kernel, modules, workload and programs of one run. **Must not know**: QEMU's command line.

pub mod admission;
pub mod brought;
mod firmware;
pub mod initramfs;
pub mod prepare;
pub mod root;
