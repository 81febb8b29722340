//! Options of `check` and `analyze` about debug information of the drivers and the kernel.

use clap::{Args, ValueEnum};
use guardrail_host::Symbols;
use std::path::PathBuf;

/// Where source lines come from.
#[derive(Debug, Args)]
pub struct SymbolArgs {
    /// Whether debug information that the drivers and the kernel lack is fetched
    #[arg(long = "symbols", value_enum, value_name = "WHICH", default_value_t = Which::Cached)]
    which: Which,
    /// A debug file of a driver (the module before 'strip -g') or of the kernel (vmlinux); may be given several times, and
    /// is kept in the cache
    #[arg(long = "debug-file", value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Which debug information is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// What is in the files themselves, or was fetched before
    Cached,
    /// Also what DEBUGINFOD_URLS or the kernel's debug package has (1 GB, the first time)
    Auto,
}

impl SymbolArgs {
    /// What the arguments ask for.
    pub fn plan(&self) -> Symbols {
        Symbols { fetch: self.which == Which::Auto, files: self.files.clone() }
    }
}
