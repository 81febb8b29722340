//! `guardrail guard --check FILE`: whether a guarded module is whole, and fits to its runtime.

use super::RUNTIME;
use crate::args::ProfileFormat;
use crate::errors::{CliError, Status};
use crate::files;
use crate::output;
use guardrail_rewrite::inspect::{Exports, Inspected, inspect};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// Looks, and prints what is wrong.
pub fn run(file: &Path, runtime: Option<&Path>, format: ProfileFormat) -> Result<Status, CliError> {
    let beside = || file.parent().map(|folder| folder.join(RUNTIME)).filter(|path| path.is_file());
    let runtime = runtime.map(Path::to_path_buf).or_else(beside);
    let exports =
        runtime.as_ref().map(|path| Exports::read(&name(path), read(path)?).map_err(CliError::from));
    let exports = exports.transpose()?;
    let inspected = inspect(&name(file), read(file)?, exports.as_ref())?;
    output::text(&match format {
        ProfileFormat::Json => object(&inspected, runtime.as_ref())?,
        _ => text(&inspected, runtime.as_ref()),
    })?;
    Ok(if inspected.faults.is_empty() { Status::Clean } else { Status::Findings })
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// A file that the user named.
fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    fs::read(path).map_err(|error| CliError::Usage(format!("cannot read {}: {error}", path.display())))
}

fn text(inspected: &Inspected, runtime: Option<&PathBuf>) -> String {
    let Inspected { name, release, abi, domain, passes, trusted, checked, faults } = inspected;
    let mut text =
        format!("{name}: guarded for kernel {release}, domain {domain}, interface {abi}, with {passes}\n");
    text += &format!("  {checked} stores and calls by pointer are checked\n");
    if !trusted.is_empty() {
        text += &format!("  left as they are, unchecked: {}\n", trusted.join(", "));
    }
    text += &match runtime {
        Some(path) => format!("  compared with {}\n", path.display()),
        None => format!("  compared with no runtime: there is no {RUNTIME} beside it\n"),
    };
    for fault in faults {
        text += &format!("  wrong: {fault}\n");
    }
    text += if faults.is_empty() { "  nothing is wrong with it\n" } else { "" };
    text
}

fn object(inspected: &Inspected, runtime: Option<&PathBuf>) -> Result<String, CliError> {
    let object = json!({
        "name": inspected.name,
        "kernel": inspected.release,
        "domain": inspected.domain,
        "interface": inspected.abi,
        "passes": inspected.passes,
        "checked": inspected.checked,
        "trusted": inspected.trusted,
        "runtime": runtime.map(|path| path.display().to_string()),
        "faults": inspected.faults,
    });
    Ok(String::from_utf8_lossy(&files::json(&object)?).into_owned())
}
