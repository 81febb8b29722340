//! Stacks as pictures: a flame graph (SVG), folded lines for other tools, and a profile for profiler.firefox.com.

mod firefox;
mod flames;
mod stacks;

pub use firefox::firefox;
pub use flames::flames;
pub use stacks::{Frame, Stack, folded};
