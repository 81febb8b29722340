//! The vCPUs' own copies of variables.

use std::collections::BTreeMap;

/// Most ranges of per-CPU memory that are known.
const MAX_PER_CPU: usize = 4096;
/// Most vCPUs whose per-CPU area is known.
const MAX_VCPUS: usize = 512;
/// Largest size in bytes of the first chunk of a vCPU's per-CPU area.
const MAX_UNIT: u64 = 4 << 20;

/// Per-CPU memory of all vCPUs.
#[derive(Debug, Default)]
pub struct PerCpu {
    /// GS bases by vCPU; 0 where not known.
    bases: Vec<u64>,
    /// Where the first chunks begin, relative to the bases.
    start: u64,
    /// Distance of the vCPUs' first chunks, in bytes.
    unit: u64,
    /// Allocated memory: start and end, as offsets from the base.
    allocated: BTreeMap<u64, u64>,
}

impl PerCpu {
    /// Whether an address is in the per-CPU area of a vCPU.
    pub fn contains(&self, addr: u64) -> bool {
        self.bases.iter().filter(|&&base| base != 0).any(|base| {
            let offset = addr.wrapping_sub(*base);
            offset.wrapping_sub(self.start) < self.unit
                || self.allocated.range(..=offset).next_back().is_some_and(|(_, &end)| offset < end)
        })
    }

    /// The ranges in the vCPUs' areas that lie at an offset from their bases.
    pub fn places(&self, start: u64, size: u64) -> Vec<(u64, u64)> {
        let bases = self.bases.iter().filter(|&&base| base != 0);
        bases.map(|base| base.wrapping_add(start)).map(|from| (from, from.saturating_add(size))).collect()
    }

    /// A vCPU's GS base has become known; its first chunk begins at `start` from there.
    pub fn set_base(&mut self, cpu: usize, base: u64, start: u64) {
        self.start = start;
        if cpu >= MAX_VCPUS {
            return;
        }
        if self.bases.len() <= cpu {
            self.bases.resize(cpu + 1, 0);
        }
        self.bases[cpu] = base;
        // The units of the first chunk lie one behind the other.
        let mut known: Vec<u64> = self.bases.iter().copied().filter(|&b| b != 0).collect();
        known.sort_unstable();
        let apart = known.windows(2).map(|w| w[1] - w[0]).filter(|&d| d > 0).min();
        self.unit = apart.filter(|&d| d <= MAX_UNIT).unwrap_or(0);
    }

    /// Per-CPU memory was allocated.
    pub fn add(&mut self, start: u64, size: u64) {
        if self.allocated.len() < MAX_PER_CPU {
            self.allocated.insert(start, start.saturating_add(size.min(MAX_UNIT)));
        }
    }

    /// Per-CPU memory was freed.
    pub fn remove(&mut self, start: u64) {
        self.allocated.remove(&start);
    }
}
