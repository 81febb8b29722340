//! Where a run writes, and where it finds its libraries.

use crate::error::HostError;
use guardrail_vm::Cache;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The name of the guardrail program.
const PROGRAM: &str = "guardrail";

/// The path from the root.
pub fn absolute(path: &Path) -> Result<PathBuf, HostError> {
    std::path::absolute(path).map_err(HostError::io("find", path.display()))
}

/// The guardrail program, which plays the processes of a run: this program, or the one beside it where another program
/// embeds an engine.
pub fn program() -> Result<PathBuf, HostError> {
    let this = this_program()?;
    if this.file_name().is_some_and(|name| name == PROGRAM) { Ok(this) } else { beside(&this, PROGRAM) }
}

/// One of Guardrail's libraries, beside the program.
pub fn library(name: &str) -> Result<PathBuf, HostError> {
    beside(&this_program()?, name)
}

fn this_program() -> Result<PathBuf, HostError> {
    std::env::current_exe().map_err(HostError::io("find", "the guardrail program"))
}

fn beside(program: &Path, name: &str) -> Result<PathBuf, HostError> {
    let folder = program.parent().unwrap_or(Path::new("/"));
    // Tests and examples lie one folder deeper.
    let candidates = [folder.join(name), folder.join("..").join(name)];
    candidates.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        HostError::Run(format!(
            "{name} is not beside the program in {}; build the workspace",
            folder.display()
        ))
    })
}

/// The folder that a run writes to: the user's, or one that goes with the run.
pub enum RunFolder {
    /// Goes with the run.
    Own(TempDir),
    /// The user's.
    Kept(PathBuf),
}

impl RunFolder {
    /// The folder `out`, or a new one in the cache.
    pub fn new(out: Option<&Path>, cache: &Cache) -> Result<RunFolder, HostError> {
        if let Some(out) = out {
            let out = absolute(out)?;
            fs::create_dir_all(&out).map_err(HostError::io("create", out.display()))?;
            return Ok(RunFolder::Kept(out));
        }
        let runs = cache.path("runs");
        fs::create_dir_all(&runs).map_err(HostError::io("create", runs.display()))?;
        let folder = TempDir::with_prefix_in("run-", &runs)
            .map_err(HostError::io("create a folder in", runs.display()))?;
        Ok(RunFolder::Own(folder))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        match self {
            RunFolder::Own(folder) => folder.path(),
            RunFolder::Kept(path) => path,
        }
    }
}

/// The log's place in shared memory; it goes with the run.
pub struct LogFolder(TempDir);

impl LogFolder {
    /// A place that nobody else has.
    pub fn new() -> Result<LogFolder, HostError> {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let folder = TempDir::with_prefix_in("guardrail-", &place)
            .map_err(HostError::io("create a folder in", place.display()))?;
        Ok(LogFolder(folder))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// The log's path.
    pub fn log(&self) -> PathBuf {
        self.0.path().join("log")
    }

    /// Takes the log's name away; who has it open keeps it.
    pub fn unlink(&self) {
        let _ = fs::remove_file(self.log());
        let _ = fs::remove_dir(self.0.path());
    }
}
