//! Reads the guest's `struct module`, and finds the guest's RAM.

use crate::cpu::Cpu;
use crate::ram::{Ram, Sample};
use crate::registers::word;
use guardrail_trace::config::{ModuleLayout, RegionLayout};

/// Bytes of a module's name in the log.
pub const NAME: usize = 64;
/// Size of an ELF symbol in bytes, with the offsets of its value and its type.
const SYMBOL: usize = 24;
const SYMBOL_VALUE: usize = 8;
const SYMBOL_INFO: usize = 4;
const SYMBOL_IS_FUNCTION: u8 = 2;
/// Number of samples that locate the guest's RAM, and the bytes of each.
const RAM_SAMPLES: usize = 16;
const RAM_SAMPLE: usize = 64;

/// Reads a module's name, padded with zeros, and its length.
pub fn name(layout: &ModuleLayout, cpu: &mut Cpu, module: u64) -> Option<([u8; NAME], usize)> {
    // `struct module` has 56 bytes of name. Bytes after the first zero may be anything.
    let mut name = [0; NAME];
    name[..56].copy_from_slice(cpu.read(module.wrapping_add(layout.name), 56)?);
    let len = name.iter().position(|&b| b == 0)?;
    name[len..].fill(0);
    Some((name, len))
}

/// Reads the regions of a module: start, size, flags.
pub fn regions(layout: &ModuleLayout, cpu: &mut Cpu, module: u64) -> Option<Vec<(u64, u64, u64)>> {
    let region = |region: &RegionLayout| {
        let base = cpu.read_word(module.wrapping_add(region.base), 8)?;
        Some((base, cpu.read_word(module.wrapping_add(region.size), 4)?, region.flags))
    };
    layout.regions.iter().map(region).collect()
}

/// Reads the address of a module's symbol table, and the number of symbols.
pub fn symbol_table(layout: &ModuleLayout, cpu: &mut Cpu, module: u64) -> (u64, u64) {
    let table = cpu.read_word(module.wrapping_add(layout.kallsyms), 8).unwrap_or(0);
    let start = cpu.read_word(table.wrapping_add(layout.symtab), 8).unwrap_or(0);
    (start, cpu.read_word(table.wrapping_add(layout.num_symtab), 4).unwrap_or(0))
}

/// Reads the values of all symbols, and those of functions only.
pub fn symbols(cpu: &mut Cpu, start: u64, count: u64) -> Option<(Vec<u64>, Vec<u64>)> {
    if count == 0 {
        return Some((Vec::new(), Vec::new()));
    }
    let table = cpu.read(start, count as usize * SYMBOL)?;
    let value = |symbol: &[u8]| word(&symbol[SYMBOL_VALUE..]);
    let is_function = |symbol: &&[u8]| symbol[SYMBOL_INFO] & 0xf == SYMBOL_IS_FUNCTION;
    let values = table.chunks_exact(SYMBOL).map(value).collect();
    Some((values, table.chunks_exact(SYMBOL).filter(is_function).map(value).collect()))
}

/// Finds QEMU's mapping of the guest's RAM, with samples from the kernel's text. The text is a link-time
/// range, and its bytes do not change.
pub fn find_ram(ram: &Ram, (from, to): (u64, u64), slide: u64, cpu: &mut Cpu) {
    if ram.known() {
        return;
    }
    let step = (to.saturating_sub(from) / RAM_SAMPLES as u64).max(RAM_SAMPLE as u64) & !63;
    let sample = |at: u64| {
        let physical = cpu.translate(at.wrapping_add(slide))?;
        let bytes = cpu.read_physical(physical, RAM_SAMPLE)?.to_vec();
        Some(Sample { physical, bytes })
    };
    let places = (0..RAM_SAMPLES as u64).map(|i| (from & !63).wrapping_add(step.wrapping_mul(i)));
    let samples: Vec<Sample> = places.filter_map(sample).collect();
    ram.find(&samples);
}
