//! The errors of the host, under the names that the commands use.

pub use guardrail_host::error::{HostError as CliError, Status, print, print_line, sentence};
