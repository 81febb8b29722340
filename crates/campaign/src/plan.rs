//! What a campaign is to do.

use guardrail_guard::Policy;
use std::path::PathBuf;

/// Mutants of one driver, and how they run.
#[derive(Clone, Debug)]
pub struct MutantPlan {
    /// A module of the kernel, the path of a module file, or `zoo/NAME`.
    pub driver: String,
    /// The kinds of bugs by name; `all` is all.
    pub kind: Vec<String>,
    /// Decides where the bugs are.
    pub seed: u64,
    /// Number of mutants of each kind.
    pub count: u32,
    /// Number of bugs in each mutant.
    pub bugs: u32,
    /// The kernel by name or path.
    pub kernel: String,
    /// The folder of the mutants and of the campaign.
    pub out: PathBuf,
    /// What a violation does where mutants also run guarded.
    pub guarded: Option<Policy>,
    /// Modules that the driver needs and that share its domain.
    pub with: Vec<String>,
    /// Run guarded only the mutants that escape as they are.
    pub escaped: bool,
    /// Module files that run in place of mutants that are made.
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

/// Faults that are let through and contained.
#[derive(Clone, Debug)]
pub struct ContainmentPlan {
    /// How many faults are planted, by turns of all kinds.
    pub faults: u32,
    /// How many times the machinery itself fails.
    pub machinery: u32,
    /// The first fault's seed; each has the next number.
    pub seed: u32,
    /// Only these faults, unless it is empty.
    pub fault: Vec<String>,
    /// What the faults can harm.
    pub subject: Harmed,
    /// The kernel by name or path.
    pub kernel: String,
    /// The gate that contains, instead of the usual one.
    pub gate: Option<String>,
    /// Only let the faults through.
    pub let_through: bool,
    /// How many guests run at a time.
    pub jobs: u8,
    /// Longest time of a guest, in seconds.
    pub timeout: u64,
    /// The folder that keeps what all runs left; `None` for one that is removed with the experiment.
    pub out: Option<PathBuf>,
}

/// What a planted fault can harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harmed {
    /// A disk.
    Disk,
    /// What leaves a network card.
    Net,
    /// Everything that there is a driver for.
    All,
}
