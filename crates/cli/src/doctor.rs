//! `guardrail doctor`: what this machine has, what is missing, and how to install it.

use crate::errors::{CliError, Status};
use crate::output;
use guardrail_binfmt::KernelImage;
use guardrail_check::only_reading;
use guardrail_host::progress::{Loudness, loudness};
use guardrail_kernel::SummaryTable;
use guardrail_vm::doctor::State;
use guardrail_vm::kernels::Kernel;
use guardrail_vm::packages::Packages;
use guardrail_vm::{Cache, doctor, kernels};

/// Prints a table, and fails where anything is missing that every command needs.
pub fn run() -> Result<Status, CliError> {
    let cache = Cache::open()?;
    let checks = doctor::checks(&cache);
    let mut rows = Vec::new();
    for check in &checks {
        let state = match check.state {
            State::Ok => "ok",
            State::Later => "later",
            State::Missing => "MISSING",
            State::Optional => "optional",
            State::Old => "old",
        };
        rows.push(vec![check.name.clone(), state.to_owned(), check.detail.clone()]);
        if let Some(remedy) = &check.remedy {
            rows.push(vec![String::new(), String::new(), format!("-> {remedy}")]);
        }
    }
    let mut text = output::table(&rows);
    if loudness() == Loudness::Verbose {
        let packages = Packages::new(&cache);
        let cached = kernels::list(&cache).into_iter().filter(|listed| listed.cached);
        let found = cached.map(|listed| kernels::find(&packages, &listed.name));
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let images: Vec<_> = found.iter().map(|kernel| kernel.vmlinuz.clone()).collect();
        only_reading(images.iter().map(|image| image.as_path()))?;
        for kernel in &found {
            text.push_str(&absent(kernel)?);
        }
    }
    output::text(&text)?;
    let missing = checks.iter().any(|check| check.state == State::Missing);
    Ok(if missing { Status::RunFailed } else { Status::Clean })
}

/// The functions of the summary table that a kernel does not have.
fn absent(kernel: &Kernel) -> Result<String, CliError> {
    let image = KernelImage::open(&kernel.vmlinuz)?;
    let table = SummaryTable::for_image(&image);
    let absent = table.absent();
    Ok(format!("kernel {}: {} functions are absent: {}\n", kernel.release, absent.len(), absent.join(", ")))
}
