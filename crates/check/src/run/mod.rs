//! One run of a driver, in four stages, each a type: [`prepare`](prepare::prepare) gives [`Ready`], which starts as [`Started`],
//! which is watched until it has [`Ended`], which concludes with a [`Concluded`] report.
//!
//! Knows: the processes of a run, their order of start and end, what passes from the plan to each of them.
//!
//! Must not know: what events mean, how a checker decides, how the report is printed, further runs that confirm races.
//!
//! Invariants: the guest never outlives the watching thread; a run whose log failed ends with an error; nothing of a run stays
//! behind but its run folder, where the plan keeps that.

pub mod conclude;
pub mod guest;
pub mod prepare;
pub mod start;
pub mod tracer;
pub mod watch;

pub use conclude::Concluded;
pub use prepare::{Ready, prepare};
pub use start::Started;
pub use watch::Ended;
