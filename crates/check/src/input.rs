//! The input of an analysis: a kernel and modules, the same for a live run and a recorded one.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The kernel, modules and checkers of an analysis: the same for a live run and a recorded one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AnalysisInput {
    /// The path of the kernel image.
    pub kernel: PathBuf,
    /// The traced modules.
    pub modules: Vec<ModuleFile>,
    /// Other modules that the guest loads; they only provide names for addresses.
    #[serde(default)]
    pub others: Vec<ModuleFile>,
    /// The names of the hooked functions, by number.
    pub hooks: Vec<String>,
    /// The checkers by name.
    pub tools: Vec<String>,
}

/// A traced module.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ModuleFile {
    /// The name in the spelling of `struct module`.
    pub name: String,
    /// The path of the ELF file.
    pub path: PathBuf,
    /// The file with its debug information; `None` where the module itself contains it.
    pub debug: Option<PathBuf>,
}
