//! What every engine needs of the host: errors with their exit statuses, progress, signals, processes, folders and files,
//! and the drivers that a run is about.
//!
//! Knows: standard error, signals, folders of runs, the libraries beside the program, how drivers of the zoo are built.
//!
//! Must not know: the command line, what events mean, what a report looks like.
//!
//! Invariants: nothing here writes to standard output; a folder that belongs to a run is removed with it.

pub mod drivers;
pub mod error;
pub mod files;
pub mod folders;
pub mod process;
pub mod progress;
pub mod signals;
pub mod zoo;

pub use error::{HostError, Status};
pub use progress::Progress;
pub use signals::Signals;
