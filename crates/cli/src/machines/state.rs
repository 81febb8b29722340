//! The state of a VM that stays alive: a folder in the cache with its sockets, its log and its lock.

use crate::args::{Cli, Command, ProfileArgs};
use crate::errors::CliError;
use crate::files;
use clap::Parser;
use guardrail_vm::Cache;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The longest path of a socket, within the limit of `sun_path`.
const MAX_SOCKET: usize = 100;

/// The folder of a VM, whether it runs or not.
pub struct Machine {
    folder: PathBuf,
}

/// The description that a VM writes once its guest takes commands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Running {
    /// The number of its process.
    pub process: u32,
    /// The sockets of its clients.
    pub sockets: Vec<PathBuf>,
    /// The arguments that it was started with, for commands that print its results.
    arguments: Vec<Vec<u8>>,
}

impl Machine {
    /// The VM with this name, whether it runs or not.
    pub fn named(cache: &Cache, name: &str) -> Result<Machine, CliError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || name.len() > 32 || !name.chars().all(plain) {
            return Err(CliError::Usage(format!(
                "'{name}' is no name for a VM; use up to 32 letters, digits, '-' and '_'"
            )));
        }
        let folder = cache.path("vms").join(name);
        fs::create_dir_all(&folder).map_err(CliError::io("create", folder.display()))?;
        let machine = Machine { folder };
        if machine.port().as_os_str().len() > MAX_SOCKET {
            return Err(CliError::Usage(format!(
                "the path {} is too long for a socket; use a shorter cache folder (GUARDRAIL_CACHE)",
                machine.port().display()
            )));
        }
        Ok(machine)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The log with the output of its process.
    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// The socket of the guest's third serial port.
    pub fn port(&self) -> PathBuf {
        self.folder.join("port")
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state.json")
    }

    /// Removes the files that an earlier VM of this name left.
    pub fn clear(&self) -> Result<(), CliError> {
        for file in [self.state(), self.port()] {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(CliError::io("remove", file.display())(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Holds the VM's lock as long as the result lives.
    pub fn lock(&self) -> Result<File, CliError> {
        match self.try_lock()? {
            Some(lock) => Ok(lock),
            None => Err(CliError::Usage("a VM of this name runs already".into())),
        }
    }

    fn try_lock(&self) -> Result<Option<File>, CliError> {
        let path = self.folder.join("lock");
        let file = File::create(&path).map_err(CliError::io("create", path.display()))?;
        Ok(guardrail_vm::try_lock(&file, libc::LOCK_EX).then_some(file))
    }

    /// The VM's description; `None` where it does not run or is not ready.
    pub fn running(&self) -> Result<Option<Running>, CliError> {
        if !self.state().is_file() || self.try_lock()?.is_some() {
            return Ok(None);
        }
        Ok(self.read())
    }

    fn read(&self) -> Option<Running> {
        serde_json::from_slice(&fs::read(self.state()).ok()?).ok()
    }

    /// Records that the guest takes commands.
    pub fn is_ready(&self, sockets: &[PathBuf]) -> Result<(), CliError> {
        let running = Running {
            process: std::process::id(),
            sockets: sockets.to_vec(),
            arguments: std::env::args_os().skip(2).map(|word| word.as_bytes().to_vec()).collect(),
        };
        let text = serde_json::to_vec(&running).map_err(|error| CliError::Run(error.to_string()))?;
        files::write(&self.state(), &text)
    }

    /// Records that the VM has ended; its state is kept for commands that print its results.
    pub fn ended(&self) {
        let _ = fs::remove_file(self.port());
    }

    /// The arguments that the VM was started with.
    pub fn profile_args(&self) -> Result<ProfileArgs, CliError> {
        let unknown =
            || CliError::Run(format!("the state of the VM in {} cannot be read", self.folder.display()));
        let running = self.read().ok_or_else(unknown)?;
        let words = running.arguments.into_iter().map(OsString::from_vec);
        let line = ["guardrail", "internal-vm"].map(OsString::from).into_iter().chain(words);
        match Cli::try_parse_from(line).map_err(|_| unknown())?.command {
            Command::InternalVm(args) => Ok(args.profile),
            _ => Err(unknown()),
        }
    }

    /// The folder with the files of its run.
    pub fn run_folder(&self) -> Result<PathBuf, CliError> {
        Ok(self.profile_args()?.out.unwrap_or_else(|| self.folder.join("run")))
    }
}

/// The VMs that run, with their names.
pub fn all(cache: &Cache) -> Result<Vec<(String, Running)>, CliError> {
    let folder = cache.path("vms");
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(CliError::io("read", folder.display())(error)),
    };
    let mut all = Vec::new();
    for entry in entries.flatten() {
        let machine = Machine { folder: entry.path() };
        if let Some(running) = machine.running()? {
            all.push((entry.file_name().to_string_lossy().into_owned(), running));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(all)
}
