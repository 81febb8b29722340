//! Campaigns: many guests, each with one planted fault, judged together.
//!
//! Knows: mutants of a driver and what the console reports of them ([`mutants`]), and faults in drivers of
//! the zoo with their effects outside of the guest ([`containment`]). It also knows the folder of a campaign,
//! from which an interrupted campaign continues, and how a guarded driver is compared with the stock one
//! ([`tryout`]).
//!
//! Must not know: the command line, how a fault is planted in code, how a checker decides.
//!
//! Invariants: a run that ended has its line in the folder before the next run begins; no guest outlives the
//! campaign.

pub mod containment;
mod jobs;
pub mod mutants;
mod plan;
mod standing;
pub mod tryout;

pub use plan::{ContainmentPlan, Harmed, MutantPlan, TryPlan};
