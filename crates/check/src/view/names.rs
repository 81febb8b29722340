//! Names for the addresses and numbers of a trace. Where the file with a name is absent, the number is shown.

use crate::reach::Reach;
use crate::trace_head::{self, Subject};
use guardrail_binfmt::module::Placed;
use guardrail_binfmt::{KernelImage, ModuleImage};
use guardrail_host::error::print_line;
use guardrail_trace::file::TraceMeta;
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
    /// Opens the kernel and modules of a trace. Where they are absent or not to be opened, that is said.
    pub fn open(meta: &TraceMeta, reach: &Reach) -> Names {
        let found = trace_head::subject(meta, reach);
        let found =
            found.inspect_err(|error| print_line("guardrail", &format!("without names: {error}"))).ok();
        let kernel = found.as_ref().and_then(|found| KernelImage::open(&found.kernel.vmlinuz).ok());
        let modules = found.map_or_else(Vec::new, |Subject { drivers, others, .. }| {
            let drivers = meta.modules.iter().zip(drivers);
            drivers.map(|((name, _), driver)| (name.clone(), driver.bytes)).chain(others).collect()
        });
        let image =
            |(name, bytes): (String, Vec<u8>)| Some((name.clone(), ModuleImage::parse(&name, bytes).ok()?));
        Names {
            kernel,
            slide: 0,
            hooks: meta.hooks.clone(),
            threads: HashMap::new(),
            modules: modules.into_iter().filter_map(image).collect(),
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
