//! The folders that a run writes to, and where it finds its libraries.

use crate::error::HostError;
use guardrail_vm::OwnedFolder;
use guardrail_vm::parser::Parser;
use std::fs;
use std::path::{Path, PathBuf};

/// The name of the guardrail program.
const PROGRAM: &str = "guardrail";

/// The absolute form of the path.
pub fn absolute(path: &Path) -> Result<PathBuf, HostError> {
    std::path::absolute(path).map_err(HostError::io("find", path.display()))
}

/// The guardrail program, which also runs as the processes of a run. It is this program, or the one beside it
/// where another program embeds an engine.
pub fn program() -> Result<PathBuf, HostError> {
    let this = this_program()?;
    if this.file_name().is_some_and(|name| name == PROGRAM) { Ok(this) } else { beside(&this, PROGRAM) }
}

/// A process that parses what others wrote, for one that cannot confine itself.
pub fn parser() -> Result<Parser, HostError> {
    Ok(Parser::apart(&program()?))
}

/// The path of one of Guardrail's libraries, beside the program.
pub fn library(name: &str) -> Result<PathBuf, HostError> {
    beside(&this_program()?, name)
}

fn this_program() -> Result<PathBuf, HostError> {
    std::env::current_exe().map_err(HostError::io("find", "the guardrail program"))
}

fn beside(program: &Path, name: &str) -> Result<PathBuf, HostError> {
    let folder = program.parent().unwrap_or(Path::new("/"));
    // Test and example programs are one folder deeper.
    let candidates = [folder.join(name), folder.join("..").join(name)];
    candidates.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        HostError::Run(format!(
            "{name} is not beside the program in {}; build the workspace",
            folder.display()
        ))
    })
}

/// The folder that a run writes to: the user's, or a temporary one.
pub enum RunFolder {
    /// A temporary folder, which is removed with the run.
    Own(OwnedFolder),
    /// The user's folder, which is kept.
    Kept(PathBuf),
}

impl RunFolder {
    /// The folder `out`, or a new one in the system's folder for large temporary files.
    pub fn new(out: Option<&Path>) -> Result<RunFolder, HostError> {
        if let Some(out) = out {
            let out = absolute(out)?;
            fs::create_dir_all(&out).map_err(HostError::io("create", out.display()))?;
            return Ok(RunFolder::Kept(out));
        }
        let folder =
            OwnedFolder::large("guardrail-run-").map_err(HostError::io("create", "a folder for the run"))?;
        Ok(RunFolder::Own(folder))
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        match self {
            RunFolder::Own(folder) => folder.path(),
            RunFolder::Kept(path) => path,
        }
    }
}

/// The log's folder in shared memory; it is removed with the run, or by the next one.
pub struct LogFolder(OwnedFolder);

impl LogFolder {
    /// Creates a folder that nothing else uses.
    pub fn new() -> Result<LogFolder, HostError> {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let folder = OwnedFolder::new("guardrail-log-", &place)
            .map_err(HostError::io("create a folder in", place.display()))?;
        Ok(LogFolder(folder))
    }

    /// The path of the folder.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// The path of the log.
    pub fn log(&self) -> PathBuf {
        self.0.path().join("log")
    }

    /// Removes the log's name; processes that have it open keep it.
    pub fn unlink(&self) {
        let _ = fs::remove_file(self.log());
        let _ = fs::remove_dir(self.0.path());
    }
}
