//! The engines: ways to start workers, on this machine or on others.

pub mod local;

use crate::controller::Run;
use crate::work::Worked;
use guardrail_host::{Host, HostError};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

/// Starts workers and keeps them working.
pub trait Engine {
    /// The number of workers where the user gives none.
    fn usual_workers(&self) -> u32;

    /// Hands over the jobs that are left.
    fn start(&mut self, run: &mut Run<'_>) -> Result<(), HostError>;

    /// Waits for about so long, and replaces workers that ended too early.
    fn wait(&mut self, run: &mut Run<'_>, time: Duration) -> Result<(), HostError>;

    /// Ends the workers. Nothing may be left of them that costs anything.
    fn stop(&mut self, run: &Run<'_>);
}

/// An engine by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Processes of this machine.
    Local,
}

impl FromStr for EngineKind {
    type Err = String;

    fn from_str(text: &str) -> Result<EngineKind, String> {
        match text {
            "local" => Ok(EngineKind::Local),
            _ => Err(format!("there is no engine '{text}'; there is local")),
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineKind::Local => f.write_str("local"),
        }
    }
}

impl EngineKind {
    /// The engine, ready to start.
    pub fn open(&self) -> Result<Box<dyn Engine>, HostError> {
        match self {
            EngineKind::Local => Ok(Box::new(local::Local::new(local::Work::Store)?)),
        }
    }
}

/// Works for a run whose jobs come from an engine, until no job is left. A result that is in the store is not computed again.
pub fn work_for(
    engine: &EngineKind,
    _store: Option<&Path>,
    _index: u32,
    _host: &Host,
    _build: &str,
) -> Result<Worked, HostError> {
    match engine {
        EngineKind::Local => Err(HostError::Usage(
            "the workers of the engine 'local' take their jobs from a store; give --store DIR".to_owned(),
        )),
    }
}
