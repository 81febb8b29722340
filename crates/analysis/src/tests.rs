//! Small runs by hand, each with what is to be found in it.

mod addresses;
mod frees;
mod guest;
mod hostile;
mod undefined;
