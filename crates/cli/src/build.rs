//! `guardrail build SOURCE`: builds a driver from its C sources for a kernel.

use crate::args::BuildArgs;
use crate::errors::{CliError, Status};
use crate::output;
use guardrail_host::{HostError, Progress, from_source};
use guardrail_vm::kernels;
use guardrail_vm::packages::Packages;
use std::fs;

/// Builds the modules, and prints where they are.
pub fn run(args: &BuildArgs) -> Result<Status, CliError> {
    if !from_source::is_source(&args.source) {
        return Err(HostError::Usage(from_source::no_source(&args.source)));
    }
    let progress = Progress::shown();
    let packages = Packages::new(&guardrail_host::cache()?);
    progress.step(&format!("kernel {}", args.kernel));
    let kernel = kernels::find(&packages, &args.kernel)?;
    let modules = from_source::modules(&packages, &kernel, &args.source, &progress)?;
    progress.finish();
    if modules.is_empty() {
        return Err(from_source::none(&args.source));
    }
    fs::create_dir_all(&args.out).map_err(HostError::io("create", args.out.display()))?;
    for module in modules {
        let file = args.out.join(module.file_name().unwrap_or_default());
        fs::copy(&module, &file).map_err(HostError::io("write", file.display()))?;
        output::text(&format!("{}\n", file.display()))?;
    }
    Ok(Status::Clean)
}
