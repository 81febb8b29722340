//! Profiles: clients over a kernel that runs, and what they report.
//!
//! Knows: the included clients and their scopes, when they attach, how their addresses become functions and lines, how stacks
//! become charts.
//!
//! Must not know: the command line, how a client counts, how QEMU calls it.
//!
//! Invariants: names of the guest are escaped in every file that is written; an address without a name is shown as a number.

mod charts;
mod choose;
mod control;
mod coverage;
mod names;
mod plan;
mod render;
mod run;
mod show;

pub use choose::INCLUDED;
pub use plan::{Format, ProfilePlan};
pub use run::{Live, Profile, Watcher, change, check, is_attached, run, run_live, show_kept, show_live};
