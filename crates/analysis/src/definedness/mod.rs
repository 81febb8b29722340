//! Which bits of memory are undefined, and which bytes must not be accessed.

mod shadow;

pub use shadow::Shadow;
