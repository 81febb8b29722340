//! Checks whether a guarded module is intact, and fits its runtime.

use crate::{MAX_FILE, RUNTIME};
use guardrail_binfmt::module::unpack;
use guardrail_certify::{Certificate, CertifyError, certify};
use guardrail_host::{HostError, files};
use guardrail_rewrite::border::runtime::Exports;
use guardrail_rewrite::inspect::{Inspected, inspect as inspect_module};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Most faults that are reported one by one.
const MOST: usize = 20;

/// The result of an inspection.
pub struct Inspection {
    module: Inspected,
    certificate: Certificate,
    /// What is wrong, each in a sentence.
    faults: Vec<String>,
    /// The runtime that it was compared with; `None` where none was found.
    runtime: Option<PathBuf>,
}

/// The runtime beside a guarded module, if there is one.
pub fn runtime_beside(file: &Path) -> Option<PathBuf> {
    file.parent().map(|folder| folder.join(RUNTIME)).filter(|path| path.is_file())
}

/// Inspects a guarded module, and compares it with a runtime.
pub fn inspect(file: &Path, runtime: Option<&Path>) -> Result<Inspection, HostError> {
    let exports = runtime
        .map(|path| Exports::read(&name(path), files::input(path, MAX_FILE)?).map_err(HostError::from));
    let exports = exports.transpose()?;
    let data = unpack(&name(file), files::input(file, MAX_FILE)?)?;
    let certificate = prove(&name(file), &data);
    let module = inspect_module(&name(file), data, exports.as_ref())?;
    let certificate = certificate?;
    let faults = shortened([module.faults.clone(), certificate.faults.clone()].concat());
    Ok(Inspection { module, certificate, faults, runtime: runtime.map(Path::to_path_buf) })
}

/// Certifies a guarded module.
pub fn prove(what: &str, file: &[u8]) -> Result<Certificate, HostError> {
    certify(what, file).map_err(|error| match error {
        CertifyError::File { .. } | CertifyError::NotGuarded { .. } => HostError::Usage(error.to_string()),
    })
}

/// The first faults, and how many more there are.
fn shortened(mut faults: Vec<String>) -> Vec<String> {
    if let Some(more) = faults.len().checked_sub(MOST + 1) {
        faults.truncate(MOST);
        faults.push(format!("and {} more", more + 1));
    }
    faults
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

impl Inspection {
    /// True where nothing is wrong with the module.
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }

    /// The result as text.
    pub fn text(&self) -> String {
        let Inspected { name, release, passes, .. } = &self.module;
        let Certificate { abi, domain, counts, thunks, entries, actions, trusted, privileged, .. } =
            &self.certificate;
        let faults = &self.faults;
        let mut text = format!(
            "{name}: guarded for kernel {release}, domain {domain}, interface {abi}, with {passes}\n"
        );
        text += &format!(
            "  proven: {} stores by checks, {} in frames, {} in per-CPU variables, {} calls by pointer, {} returns\n",
            counts.checked, counts.frame, counts.own, counts.calls, counts.returns
        );
        text +=
            &format!("  proven: {thunks} thunks for calls, {entries} for entries, with {actions} actions\n");
        if counts.replaced > 0 {
            text += &format!("  not proven: {} stores and calls that the kernel replaces\n", counts.replaced);
        }
        if !privileged.is_empty() {
            let each: Vec<String> =
                privileged.iter().map(|(name, count)| format!("{count} {name}")).collect();
            text += &format!("  not proven: what privileged instructions do: {}\n", each.join(", "));
        }
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
        let Inspection { module, certificate, faults, runtime } = self;
        let counts = &certificate.counts;
        let object = json!({
            "name": module.name,
            "kernel": module.release,
            "domain": certificate.domain,
            "interface": certificate.abi,
            "passes": module.passes,
            "proven": {
                "checked": counts.checked,
                "frame": counts.frame,
                "own": counts.own,
                "calls": counts.calls,
                "returns": counts.returns,
                "thunks": certificate.thunks,
                "entries": certificate.entries,
                "actions": certificate.actions,
            },
            "replaced": counts.replaced,
            "privileged": certificate.privileged,
            "trusted": certificate.trusted,
            "runtime": runtime.as_ref().map(|path| path.display().to_string()),
            "faults": faults,
        });
        files::json(&object)
    }
}
