//! What is analyzed: a kernel and modules, the same for a live run and a recorded one.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What is analyzed: the same for a live run and a recorded one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Subject {
    /// The kernel image.
    pub kernel: PathBuf,
    /// The traced modules.
    pub modules: Vec<ModuleFile>,
    /// Other modules that the guest loads: they give names to addresses.
    #[serde(default)]
    pub others: Vec<ModuleFile>,
    /// The names of the hooked functions, by number.
    pub hooks: Vec<String>,
    /// The checkers.
    pub tools: Vec<String>,
}

/// A traced module.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ModuleFile {
    /// Its name as `struct module` spells it.
    pub name: String,
    /// The ELF file.
    pub path: PathBuf,
    /// The file with its debug information, where that is not in the module itself.
    pub debug: Option<PathBuf>,
}
