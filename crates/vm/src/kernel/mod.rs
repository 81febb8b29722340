//! Kernel trees: images, modules and what they depend on, and building modules against them.
//!
//! **Knows**: short names of kernels, packages, `modules.dep`, kbuild, debug packages, `guardrail.ko`, unpacked kernels. **Must not know**: a running guest.

use crate::parser::Known;

pub(crate) mod direct;
pub(crate) mod foreign;
pub mod installed;
pub mod kbuild;
mod kernel_debug;
pub mod kernels;
mod listed;
pub mod modules;
pub mod runtime;
pub mod symbols;

/// The jobs of this crate, for the process that parses.
pub fn jobs() -> Vec<Known> {
    vec![
        Known::of::<modules::ReadModule>(),
        Known::of::<modules::GuardedName>(),
        Known::of::<direct::Unpack>(),
        Known::of::<direct::Move>(),
        Known::of::<symbols::ReadDebug>(),
        Known::of::<kernel_debug::ReadBuild>(),
        Known::of::<kernel_debug::ReadKernelDebug>(),
    ]
}
