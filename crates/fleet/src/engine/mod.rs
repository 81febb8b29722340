//! The engines: ways to start workers, on this machine or on others.

pub mod local;

use crate::controller::Run;
use guardrail_host::HostError;
use std::fmt;
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
