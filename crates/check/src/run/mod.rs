//! One run of a driver, in four stages, each a type. [`prepare`](prepare::prepare) returns [`Ready`], which
//! starts as [`Started`]. That is watched until it has [`Ended`], which concludes with a [`Concluded`]
//! report.
//!
//! Knows: the processes of a run, the order of their start and end, and the parts of the plan that each
//! receives.
//!
//! Must not know: what events mean, how a checker decides, how the report is printed, further runs that confirm races.
//!
//! Invariants:
//!
//! - The guest never outlives the watching thread.
//! - A run whose log failed ends with an error.
//! - A run that the user interrupts has a report of what was found, and never the exit status of a whole one.
//! - Only the run folder outlives a run, where the plan keeps it.

pub mod conclude;
mod described;
pub mod guest;
mod interruption;
pub mod prepare;
mod printed;
pub mod start;
pub mod synthetic;
pub mod tracer;
pub mod watch;

pub use conclude::Concluded;
pub use prepare::{Ready, prepare};
pub use start::Started;
pub use watch::Ended;
