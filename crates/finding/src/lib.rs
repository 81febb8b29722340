//! What a finding is: the one model that checkers, clients and the guard fill, and that reports print.
//!
//! **Knows**: the shape of a finding (`findings[]` of schema `guardrail/1`), its fingerprint, and the kinds of findings.
//!
//! **Must not know**: how a finding is found, what a whole run is, or how a report is printed.
//!
//! **Invariant**: the names of fields and their values are those of `docs/report.schema.json`. Reading is lenient about what may
//! be absent; writing always gives every field that scripts rely on.
//!
//! **Invariant**: the same fault has the same fingerprint in every run and every build.

mod fingerprint;
pub mod kinds;
mod model;

pub use model::{
    AccessInfo, CallStack, Confirmation, ContextInfo, Finding, Frame, HeldLock, Location, ObjectInfo,
    OriginInfo, OtherAccess, Related, Severity,
};
