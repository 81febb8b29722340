//! The gate's state: which accesses are held, and where device addresses lead.

use super::posted::Posted;
use guardrail_plugin::ranges::RangeSet;
use guardrail_trace::config::Gate as Config;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

/// Device pages that a vCPU remembers; a power of two.
const PAGES: usize = 64;
const PAGE: u64 = 4096;

/// The gate's state that all vCPUs share.
pub struct Gate {
    config: Config,
    /// Link-time ranges (start, end) of kernel functions that access devices for drivers, sorted.
    accessors: Vec<(u64, u64)>,
    /// Physical addresses of the registers of devices that watched drivers are bound to.
    pub memory: RangeSet,
    /// I/O ports of those devices.
    pub ports: RangeSet,
    /// Code of modules that are not watched, because it may access devices for a watched one.
    pub libraries: RangeSet,
    /// The writes that vCPUs did not wait for; `None` where they wait with all accesses.
    pub posted: Option<Posted>,
    /// Changes when device addresses get another meaning.
    epoch: AtomicU64,
}

impl Gate {
    /// Makes a gate for a guest in which no driver is bound yet.
    pub fn new(config: Config, posted: Option<Posted>) -> Gate {
        let mut accessors = config.accessors.clone();
        accessors.sort_unstable();
        Gate {
            accessors,
            config,
            memory: RangeSet::new(),
            ports: RangeSet::new(),
            libraries: RangeSet::new(),
            posted,
            epoch: AtomicU64::new(1),
        }
    }

    /// The longest time that an access may be held.
    pub fn limit(&self) -> Duration {
        Duration::from_millis(self.config.limit_millis)
    }

    /// The configuration of this run.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether the code at this link-time address accesses devices for drivers.
    pub fn is_accessor(&self, link: u64) -> bool {
        let next = self.accessors.partition_point(|range| range.0 <= link);
        // Aliases and cold parts overlap, so one of the ranges before may reach further.
        self.accessors[next.saturating_sub(4)..next].iter().any(|range| link < range.1)
    }

    /// Whether a physical address belongs to a device, not to RAM.
    pub fn is_device(&self, physical: u64) -> bool {
        !self.config.ram.iter().any(|&(from, to)| (from..to).contains(&physical))
    }

    /// Forgets all translations, because device addresses get another meaning.
    pub fn remapped(&self) {
        self.epoch.fetch_add(1, Release);
    }
}

/// Physical addresses of pages in the kernel's device mappings, as one vCPU found them.
pub struct DevicePages {
    pages: Box<[Page; PAGES]>,
}

#[derive(Clone, Copy, Default)]
struct Page {
    page: u64,
    epoch: u64,
    physical: u64,
}

impl DevicePages {
    /// Makes an empty cache.
    pub fn new() -> DevicePages {
        DevicePages { pages: Box::new([Page::default(); PAGES]) }
    }

    /// Translates a virtual address. `translate` walks the page tables where the cache has no row.
    #[inline]
    pub fn physical(
        &mut self,
        gate: &Gate,
        address: u64,
        translate: impl FnOnce(u64) -> Option<u64>,
    ) -> Option<u64> {
        let (page, rest) = (address / PAGE, address % PAGE);
        let epoch = gate.epoch.load(Acquire);
        let slot = &mut self.pages[(page ^ page >> 6) as usize % PAGES];
        if slot.page != page || slot.epoch != epoch {
            let physical = translate(page * PAGE)?;
            *slot = Page { page, epoch, physical };
        }
        Some(slot.physical + rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate {
        Gate::new(
            Config {
                ram: vec![(0, 0xa0000), (0x10_0000, 0x2000_0000)],
                accessors: vec![(0x300, 0x310), (0x100, 0x180), (0x140, 0x150)],
                ..Config::default()
            },
            None,
        )
    }

    #[test]
    fn what_is_not_ram_is_devices() {
        let gate = gate();
        assert!(!gate.is_device(0x9ffff) && gate.is_device(0xa0000) && gate.is_device(0xfebc_0000));
        assert!(!gate.is_device(0x1fff_ffff) && gate.is_device(0x2000_0000));
    }

    #[test]
    fn accessors_may_overlap() {
        let gate = gate();
        for (address, known) in
            [(0xff, false), (0x100, true), (0x145, true), (0x160, true), (0x180, false), (0x30f, true)]
        {
            assert_eq!(gate.is_accessor(address), known, "{address:#x}");
        }
    }

    #[test]
    fn pages_are_walked_again_when_mappings_changed() {
        let (gate, mut pages) = (gate(), DevicePages::new());
        assert_eq!(pages.physical(&gate, 0x5010, |_| Some(0xfeb0_0000)), Some(0xfeb0_0010));
        assert_eq!(pages.physical(&gate, 0x5020, |_| panic!("it is known")), Some(0xfeb0_0020));
        gate.remapped();
        assert_eq!(pages.physical(&gate, 0x5020, |_| None), None);
        assert_eq!(pages.physical(&gate, 0x5020, |_| Some(0x7000)), Some(0x7020));
    }
}
