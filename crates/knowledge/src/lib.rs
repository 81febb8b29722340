//! What is known about kernel functions and classes of kernel objects: the types that checkers work with, and the language of charts.
//!
//! **Knows**: effects of kernel functions, charts, and how both are written.
//!
//! **Must not know**: a kernel image, a module, the events of a run, the checkers.
//!
//! **Invariant**: any text gives a value or an error that names the line, never a panic.

pub mod chart;
pub mod effect;
