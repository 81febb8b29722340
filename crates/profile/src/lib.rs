//! Profiles: clients that watch a running kernel, and their reports.
//!
//! Knows: the included clients and their scopes, when they attach, how addresses turn into functions and
//! lines, how stacks turn into charts.
//!
//! Must not know: the command line, how a client counts, how QEMU calls it.
//!
//! Invariants: every written file escapes the guest's names; an address without a name is shown as a number.

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
pub use run::{
    Live, Profile, Watcher, change, check, is_attached, run, run_live, run_prepared, show_kept, show_live,
};
