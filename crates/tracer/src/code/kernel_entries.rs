//! Finds the kernel addresses to instrument: entries of functions, and ranges whose returns count.

use guardrail_trace::config::TracerConfig;

/// The meaning of a kernel function's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The entry of the hook with this number.
    Hook(u32),
    /// The kernel has laid out a module.
    ModuleLoad,
    /// The kernel frees a part of a module.
    ModuleFree,
    /// The kernel unloads a module.
    ModuleUnload,
    /// The accessor with this number accesses PCI configuration space.
    Config(u32),
    /// The kernel binds a driver to a PCI device.
    Probe,
    /// Device addresses get another meaning.
    Remap,
}

/// Link-time addresses of the kernel functions in the configuration, sorted for lookup.
#[derive(Debug)]
pub struct KernelEntries {
    entries: Vec<(u64, Entry)>,
    /// Ranges (start, end, hook): a return there ends a call of the hook. Sorted by start; they may
    /// overlap.
    returns: Vec<(u64, u64, u32)>,
    /// The same ranges, merged.
    merged: Vec<(u64, u64)>,
}

impl KernelEntries {
    /// Collects all addresses in the configuration.
    pub fn new(config: &TracerConfig) -> KernelEntries {
        let mut entries = vec![
            (config.modules.load, Entry::ModuleLoad),
            (config.modules.free, Entry::ModuleFree),
            (config.modules.unload, Entry::ModuleUnload),
        ];
        if let Some(gate) = &config.gate {
            let accessors = (0u32..).zip(&gate.config_space);
            entries.extend(accessors.map(|(number, known)| (known.address, Entry::Config(number))));
            entries.extend(gate.probe.iter().map(|probe| (probe.address, Entry::Probe)));
            entries.extend(gate.remaps.iter().map(|&address| (address, Entry::Remap)));
        }
        let mut returns = Vec::new();
        for (number, hook) in (0u32..).zip(&config.hooks) {
            entries.push((hook.address, Entry::Hook(number)));
            if hook.result {
                returns
                    .extend(hook.returns.iter().filter(|r| r.0 < r.1).map(|&(from, to)| (from, to, number)));
            }
        }
        entries.sort_by_key(|e| e.0);
        returns.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for &(from, to, _) in &returns {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        KernelEntries { entries, returns, merged }
    }

    /// The entries with link-time addresses in `from..=to`.
    pub fn entries(&self, from: u64, to: u64) -> &[(u64, Entry)] {
        let low = self.entries.partition_point(|e| e.0 < from);
        let count = self.entries[low..].partition_point(|e| e.0 <= to);
        &self.entries[low..low + count]
    }

    /// Whether a return at this link-time address ends a call of any hook.
    pub fn has_returns(&self, addr: u64) -> bool {
        let next = self.merged.partition_point(|r| r.0 <= addr);
        next > 0 && addr < self.merged[next - 1].1
    }

    /// Numbers of the hooks whose calls a return at this link-time address ends.
    pub fn returns(&self, addr: u64) -> Vec<u32> {
        let next = self.returns.partition_point(|r| r.0 <= addr);
        let mut hooks: Vec<u32> = self.returns[..next].iter().filter(|r| addr < r.1).map(|r| r.2).collect();
        hooks.sort_unstable();
        hooks.dedup();
        hooks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_trace::config::*;

    fn hook(address: u64, result: bool, returns: &[(u64, u64)]) -> Hook {
        let (name, returns) = (String::new(), returns.to_vec());
        Hook { name, address, args: 1, derefs: Vec::new(), result, returns, lists: Vec::new() }
    }

    fn entries() -> KernelEntries {
        KernelEntries::new(&TracerConfig {
            log: String::new(),
            probe: Probe { address: 0, bytes: Vec::new(), align: 1 },
            kernel_text: (0, 0x10000),
            watch: Vec::new(),
            modules: ModuleHooks { load: 0x900, free: 0x910, unload: 0x920 },
            layout: ModuleLayout { name: 0, regions: Vec::new(), kallsyms: 0, symtab: 0, num_symtab: 0 },
            per_cpu: PerCpu { current: 0, preempt_count: 0, relative: false },
            task: TaskLayout { pid: 0, comm: 0, flags: None },
            hooks: vec![
                hook(0x100, true, &[(0x100, 0x140), (0x800, 0x810)]),
                hook(0x140, true, &[(0x140, 0x180), (0x100, 0x140)]),
                hook(0x200, false, &[(0x200, 0x240)]),
            ],
            globals: Vec::new(),
            arguments: Vec::new(),
            indirect_thunks: Vec::new(),
            return_thunks: Vec::new(),
            scope: Scope::Driver,
            holds: Holds::default(),
            gate: None,
        })
    }

    #[test]
    fn entries_are_found_anywhere_in_a_block() {
        let e = entries();
        assert_eq!(e.entries(0xf0, 0x140), [(0x100, Entry::Hook(0)), (0x140, Entry::Hook(1))]);
        assert_eq!(e.entries(0x101, 0x13f), []);
        assert_eq!(e.entries(0x910, 0x910), [(0x910, Entry::ModuleFree)]);
    }

    #[test]
    fn returns_belong_to_every_hook_that_names_them() {
        let e = entries();
        assert!(e.has_returns(0x13f) && e.has_returns(0x17f) && e.has_returns(0x80f));
        assert!(!e.has_returns(0xff) && !e.has_returns(0x180) && !e.has_returns(0x200));
        assert_eq!(e.returns(0x120), [0, 1]);
        assert_eq!(e.returns(0x150), [1]);
        assert_eq!(e.returns(0x805), [0]);
    }
}
