//! What somebody inside a running kernel must know of its allocators: layouts, functions and what they do.

mod calls;
mod layout;

pub use calls::{Call, Named, Size, calls, own_code};
pub use layout::{CpuSlabs, Layout, Sheaves, SlabMark};

#[cfg(test)]
mod tests;
