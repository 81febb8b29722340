//! What can go wrong, one sentence each.

use std::io;

/// Why results cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// The folder cannot be read.
    #[error("cannot read {folder}: {source}")]
    Folder {
        /// The folder, as the user named it.
        folder: String,
        /// The system's error.
        source: io::Error,
    },
    /// The folder holds nothing to show.
    #[error(
        "{0} holds no results; give the folder of 'guardrail check --out' or 'guardrail survey --out', or one above it"
    )]
    Empty(String),
    /// Another program listens at the port.
    #[error("port {0} is in use; give another one with --port, or 0 for any that is free")]
    PortInUse(u16),
    /// The server cannot listen.
    #[error("cannot listen at 127.0.0.1:{port}: {source}")]
    Listen {
        /// The port.
        port: u16,
        /// The system's error.
        source: io::Error,
    },
    /// The folder for static pages is in use.
    #[error("{0} is not empty; give a folder that is new or empty")]
    NotEmpty(String),
    /// A page cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file or folder.
        path: String,
        /// The system's error.
        source: io::Error,
    },
}

impl SiteError {
    /// Whether the user's input is wrong, rather than the machine.
    pub fn is_usage(&self) -> bool {
        !matches!(self, SiteError::Write { .. } | SiteError::Listen { .. })
    }
}
