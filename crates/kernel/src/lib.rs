//! What we know of a kernel image and its modules without a running guest: symbols, types, what kernel
//! functions do, where source lines are, and the plan that the tracer follows.
//!
//! **Knows**: the formats of kernel images and modules (bzImage, ELF, kallsyms, BTF, DWARF), how kernel
//! versions differ, and which kernel functions matter.
//!
//! **Must not know**: the guest, QEMU, the events of a run, the checkers.
//!
//! **Invariant**: any bytes give a value or an error, never a panic, and memory stays bounded.

pub mod btf;
mod bytes;
pub mod chart;
pub mod charts;
mod closure;
mod decompress;
pub mod effect;
mod elf;
mod error;
mod gate;
pub mod image;
pub mod isolation;
pub mod kallsyms;
pub mod lines;
pub mod module;
pub mod orc;
pub mod plan;
pub mod prototypes;
mod relocs;
pub mod slab;
pub mod string_code;
pub mod summaries;

pub use btf::Btf;
pub use closure::returns;
pub use error::KernelError;
pub use gate::gate;
pub use image::KernelImage;
pub use lines::{Lines, SourceFrame};
pub use module::ModuleImage;
pub use plan::{module_list, tracer_config};
pub use summaries::SummaryTable;
