//! Small runs by hand, each with what is to be found in it.

mod addresses;
mod dma;
mod frees;
mod guest;
mod hostile;
mod order;
mod others;
mod races;
pub(crate) mod rng;
mod undefined;
