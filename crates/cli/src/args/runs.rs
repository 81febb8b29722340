//! Arguments that `survey` and `fleet jobs` share: which runs there are, and what each is like.

use crate::args::choice::one_of;
use clap::Args;
use guardrail_check::Mode;

/// Which runs there are.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// The drivers, separated by commas (default: all of the catalog)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub driver: Vec<String>,
    /// The kernels, separated by commas (default: 6.1, 6.12 and 7.2)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub kernel: Vec<String>,
    /// A run for each device that a driver binds, not only for the usual one
    #[arg(long)]
    pub every_device: bool,
}

/// What each run is like.
#[derive(Debug, Args)]
pub struct EachArgs {
    /// The checkers, separated by commas; "quiet" is all but drcheck, "all" is all
    #[arg(long, value_name = "NAME,...", default_value = "all")]
    pub tool: String,
    /// What happens at a finding; with another than permissive, device accesses are held
    #[arg(long, value_parser = one_of::<Mode>(), default_value = "permissive")]
    pub mode: Mode,
    /// What exercises each driver, instead of the workload of its class; "full" is all that a class has
    #[arg(long, value_name = "NAME|SCRIPT")]
    pub workload: Option<String>,
    /// Number of guest CPUs, 1 to 4
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=4))]
    pub smp: u8,
    /// A variable of the workload, such as DOWNLOAD_MB=1; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub variables: Vec<String>,
    /// Longest time that each guest may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub timeout: u64,
}
