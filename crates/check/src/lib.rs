//! The engine of `check`, `analyze`, `confirm`, `survey`, `debug` and `view`: plain data in, findings out.
//!
//! Knows: the processes of a run and their protocol, the policy at findings, the files that a run leaves in
//! its folder.
//!
//! Must not know: the command line, what events mean, how a checker decides, how a guest is built.
//!
//! Invariants:
//!
//! - No type of the command line's parser appears here.
//! - Nothing here writes to standard output but the analysis process, which uses its protocol there.
//! - All code that reads bytes of a guest runs in that process, without privileges, or over a recorded trace.
//!
//! # A check from Rust
//!
//! A program that embeds a check depends on `guardrail-check` and `guardrail-host`. The program `guardrail`
//! and the library `libguardrail_tracer.so` must be beside it, or one folder above. The run starts
//! `guardrail` as its analysis process.
//!
//! ```no_run
//! use guardrail_check::{RunPlan, check, tools};
//! use guardrail_host::{Host, HostError};
//! use std::time::Duration;
//!
//! fn main() -> Result<(), HostError> {
//!     let host = Host::embedded()?;
//!     let plan = RunPlan {
//!         tools: tools("all")?,
//!         variables: vec![("DOWNLOAD_MB".to_owned(), "1".to_owned())],
//!         time_limit: Duration::from_secs(300),
//!         ..RunPlan::new("e1000")
//!     };
//!     let checked = check(&plan, &host)?;
//!     for finding in &checked.report.findings {
//!         println!("{}: {} in {}", finding.checker, finding.message, finding.function);
//!     }
//!     // An error here means that the report is not whole: events were lost, or the guest did not end well.
//!     checked.status?;
//!     Ok(())
//! }
//! ```
//!
//! [`check`] runs all stages in one call. A program that wants to act between them calls [`run::prepare()`],
//! [`Ready::start`](run::Ready::start), [`Started::watch`](run::Started::watch) and
//! [`Ended::conclude`](run::Ended::conclude). A signal of the user ends a run with
//! [`Host::open`](guardrail_host::Host::open), and the report has what was found so far; with `Host::embedded` the
//! program around it decides.
//! [`analyze`] runs the checkers over a recorded trace and returns the same report.

pub mod analysis;
pub mod confirm;
pub mod cost;
pub mod fetcher;
pub mod follow;
pub mod gate;
pub mod known;
pub mod last;
pub mod plan;
pub mod run;
pub mod snapshots;
pub mod survey;
pub mod view;

mod exercised;
mod input;
mod on_finding;
pub mod parsing;
mod reach;
mod recorded;
mod sandbox;
mod stored;
mod tools;
mod trace_head;

pub use plan::{Effort, GateKind, Mode, Observe, RunPlan};
pub use reach::{Reach, confine, only_reading, only_serving};
pub use recorded::{Analyzed, analyze};
pub use run::conclude::Checked;
pub use tools::tools;

use guardrail_host::{Host, HostError};
use run::{Ended, Started};

/// Runs a driver, and confirms its races where the plan says so. Call it on a thread that lives as long as the run.
pub fn check(plan: &RunPlan, host: &Host) -> Result<Checked, HostError> {
    check_if(plan, host, &|_| Ok(()))
}

/// As [`check()`], but asks before the guest starts whether the drivers, as a report names them, are the wanted ones.
pub fn check_if(
    plan: &RunPlan,
    host: &Host,
    wanted: &dyn Fn(&str) -> Result<(), HostError>,
) -> Result<Checked, HostError> {
    let ready = run::prepare(plan, host)?;
    wanted(&guardrail_host::drivers::names(&ready.prepared))?;
    let ended = ready.start().and_then(Started::watch);
    let mut run = ended.and_then(Ended::conclude).map_err(|error| host.signals.explain(error))?;
    if let Some(effort) = plan.confirm.filter(|_| !run.interrupted()) {
        match confirm::confirm_races(plan, &run.prepared, &mut run.report.findings, effort, host) {
            Err(HostError::Interrupted) => {
                run.interrupt("the confirmation was interrupted; races without an outcome were not tried");
            }
            other => _ = other?,
        }
        host.progress.finish();
    }
    Ok(run.keep())
}
