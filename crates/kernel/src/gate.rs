//! Configures the gate for a kernel: which functions access devices for drivers, and where drivers are bound.

use guardrail_binfmt::KernelImage;
use guardrail_trace::config::{ChildProbe, ConfigAccessor, Gate, PciProbe};

/// Functions that access registers for their callers, wherever the registers are (lib/iomap.c,
/// arch/x86/lib/iomem.c, lib/iomap_copy.c).
const ACCESSORS: [&str; 8] =
    ["ioread", "iowrite", "memcpy_fromio", "memcpy_toio", "memset_io", "__ioread", "__iowrite", "mmio_"];
/// Prefixes of the PCI core's own functions that access devices: interrupt tables, power states, quirks
/// (drivers/pci).
const PCI_CORE: [&str; 6] = ["pci_", "__pci_", "msix_", "msi_", "__msi", "quirk_"];
/// Functions that access PCI configuration space (arch/x86/pci): name, and whether it writes.
const CONFIG_SPACE: [(&str, bool); 6] = [
    ("pci_conf1_read", false),
    ("pci_conf1_write", true),
    ("pci_conf2_read", false),
    ("pci_conf2_write", true),
    ("pci_mmcfg_read", false),
    ("pci_mmcfg_write", true),
];
/// Functions that give addresses for devices another meaning (mm/vmalloc.c, arch/x86/mm/ioremap.c).
const REMAPS: [&str; 5] =
    ["ioremap_page_range", "vmap_page_range", "iounmap", "vunmap_range", "vunmap_range_noflush"];
/// Functions at whose entry a driver's writes must have arrived. Some wait for a time, for which a device may need a write
/// (arch/x86/lib/delay.c, kernel/time). Others run when the handlers of an interrupt have returned (kernel/irq). If the
/// device has not taken its interrupt back then, the kernel takes it again. One frees memory that the device may read.
const ARRIVALS: [&str; 19] = [
    "__udelay",
    "__ndelay",
    "__const_udelay",
    "__delay",
    "msleep",
    "msleep_interruptible",
    "usleep_range",
    "usleep_range_state",
    "schedule_timeout",
    "schedule_hrtimeout_range",
    "schedule_hrtimeout_range_clock",
    "add_interrupt_randomness",
    "note_interrupt",
    "irq_finalize_oneshot",
    "unmask_threaded_irq",
    "enable_irq",
    "free_irq",
    "synchronize_irq",
    "dma_free_attrs",
];
/// Functions that the kernel runs all the time, whatever it does (kernel/locking, kernel/softirq.c, kernel/sched/core.c,
/// mm/slub.c, arch/x86/entry/common.c). Writes arrive there that have been checked.
const DELIVERIES: [&str; 12] = [
    "_raw_spin_unlock",
    "_raw_spin_unlock_bh",
    "_raw_spin_unlock_irq",
    "_raw_spin_unlock_irqrestore",
    "__local_bh_enable_ip",
    "irq_enter_rcu",
    "irq_exit_rcu",
    "__schedule",
    "kfree",
    "kmem_cache_alloc",
    "kmem_cache_free",
    "do_syscall_64",
];
/// Most bytes of a function of interest.
const MAX_SIZE: u64 = 0x4000;

/// Works out the gate's configuration for the tracer. `ram` are the physical addresses of the guest's memory.
pub fn gate(image: &KernelImage, ram: &[(u64, u64)], limit_millis: u64) -> Gate {
    let of = |prefixes: &[&str], name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let mut accessors: Vec<(u64, u64)> = image
        .symbols()
        .filter(|symbol| symbol.kind.eq_ignore_ascii_case(&'t') && image.is_text(symbol.address))
        .filter(|symbol| of(&ACCESSORS, symbol.name) || of(&PCI_CORE, symbol.name))
        // Configuration space has a gate of its own, at the first instructions of the functions.
        .filter(|symbol| !CONFIG_SPACE.iter().any(|(name, _)| *name == symbol.name))
        .filter_map(|symbol| {
            let size = image.symbol_at(symbol.address)?.size.min(MAX_SIZE);
            Some((symbol.address, symbol.address + size))
        })
        .collect();
    accessors.sort_unstable();
    accessors.dedup();
    let entry = |name: &&str| image.address_of(name);
    Gate {
        limit_millis,
        strict: false,
        posts: false,
        arrivals: ARRIVALS.iter().filter_map(entry).collect(),
        deliveries: DELIVERIES.iter().filter_map(entry).collect(),
        ram: ram.to_vec(),
        accessors,
        config_space: CONFIG_SPACE
            .iter()
            .filter_map(|(name, write)| Some(ConfigAccessor { address: entry(name)?, write: *write }))
            .collect(),
        remaps: REMAPS.iter().filter_map(entry).collect(),
        probe: pci_probe(image),
        child_probe: child_probe(image),
    }
}

/// Where the kernel binds PCI drivers, and offsets in its structures. `None` where the kernel has no PCI.
fn pci_probe(image: &KernelImage) -> Option<PciProbe> {
    let btf = image.btf();
    let member = |structure, path| btf.member_offset(structure, path);
    Some(PciProbe {
        address: image.address_of("local_pci_probe")?,
        driver: member("drv_dev_and_id", "drv")?,
        device: member("drv_dev_and_id", "dev")?,
        probe: member("pci_driver", "probe")?,
        devfn: member("pci_dev", "devfn")?,
        bus: member("pci_dev", "bus")?,
        number: member("pci_bus", "number")?,
        resources: member("pci_dev", "resource")?,
        resource_size: btf.size_of(btf.struct_named("resource")?)?,
        resource: [member("resource", "start")?, member("resource", "end")?, member("resource", "flags")?],
    })
}

/// Where the kernel binds drivers of other buses, whose devices may be behind a PCI device.
fn child_probe(image: &KernelImage) -> Option<ChildProbe> {
    let btf = image.btf();
    let member = |structure, path| btf.member_offset(structure, path);
    Some(ChildProbe {
        address: image.address_of("really_probe")?,
        pci_bus: image.address_of("pci_bus_type")?,
        owner: member("device_driver", "owner")?,
        exit: member("module", "exit")?,
        parent: member("device", "parent")?,
        bus: member("device", "bus")?,
        in_pci_dev: member("pci_dev", "dev")?,
    })
}
