//! The result of analyzing a run.

use guardrail_finding::{Finding, ModuleCoverage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Findings and counts of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The findings, in the order of their first event.
    pub findings: Vec<Finding>,
    /// Counts from the first event to the last.
    pub statistics: Statistics,
}

/// Counts of what the log held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Statistics {
    /// Words of the log: accesses and records alike.
    pub events: u64,
    /// Segments, including damaged ones.
    pub segments: u64,
    /// Executed blocks of the driver.
    pub blocks: u64,
    /// Memory accesses of the driver.
    pub accesses: u64,
    /// Accesses to devices, by memory or port.
    pub device_accesses: u64,
    /// Accesses that no instruction claimed. A number other than 0 is a fault of Guardrail.
    pub unclaimed_accesses: u64,
    /// Segments that could not be read to their end. A number other than 0 is a fault of Guardrail.
    pub damaged_segments: u64,
    /// Entries into the driver whose stack above the driver was not kept, because there were too many.
    pub stacks_not_kept: u64,
    /// Mnemonics of instructions without an exact rule, and how often they ran.
    pub unknown_instructions: BTreeMap<String, u64>,
    /// What ran of each watched module.
    pub coverage: Vec<ModuleCoverage>,
    /// Names of the watched modules.
    pub modules: Vec<String>,
}
