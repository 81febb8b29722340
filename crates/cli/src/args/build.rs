//! Arguments of `build` and `watch`.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// Arguments of `build`.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// A C file, or a folder with a Kbuild file, a Makefile, or one C file
    pub source: String,
    /// The kernel that the module is for, as for check
    #[arg(long, value_name = "NAME|PATH", default_value = guardrail_vm::kernels::DEFAULT)]
    pub kernel: String,
    /// The folder that gets the modules
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
}

/// Arguments of `watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// A C file, or a folder with a Kbuild file, a Makefile, or one C file
    pub source: String,
    /// Further options of check, behind --
    #[arg(last = true, value_name = "OPTION")]
    pub options: Vec<OsString>,
}
