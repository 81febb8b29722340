//! Names for the addresses and numbers of a trace. Whatever is not at hand stays a number.

use crate::analyze;
use guardrail_kernel::{KernelImage, ModuleImage};
use guardrail_trace::file::TraceMeta;
use std::collections::{BTreeMap, HashMap};
use tempfile::TempDir;

/// Threads whose names are kept.
const MAX_THREADS: usize = 1 << 16;
/// No function is longer; addresses farther from a symbol have no name.
const MAX_FUNCTION: u64 = 1 << 16;

/// What is known of names.
pub struct Names {
    kernel: Option<KernelImage>,
    slide: u64,
    hooks: Vec<String>,
    threads: HashMap<u64, String>,
    /// By module: the names of its ELF symbols in the order of the file's table.
    symbols: HashMap<String, Vec<String>>,
    /// By address in memory: function and module.
    places: BTreeMap<u64, (String, String)>,
}

impl Names {
    /// Opens what the trace is of, as far as it is still there.
    pub fn open(meta: &TraceMeta) -> Names {
        let mut symbols = HashMap::new();
        let folder = TempDir::with_prefix("guardrail-").ok();
        if let Some(subject) = folder.as_ref().and_then(|folder| analyze::subject(meta, folder.path()).ok()) {
            for file in &subject.modules {
                let Ok(module) = ModuleImage::open(&file.path) else { continue };
                let names = module.symbols().iter().map(|symbol| module.symbol_name(symbol).to_owned());
                symbols.insert(file.name.clone(), names.collect());
            }
        }
        Names {
            kernel: KernelImage::open(meta.kernel_image.as_ref()).ok(),
            slide: 0,
            hooks: meta.hooks.clone(),
            threads: HashMap::new(),
            symbols,
            places: BTreeMap::new(),
        }
    }

    /// `function+0x12 [module]`.
    pub fn at(&self, address: u64) -> Option<String> {
        if let Some((start, (name, module))) = self.places.range(..=address).next_back()
            && address - start < MAX_FUNCTION
        {
            return Some(format!("{name}+{:#x} [{module}]", address - start));
        }
        let kernel = self.kernel.as_ref()?;
        let link = address.wrapping_sub(self.slide);
        let located = kernel.is_text(link).then(|| kernel.symbol_at(link))??;
        Some(format!("{}+{:#x}", located.name, located.offset))
    }

    /// The name of a hook.
    pub fn hook(&self, number: u64) -> String {
        let known = usize::try_from(number).ok().and_then(|number| self.hooks.get(number));
        known.cloned().unwrap_or_else(|| format!("hook {number}"))
    }

    /// `name/pid`.
    pub fn thread(&self, pid: u64) -> String {
        format!("{}/{pid}", self.threads.get(&pid).map_or("?", String::as_str))
    }

    /// A thread was seen.
    pub fn add_thread(&mut self, pid: u64, name: &str) {
        if self.threads.len() < MAX_THREADS {
            self.threads.insert(pid, name.to_owned());
        }
    }

    /// The kernel was moved by so much.
    pub fn set_slide(&mut self, slide: u64) {
        self.slide = slide;
    }

    /// A module was loaded and its symbols have these values.
    pub fn load(&mut self, module: &str, values: &[u64]) {
        let Some(names) = self.symbols.get(module) else { return };
        self.places.retain(|_, (_, other)| other != module);
        for (name, value) in names.iter().zip(values) {
            if !name.is_empty() && *value >= 1 << 47 {
                self.places.insert(*value, (name.clone(), module.to_owned()));
            }
        }
    }
}
