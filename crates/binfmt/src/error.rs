//! The one error type of this crate.

use std::path::PathBuf;

/// Why a kernel image or a module cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Io {
        /// The file as the caller named it.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file is of another kind than expected.
    #[error("{what} is not {expected}")]
    NotA {
        /// Which file, as the caller named it.
        what: String,
        /// The kind that was expected, as a noun for messages.
        expected: &'static str,
    },
    /// The file ends too early.
    #[error("{what} is cut short: {detail}")]
    Truncated {
        /// Which file, as the caller named it.
        what: String,
        /// What reaches beyond the end.
        detail: String,
    },
    /// The file is for another processor.
    #[error("{what} is built for {found}, but only x86-64 is supported")]
    Architecture {
        /// Which file, as the caller named it.
        what: String,
        /// The architecture named in it.
        found: String,
    },
    /// Compressed data does not decompress, or decompresses to more than is plausible.
    #[error("cannot decompress {what}: {detail}")]
    Decompress {
        /// Which file or part of it.
        what: String,
        /// The reason, as the decompressor states it.
        detail: String,
    },
    /// A structure in the file contradicts itself.
    #[error("{what} is damaged: {detail}")]
    Damaged {
        /// Which file or part of it.
        what: String,
        /// What does not fit.
        detail: String,
    },
    /// This kernel was built without options that a usable kernel has.
    #[error(
        "the kernel {release} was built without {options}; set what is missing in its .config, and build it again"
    )]
    Unconfigured {
        /// Release of the kernel.
        release: String,
        /// What is missing, with the names of the options, comma separated.
        options: String,
    },
    /// This kernel lacks something that a usable kernel has.
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
