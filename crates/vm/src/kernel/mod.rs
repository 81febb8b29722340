//! Kernel trees: images, modules and what they depend on, and building modules against them.
//!
//! **Knows**: short names of kernels, packages, `modules.dep`, kbuild, debug packages, `guardrail.ko`, unpacked kernels. **Must not know**: a running guest.

pub(crate) mod direct;
pub mod installed;
pub mod kbuild;
mod kernel_debug;
pub mod kernels;
pub mod modules;
pub mod runtime;
pub mod symbols;
