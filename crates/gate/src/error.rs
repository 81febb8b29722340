//! What can go wrong with the gate.

use std::io;
use std::path::PathBuf;

/// Why the gate cannot work, or closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused something.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The device cannot stand behind this gate.
    #[error("the device cannot be put behind the gate: {why}")]
    Device {
        /// Why not, and what to do.
        why: String,
    },
    /// The device's QEMU did not start, ended, or fell silent.
    #[error("the QEMU that runs the device {what}")]
    Qemu {
        /// What it did, with its last words.
        what: String,
    },
    /// The driver VM broke the protocol.
    #[error("the driver VM broke the vfio-user protocol: {what}")]
    Protocol {
        /// How.
        what: String,
    },
    /// The path of the socket is too long for the system.
    #[error("the path {} is too long for a socket (at most 107 bytes); choose a shorter run folder", path.display())]
    LongPath {
        /// The path.
        path: PathBuf,
    },
    /// The gate's process broke off.
    #[error("the gate's process {what}")]
    Process {
        /// What it did.
        what: String,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Says what was tried when the system refuses.
pub(crate) trait Context<T> {
    fn context(self, what: &str) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: &str) -> Result<T> {
        self.map_err(|source| Error::System { what: what.to_owned(), source })
    }
}
