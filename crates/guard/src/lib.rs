//! Guarded drivers: stock modules that contain their own checks, and the runtime that they need.
//!
//! Knows: which passes guard a driver, the runtime's file, the runtime's lines in the kernel's log, the contents of
//! `guard.json`, and which entries the findings of a report lead to.
//!
//! Must not know: the command line, how a guest is run, how the runtime holds rights.
//!
//! Invariants: each file is written whole or not at all, and the description last. All that is fetched or built is so before
//! a file of the user's is read.

mod apart;
mod findings;
mod inspect;
pub mod learn;
mod machine;
mod plan;
mod policy;
mod selection;
mod summary;
pub mod violations;
mod workshop;

pub use apart::{FarWorkshop, Harden};
pub use inspect::{Inspection, inspect, runtime_beside};
pub use plan::{GuardPlan, guard};
pub use policy::Policy;
pub use selection::Wanted;
pub use summary::Summary;
pub use workshop::{Hardened, Workshop};

use guardrail_host::HostError;
use std::path::PathBuf;

/// Takes from the process what it does not need, given the files that it reads and those that it writes.
pub type Confine<'a> = dyn Fn(&[PathBuf], &[PathBuf]) -> Result<(), HostError> + 'a;

/// The runtime's file in every folder of guarded drivers.
const RUNTIME: &str = "guardrail.ko";
/// The description of the folder, as JSON.
const DESCRIPTION: &str = "guard.json";
/// The largest module and the largest log that are read, in bytes.
const MAX_FILE: u64 = 256 << 20;
/// Percent of a driver's imports that policies other than "log" want under a rule, unless the user says another number.
pub const THRESHOLD: u32 = 90;
