//! Reads kernel images and modules as files, without knowledge of what their functions mean.
//!
//! **Knows**: bzImage, ELF, the compressions that distributions use, kallsyms, BTF, ORC, DWARF lines and prototypes,
//! relocations, the entry without decompressor.
//!
//! **Must not know**: what a kernel function does, the tracer's configuration, a running guest.
//!
//! **Invariant**: any bytes give a value or an error, never a panic, and memory stays bounded.

pub mod btf;
mod bytes;
mod decompress;
pub mod direct;
mod elf;
mod error;
pub mod image;
pub mod kallsyms;
pub mod kernel_lines;
pub mod lines;
pub mod module;
pub mod orc;
pub mod prototypes;
mod relocs;

pub use btf::Btf;
pub use error::KernelError;
pub use image::KernelImage;
pub use kernel_lines::{DebugKernel, KernelLines};
pub use lines::{Lines, SourceFrame};
pub use module::ModuleImage;
