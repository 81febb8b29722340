//! Which bits of memory are undefined, and which bytes must not be touched.

mod shadow;

pub use shadow::Shadow;
