//! The one model of a finding. Checkers, clients and the guard fill it, and reports print it.
//!
//! **Knows**: the format of a finding (`findings[]` of schema `guardrail/1`), its fingerprint, and the
//! kinds of findings.
//!
//! **Must not know**: how a checker finds a fault, what a whole run is, or how a report is printed.
//!
//! **Invariant**: the names of fields and their values are those of `docs/report.schema.json`. Reading
//! accepts findings without optional fields. Writing always gives every field that scripts rely on.
//!
//! **Invariant**: the same fault has the same fingerprint in every run and every build.

mod fingerprint;
pub mod kinds;
mod model;
mod source;
pub mod triage;

pub use fingerprint::{Fingerprints, SMALL_OBJECT, Target, without_indices};
pub use model::{
    AccessInfo, BaselineState, CallStack, Confirmation, Consequence, ContextInfo, Finding, ForcedOrder,
    Frame, HeldLock, KERNEL_CHECKER, ModuleCoverage, ObjectInfo, OriginInfo, OtherAccess, RaceSide, Related,
    Repeated, Severity, Suppressed, trace_lines,
};
pub use source::{Inlined, LinkAddress, Location, Source};
