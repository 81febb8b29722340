//! Certifies guarded modules: proves from a module file alone that nothing in it gets past its checks and
//! thunks.
//!
//! For every instruction that control can reach, on every way to it:
//!
//! - A store is allowed by a check of that address and size against the rights table, for the module's own
//!   domain; or it lies in the function's own stack frame, or in the module's own per-CPU variables.
//! - A call or jump to an address is allowed by a check of that address.
//! - A direct call or jump leads to a function of the module, to a thunk, or to an import that has no thunk.
//! - A thunk performs the actions that its read-only data lists, calls its function, and returns.
//! - A return finds the return address and the saved registers as they were.
//! - Where something is called, the description says where saved registers are.
//!
//! **Knows**: the contract with the runtime (`runtime/include/guardrail_abi.h`), the kernel's tables of code,
//! what instructions do.
//!
//! **Must not know**: how modules are rewritten. It shares no code with `rewrite` but the decoder.
//!
//! **Invariants**: what is not proven is a fault.
//!
//! Entry point: [`certify`].

mod border;
mod certificate;
mod data;
mod elf;
mod graph;
mod mode;
mod module;
mod patches;
mod prove;
mod spills;
mod state;
mod step;
mod tables;
mod value;
mod walk;
mod writing;

pub use certificate::{Certificate, certify};
pub use walk::Counts;

use thiserror::Error;

/// Why a file cannot be looked at.
#[derive(Debug, Error)]
pub enum CertifyError {
    /// It is no module.
    #[error("{what}: {detail}")]
    File {
        /// The file.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// It is a stock module.
    #[error("{what} is not a guarded module")]
    NotGuarded {
        /// The file.
        what: String,
    },
}
