//! Memory outside the direct map: vmalloc space and per-CPU memory.

use super::areas::Area;
use super::guest::Guest;
use super::memory::{HIGHEST, LOWEST, MAX_SIZE, Memory};
use super::pages::PAGE;

/// Per-CPU memory is allocated in units of this many bytes.
const PER_CPU_UNIT: u64 = 4;

impl Memory {
    /// Handles an allocation of memory with its own page tables.
    pub fn vmalloc_allocated(&self, addr: u64, size: u64, stack: u32) {
        if !(LOWEST..HIGHEST).contains(&addr) || size == 0 || size > MAX_SIZE {
            return;
        }
        let taken = size.next_multiple_of(PAGE);
        self.shadow.clear(addr, size);
        self.shadow.fill(addr.wrapping_add(size), taken - size, 1);
        self.vmalloc.add(addr, Area { size, taken, allocated: stack, freed: 0, lives: true });
    }

    /// Handles a free of such memory.
    pub fn vmalloc_freed(&self, addr: u64, stack: u32) {
        if let Some(area) = self.vmalloc.end(addr, stack) {
            self.frees.note(addr);
            self.shadow.fill(addr, area.taken, 1);
        }
    }

    /// Handles addresses outside the direct map that get a new meaning.
    pub fn addresses_taken(&self, from: u64, len: u64) {
        if (LOWEST..HIGHEST).contains(&from) && len <= MAX_SIZE << 8 {
            self.shadow.clear(from, len);
            self.vmalloc.forget(from, len);
        }
    }

    /// Handles addresses outside the direct map that lose their meaning.
    pub fn addresses_given(&self, from: u64, len: u64, stack: u32) {
        if !(LOWEST..HIGHEST).contains(&from) || len == 0 || len > MAX_SIZE {
            return;
        }
        let known = self.vmalloc.at(from).filter(|&(at, area)| at == from && area.freed != 0);
        if known.is_none() {
            let area = Area { size: len, taken: len, allocated: 0, freed: stack, lives: false };
            self.vmalloc.add(from, area);
        }
        self.frees.note(from);
        self.shadow.fill(from, len, 1);
    }

    /// Handles an allocation of per-CPU memory. `pointer` is the per-CPU pointer that the allocator
    /// returns.
    pub fn per_cpu_allocated(&self, guest: &mut impl Guest, pointer: u64, size: u64, stack: u32) {
        if pointer == 0 || size == 0 || size > MAX_SIZE {
            return;
        }
        let taken = size.next_multiple_of(PER_CPU_UNIT);
        for cpu in self.cpus(guest) {
            let at = pointer.wrapping_add(*cpu);
            self.shadow.clear(at, size);
            self.shadow.fill(at.wrapping_add(size), taken - size, 1);
        }
        self.per_cpu.add(pointer, Area { size, taken, allocated: stack, freed: 0, lives: true });
    }

    /// Handles a free of such memory.
    pub fn per_cpu_freed(&self, guest: &mut impl Guest, pointer: u64, stack: u32) {
        let Some(area) = self.per_cpu.end(pointer, stack) else { return };
        for cpu in self.cpus(guest) {
            let at = pointer.wrapping_add(*cpu);
            self.frees.note(at);
            self.shadow.fill(at, area.taken, 1);
        }
    }
}
