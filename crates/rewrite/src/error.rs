//! The one error type of this crate.

use crate::assembly::Doubt;

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
        /// Which file.
        what: String,
        /// What is wrong with it.
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
    /// Functions that no compiler made, and of which the checks would not be sure.
    #[error("it has assembly that cannot be proven: {}", list(.doubts))]
    Unproven {
        /// The functions.
        doubts: Vec<Doubt>,
    },
    /// It has been through here already.
    #[error("{what} is guarded already; give the driver as it was built")]
    Guarded {
        /// Which file.
        what: String,
    },
    /// It has not been through here.
    #[error("{what} is not a guarded module")]
    NotGuarded {
        /// Which file.
        what: String,
    },
    /// A file in the place of the runtime.
    #[error("{what} is not the runtime, guardrail.ko")]
    NoRuntime {
        /// Which file.
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

/// Short for results of this crate.
pub type Result<T> = std::result::Result<T, RewriteError>;

/// So many functions are named.
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
