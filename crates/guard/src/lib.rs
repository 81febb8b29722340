//! Guarded drivers: stock modules that contain their own checks, and the runtime that they need.
//!
//! Knows: which passes guard a driver, the runtime's file, the runtime's lines in the kernel's log, the contents of
//! `guard.json`, and which entries the findings of a report lead to.
//!
//! Must not know: the command line, how a guest is run, how the runtime holds rights.
//!
//! Invariants: each file is written whole or not at all, and the description last. A file that is guarded already, or is the
//! runtime, is refused before anything is fetched.

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

pub use inspect::{Inspection, inspect};
pub use plan::{GuardPlan, guard};
pub use policy::Policy;
pub use selection::Wanted;
pub use summary::Summary;
pub use workshop::{Hardened, Workshop};

/// The runtime's file in every folder of guarded drivers.
const RUNTIME: &str = "guardrail.ko";
/// The description of the folder, as JSON.
const DESCRIPTION: &str = "guard.json";
/// The largest module and the largest log that are read, in bytes.
const MAX_FILE: u64 = 256 << 20;
/// Percent of a driver's imports that policies other than "log" want under a rule, unless the user says another number.
pub const THRESHOLD: u32 = 90;
