//! The synthetic devices of a run (`--device synthetic`), as the supervisor sees them.

use crate::plan::{GateKind, RunPlan};
use guardrail_finding::{Finding, Severity};
use guardrail_host::HostError;
use guardrail_host::folders::program;
use guardrail_host::process::kill_with_parent;
use guardrail_synthetic::accesses::Accesses;
use guardrail_synthetic::process::Process;
use guardrail_synthetic::{Ids, PciIds, pci, usb};
use guardrail_vm::modules::ModuleFile;
use guardrail_vm::prepare::Prepared;
use guardrail_vm::run::Options;
use std::cell::RefCell;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the devices in the run folder, which does not outlive them.
const FOLDER: &str = "synthetic";

/// Running devices; dropping them ends them.
pub struct Synthetic {
    process: RefCell<Process>,
    _folder: Folder,
}

/// The devices' folder: sockets, and copies of modules.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Refuses, before the run begins, what synthetic devices cannot do.
pub fn refuse(plan: &RunPlan, prepared: &Prepared) -> Result<(), HostError> {
    let refused = match plan {
        _ if !prepared.choice.is_synthetic() => return Ok(()),
        RunPlan { drivers, .. } if drivers.len() > 1 => "several drivers; check them one by one",
        RunPlan { gate: GateKind::VfioUser, .. } => "--gate vfio-user; use --gate vmm",
        RunPlan { iommu: true, .. } => "--iommu; leave it out",
        RunPlan { snapshots: Some(_), .. } => "--snapshot-on-finding",
        RunPlan { rerun: Some(_), .. } => "recording the whole machine",
        _ => return Ok(()),
    };
    Err(HostError::Usage(format!("--device synthetic does not go with {refused}")))
}

impl Synthetic {
    /// Starts the devices of a run that has some, and connects the driver VM.
    pub fn start(prepared: &Prepared, options: &mut Options) -> Result<Option<Synthetic>, HostError> {
        if !prepared.choice.is_synthetic() {
            return Ok(None);
        }
        let name = &prepared.plan.driver.name;
        let ids = Ids::first(&prepared.plan.aliases).ok_or_else(|| {
            HostError::Usage(format!("no alias of {name} says which IDs a synthetic device would have"))
        })?;
        let folder = Folder(options.folder.join(FOLDER));
        let modules = copied(prepared, &folder.0)?;
        let mut command = Command::new(program()?);
        // It reads a driver and a kernel before it listens, and a signal to the user's terminal is not meant for it.
        command.arg("internal-device").process_group(0);
        kill_with_parent(&mut command);
        let reach = prepared.qemu.jail();
        // The guest goes from plan to plan of a PCI device. A USB device comes with each plan at once.
        let mut set = |name: &str, value: String| options.variables.push((name.to_owned(), value));
        match ids {
            Ids::Pci(PciIds { vendor, device, .. }) => {
                set("SYNTHETIC", format!("{vendor:#06x}:{device:#06x}"));
                set("PLAN_AT", pci::PLAN.to_string());
            }
            Ids::Usb(_) => {
                set("SYNTHETIC", "usb".to_owned());
                set("SYNTHETIC_COUNT", usb::DEVICES.to_string());
            }
        }
        let process = Process::start(
            command,
            &folder.0,
            &modules,
            &prepared.kernel.vmlinuz,
            ids,
            options.memory_mib,
            reach,
        );
        let process = process.map_err(failed)?;
        options.qemu_arguments.extend(process.qemu_arguments());
        options.inherited.push(process.memory().descriptor());
        // The devices' sockets.
        options.reach = std::mem::take(&mut options.reach).unix_sockets();
        Ok(Some(Synthetic { process: RefCell::new(process), _folder: folder }))
    }

    /// Why the devices are gone; `None` while they are there.
    pub fn failure(&self) -> Option<String> {
        self.process.borrow_mut().failure()
    }

    /// Ends the devices; returns a line about what the driver did with them.
    pub fn stop(self) -> Result<String, HostError> {
        let all = self.process.into_inner().stop().map_err(failed)?;
        let sum = |of: fn(&Accesses) -> u64| all.iter().map(of).sum::<u64>();
        Ok(format!(
            "the synthetic devices answered {} reads and took {} writes; they sent {} interrupts",
            sum(|device| device.reads),
            sum(|device| device.writes),
            sum(|device| device.interrupts)
        ))
    }
}

/// Judges what the kernel says of the devices' own doing: they interrupt without a cause.
pub fn judge(prepared: &Prepared, findings: &mut [Finding]) {
    let own =
        |finding: &&mut Finding| prepared.choice.is_synthetic() && finding.kind == "unhandled-interrupt";
    for finding in findings.iter_mut().filter(own) {
        finding.severity = Severity::Note;
        finding.notes.push(
            "the synthetic device interrupts without a cause, and its line stays raised until the driver asks it"
                .to_owned(),
        );
    }
}

/// Copies the driver, and the modules that it stands on, to where the devices' process reads them.
fn copied(prepared: &Prepared, folder: &Path) -> Result<Vec<PathBuf>, HostError> {
    // What a run left that was killed.
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(HostError::io("create", folder.display()))?;
    let plan = &prepared.plan;
    let copy = |module: &ModuleFile| {
        let path = folder.join(format!("{}.ko", module.name));
        fs::write(&path, &module.bytes).map_err(HostError::io("write", path.display()))?;
        Ok(path)
    };
    std::iter::once(&plan.driver).chain(plan.before.iter().rev()).map(copy).collect()
}

fn failed(error: guardrail_synthetic::process::Error) -> HostError {
    HostError::Run(error.to_string())
}
