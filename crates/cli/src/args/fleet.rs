//! Arguments of `job` and `fleet`.

use crate::args::TableFormat;
use crate::args::runs::{EachArgs, PlaceArgs};
use clap::{Args, Subcommand};
use guardrail_fleet::engine::{OUTAGE, ServerPlan};
use guardrail_fleet::{EngineKind, RunPlan};
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `job`.
#[derive(Debug, Args)]
pub struct JobArgs {
    /// The job's specification, as TOML or JSON
    #[arg(value_name = "SPEC")]
    pub spec: PathBuf,
    /// A store of results: a result that is there is printed, a new one is kept
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Print the job's key instead of its result
    #[arg(long)]
    pub key: bool,
}

/// What `fleet` does.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Run many jobs on many workers, and print one table
    Run(FleetRunArgs),
    /// Work for a run until no job is left
    Work(FleetWorkArgs),
    /// Show how far the runs of a store are
    Status(FleetStatusArgs),
    /// Print the jobs of a survey, one a line
    Jobs(FleetJobsArgs),
}

/// Arguments of `fleet run`.
#[derive(Debug, Args)]
pub struct FleetRunArgs {
    /// The jobs' specifications, as JSON, one a line
    #[arg(value_name = "JOBS")]
    pub jobs: PathBuf,
    /// The folder of results; a run that was interrupted goes on
    #[arg(long, value_name = "DIR")]
    pub store: PathBuf,
    /// What starts workers: processes of this machine, Slurm, or workers that you start beside a NATS server
    #[arg(long, value_name = "local|slurm|nats://HOST:PORT", default_value = "local")]
    pub engine: EngineKind,
    /// Number of workers [default: local: one for each processor; slurm: 4; nats: 0 on this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub workers: Option<u32>,
    /// Try again what failed before
    #[arg(long)]
    pub retry: bool,
    /// With a NATS server: give up when it was away for so long
    #[arg(long, value_name = "SECONDS", default_value_t = OUTAGE.as_secs(), value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub outage: u64,
}

/// Arguments of `fleet work`.
#[derive(Debug, Args)]
pub struct FleetWorkArgs {
    /// The folder of results that all workers share
    #[arg(long, value_name = "DIR", required_unless_present = "engine")]
    pub store: Option<PathBuf>,
    /// The server that has the jobs and takes the results, instead of a shared folder
    #[arg(long, value_name = "nats://HOST:PORT", conflicts_with_all = ["run", "of"])]
    pub engine: Option<EngineKind>,
    /// With --engine: end after so long without a job, instead of waiting for more
    #[arg(long, value_name = "SECONDS", requires = "engine", value_parser = clap::value_parser!(u64).range(0..=86400))]
    pub idle: Option<u64>,
    /// With --engine: end when the server was away for so long
    #[arg(long, value_name = "SECONDS", default_value_t = OUTAGE.as_secs(), requires = "engine", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub outage: u64,
    /// The run of the store [default: the newest]
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,
    /// This worker's number, which no other worker of the run has; one that is started again has the same
    #[arg(long, value_name = "N", required_unless_present = "engine")]
    pub index: Option<u32>,
    /// How many workers there are
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub of: u32,
}

/// Arguments of `fleet status`.
#[derive(Debug, Args)]
pub struct FleetStatusArgs {
    /// The folder of results
    #[arg(long, value_name = "DIR")]
    pub store: PathBuf,
    /// Print the table of a survey whose jobs ran
    #[arg(long)]
    pub survey: bool,
    /// With --survey: the run [default: the newest]
    #[arg(long, value_name = "ID", requires = "survey")]
    pub run: Option<String>,
    /// With --survey: how the table is printed
    #[arg(long, value_enum, default_value_t = TableFormat::Text, requires = "survey")]
    pub format: TableFormat,
}

/// Arguments of `fleet jobs`.
#[derive(Debug, Args)]
pub struct FleetJobsArgs {
    /// Which runs there are.
    #[command(flatten)]
    pub places: PlaceArgs,
    /// What each run is like.
    #[command(flatten)]
    pub each: EachArgs,
    /// A job for each of so many seeds, which the workload gets as the variable SEED
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub seeds: u64,
}

impl FleetRunArgs {
    /// The run that the arguments ask for.
    pub fn plan(&self) -> RunPlan {
        RunPlan {
            jobs: self.jobs.clone(),
            store: self.store.clone(),
            engine: self.engine.clone(),
            workers: self.workers,
            retry: self.retry,
            outage: Duration::from_secs(self.outage),
        }
    }
}

impl FleetWorkArgs {
    /// The work for a server; `None` where the jobs are in a store.
    pub fn for_server(&self) -> Option<ServerPlan> {
        Some(ServerPlan {
            engine: self.engine.clone()?,
            store: self.store.clone(),
            index: self.index.unwrap_or_default(),
            idle: self.idle.map(Duration::from_secs),
            outage: Duration::from_secs(self.outage),
        })
    }
}
