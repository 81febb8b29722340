//! Arguments of `guard`.

use crate::args::choice::one_of;
use clap::Args;
use guardrail_guard::{Policy, Wanted};
use std::path::PathBuf;

/// Arguments of `guard`.
#[derive(Debug, Args)]
pub struct GuardArgs {
    /// A module of the kernel (e1000), the path of a .ko, .ko.xz or .ko.zst, or zoo/NAME; several share a domain
    #[arg(value_name = "DRIVER", required_unless_present_any = ["check", "log"])]
    pub drivers: Vec<String>,
    /// The folder of the guarded drivers and of what they stand on (guardrail.ko)
    #[arg(short, long, value_name = "DIR", required_unless_present_any = ["check", "log", "try_it"])]
    pub out: Option<PathBuf>,
    /// Only refuse files that are of no use
    #[arg(long, hide = true)]
    pub only_refuse: bool,
    /// Only guard the drivers, into this folder
    #[arg(long, hide = true, value_name = "DIR")]
    pub only_guard: Option<PathBuf>,
    /// Run the driver's workload in a guest, stock and guarded, and print one verdict with the figures
    #[arg(long = "try", conflicts_with_all = ["check", "log", "running"])]
    pub try_it: bool,
    /// With --try: what a violation does
    #[arg(long, value_name = "POLICY", default_value = "log", requires = "try_it", value_parser = one_of::<Policy>())]
    pub policy: Policy,
    /// With --try: the QEMU device that the driver serves, instead of the usual one
    #[arg(long, value_name = "QEMU-DEVICE", requires = "try_it")]
    pub device: Option<String>,
    /// With --try: what exercises the driver, instead of the workload of its class
    #[arg(long, value_name = "NAME|SCRIPT", requires = "try_it")]
    pub workload: Option<String>,
    /// With --try: a variable of the workload, such as DOWNLOAD_MB=200; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", requires = "try_it")]
    pub variables: Vec<String>,
    /// With --try: a parameter of the driver's module, such as debug=3; may be given several times
    #[arg(long = "param", value_name = "[MODULE.]NAME=VALUE", requires = "try_it")]
    pub parameters: Vec<String>,
    /// With --try: longest time of each of the two runs
    #[arg(long, value_name = "SECONDS", default_value_t = 900, requires = "try_it", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub timeout: u64,
    /// The kernel: 6.1, 6.12, 7.2, a release, a .deb, a folder of packages, or /boot/vmlinuz-RELEASE or /lib/modules/RELEASE of this machine
    #[arg(long, value_name = "NAME|PATH", default_value = guardrail_vm::kernels::DEFAULT)]
    pub kernel: String,
    /// The kernel that this machine runs
    #[arg(long, conflicts_with = "kernel")]
    pub running: bool,
    /// The protection domain, 1 to 14: what one driver of a domain may write, all of it may
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=14))]
    pub domain: u8,
    /// Leave this function as it is, unchecked, or take a kernel function without a rule as one with; may be given several times
    #[arg(long = "trust", value_name = "NAME")]
    pub trusted: Vec<String>,
    /// Percent of the imported functions that must be under a rule, or trusted, for policies other than "log"
    #[arg(long, value_name = "N", default_value_t = guardrail_guard::THRESHOLD, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub threshold: u32,
    /// Rows that 'learn' derived, for functions without a written row
    #[arg(long, value_name = "FILE")]
    pub rows: Option<PathBuf>,
    /// A guardrail.ko that was built before, instead of building one with the kernel's headers
    #[arg(long, value_name = "FILE")]
    pub runtime: Option<PathBuf>,
    /// Let entry points run as transactions, and begin with those that fit: "all", or patterns such as "*_ioctl,*_set_*"; @FILE for
    /// those that lead to what findings name (JSON of 'check', or SARIF); "" for none yet
    #[arg(long, value_name = "all|PATTERN|@FILE[,…]", value_parser = selected)]
    pub transact: Option<Selected>,
    /// Check whether a guarded module is whole and fits the guardrail.ko beside it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["drivers", "out", "kernel", "running", "domain", "trusted", "threshold", "rows", "log"])]
    pub check: Option<PathBuf>,
    /// Print the violations in a kernel's log ("-" for standard input) as findings
    #[arg(long, value_name = "FILE", conflicts_with_all = ["drivers", "out", "kernel", "running", "domain", "trusted", "threshold", "rows", "runtime"])]
    pub log: Option<PathBuf>,
    /// How the result is printed
    #[arg(long, value_parser = one_of::<guardrail_profile::Format>(), default_value = "text")]
    pub format: guardrail_profile::Format,
}

/// What `--transact` selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected(pub Vec<Wanted>);

fn selected(text: &str) -> Result<Selected, String> {
    Wanted::parse(text).map(Selected)
}
