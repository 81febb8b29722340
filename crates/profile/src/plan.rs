//! The plan of a profile: a guest, and the clients that run on it.

use std::path::PathBuf;

/// A guest and the clients that watch its kernel.
#[derive(Clone, Debug)]
pub struct ProfilePlan {
    /// The clients: `NAME` or `FILE.so`, with options behind (`NAME:KEY=VALUE`).
    pub clients: Vec<String>,
    /// What is instrumented: `kernel`, `driver`, `module:NAME,…` or `function:GLOB,…`.
    pub scope: String,
    /// The workload by name or path; `None` for that of the driver's class.
    pub workload: Option<String>,
    /// The modules that the guest loads.
    pub drivers: Vec<String>,
    /// The kernel by name or path.
    pub kernel: String,
    /// The QEMU device, instead of the usual one.
    pub device: Option<String>,
    /// When clients attach: `boot`, `workload` or a step; `None` to derive it from the clients and the scope.
    pub from: Option<String>,
    /// The step at which they detach; `None` for the end of the run.
    pub until: Option<String>,
    /// True to load the clients and leave them detached.
    pub detached: bool,
    /// Number of guest CPUs.
    pub smp: u8,
    /// Memory of the guest, in MiB.
    pub memory: u32,
    /// True to boot the kernel at its link-time address.
    pub no_kaslr: bool,
    /// Words for the guest kernel's command line.
    pub append: Vec<String>,
    /// Longest time of the run, in seconds.
    pub timeout: u64,
    /// Variables of the workload, as `NAME=VALUE`.
    pub variables: Vec<String>,
    /// Parameters of the run's modules, as `NAME=VALUE` or `MODULE.NAME=VALUE`.
    pub parameters: Vec<String>,
    /// Further files for the guest's folder `/guardrail`.
    pub files: Vec<(String, Vec<u8>)>,
    /// Words for QEMU's command line.
    pub qemu: Vec<String>,
    /// The folder that keeps the run's files; `None` for one that is removed with the run.
    pub out: Option<PathBuf>,
}

/// The output format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text for people.
    Text,
    /// One JSON object for programs.
    Json,
    /// The findings for code-scanning tools (SARIF 2.1.0).
    Sarif,
}
