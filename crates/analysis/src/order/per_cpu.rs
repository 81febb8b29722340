//! Where vCPUs have their own copies of variables.

use std::collections::BTreeMap;

/// Ranges of per-CPU memory that are known.
const MAX_PER_CPU: usize = 4096;
/// vCPUs whose per-CPU area is known.
const MAX_VCPUS: usize = 512;
/// The most that the first chunk of a vCPU's per-CPU area has.
const MAX_UNIT: u64 = 4 << 20;

/// Per-CPU memory.
#[derive(Debug, Default)]
pub struct PerCpu {
    /// GS bases by vCPU; 0 where not known.
    bases: Vec<u64>,
    /// Where the first chunks begin, from the bases.
    start: u64,
    /// Distance of the vCPUs' first chunks.
    unit: u64,
    /// Memory that was allocated: offsets from the base, start to end.
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

    /// Where each vCPU has what is at an offset from its base.
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
        // The first chunk has its units one behind the other.
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
