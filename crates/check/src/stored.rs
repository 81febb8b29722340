//! The files that a run leaves in a kept folder (`check --out DIR`). They serve to repeat the run and to look
//! at its findings again.

use crate::plan::{GateKind, MEMORY, MEMORY_MIB, RunPlan};
use guardrail_host::drivers::{self, digest};
use guardrail_host::folders::absolute;
use guardrail_host::{HostError, files};
use guardrail_report::Report;
use guardrail_vm::prepare::Prepared;
use guardrail_vm::run::TcgThreads;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILE: &str = "run.json";
/// The report in the folder.
pub const REPORT: &str = "report.json";
const VERSION: u32 = 1;

/// A run, as the user requested it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stored {
    version: u32,
    drivers: Vec<String>,
    with: Vec<String>,
    catalog: Option<PathBuf>,
    kernel: String,
    device: Option<String>,
    workload: Option<String>,
    program: Option<String>,
    root: Option<String>,
    /// The digest of what the guest got of the root.
    root_digest: Option<String>,
    files: Vec<String>,
    memory_mib: Option<u32>,
    smp: u8,
    no_kaslr: bool,
    iommu: bool,
    append: Vec<String>,
    timeout: u64,
    variables: Vec<String>,
    parameters: Vec<String>,
    /// The names of the modules, with digests of their files.
    modules: Vec<(String, String)>,
}

/// Writes the data to `folder` that are needed to repeat a run.
pub fn store(folder: &Path, plan: &RunPlan, prepared: &Prepared) -> Result<(), HostError> {
    let stored = Stored {
        version: VERSION,
        drivers: plan.drivers.iter().map(|driver| found(driver)).collect(),
        with: plan.with.clone(),
        catalog: plan.catalog.as_deref().map(absolute).transpose()?,
        kernel: found(&plan.kernel),
        device: plan.device.clone(),
        workload: plan.workload.as_deref().map(found),
        // A program of a root has its path there.
        program: plan.program.as_ref().map(|program| match plan.root {
            None => program.whole().to_string(),
            Some(_) => program.to_string(),
        }),
        root: plan.root.as_ref().map(|root| root.whole().to_string()),
        root_digest: prepared.root.as_ref().map(|root| root.digest().to_owned()),
        files: plan.files.iter().map(|file| file.whole().to_string()).collect(),
        memory_mib: Some(plan.memory_mib),
        smp: plan.cpus,
        no_kaslr: !plan.kaslr,
        iommu: plan.iommu,
        append: plan.kernel_arguments.clone(),
        timeout: plan.time_limit.as_secs(),
        variables: plan
            .offered
            .iter()
            .chain(&plan.variables)
            .map(|(name, value)| format!("{name}={value}"))
            .collect(),
        parameters: plan.parameters.iter().map(ToString::to_string).collect(),
        modules: modules(prepared),
    };
    let file = folder.join(FILE);
    let text = serde_json::to_vec_pretty(&stored).map_err(|error| HostError::Run(error.to_string()))?;
    fs::write(&file, text).map_err(HostError::io("write", file.display()))
}

/// A name, or the absolute path of an existing file or folder.
fn found(name: &str) -> String {
    let path = Path::new(name);
    match name.contains('/').then(|| path.canonicalize()) {
        Some(Ok(path)) if !name.starts_with("zoo/") || path.is_file() => path.display().to_string(),
        _ => name.to_owned(),
    }
}

fn modules(prepared: &Prepared) -> Vec<(String, String)> {
    drivers::watched(prepared).map(|driver| (driver.name.clone(), digest(&driver.bytes))).collect()
}

/// Reads the run and its report.
pub fn load(folder: &Path) -> Result<(Stored, Report), HostError> {
    let stored: Stored = read(folder, FILE)?;
    if stored.version != VERSION || stored.drivers.is_empty() {
        return Err(HostError::Usage(format!(
            "{} is of another version of guardrail; run 'guardrail check --out' again",
            folder.join(FILE).display()
        )));
    }
    Ok((stored, read(folder, REPORT)?))
}

fn read<T: for<'de> Deserialize<'de>>(folder: &Path, name: &str) -> Result<T, HostError> {
    let file = folder.join(name);
    let bytes = match fs::read(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(HostError::Usage(format!(
                "{} has no {name}; name the folder of an earlier 'guardrail check --out'",
                folder.display()
            )));
        }
        other => other.map_err(HostError::io("read", file.display()))?,
    };
    serde_json::from_slice(&bytes)
        .map_err(|error| HostError::Usage(format!("{} is malformed: {error}", file.display())))
}

/// Writes the report to the folder, in place of an earlier one.
pub fn keep_report(folder: &Path, report: &Report) -> Result<(), HostError> {
    let file = folder.join(REPORT);
    let mut text = Vec::new();
    guardrail_report::json::write(report, &mut text).map_err(HostError::io("write", file.display()))?;
    files::write(&file, &text)
}

impl Stored {
    /// The plan of the run, changed for held accesses: it has no gate, and a thread for each CPU.
    pub fn plan(&self) -> Result<RunPlan, HostError> {
        let memory_mib = self.memory_mib.unwrap_or(MEMORY_MIB);
        if !(1..=4).contains(&self.smp) || self.timeout == 0 || !MEMORY.contains(&memory_mib) {
            return Err(HostError::Usage(format!(
                "{FILE} is malformed: it names no possible number of CPUs, time or memory"
            )));
        }
        Ok(RunPlan {
            drivers: self.drivers.clone(),
            with: self.with.clone(),
            catalog: self.catalog.clone(),
            kernel: self.kernel.clone(),
            device: self.device.clone(),
            workload: self.workload.clone(),
            program: self.program.as_deref().map(str::parse).transpose()?,
            root: self.root.as_deref().map(str::parse).transpose()?,
            files: self.files.iter().map(|file| file.parse()).collect::<Result<_, _>>()?,
            memory_mib,
            variables: drivers::variables(&self.variables)?,
            parameters: drivers::parameters(&self.parameters)?,
            tools: Vec::new(),
            gate: GateKind::Off,
            cpus: self.smp,
            threads: TcgThreads::Multi,
            kaslr: !self.no_kaslr,
            iommu: self.iommu,
            kernel_arguments: self.append.clone(),
            time_limit: Duration::from_secs(self.timeout),
            ..RunPlan::new("")
        })
    }

    /// Refuses kernel and modules that differ from the run's, because addresses in them would differ.
    pub fn same(&self, prepared: &Prepared, report: &Report) -> Result<(), HostError> {
        if prepared.kernel.release != report.kernel {
            return Err(HostError::Usage(format!(
                "the run was with kernel {}, but '{}' is {} now",
                report.kernel, self.kernel, prepared.kernel.release
            )));
        }
        if prepared.root.as_ref().map(|root| root.digest()) != self.root_digest.as_deref() {
            return Err(HostError::Usage(
                "the root of --rootfs has changed since the run; run 'guardrail check --out' again".into(),
            ));
        }
        match modules(prepared) == self.modules {
            true => Ok(()),
            false => Err(HostError::Usage(
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
