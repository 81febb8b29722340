//! Faults that the guest's kernel itself reports in its log: warnings, oopses, KFENCE and lockdep reports.
//!
//! A kernel developer calls one such report a splat. [`splats`] reads them from a log, and [`findings`] makes
//! them findings of the checker
//! [`KERNEL_CHECKER`](guardrail_finding::KERNEL_CHECKER). The fault is the driver's where a function of the driver is in the
//! splat's stacks, and the kernel's otherwise.
//!
//! **Knows**: how kernels from 5.10 on print splats, and the titles that syzkaller gives them.
//!
//! **Must not know**: where a log is stored, what a checker of Guardrail sees, source lines.
//!
//! **Invariants**:
//! - Any text gives splats, never a panic, in time that grows with its length alone.
//! - The numbers of splats, lines and frames that are kept, and their lengths, are bounded.
//! - What the kernel logged before it loaded the first driver is nobody's finding.

mod findings;
mod frames;
mod lines;
mod signs;
mod splat;
mod titles;

#[cfg(test)]
mod tests;

pub use findings::{findings, instructions};
pub use frames::{Place, Task};
pub use lines::{MARK, has_mark};
pub use signs::Sign;
pub use splat::{Object, Splat, Stack, splats};
