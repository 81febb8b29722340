//! Snapshots of the guest at findings (`--snapshot-on-finding`), and gdb on one of them.
//!
//! Knows: the files of a snapshot, how the guest is saved while the analysis and with it the driver wait.
//!
//! Must not know: what a finding means, why the gate is closed.

pub mod debug;

use crate::analysis::wire::Saves;
use crate::input::AnalysisInput;
use crate::plan::{GateKind, RunPlan};
use guardrail_host::HostError;
use guardrail_host::Progress;
use guardrail_vm::run::Save;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The name of the snapshots' folder, in that of the run.
const FOLDER: &str = "snapshots";
/// The file with the data that a debugger needs besides the guest's memory.
const SUBJECT: &str = "subject.json";

/// How the analysis waits while the guest is saved.
pub fn saves(plan: &RunPlan) -> Saves {
    Saves {
        most: plan.snapshots.unwrap_or(0),
        seconds: plan.hold_limit.as_secs(),
        // With the device in another QEMU, stopping the driver VM does not stop the device.
        close_first: plan.gate == GateKind::VfioUser,
    }
}

/// The files of a snapshot.
pub struct Files {
    /// The file with the guest's memory and registers.
    pub core: PathBuf,
    /// The file with the kernel's symbols.
    pub symbols: PathBuf,
    /// The commands that load the modules' symbols into gdb.
    pub script: PathBuf,
}

impl Files {
    /// The files of a finding.
    pub fn of(out: &Path, finding: &str) -> Files {
        let file = |ending: &str| out.join(FOLDER).join(format!("{finding}.{ending}"));
        Files { core: file("core"), symbols: file("symbols"), script: file("gdb") }
    }
}

/// The findings of a run that have a snapshot.
pub fn saved_in(out: &Path) -> Vec<String> {
    let files = fs::read_dir(out.join(FOLDER)).into_iter().flatten().flatten();
    let finding = |file: fs::DirEntry| Some(file.file_name().to_str()?.strip_suffix(".core")?.to_owned());
    let mut found: Vec<String> = files.filter_map(finding).collect();
    found.sort();
    found
}

/// The kernel and modules of the run.
pub fn input(out: &Path) -> Result<AnalysisInput, HostError> {
    let file = out.join(FOLDER).join(SUBJECT);
    let bytes = fs::read(&file).map_err(HostError::io("read", file.display()))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| HostError::Usage(format!("{} is malformed: {error}", file.display())))
}

/// The snapshots of a run.
pub struct Snapshots {
    out: PathBuf,
    /// The size of the guest's memory in bytes.
    memory: u64,
    wanted: RefCell<VecDeque<String>>,
    saved: RefCell<Vec<PathBuf>>,
}

impl Snapshots {
    /// Creates the folder. Snapshots of an earlier run are removed: their findings may not be those of this
    /// one.
    pub fn new(out: &Path, input: &AnalysisInput, memory_mib: u32) -> Result<Snapshots, HostError> {
        let folder = out.join(FOLDER);
        fs::create_dir_all(&folder).map_err(HostError::io("create", folder.display()))?;
        for finding in saved_in(out) {
            let Files { core, symbols, script } = Files::of(out, &finding);
            fs::remove_file(&core).map_err(HostError::io("remove", core.display()))?;
            // The debugger command creates them, which may never have run.
            let _ = (fs::remove_file(symbols), fs::remove_file(script));
        }
        let file = folder.join(SUBJECT);
        let text = serde_json::to_vec_pretty(input).map_err(|error| HostError::Run(error.to_string()))?;
        fs::write(&file, text).map_err(HostError::io("write", file.display()))?;
        Ok(Snapshots {
            out: out.to_path_buf(),
            memory: u64::from(memory_mib) << 20,
            wanted: RefCell::default(),
            saved: RefCell::default(),
        })
    }

    /// The analysis waits at a finding until the guest is saved.
    pub fn want(&self, finding: &str) {
        self.wanted.borrow_mut().push_back(finding.to_owned());
    }

    /// The saver for the duration of the guest. `go_on` lets the analysis continue after a finding.
    pub fn saving<'a>(&'a self, progress: &'a Progress, go_on: impl Fn(&str) + 'a) -> Saving<'a> {
        Saving { snapshots: self, progress, go_on: Box::new(go_on), now: None }
    }

    /// Frees the disk space of memory that was never used.
    pub fn thin(&self, progress: &Progress) {
        for file in self.saved.borrow().iter() {
            progress.step(&format!("making {} small", file.display()));
            // The snapshot is complete even if this fails.
            let _ = guardrail_snapshot::thin(file);
        }
    }
}

/// Saves the guest at one finding after the other.
pub struct Saving<'a> {
    snapshots: &'a Snapshots,
    progress: &'a Progress,
    go_on: Box<dyn Fn(&str) + 'a>,
    now: Option<Now>,
}

/// The finding at which the guest is being saved.
struct Now {
    finding: String,
    file: PathBuf,
    since: Instant,
    released: bool,
}

impl Saving<'_> {
    fn failed(&self, finding: &str, why: &str) {
        self.progress.step(&format!("the guest was not saved at finding {finding}: {why}"));
        (self.go_on)(finding);
    }
}

impl Save for Saving<'_> {
    fn wanted(&mut self) -> Option<PathBuf> {
        let finding = self.snapshots.wanted.borrow_mut().pop_front()?;
        let file = Files::of(&self.snapshots.out, &finding).core;
        // A full disk would harm the run more than a snapshot is worth.
        if let Some(free) = free_bytes(&self.snapshots.out).filter(|free| *free < 2 * self.snapshots.memory) {
            let (free, needed) = (free >> 20, self.snapshots.memory >> 19);
            self.failed(
                &finding,
                &format!("only {free} MiB are free in {}, not {needed}", self.snapshots.out.display()),
            );
            return None;
        }
        self.now = Some(Now { finding, file: file.clone(), since: Instant::now(), released: false });
        Some(file)
    }

    fn release(&mut self) {
        if let Some(now) = &mut self.now {
            now.released = true;
            (self.go_on)(&now.finding);
        }
    }

    fn saved(&mut self, saved: Result<(), String>) {
        let Some(now) = self.now.take() else { return };
        let made = saved.and_then(|()| {
            // QEMU creates the file as read-only.
            fs::set_permissions(&now.file, Permissions::from_mode(0o600)).map_err(|error| error.to_string())
        });
        match made {
            Ok(()) => {
                let late = if now.released { ", after the access that it stood before" } else { "" };
                let seconds = now.since.elapsed().as_secs_f64();
                self.progress
                    .step(&format!("saved the guest at finding {} ({seconds:.1} s){late}", now.finding));
                self.snapshots.saved.borrow_mut().push(now.file);
                (self.go_on)(&now.finding);
            }
            Err(why) => {
                let _ = fs::remove_file(&now.file);
                self.failed(&now.finding, &why);
            }
        }
    }
}

/// The free bytes for this user on the file system of a folder.
fn free_bytes(folder: &Path) -> Option<u64> {
    let path = CString::new(folder.as_os_str().as_bytes()).ok()?;
    // SAFETY: `statvfs` is plain data for which all zeros is a value.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero, and the structure is writable and lives through the call.
    let status = unsafe { libc::statvfs(path.as_ptr(), &mut stat) };
    (status == 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize))
}
