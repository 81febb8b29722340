//! The allocators of a kernel for code that runs inside it: layouts, functions and what they do.

mod calls;
mod layout;

pub use calls::{Call, Named, Size, calls, own_code};
pub use layout::{CpuSlabs, Layout, Sheaves, SlabMark};

#[cfg(test)]
mod tests;
