//! Debug information of a run's drivers and kernel: what the user gives, and what is fetched.

use crate::error::sentence;
use crate::{Host, HostError};
use guardrail_vm::Cache;
use guardrail_vm::kernels::Kernel;
use guardrail_vm::modules::ModuleFile;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::symbols;
use std::path::PathBuf;

/// Where debug information comes from, besides the drivers themselves and the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// True to fetch what is absent, from the servers of `DEBUGINFOD_URLS` or the kernel's debug package.
    pub fetch: bool,
    /// Debug files of drivers or the kernel of the run.
    pub files: Vec<PathBuf>,
}

/// Fetches the debug files that the cache lacks, and says each step. A file that cannot be fetched is said and left out.
pub fn fetch(
    cache: &Cache,
    parser: &Parser,
    kernel: &Kernel,
    modules: &[&ModuleFile],
    tell: &mut dyn FnMut(&str),
) {
    let fetched = symbols::fetch(&Packages::new(cache), parser, kernel, modules, tell);
    let lacks = fetched.unwrap_or_else(|error| {
        vec![format!("debug information cannot be fetched: {}", sentence(&HostError::from(error)))]
    });
    lacks.iter().for_each(|lack| tell(lack));
}

impl Symbols {
    /// Brings the debug files into the cache, where `guardrail_vm::symbols` finds them. A file that cannot be fetched
    /// is said and left out; a file of the user's that fits neither the kernel nor a driver is an error.
    pub fn provide(
        &self,
        parser: &Parser,
        kernel: &Kernel,
        modules: &[&ModuleFile],
        host: &Host,
    ) -> Result<(), HostError> {
        for file in &self.files {
            symbols::keep(&host.cache, parser, kernel, modules, file)?;
        }
        if self.fetch {
            fetch(&host.cache, parser, kernel, modules, &mut |step| host.progress.step(step));
        }
        Ok(())
    }
}
