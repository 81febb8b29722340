//! The host services of every engine: errors with their exit statuses, progress, signals, processes, folders
//! and files. It also describes the drivers of a run.
//!
//! Knows: standard error, signals, folders of runs, the libraries beside the program, and how drivers of the
//! zoo are built.
//!
//! Must not know: the command line, what events mean, what a report looks like.
//!
//! Invariants: nothing here writes to standard output; a folder that belongs to a run is removed with it.

pub mod drivers;
pub mod error;
pub mod files;
pub mod folders;
pub mod from_source;
pub mod process;
pub mod progress;
pub mod signals;
pub mod symbols;
pub mod zoo;

pub use error::{HostError, Status};
pub use progress::Progress;
pub use signals::Signals;
pub use symbols::Symbols;

use guardrail_vm::Cache;

/// The cache, which says what is fetched into it where the user wants to hear that.
pub fn cache() -> Result<Cache, HostError> {
    Ok(Cache::open()?.saying(progress::detail))
}

/// The services that an engine uses on this machine.
pub struct Host {
    /// The cache of kernels, packages and built drivers.
    pub cache: Cache,
    /// The user's signals, which can end the run.
    pub signals: Signals,
    /// The display of progress.
    pub progress: Progress,
}

impl Host {
    /// Services for a program of its own: it handles signals, and shows progress on standard error.
    pub fn open() -> Result<Host, HostError> {
        let (signals, progress) = (Signals::install()?, Progress::shown());
        Ok(Host { cache: cache()?, signals, progress })
    }

    /// Services for an engine inside another program: it handles no signal and shows nothing.
    pub fn embedded() -> Result<Host, HostError> {
        Ok(Host { cache: Cache::open()?, signals: Signals::none(), progress: Progress::silent() })
    }
}
