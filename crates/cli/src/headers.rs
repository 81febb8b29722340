//! `guardrail internal-headers KERNEL` and `internal-source KERNEL`: fetch a kernel's headers, or its source,
//! and print their folder. The former prints the release, too.

use crate::args::HeadersArgs;
use crate::errors::{CliError, Status};
use crate::output;
use guardrail_vm::kernels;
use guardrail_vm::packages::Packages;

/// Prints `FOLDER RELEASE`.
pub fn run(args: &HeadersArgs) -> Result<Status, CliError> {
    let packages = Packages::new(&guardrail_host::cache()?);
    let kernel = kernels::find(&packages, &args.kernel)?;
    let tree = kernels::headers(&packages, &kernel)?;
    let folder = tree.join(format!("usr/src/linux-headers-{}", kernel.release));
    output::text(&format!("{}\n{}\n", folder.display(), kernel.release))?;
    Ok(Status::Clean)
}

/// Prints `FOLDER`.
pub fn source(args: &HeadersArgs) -> Result<Status, CliError> {
    let packages = Packages::new(&guardrail_host::cache()?);
    let kernel = kernels::find(&packages, &args.kernel)?;
    let folder = kernels::source(&packages, &kernel)?;
    output::text(&format!("{}\n", folder.display()))?;
    Ok(Status::Clean)
}
