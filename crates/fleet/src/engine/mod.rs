//! The engines: ways to start workers, on this machine or on others.

pub mod local;
pub mod nats;
pub mod slurm;

use crate::job::{Job, Key};
use crate::store::Store;
use crate::work::Worked;
use guardrail_host::{Host, HostError};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

/// A run, as engines see it.
pub struct Run<'a> {
    /// The store.
    pub store: &'a Store,
    /// The run's id: 16 hexadecimal digits.
    pub id: &'a str,
    /// The jobs that have neither a result nor are set aside.
    pub left: Vec<(Key, Job)>,
    /// The number of workers.
    pub workers: u32,
    /// The services of this machine.
    pub host: &'a Host,
}

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
    /// An array of Slurm.
    Slurm,
    /// Workers beside the NATS server at this address.
    Nats(String),
}

impl FromStr for EngineKind {
    type Err = String;

    fn from_str(text: &str) -> Result<EngineKind, String> {
        match text {
            "local" => Ok(EngineKind::Local),
            "slurm" => Ok(EngineKind::Slurm),
            address if address.contains("://") => nats::address(address).map(EngineKind::Nats),
            _ => Err(format!("there is no engine '{text}'; there are local, slurm and nats://HOST:PORT")),
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineKind::Local => f.write_str("local"),
            EngineKind::Slurm => f.write_str("slurm"),
            EngineKind::Nats(address) => f.write_str(address),
        }
    }
}

impl EngineKind {
    /// The engine, ready to start.
    pub fn open(&self) -> Result<Box<dyn Engine>, HostError> {
        match self {
            EngineKind::Local => Ok(Box::new(local::Local::new(local::Work::Store)?)),
            EngineKind::Slurm => Ok(Box::new(slurm::Slurm::open()?)),
            EngineKind::Nats(address) => Ok(Box::new(nats::Nats::open(address)?)),
        }
    }
}

/// Works for a server until it has had no job for `idle`, or without an end.
pub fn work_for(
    engine: &EngineKind,
    store: Option<&Path>,
    index: u32,
    idle: Option<Duration>,
    services: (&Host, &str),
) -> Result<Worked, HostError> {
    let (host, build) = services;
    match engine {
        EngineKind::Nats(address) => nats::work(&nats::Worker { address, store, index, idle }, host, build),
        other => Err(HostError::Usage(format!(
            "workers of the engine '{other}' take their jobs from a store; give --store DIR instead of --engine"
        ))),
    }
}
