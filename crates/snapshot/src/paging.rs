//! The page tables of x86-64 (Intel SDM volume 3, 4.5), with four levels.

use crate::dump::{Cpu, Dump};
use std::collections::HashSet;

/// Start of the kernel's half of the address space.
pub const KERNEL_HALF: u64 = 0xffff_8000_0000_0000;
/// Most tables that are read, and most ranges that are made. Page tables are memory of the guest, so
/// they can hold anything. Tables of 256 MiB map 128 GiB page by page.
const MAX_TABLES: usize = 1 << 16;
const MAX_RANGES: usize = 60_000;

const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Index of the top table's entry that maps one page of small stacks sixty thousand times
/// (`ESPFIX_PGD_ENTRY`).
const ESPFIX: u64 = 510;
/// Bit of CR4: five levels of page tables.
const LA57: u64 = 1 << 12;

/// Virtual addresses that are contiguous in physical memory too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Guest virtual address of its first byte.
    pub virt: u64,
    /// Guest physical address of its first byte.
    pub physical: u64,
    /// Length in bytes.
    pub size: u64,
}

/// The kernel's address space, from the page tables of one vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    ranges: Vec<Range>,
}

impl Space {
    /// Reads the page tables of a vCPU. Tables and ranges beyond the limits are left out.
    ///
    /// A table that several entries of one level lead to is followed once, from the highest of these entries in the top
    /// table. A kernel shares tables only for memory of one content, such as the unused shadow memory of KASAN.
    pub fn of(dump: &Dump, cpu: &Cpu) -> Space {
        let mut walk = Walk { dump, ranges: Vec::new(), tables: HashSet::new(), is_full: false };
        if cpu.cr4 & LA57 == 0 {
            walk.top(cpu.cr3 & ADDRESS);
        }
        walk.ranges.sort_by_key(|range| range.virt);
        Space { ranges: walk.ranges }
    }

    /// All ranges, sorted by virtual address.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// The physical address of a virtual one, and how many contiguous bytes follow it.
    pub fn translate(&self, virt: u64) -> Option<(u64, u64)> {
        let after = self.ranges.partition_point(|range| range.virt <= virt);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        let into = virt - range.virt;
        (into < range.size).then(|| (range.physical + into, range.size - into))
    }

    /// Reads memory at a virtual address. `None` where some of it is not present.
    pub fn read(&self, dump: &Dump, mut virt: u64, mut bytes: &mut [u8]) -> Option<()> {
        while !bytes.is_empty() {
            let (physical, rest) = self.translate(virt)?;
            let count = bytes.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
            let (now, later) = bytes.split_at_mut(count);
            dump.read_physical(physical, now)?;
            virt = virt.checked_add(count as u64)?;
            bytes = later;
        }
        Some(())
    }

    /// Reads a 64-bit word at a virtual address.
    pub fn word(&self, dump: &Dump, virt: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(dump, virt, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Reads a text of at most `most` bytes, up to its zero byte.
    pub fn text(&self, dump: &Dump, virt: u64, most: usize) -> Option<String> {
        let mut bytes = Vec::new();
        while bytes.len() < most {
            let at = virt.checked_add(bytes.len() as u64)?;
            let (_, rest) = self.translate(at)?;
            let left = most - bytes.len();
            let mut piece = vec![0; usize::try_from(rest).map_or(left, |rest| rest.min(left))];
            self.read(dump, at, &mut piece)?;
            match piece.iter().position(|&byte| byte == 0) {
                Some(end) => {
                    bytes.extend_from_slice(&piece[..end]);
                    break;
                }
                None => bytes.append(&mut piece),
            }
        }
        String::from_utf8(bytes).ok()
    }
}

struct Walk<'a> {
    dump: &'a Dump,
    ranges: Vec<Range>,
    /// The tables that were read: physical address and level, which its low bits have room for.
    tables: HashSet<u64>,
    /// Whether a range found no room.
    is_full: bool,
}

impl Walk<'_> {
    /// Reads the kernel's half of the top table. The last entry comes first: it maps the kernel's own
    /// text, data and modules. So the limits never exclude these, whatever the other entries hold.
    fn top(&mut self, at: u64) {
        let half = (256..512).rev().filter(|entry| *entry != ESPFIX);
        for entry in half {
            let mut bytes = [0; 8];
            let place = at + 8 * entry;
            if self.dump.read_physical(place, &mut bytes).is_some() {
                self.entry(u64::from_le_bytes(bytes), 3, KERNEL_HALF | entry << 39);
            }
        }
    }

    fn table(&mut self, at: u64, level: u32, base: u64) {
        let mut bytes = [0; 4096];
        if self.is_full || self.tables.len() >= MAX_TABLES || !self.tables.insert(at | u64::from(level)) {
            return;
        }
        if self.dump.read_physical(at, &mut bytes).is_none() {
            return;
        }
        for (i, entry) in bytes.chunks_exact(8).enumerate() {
            let entry = u64::from_le_bytes(entry.try_into().unwrap_or_default());
            self.entry(entry, level, base | (i as u64) << (12 + 9 * level));
        }
    }

    /// Follows or adds the memory that an entry maps at `virt`.
    fn entry(&mut self, entry: u64, level: u32, virt: u64) {
        if entry & PRESENT == 0 {
            return;
        }
        let size = 1 << (12 + 9 * level);
        if level == 0 || level < 3 && entry & LARGE != 0 {
            self.add(Range { virt, physical: entry & ADDRESS & !(size - 1), size });
        } else {
            self.table(entry & ADDRESS, level - 1, virt);
        }
    }

    /// Adds a page, as far as the file has it.
    fn add(&mut self, page: Range) {
        let Some((_, rest)) = self.dump.place(page.physical) else { return };
        let page = Range { size: page.size.min(rest), ..page };
        if let Some(last) = self.ranges.last_mut()
            && last.virt.wrapping_add(last.size) == page.virt
            && last.physical + last.size == page.physical
            // The pages must be contiguous in the file as well.
            && self.dump.place(last.physical).is_some_and(|(_, rest)| rest > last.size)
        {
            last.size += page.size;
        } else if self.ranges.len() < MAX_RANGES {
            self.ranges.push(page);
        } else {
            self.is_full = true;
        }
    }
}
