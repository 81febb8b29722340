//! Campaigns: many guests, each with one planted fault, judged together.
//!
//! Knows: mutants of a driver and what the console reports of them ([`mutants`]); faults in drivers of the zoo and what they do
//! outside of the guest ([`containment`]); the folder of a campaign, which one that was interrupted goes on with.
//!
//! Must not know: the command line, how a fault is planted in code, how a checker decides.
//!
//! Invariants: a run that ended has its line in the folder before the next begins in its place; no guest outlives the campaign.

pub mod containment;
pub mod mutants;
mod plan;

pub use plan::{ContainmentPlan, Harmed, MutantPlan};
