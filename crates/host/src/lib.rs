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

use guardrail_vm::Cache;

/// What an engine uses of the machine that it runs on.
pub struct Host {
    /// Kernels, packages and built drivers.
    pub cache: Cache,
    /// Whether the user wants the run to end.
    pub signals: Signals,
    /// How far the run is.
    pub progress: Progress,
}

impl Host {
    /// For a program of its own: it handles signals, and shows progress on standard error.
    pub fn open() -> Result<Host, HostError> {
        let (signals, progress) = (Signals::install()?, Progress::shown());
        Ok(Host { cache: Cache::open()?, signals, progress })
    }

    /// For an engine inside another program: it handles no signal and shows nothing.
    pub fn embedded() -> Result<Host, HostError> {
        Ok(Host { cache: Cache::open()?, signals: Signals::none(), progress: Progress::silent() })
    }
}
