//! The input of an analysis: a kernel and modules, the same for a live run and a recorded one.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The kernel, modules and checkers of an analysis: the same for a live run and a recorded one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AnalysisInput {
    /// The path of the kernel image.
    pub kernel: PathBuf,
    /// The kernel's file with its debug information, where the cache has one.
    #[serde(default)]
    pub kernel_debug: Option<PathBuf>,
    /// The traced modules.
    pub modules: Vec<ModuleFile>,
    /// Other modules that the guest loads; they only provide names for addresses.
    #[serde(default)]
    pub others: Vec<ModuleFile>,
    /// The names of the hooked functions, by number.
    pub hooks: Vec<String>,
    /// The checkers by name.
    pub tools: Vec<String>,
    /// Whether the kernel keeps redzones around all objects of its slab caches.
    #[serde(default)]
    pub redzones: bool,
}

/// Whether these words of a kernel command line ask for redzones in all caches: `slub_debug=Z`, perhaps with further
/// letters. A list of caches behind them would leave out others.
pub fn asks_for_redzones(words: &[String]) -> bool {
    let mut letters = words
        .iter()
        .flat_map(|words| words.split(' '))
        .filter_map(|word| word.strip_prefix("slub_debug=").or_else(|| word.strip_prefix("slab_debug=")));
    letters.next_back().is_some_and(|letters| {
        letters.contains('Z') && letters.chars().all(|letter| "FZPUTA".contains(letter))
    })
}

#[cfg(test)]
mod tests {
    use super::asks_for_redzones;

    #[test]
    fn redzones_are_everywhere_or_do_not_count() {
        let asks = |words: &str| asks_for_redzones(&[words.to_owned()]);
        assert!(asks("slub_debug=Z") && asks("quiet slab_debug=FZ"));
        assert!(!asks("slub_debug=Z,kmalloc-64") && !asks("slub_debug=F") && !asks("slub_debug=-"));
        assert!(!asks("slub_debug=OZ") && !asks("slub_debug=Z slub_debug=-") && !asks("slub_debug"));
    }
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
