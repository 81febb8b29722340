//! `guardrail internal-headers KERNEL`: fetches a kernel's headers and prints their folder and the release.

use crate::args::HeadersArgs;
use crate::errors::{CliError, Status};
use crate::output;
use guardrail_vm::packages::Packages;
use guardrail_vm::{Cache, kernels};

/// Prints `FOLDER RELEASE`.
pub fn run(args: &HeadersArgs) -> Result<Status, CliError> {
    let packages = Packages::new(&Cache::open()?);
    let kernel = kernels::find(&packages, &args.kernel)?;
    let tree = kernels::headers(&packages, &kernel)?;
    let folder = tree.join(format!("usr/src/linux-headers-{}", kernel.release));
    output::text(&format!("{}\n{}\n", folder.display(), kernel.release))?;
    Ok(Status::Clean)
}
