//! What a client requests before the guest runs.

use crate::host::{Counter, Counters, HookId, PerVcpu, Wanted, Wants};
use guardrail_binfmt::KernelImage;
use guardrail_trace::client::{ClientConfig, Scope};
use guardrail_trace::config::Hook;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options and kernel data for a client's setup, and its requests. Valid only in
/// [`Client::new`](crate::Client::new).
pub struct Setup<'a> {
    pub(crate) config: &'a ClientConfig,
    pub(crate) counters: &'a Counters,
    pub(crate) hooks: &'a mut Vec<(Hook, Wanted)>,
    pub(crate) image: &'a mut Option<Arc<KernelImage>>,
    pub(crate) client: usize,
    pub(crate) next_hook: u32,
    pub(crate) options: &'a BTreeMap<String, String>,
    pub(crate) vcpus: u32,
    pub(crate) wants: Wants,
}

impl Setup<'_> {
    /// Number of the guest's vCPUs.
    pub fn vcpus(&self) -> u32 {
        self.vcpus
    }

    /// Which code is instrumented.
    pub fn scope(&self) -> &Scope {
        &self.config.scope
    }

    /// The value of an option (`--client NAME:KEY=VALUE`); `None` where it was not given.
    pub fn option(&self, key: &str) -> Option<&str> {
        self.options.get(key).map(String::as_str)
    }

    /// A number given as an option, or `default`. An error where it is no number.
    pub fn number(&self, key: &str, default: u64) -> Result<u64, String> {
        let Some(text) = self.option(key) else { return Ok(default) };
        text.parse().map_err(|_| format!("the option {key}={text} is not a number"))
    }

    /// Checks that all options are among `known`.
    pub fn only(&self, known: &[&str]) -> Result<(), String> {
        match self.options.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) if known.is_empty() => {
                Err(format!("there is no option {key}; this client has no options"))
            }
            Some(key) => Err(format!("there is no option {key}; there are {}", known.join(", "))),
        }
    }

    /// Makes a counter with all values zero.
    pub fn counter(&self) -> Counter {
        self.counters.make()
    }

    /// Makes one value for each vCPU.
    pub fn per_vcpu<T: Sync>(&self, make: impl FnMut() -> T) -> PerVcpu<T> {
        PerVcpu::new(self.vcpus, make)
    }

    /// The kernel's image: symbols, types, code. It is read at the first use, which takes some tenths of
    /// a second.
    pub fn kernel(&mut self) -> Result<Arc<KernelImage>, String> {
        if let Some(image) = self.image {
            return Ok(Arc::clone(image));
        }
        let path = &self.config.image;
        let image = KernelImage::open(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let image = Arc::new(image);
        *self.image = Some(Arc::clone(&image));
        Ok(image)
    }

    /// Addresses and offsets of this kernel.
    pub fn layout(&self) -> &guardrail_trace::config::TracerConfig {
        &self.config.kernel
    }

    /// Asks for the entries of the kernel function with this name, and with `returns` also for its
    /// returns, whatever the scope. `None` where this kernel has no such function.
    pub fn hook(&mut self, name: &str, returns: bool) -> Result<Option<HookId>, String> {
        let image = self.kernel()?;
        let Some(address) = image.address_of(name) else { return Ok(None) };
        let ranges = match returns {
            true => guardrail_kernel::returns(&image, address, &self.config.kernel.return_thunks),
            false => Vec::new(),
        };
        Ok(Some(self.hook_at(&Hook {
            name: name.to_owned(),
            address,
            args: 6,
            derefs: Vec::new(),
            result: returns,
            returns: ranges,
            lists: Vec::new(),
        })))
    }

    /// Like [`hook`](Self::hook), for a hook that has the addresses of the function and its returns.
    pub fn hook_at(&mut self, hook: &Hook) -> HookId {
        let id = HookId(self.next_hook);
        self.next_hook += 1;
        self.hooks.push((hook.clone(), Wanted::Client(self.client, id)));
        id
    }

    /// Asks for calls of [`discontinuity`](crate::Client::discontinuity).
    pub fn discontinuities(&mut self) {
        self.wants.discontinuities = true;
    }

    /// Asks for blocks outside the scope too, including user code and firmware.
    /// [`Block::in_scope`](crate::Block::in_scope) distinguishes them. For clients whose numbers must
    /// cover the whole machine.
    pub fn everything(&mut self) {
        self.wants.everything = true;
    }

    /// Path of the run's folder, for files that the client writes.
    pub fn folder(&self) -> PathBuf {
        self.config.results.parent().map(Path::to_owned).unwrap_or_default()
    }

    /// Asks for calls of [`switched`](crate::Client::switched).
    pub fn threads(&mut self) {
        self.wants.threads = true;
    }
}
