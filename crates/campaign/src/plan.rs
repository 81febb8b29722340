//! The plan of a campaign.

use guardrail_guard::{GuardPlan, Policy};
use std::path::PathBuf;

/// Mutants of one driver, and how they run.
#[derive(Clone, Debug)]
pub struct MutantPlan {
    /// A module of the kernel, the path of a module file, or `zoo/NAME`.
    pub driver: String,
    /// The kinds of bugs by name; `all` means all kinds.
    pub kind: Vec<String>,
    /// The seed that decides the sites of the bugs.
    pub seed: u64,
    /// Number of mutants of each kind.
    pub count: u32,
    /// Number of bugs in each mutant.
    pub bugs: u32,
    /// The kernel by name or path.
    pub kernel: String,
    /// The folder of the mutants and of the campaign.
    pub out: PathBuf,
    /// The policy at a violation, where mutants also run guarded; `None` for unguarded runs only.
    pub guarded: Option<Policy>,
    /// Modules that the driver needs and that share its domain.
    pub with: Vec<String>,
    /// True to run guarded only the mutants that escape unguarded.
    pub escaped: bool,
    /// Module files that run instead of newly made mutants.
    pub mutants: Vec<PathBuf>,
    /// The QEMU device, instead of the usual one.
    pub device: Option<String>,
    /// The workload, instead of the usual one.
    pub workload: Option<String>,
    /// Variables of the workload, as `NAME=VALUE`.
    pub variables: Vec<String>,
    /// Number of guest CPUs.
    pub smp: u8,
    /// Longest time of a guest, in seconds.
    pub timeout: u64,
    /// How many guests run at a time.
    pub jobs: u8,
}

/// An experiment with faults that are let through and contained.
#[derive(Clone, Debug)]
pub struct ContainmentPlan {
    /// How many faults are planted, alternating over all kinds.
    pub faults: u32,
    /// How many times the machinery itself fails.
    pub machinery: u32,
    /// The seed of the first fault; each further fault has the next number.
    pub seed: u32,
    /// The faults by name; empty for all.
    pub fault: Vec<String>,
    /// What the faults can harm.
    pub subject: Harmed,
    /// The kernel by name or path.
    pub kernel: String,
    /// The gate that contains, instead of the usual one.
    pub gate: Option<String>,
    /// True to let the faults through only.
    pub let_through: bool,
    /// How many guests run at a time.
    pub jobs: u8,
    /// Longest time of a guest, in seconds.
    pub timeout: u64,
    /// The folder that keeps the files of all runs; `None` for one that is removed with the experiment.
    pub out: Option<PathBuf>,
}

/// What a planted fault can harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harmed {
    /// The content of a disk.
    Disk,
    /// The packets that leave a network card.
    Net,
    /// Everything that a driver of the zoo can harm.
    All,
}

/// A workload, run with the stock driver and with the guarded one.
#[derive(Clone, Debug)]
pub struct TryPlan {
    /// The drivers and how they were guarded, in the folder of the plan. The last one is exercised, and the others are what
    /// it needs.
    pub guard: GuardPlan,
    /// What was done to the drivers, as text; empty unless their files are kept.
    pub summary: String,
    /// The policy at a violation.
    pub policy: Policy,
    /// The QEMU device, instead of the usual one.
    pub device: Option<String>,
    /// The workload, instead of the usual one.
    pub workload: Option<String>,
    /// Variables of the workload, as `NAME=VALUE`.
    pub variables: Vec<String>,
    /// Parameters of the run's modules, as `NAME=VALUE` or `MODULE.NAME=VALUE`.
    pub parameters: Vec<String>,
    /// Number of guest CPUs.
    pub smp: u8,
    /// Memory of the guest, in MiB.
    pub memory: u32,
    /// Longest time of a guest, in seconds.
    pub timeout: u64,
}
