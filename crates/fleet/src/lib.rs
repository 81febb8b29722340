//! Many jobs on many machines: what a job is, where its result is kept, and how workers share the jobs.
//!
//! A job is addressed by a digest of all that goes in. Its result is stored once under that address, by whichever
//! worker and however often. So a worker, the controller or the server between them can be killed at any moment: what was lost is
//! computed again, and nothing is counted twice.
//!
//! Entry points: [`spec`] and [`job`] say what a job is, [`store`] and [`outcome`] how a result is kept. [`run()`] is the
//! controller, [`work`](work()) a worker, and [`engine`] has the ways to start workers.
//!
//! Knows: jobs, keys, results, the store, workers, Slurm's commands and NATS's streams.
//!
//! Must not know: the command line, how a check works, what a finding means.
//!
//! Invariants: a result is on the disk before its job counts as done; a name in the store is never written twice; no queue
//! grows beyond the jobs of a run.

pub mod attempt;
pub mod build;
pub mod canonical;
pub mod claims;
pub mod compute;
pub mod controller;
pub mod engine;
pub mod job;
pub mod outcome;
pub mod spec;
pub mod status;
pub mod store;
pub mod survey;
pub mod unfit;
pub mod work;

pub use attempt::Attempt;
pub use compute::Computer;
pub use controller::{RunPlan, Summary, judge, run};
pub use engine::EngineKind;
pub use job::{Job, Key, Resolver};
pub use outcome::Outcome;
pub use spec::Spec;
pub use status::{Status, statuses};
pub use store::Store;
pub use work::{WorkPlan, work};

use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

/// A random number as 16 hexadecimal digits.
fn random() -> String {
    let mut bytes = [0; 8];
    if File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).is_err() {
        // Without that device, time tells names apart.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        bytes = (now.as_nanos() as u64).to_le_bytes();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A name for this process that no other process has, on any machine.
fn own_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| format!("{}-{}", std::process::id(), random()))
}

/// The name of this machine.
fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain: String =
        name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || "-.".contains(*c)).collect();
    if plain.is_empty() { "machine".to_owned() } else { plain }
}
