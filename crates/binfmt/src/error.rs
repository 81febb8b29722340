//! The one error type of this crate.

use std::path::PathBuf;

/// Why a kernel image or a module cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of another kind than expected.
    #[error("{what} is not {expected}")]
    NotA {
        /// Which file.
        what: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A file that ends too early.
    #[error("{what} is cut short: {detail}")]
    Truncated {
        /// Which file.
        what: String,
        /// What reaches beyond the end.
        detail: String,
    },
    /// A file for another processor.
    #[error("{what} is built for {found}, but only x86-64 is supported")]
    Architecture {
        /// Which file.
        what: String,
        /// The architecture named in it.
        found: String,
    },
    /// Compressed data that does not decompress, or to more than is plausible.
    #[error("cannot decompress {what}: {detail}")]
    Decompress {
        /// Which file or part of it.
        what: String,
        /// Why.
        detail: String,
    },
    /// A structure in the file that contradicts itself.
    #[error("{what} is damaged: {detail}")]
    Damaged {
        /// Which file or part of it.
        what: String,
        /// Why.
        detail: String,
    },
    /// Something that a usable kernel has is not in this one.
    #[error("the kernel {release} lacks {missing}, which tracing needs")]
    Missing {
        /// Release of the kernel.
        release: String,
        /// What is missing, comma separated.
        missing: String,
    },
}

impl KernelError {
    pub(crate) fn damaged(what: impl Into<String>, detail: impl Into<String>) -> Self {
        KernelError::Damaged { what: what.into(), detail: detail.into() }
    }

    pub(crate) fn truncated(what: impl Into<String>, detail: impl Into<String>) -> Self {
        KernelError::Truncated { what: what.into(), detail: detail.into() }
    }
}
