//! The words with which a verdict of triage begins; its reason follows.

/// A fault follows.
pub const HARMFUL: &str = "harmful";
/// Neither a fault nor the absence of one is shown.
pub const UNDECIDED: &str = "undecided";
/// Nothing follows.
pub const BENIGN: &str = "likely benign";
