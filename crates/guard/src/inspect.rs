//! Checks whether a guarded module is intact, and fits its runtime.

use crate::RUNTIME;
use guardrail_host::{HostError, files};
use guardrail_rewrite::border::runtime::Exports;
use guardrail_rewrite::inspect::{Inspected, inspect as inspect_module};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// The result of an inspection.
pub struct Inspection {
    module: Inspected,
    /// The runtime that it was compared with; `None` where none was found.
    runtime: Option<PathBuf>,
}

/// Inspects a guarded module. Where no runtime is given, the one beside the module is compared.
pub fn inspect(file: &Path, runtime: Option<&Path>) -> Result<Inspection, HostError> {
    let beside = || file.parent().map(|folder| folder.join(RUNTIME)).filter(|path| path.is_file());
    let runtime = runtime.map(Path::to_path_buf).or_else(beside);
    let exports =
        runtime.as_ref().map(|path| Exports::read(&name(path), read(path)?).map_err(HostError::from));
    let exports = exports.transpose()?;
    let module = inspect_module(&name(file), read(file)?, exports.as_ref())?;
    Ok(Inspection { module, runtime })
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// A file that the user named.
fn read(path: &Path) -> Result<Vec<u8>, HostError> {
    fs::read(path).map_err(|error| HostError::Usage(format!("cannot read {}: {error}", path.display())))
}

impl Inspection {
    /// True where nothing is wrong with the module.
    pub fn is_sound(&self) -> bool {
        self.module.faults.is_empty()
    }

    /// The result as text.
    pub fn text(&self) -> String {
        let Inspected { name, release, abi, domain, passes, trusted, checked, faults } = &self.module;
        let mut text = format!(
            "{name}: guarded for kernel {release}, domain {domain}, interface {abi}, with {passes}\n"
        );
        text += &format!("  {checked} stores and calls by pointer are checked\n");
        if !trusted.is_empty() {
            text += &format!("  left as they are, unchecked: {}\n", trusted.join(", "));
        }
        text += &match &self.runtime {
            Some(path) => format!("  compared with {}\n", path.display()),
            None => format!("  compared with no runtime: there is no {RUNTIME} beside it\n"),
        };
        for fault in faults {
            text += &format!("  wrong: {fault}\n");
        }
        text += if faults.is_empty() { "  nothing is wrong with it\n" } else { "" };
        text
    }

    /// The result as JSON.
    pub fn json(&self) -> Result<String, HostError> {
        let Inspection { module, runtime } = self;
        let object = json!({
            "name": module.name,
            "kernel": module.release,
            "domain": module.domain,
            "interface": module.abi,
            "passes": module.passes,
            "checked": module.checked,
            "trusted": module.trusted,
            "runtime": runtime.as_ref().map(|path| path.display().to_string()),
            "faults": module.faults,
        });
        files::json(&object)
    }
}
