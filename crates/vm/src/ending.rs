//! How processes ended, in words.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How a process ended, in words: `ended by signal 9 (SIGKILL)`.
pub fn ending(status: ExitStatus) -> String {
    match status.signal() {
        Some(_) => format!("ended by {}", status.to_string().replacen(": ", " ", 1)),
        None => format!("ended with status {}", status.code().unwrap_or(-1)),
    }
}

/// The same of a process that should have gone on: `was ended by signal 9 (SIGKILL)`.
pub fn ending_early(status: ExitStatus) -> String {
    match status.signal() {
        Some(_) => format!("was {}", ending(status)),
        None => format!("ended too early, with status {}", status.code().unwrap_or(-1)),
    }
}
