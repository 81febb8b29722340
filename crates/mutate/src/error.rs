//! What can go wrong, each with one clear sentence.

use guardrail_binfmt::KernelError;

/// Why there is no mutant.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is no module that can be read.
    #[error(transparent)]
    Module(#[from] KernelError),
    /// A structure in the file contradicts itself.
    #[error("{what} is damaged: {detail}")]
    Damaged {
        /// Which file, as the caller named it.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The name is no kind of bug.
    #[error("there is no kind of bug named '{name}'; there are {known}")]
    UnknownKind {
        /// The name as the user gave it.
        name: String,
        /// The names of all kinds, for the message.
        known: String,
    },
    /// The driver has no place for this kind of bug.
    #[error("{what} has no place for a bug of the kind {kind}")]
    NoPlace {
        /// Which driver, as the caller named it.
        what: String,
        /// The name of the kind.
        kind: &'static str,
    },
    /// The mutant does not keep what mutants promise: a fault of this program.
    #[error("a mutant of {what} would break what the kernel relies on: {detail}")]
    Unsound {
        /// Which driver, as the caller named it.
        what: String,
        /// What the mutant does not keep.
        detail: String,
    },
}
