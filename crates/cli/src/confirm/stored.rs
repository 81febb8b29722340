//! What `check --out DIR` leaves behind, so that the run can be repeated.

use crate::args::{CheckArgs, Format, Gate, Mode, Observe, ScheduleName, Thread};
use crate::drivers;
use crate::drivers::digest;
use crate::errors::CliError;
use crate::files;
use guardrail_report::Report;
use guardrail_vm::prepare::Prepared;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

const FILE: &str = "run.json";
const REPORT: &str = "report.json";
const VERSION: u32 = 1;

/// A run, as the user asked for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stored {
    version: u32,
    drivers: Vec<String>,
    kernel: String,
    device: Option<String>,
    workload: Option<String>,
    smp: u8,
    no_kaslr: bool,
    iommu: bool,
    append: Vec<String>,
    timeout: u64,
    variables: Vec<String>,
    /// Names of the modules, with digests of their files.
    modules: Vec<(String, String)>,
}

/// Leaves in `folder` what is needed to repeat a run.
pub fn store(folder: &Path, args: &CheckArgs, prepared: &Prepared) -> Result<(), CliError> {
    let stored = Stored {
        version: VERSION,
        drivers: args.drivers.iter().map(|driver| found(driver)).collect(),
        kernel: found(&args.kernel),
        device: args.device.clone(),
        workload: args.workload.as_deref().map(found),
        smp: args.smp,
        no_kaslr: args.no_kaslr,
        iommu: args.iommu,
        append: args.append.clone(),
        timeout: args.timeout,
        variables: args.variables.clone(),
        modules: modules(prepared),
    };
    let file = folder.join(FILE);
    let text = serde_json::to_vec_pretty(&stored).map_err(|error| CliError::Run(error.to_string()))?;
    fs::write(&file, text).map_err(CliError::io("write", file.display()))
}

/// A name, or the whole path of a file or folder that it names.
fn found(name: &str) -> String {
    let path = Path::new(name);
    match name.contains('/').then(|| path.canonicalize()) {
        Some(Ok(path)) if !name.starts_with("zoo/") || path.is_file() => path.display().to_string(),
        _ => name.to_owned(),
    }
}

fn modules(prepared: &Prepared) -> Vec<(String, String)> {
    drivers::drivers(prepared).map(|driver| (driver.name.clone(), digest(&driver.bytes))).collect()
}

/// Reads the run and its report.
pub fn load(folder: &Path) -> Result<(Stored, Report), CliError> {
    let stored: Stored = read(folder, FILE)?;
    if stored.version != VERSION || stored.drivers.is_empty() {
        return Err(CliError::Usage(format!(
            "{} is of another version of guardrail; run 'guardrail check --out' again",
            folder.join(FILE).display()
        )));
    }
    Ok((stored, read(folder, REPORT)?))
}

fn read<T: for<'de> Deserialize<'de>>(folder: &Path, name: &str) -> Result<T, CliError> {
    let file = folder.join(name);
    let bytes = match fs::read(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(CliError::Usage(format!(
                "{} has no {name}; name the folder of an earlier 'guardrail check --out'",
                folder.display()
            )));
        }
        other => other.map_err(CliError::io("read", file.display()))?,
    };
    serde_json::from_slice(&bytes)
        .map_err(|error| CliError::Usage(format!("{} is malformed: {error}", file.display())))
}

/// Replaces the report, in one step.
pub fn update(folder: &Path, report: &Report) -> Result<(), CliError> {
    let file = folder.join(REPORT);
    let mut text = Vec::new();
    guardrail_report::json::write(report, &mut text).map_err(CliError::io("write", file.display()))?;
    files::write(&file, &text)
}

impl Stored {
    /// The arguments of the run.
    pub fn args(&self) -> Result<CheckArgs, CliError> {
        if !(1..=4).contains(&self.smp) || self.timeout == 0 {
            return Err(CliError::Usage(format!(
                "{FILE} is malformed: it names no possible number of CPUs or time"
            )));
        }
        Ok(CheckArgs {
            drivers: self.drivers.clone(),
            kernel: self.kernel.clone(),
            device: self.device.clone(),
            tool: String::new(),
            workload: self.workload.clone(),
            mode: Mode::Permissive,
            gate: Gate::Off,
            gate_timeout: 60,
            policy: None,
            on_finding: None,
            snapshot_on_finding: None,
            schedule: ScheduleName::Interrupt,
            smp: self.smp,
            // The run with holds decides for itself.
            thread: Thread::Multi,
            no_kaslr: self.no_kaslr,
            iommu: self.iommu,
            append: self.append.clone(),
            timeout: self.timeout,
            log_words: crate::check::RING_WORDS,
            forwards: Vec::new(),
            vm_record: None,
            vm_replay: None,
            qemu: Vec::new(),
            variables: self.variables.clone(),
            observe: Observe::Check,
            record: None,
            out: None,
            confirm: false,
            format: Format::Text,
        })
    }

    /// Refuses kernel and modules that are not those of the run: places in them would be others.
    pub fn same(&self, prepared: &Prepared, report: &Report) -> Result<(), CliError> {
        if prepared.kernel.release != report.kernel {
            return Err(CliError::Usage(format!(
                "the run was with kernel {}, but '{}' is {} now",
                report.kernel, self.kernel, prepared.kernel.release
            )));
        }
        match modules(prepared) == self.modules {
            true => Ok(()),
            false => Err(CliError::Usage(
                "the driver has changed since the run; run 'guardrail check --out' again".into(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_run_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = load(folder.path()).unwrap_err().to_string();
        assert!(error.contains("has no run.json"), "{error}");
        fs::write(folder.path().join(FILE), "{").unwrap();
        let error = load(folder.path()).unwrap_err().to_string();
        assert!(error.contains("is malformed"), "{error}");
        fs::write(folder.path().join(FILE), "{}").unwrap();
        let error = load(folder.path()).unwrap_err().to_string();
        assert!(error.contains("another version"), "{error}");
    }

    #[test]
    fn names_stay_and_paths_become_whole() {
        assert_eq!(found("e1000"), "e1000");
        assert_eq!(found("zoo/no-such"), "zoo/no-such");
        assert_eq!(found("/tmp/../tmp"), Path::new("/tmp").canonicalize().unwrap().display().to_string());
    }
}
