//! What the runtime does at a violation of a guarded driver.

use serde::{Deserialize, Serialize};

/// The policy of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Report the violation, and continue.
    Log,
    /// End the thread with an oops.
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

    /// True where the driver's call is ended, also after a fault of the processor, and the thread continues.
    pub fn ends_calls(self) -> bool {
        matches!(self, Policy::Fail | Policy::Recover)
    }
}
