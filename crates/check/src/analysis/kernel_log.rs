//! The findings of the guest's kernel log, with source lines.

use crate::analysis::sources::Sources;
use guardrail_finding::{Finding, Frame};
use guardrail_kernel_log::{findings, has_mark, instructions};

/// What a kernel log says.
#[derive(Debug, Default)]
pub struct Read {
    /// The findings, in the order of their first occurrence.
    pub findings: Vec<Finding>,
    /// Facts about the log, one sentence each.
    pub notes: Vec<String>,
}

/// Reads the log of a guest in which the drivers ran.
pub fn read(log: &str, sources: &Sources) -> Read {
    let mut read = Read { findings: findings(log, &sources.drivers()), notes: Vec::new() };
    for finding in &mut read.findings {
        locate(finding, sources);
    }
    if !has_mark(log) {
        read.notes.push(
            "the kernel's log does not show the load of the driver, so nothing in it was checked; \
             leave console, loglevel and quiet out of --append"
                .to_owned(),
        );
    }
    read
}

/// Adds source lines to the frames, and to the finding that of the driver.
fn locate(finding: &mut Finding, sources: &Sources) {
    for (frame, offset) in instructions(finding) {
        if let Some(source) = sources.at(frame.module.as_deref(), &frame.function, offset) {
            (frame.location, frame.inlined) = (source.location, source.inlined);
        }
    }
    let place = |frame: &&Frame| {
        frame.in_driver() && frame.function == finding.function && frame.offset == finding.offset
    };
    let stacks = finding.object.iter().flat_map(|object| [&object.allocated, &object.freed]).flatten();
    let mut frames = finding.stack.iter().chain(stacks.flat_map(|at| &at.stack));
    finding.location = frames.find(place).and_then(Frame::source).cloned();
}
