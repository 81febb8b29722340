//! The engines: ways to start workers, on this machine or on others.

pub mod local;
pub mod nats;
pub mod slurm;

pub use nats::OUTAGE;

use crate::job::{Job, Key};
use crate::store::Store;
use crate::work::Worked;
use guardrail_host::{Host, HostError};
use std::fmt;
use std::path::PathBuf;
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
    /// The engine, ready to start. A server may be away for `outage`.
    pub fn open(&self, outage: Duration) -> Result<Box<dyn Engine>, HostError> {
        match self {
            EngineKind::Local => Ok(Box::new(local::Local::new(local::Work::Store)?)),
            EngineKind::Slurm => Ok(Box::new(slurm::Slurm::open()?)),
            EngineKind::Nats(address) => Ok(Box::new(nats::Nats::open(address, outage)?)),
        }
    }
}

/// How a worker works for a server.
#[derive(Clone, Debug)]
pub struct ServerPlan {
    /// The engine with the server.
    pub engine: EngineKind,
    /// A store that the worker looks into first.
    pub store: Option<PathBuf>,
    /// The worker's number, for names.
    pub index: u32,
    /// How long the worker waits for a job before it ends; without an end where absent.
    pub idle: Option<Duration>,
    /// How long the server may be away.
    pub outage: Duration,
}

/// Works for a server until it has had no job for a while, or without an end.
pub fn work_for(plan: &ServerPlan, host: &Host, build: &str) -> Result<Worked, HostError> {
    let ServerPlan { engine, store, index, idle, outage } = plan;
    match engine {
        EngineKind::Nats(address) => {
            let how = nats::Worker {
                address,
                store: store.as_deref(),
                index: *index,
                idle: *idle,
                outage: *outage,
            };
            nats::work(&how, host, build)
        }
        other => Err(HostError::Usage(format!(
            "workers of the engine '{other}' take their jobs from a store; give --store DIR instead of --engine"
        ))),
    }
}
