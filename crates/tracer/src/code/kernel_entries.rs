//! Finds the kernel addresses to instrument: entries of functions, and ranges whose returns count.

use guardrail_plugin::entries::Entries;
use guardrail_trace::config::TracerConfig;

/// The meaning of a kernel function's entry.
#[derive(Clone, Copy, Debug)]
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
    /// The kernel binds a driver to a device of any bus.
    ChildProbe,
    /// Device addresses get another meaning.
    Remap,
    /// All writes to devices must have arrived.
    Arrival,
    /// Writes to devices arrive that have been checked.
    Delivery,
}

/// Collects all addresses in the configuration.
pub fn kernel_entries(config: &TracerConfig) -> Entries<Entry> {
    let mut entries = vec![
        (config.modules.load, Entry::ModuleLoad),
        (config.modules.free, Entry::ModuleFree),
        (config.modules.unload, Entry::ModuleUnload),
    ];
    if let Some(gate) = &config.gate {
        let accessors = (0u32..).zip(&gate.config_space);
        entries.extend(accessors.map(|(number, known)| (known.address, Entry::Config(number))));
        entries.extend(gate.probe.iter().map(|probe| (probe.address, Entry::Probe)));
        entries.extend(gate.child_probe.iter().map(|probe| (probe.address, Entry::ChildProbe)));
        let arrivals = gate.arrivals.iter().chain([&config.modules.unload, &config.modules.free]);
        let arrivals = arrivals.map(|&address| (address, Entry::Arrival));
        let deliveries = gate.deliveries.iter().map(|&address| (address, Entry::Delivery));
        entries.extend(arrivals.chain(deliveries).filter(|_| gate.posts));
        entries.extend(gate.remaps.iter().map(|&address| (address, Entry::Remap)));
    }
    let hooks = (0u32..).zip(&config.hooks);
    let in_kernel = hooks.clone().filter(|(_, hook)| hook.address != 0);
    entries.extend(in_kernel.map(|(number, hook)| (hook.address, Entry::Hook(number))));
    Entries::new(entries, hooks)
}
