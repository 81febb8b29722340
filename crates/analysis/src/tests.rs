//! Small hand-written runs, each with the expected findings.

mod addresses;
mod dma;
mod formats;
mod frees;
mod guest;
mod hostile;
pub(crate) mod kernel;
mod order;
mod others;
mod pointers;
mod races;
mod ranges;
pub(crate) mod rng;
mod stacks;
mod undefined;
