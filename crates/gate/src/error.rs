//! The errors of the gate.

use std::io;
use std::path::PathBuf;

/// Why the gate cannot work, or closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused something.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The device cannot run behind this gate.
    #[error("the device cannot be put behind the gate: {why}")]
    Device {
        /// The reason, and what to do.
        why: String,
    },
    /// The device's QEMU did not start, ended, or stopped answering.
    #[error("the QEMU that runs the device {what}")]
    Qemu {
        /// What happened, with the last lines of its output.
        what: String,
    },
    /// The driver VM broke the protocol.
    #[error("the driver VM broke the vfio-user protocol: {what}")]
    Protocol {
        /// The violation of the protocol.
        what: String,
    },
    /// The path of the socket is too long for the system.
    #[error("the path {} is too long for a socket (at most 107 bytes); choose a shorter run folder", path.display())]
    LongPath {
        /// The path of the socket.
        path: PathBuf,
    },
    /// The gate's process failed.
    #[error("the gate's process {what}")]
    Process {
        /// What happened to the process.
        what: String,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds the operation to an error of the system.
pub(crate) trait Context<T> {
    fn context(self, what: &str) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: &str) -> Result<T> {
        self.map_err(|source| Error::System { what: what.to_owned(), source })
    }
}
