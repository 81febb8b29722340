//! The errors of the host, as the commands name them.

pub use guardrail_host::error::{HostError as CliError, Status, print, tell};
