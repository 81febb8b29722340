//! The findings of the guest's kernel log, with source lines of the drivers.

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

/// Adds source lines to the frames in drivers, and to the finding.
fn locate(finding: &mut Finding, sources: &Sources) {
    for (frame, offset) in instructions(finding) {
        let source = frame.module.as_ref().and_then(|module| sources.at(module, &frame.function, offset));
        if let Some(source) = source {
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
