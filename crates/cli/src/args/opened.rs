//! The option of commands that read traces: which files a trace may name.

use clap::Args;
use guardrail_check::Reach;
use guardrail_host::HostError;
use guardrail_vm::Cache;
use std::path::PathBuf;

/// Which files a trace may name.
#[derive(Debug, Args)]
pub struct OpenArgs {
    /// A kernel or module that the trace may name, or a folder of them, besides the cache, /boot, /lib/modules and
    /// /usr/lib/debug; may be given several times
    #[arg(long = "open", value_name = "PATH")]
    named: Vec<PathBuf>,
}

impl OpenArgs {
    /// What a trace may name.
    pub fn reach(&self, cache: &Cache) -> Result<Reach, HostError> {
        Reach::new(cache, &self.named)
    }
}
