//! What is known about kernel functions and classes of kernel objects: the files under `knowledge/`, their language, and the
//! types that checkers work with.
//!
//! **Knows**: effects, rights and roles of kernel functions, charts, and how they are written; which arguments a format
//! reads. A new class is a new folder, which the build script finds.
//!
//! **Must not know**: a kernel image, a module, the events of a run, the checkers.
//!
//! **Invariant**: any text gives a value or an error that names the line, never a panic.

pub mod chart;
pub mod effect;
mod files;
pub mod format;
pub mod role;
pub mod table;
