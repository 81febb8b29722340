//! Guests with the modules of active drivers.

use super::Arguments;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::{Options, Outcome, TcgThreads, Watch, run};
use guardrail_vm::{kbuild, kernels};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The longest that a guest may take.
const LIMIT: Duration = Duration::from_secs(1800);
/// What every workload begins with.
const DEVICE: &str = include_str!("../../../guest/workloads/device.sh");

/// What a guest runs.
pub struct Guest<'a> {
    /// The stock driver, which has the device first.
    pub driver: &'a str,
    /// QEMU's name of the device.
    pub device: &'a str,
    /// The script.
    pub script: &'a str,
    /// Its variables.
    pub variables: Vec<(String, String)>,
    /// Programs, as names and C sources.
    pub programs: &'a [(&'a str, &'a str)],
}

/// Builds all modules of active drivers, with their tests, in a folder; returns their paths.
pub fn modules(packages: &Packages, kernel: &str, folder: &Path) -> Result<Vec<PathBuf>, String> {
    let text = |error: guardrail_vm::Error| error.to_string();
    let sources = kbuild::folder("active", "Kbuild", "GUARDRAIL_ACTIVE").map_err(text)?;
    let script = kbuild::folder("scripts", "kbuild", "GUARDRAIL_SCRIPTS").map_err(text)?.join("kbuild");
    let kernel = kernels::find(packages, kernel).map_err(text)?;
    let (copy, tree) = (folder.join("sources"), folder.join("tree"));
    copied(&sources, &copy).map_err(|error| format!("cannot copy {}: {error}", sources.display()))?;
    let rest = [tree.as_os_str(), copy.as_os_str(), OsStr::new("TEST=1")];
    kbuild::run(packages, &kernel, &script, &["--name", "active"], &rest).map_err(text)?;
    let entries = fs::read_dir(&copy).map_err(|error| format!("cannot list the modules: {error}"))?;
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.extension() == Some(OsStr::new("ko"))).collect())
}

/// Copies the sources of a folder and of those in it, without what a build left there.
fn copied(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        let text = name.to_string_lossy();
        let source = text == "Kbuild"
            || [".c", ".h", ".S"].iter().any(|end| text.ends_with(end)) && !text.ends_with(".mod.c");
        if path.is_dir() {
            copied(&path, &to.join(&name))?;
        } else if source {
            fs::copy(&path, to.join(&name))?;
        }
    }
    Ok(())
}

impl Guest<'_> {
    /// Runs it; returns what it wrote to the console.
    pub fn run(
        self,
        packages: &Packages,
        arguments: &Arguments,
        modules: &[PathBuf],
    ) -> Result<String, String> {
        let text = |error: guardrail_vm::Error| error.to_string();
        let folder =
            tempfile::tempdir().map_err(|error| format!("cannot make a folder for the run: {error}"))?;
        let workload = folder.path().join("workload.sh");
        let failed = |error: std::io::Error| format!("cannot write the workload: {error}");
        fs::write(&workload, format!("{DEVICE}\n{}", self.script)).map_err(failed)?;
        let request = Request {
            driver: self.driver,
            kernel: &arguments.kernel,
            device: Some(self.device),
            workload: workload.to_str(),
            ..Request::default()
        };
        let prepared = Prepared::new(packages, &Parser::here(), request, &mut |_| {}).map_err(text)?;
        let mut options = Options::new(folder.path());
        options.cpus = arguments.smp;
        options.limits.total = LIMIT;
        options.threads = TcgThreads::Multi;
        if arguments.icount {
            // QEMU counts instructions on one thread alone.
            options.threads = TcgThreads::Single;
            options.qemu_arguments.extend(["-icount", "shift=0,sleep=off"].map(str::to_owned));
        }
        options.kernel_arguments.push("log_buf_len=2M".to_owned());
        options.variables = self.variables;
        for path in modules {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let bytes = fs::read(path).map_err(|error| format!("cannot read {name}: {error}"))?;
            options.files.push((name, bytes));
        }
        for (name, source) in self.programs {
            options.files.push(((*name).to_owned(), compiled(name, source, folder.path())?));
        }
        let mut watch = Watch {
            progress: &mut |_, _| {},
            stop: &mut || None,
            activity: &mut || 0,
            closed: &mut || None,
            save: None,
        };
        let finished = run(&prepared, &options, &mut watch).map_err(text)?;
        let console = fs::read(&finished.console).unwrap_or_default();
        let console = String::from_utf8_lossy(&console).into_owned();
        match finished.outcome {
            Outcome::Completed => Ok(console),
            other => Err(format!("{other}; {}", crate::process::last_words(&console))),
        }
    }
}

/// Compiles a program for the guest.
fn compiled(name: &str, source: &str, folder: &Path) -> Result<Vec<u8>, String> {
    let (file, program) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&file, source).map_err(|error| format!("cannot write {name}.c: {error}"))?;
    let output =
        Command::new("gcc").args(["-O2", "-Wall", "-static", "-o"]).arg(&program).arg(&file).output();
    let output =
        output.map_err(|error| format!("cannot run gcc: {error}; scripts/setup installs what is needed"))?;
    match output.status.success() {
        true => fs::read(&program).map_err(|error| format!("cannot read {name}: {error}")),
        false => {
            Err(format!("{name}.c cannot be compiled: {}", String::from_utf8_lossy(&output.stderr).trim()))
        }
    }
}
