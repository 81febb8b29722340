//! Names for the addresses and numbers of a trace. Without its file, a name stays a number.

use crate::trace_head;
use guardrail_binfmt::module::Placed;
use guardrail_binfmt::{KernelImage, ModuleImage};
use guardrail_trace::file::TraceMeta;
use std::collections::HashMap;
use tempfile::TempDir;

/// Threads whose names are kept.
const MAX_THREADS: usize = 1 << 16;

/// What is known of names.
pub struct Names {
    kernel: Option<KernelImage>,
    slide: u64,
    hooks: Vec<String>,
    threads: HashMap<u64, String>,
    modules: HashMap<String, ModuleImage>,
    /// Modules that were loaded, with their names.
    placed: Vec<(String, Placed)>,
}

impl Names {
    /// Opens what the trace is of, as far as it is still there.
    pub fn open(meta: &TraceMeta) -> Names {
        let mut modules = HashMap::new();
        let folder = TempDir::with_prefix("guardrail-").ok();
        if let Some(subject) =
            folder.as_ref().and_then(|folder| trace_head::subject(meta, folder.path()).ok())
        {
            for file in subject.modules.iter().chain(&subject.others) {
                if let Ok(image) = ModuleImage::open(&file.path) {
                    modules.insert(file.name.clone(), image);
                }
            }
        }
        Names {
            kernel: KernelImage::open(meta.kernel_image.as_ref()).ok(),
            slide: 0,
            hooks: meta.hooks.clone(),
            threads: HashMap::new(),
            modules,
            placed: Vec::new(),
        }
    }

    /// `function+0x12 [module]`.
    pub fn at(&self, address: u64) -> Option<String> {
        for (module, placed) in self.placed.iter().rev() {
            if let Some((name, offset)) = placed.function_at(address) {
                return Some(format!("{name}+{offset:#x} [{module}]"));
            }
            let data = placed.data().iter().find(|data| (data.start..data.end).contains(&address));
            if let Some(data) = data {
                return Some(format!("{}+{:#x} [{module}]", data.name, address - data.start));
            }
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
        self.placed.retain(|(other, _)| other != module);
        if let Some(placed) = self.modules.get(module).and_then(|image| image.place(values)) {
            self.placed.push((module.to_owned(), placed));
        }
    }
}
