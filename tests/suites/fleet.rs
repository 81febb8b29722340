//! A fleet whose workers, servers and controller are killed at random: each job has one result, none is lost, none is counted
//! twice. The servers are Debian's, on loopback.

#[path = "fleet/chaos.rs"]
mod chaos;
#[path = "fleet/faults.rs"]
mod faults;
#[path = "fleet/sameness.rs"]
mod sameness;
#[path = "fleet/sentences.rs"]
mod sentences;
#[path = "fleet/servers.rs"]
mod servers;

use chaos::{Chaos, Size};
use libtest_mimic::{Arguments, Failed, Trial};
use servers::{Cluster, Nats};
use std::time::Duration;

/// What runs always.
const SAMPLE: Size = Size { jobs: 400, milliseconds: 100, every: Duration::from_millis(1500) };
/// What `--ignored` runs: about two minutes for each engine.
const FULL: Size = Size { jobs: 2000, milliseconds: 200, every: Duration::from_secs(20) };

/// Runs and kills an engine.
type Test = fn(Size) -> Result<(), Failed>;

fn main() {
    let mut trials = Vec::new();
    for (size, full) in [(SAMPLE, false), (FULL, true)] {
        let engines = [("local", local as Test), ("NATS", nats), ("Slurm", slurm)];
        for (engine, test) in engines {
            let name = format!("{} jobs have one result each, with kills ({engine})", size.jobs);
            trials.push(Trial::test(name, move || test(size)).with_ignored_flag(full));
        }
    }
    trials.extend(sentences::trials());
    trials.extend(faults::trials());
    trials.push(Trial::test("two workers find what one finds", sameness::two_find_what_one_finds));
    // Each trial keeps both processors busy, and says how much of them it used.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit()
}

fn local(size: Size) -> Result<(), Failed> {
    Chaos::new("local", size)?.run(&mut [])
}

fn nats(size: Size) -> Result<(), Failed> {
    let mut server = Nats::start()?;
    let mut chaos = Chaos::new(&server.address(), size)?;
    chaos.own_workers()?;
    chaos.run(&mut [&mut server])
}

fn slurm(size: Size) -> Result<(), Failed> {
    let Some(cluster) = Cluster::start()? else {
        println!("not checked: a fleet on Slurm: its daemons need root");
        return Ok(());
    };
    let mut chaos = Chaos::new("slurm", size)?;
    chaos.environment(cluster.environment());
    let Cluster { mut controller, mut node, .. } = cluster;
    chaos.run(&mut [&mut controller, &mut node])
}
