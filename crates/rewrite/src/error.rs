//! The one error type of this crate.

/// Why a module cannot be rewritten.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// The file is not a module, or not a whole one.
    #[error(transparent)]
    Module(#[from] guardrail_binfmt::KernelError),
    /// The ELF structure is damaged, or of a kind that modules do not have.
    #[error("{what} cannot be taken apart: {detail}")]
    Object {
        /// Which file, as the caller named it.
        what: String,
        /// What is wrong with the structure.
        detail: String,
    },
    /// A place in the file that is not understood well enough to move it.
    #[error("{place}: {detail}")]
    Refused {
        /// Section and offset, or function and offset.
        place: String,
        /// What is not understood there.
        detail: String,
    },
    /// Functions that no compiler made, and for which the checks would not be sure.
    #[error("it has assembly that cannot be proven: {}", list(.doubts))]
    Unproven {
        /// The functions, each with its first reason.
        doubts: Vec<Doubt>,
    },
    /// The module has been rewritten already.
    #[error("{what} is guarded already; give the driver as it was built")]
    Guarded {
        /// Which file, as the caller named it.
        what: String,
    },
    /// The module has not been rewritten.
    #[error("{what} is not a guarded module")]
    NotGuarded {
        /// Which file, as the caller named it.
        what: String,
    },
    /// The file that should be the runtime is another one.
    #[error("{what} is not the runtime, guardrail.ko")]
    NoRuntime {
        /// Which file, as the caller named it.
        what: String,
    },
    /// The result is not what it should be; never a fault of the input.
    #[error("the rewritten module fails its own check at {place}: {detail}")]
    Check {
        /// Section and offset.
        place: String,
        /// What differs.
        detail: String,
    },
}

/// A function for which the checks cannot be proven to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The function's name. Where code belongs to no function, it is the symbol before the code, or else the
    /// section.
    pub function: String,
    /// Bytes from the begin of the function, or of what stands for it, to the instruction.
    pub offset: u64,
    /// What the instruction does that a compiler's code does not, as a clause for messages.
    pub why: &'static str,
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}, at +{:#x})", self.function, self.why, self.offset)
    }
}

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, RewriteError>;

/// How many functions a message names.
const NAMED: usize = 8;

fn list(doubts: &[Doubt]) -> String {
    let mut text = doubts.iter().take(NAMED).map(Doubt::to_string).collect::<Vec<_>>().join(", ");
    if let Some(more) = doubts.len().checked_sub(NAMED + 1) {
        text += &format!(" and {} more", more + 1);
    }
    text
}

pub(crate) fn refused<T>(place: impl Into<String>, detail: impl Into<String>) -> Result<T> {
    Err(RewriteError::Refused { place: place.into(), detail: detail.into() })
}
