//! What can go wrong, each with one clear sentence.

use guardrail_binfmt::KernelError;

/// Why there is no mutant.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is no module that can be read.
    #[error(transparent)]
    Module(#[from] KernelError),
    /// A structure in the file that contradicts itself.
    #[error("{what} is damaged: {detail}")]
    Damaged {
        /// Which file.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A name that is no kind of bug.
    #[error("there is no kind of bug named '{name}'; there are {known}")]
    UnknownKind {
        /// As given.
        name: String,
        /// All kinds.
        known: String,
    },
    /// A driver without any place for a kind of bug.
    #[error("{what} has no place for a bug of the kind {kind}")]
    NoPlace {
        /// Which driver.
        what: String,
        /// Which kind.
        kind: &'static str,
    },
    /// A mutant that does not keep what mutants promise: a fault of this program.
    #[error("a mutant of {what} would break what the kernel relies on: {detail}")]
    Unsound {
        /// Which driver.
        what: String,
        /// What.
        detail: String,
    },
}
