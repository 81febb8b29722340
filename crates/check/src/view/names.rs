//! Names for the addresses and numbers of a trace. Where the file with a name is absent, the number is shown.

use crate::trace_head;
use guardrail_binfmt::module::Placed;
use guardrail_binfmt::{KernelImage, ModuleImage};
use guardrail_trace::file::TraceMeta;
use guardrail_vm::OwnedFolder;
use std::collections::HashMap;

/// The most threads whose names are kept.
const MAX_THREADS: usize = 1 << 16;

/// The sources of names.
pub struct Names {
    kernel: Option<KernelImage>,
    slide: u64,
    hooks: Vec<String>,
    threads: HashMap<u64, String>,
    modules: HashMap<String, ModuleImage>,
    /// The loaded modules, with their names.
    placed: Vec<(String, Placed)>,
}

impl Names {
    /// Opens the kernel and modules of a trace, as far as they still exist.
    pub fn open(meta: &TraceMeta) -> Names {
        let mut modules = HashMap::new();
        let folder = OwnedFolder::large("guardrail-").ok();
        if let Some(input) =
            folder.as_ref().and_then(|folder| trace_head::input(meta, folder.path(), &|_, _| Ok(())).ok())
        {
            for file in input.modules.iter().chain(&input.others) {
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

    /// An address as `function+0x12 [module]`.
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

    /// The name of the hook with this number.
    pub fn hook(&self, number: u64) -> String {
        let known = usize::try_from(number).ok().and_then(|number| self.hooks.get(number));
        known.cloned().unwrap_or_else(|| format!("hook {number}"))
    }

    /// A thread as `name/pid`.
    pub fn thread(&self, pid: u64) -> String {
        format!("{}/{pid}", self.threads.get(&pid).map_or("?", String::as_str))
    }

    /// Records the name of a thread.
    pub fn add_thread(&mut self, pid: u64, name: &str) {
        if self.threads.len() < MAX_THREADS {
            self.threads.insert(pid, name.to_owned());
        }
    }

    /// Records the kernel's slide.
    pub fn set_slide(&mut self, slide: u64) {
        self.slide = slide;
    }

    /// Records that a module was loaded, with the values of its symbols.
    pub fn load(&mut self, module: &str, values: &[u64]) {
        self.placed.retain(|(other, _)| other != module);
        if let Some(placed) = self.modules.get(module).and_then(|image| image.place(values)) {
            self.placed.push((module.to_owned(), placed));
        }
    }
}
