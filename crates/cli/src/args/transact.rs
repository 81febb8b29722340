//! Arguments of `transact`.

use clap::{Args, Subcommand};

/// What `transact` does.
#[derive(Debug, Subcommand)]
pub enum TransactCommand {
    /// Print which drivers of a kernel have power-management code that can restore their devices
    Survey(TransactSurveyArgs),
    /// Print the entry points of guarded drivers on this machine that can be transactions, and which are
    List,
    /// Choose which entry points are transactions, on this machine
    Set(TransactSetArgs),
    /// Print how many transactions there were on this machine, and how many were undone
    Status,
    /// Note the configuration of a device of a guarded driver on this machine, which a restore brings back
    Checkpoint {
        /// The device: its name on its bus (0000:00:03.0), or a network interface or block device that leads to it
        device: String,
    },
    /// Have a guarded driver on this machine set its device up from memory, as after a call that was undone
    Restore {
        /// The device: its name on its bus (0000:00:03.0), or a network interface or block device that leads to it
        device: String,
    },
}

/// Arguments of `transact set`.
#[derive(Debug, Args)]
pub struct TransactSetArgs {
    /// The entry point (e1000_set_ringparam), or a pattern of several ("e1000:*_set_*"); MODULE: may stand before it
    #[arg(value_name = "[MODULE:]ENTRY")]
    pub entry: String,
    /// Which of its calls are transactions: all, none, or one in N
    #[arg(value_name = "always|off|1/N")]
    pub mode: String,
    /// Only calls with this number as an argument, or by programs of this name
    #[arg(long = "if", value_name = "argN=VALUE|comm=NAME")]
    pub condition: Option<String>,
}

/// Arguments of `transact survey`.
#[derive(Debug, Args)]
pub struct TransactSurveyArgs {
    /// The kernel: 6.1, 6.12, 7.2, a release, a .deb, a folder of packages, or /boot/vmlinuz-RELEASE of this machine
    #[arg(value_name = "KERNEL", default_value = guardrail_vm::kernels::DEFAULT)]
    pub kernel: String,
    /// Drivers of all classes, not only of network, sound, storage and input
    #[arg(long)]
    pub all: bool,
    /// Print the survey as JSON
    #[arg(long)]
    pub json: bool,
}
