//! What a guarded driver's kernel does at a violation.

use serde::{Deserialize, Serialize};

/// The runtime's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Report it, and go on.
    Log,
    /// End the thread.
    Oops,
    /// End the call of the driver with an error.
    Fail,
    /// Tear the domain down, load the driver again and restore its state.
    Recover,
}

impl Policy {
    /// The value of the runtime's parameter.
    pub fn word(self) -> &'static str {
        match self {
            Policy::Log => "log",
            Policy::Oops => "oops",
            Policy::Fail => "fail",
            Policy::Recover => "recover",
        }
    }

    /// True where the driver's call is ended, after a fault of the processor as well, and the thread goes on.
    pub fn ends_calls(self) -> bool {
        matches!(self, Policy::Fail | Policy::Recover)
    }
}
