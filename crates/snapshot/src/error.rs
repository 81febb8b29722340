//! Errors of saved guests.

use std::path::{Path, PathBuf};

/// Why a saved guest cannot be read or prepared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {doing} {path}")]
    Io {
        /// The operation, as a verb phrase for the message.
        doing: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The file's content is not valid.
    #[error("{path} is no saved guest that can be read: {why}")]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// The check that failed.
        why: String,
    },
}

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Makes a function that wraps an I/O error.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { doing, path, source }
    }

    pub(crate) fn damaged(path: &Path, why: impl Into<String>) -> Error {
        Error::Damaged { path: path.to_path_buf(), why: why.into() }
    }
}
