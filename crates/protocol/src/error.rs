//! Errors of this crate, each one sentence.

use guardrail_knowledge::chart::parse::ChartError;

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// A file of charts makes no sense.
    #[error(transparent)]
    Chart(#[from] ChartError),
    /// What the user asked for is not there, or does not fit.
    #[error("{0}")]
    Input(String),
    /// A mistake in this program.
    #[error("{0}")]
    Broken(String),
}
