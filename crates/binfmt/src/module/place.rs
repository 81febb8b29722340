//! Where a loaded module's sections and symbols are in the guest.

use super::{ModuleImage, SymbolKind};
use rustc_hash::FxHashMap;

/// Sections that the loader reads from the file but does not keep, or that live elsewhere for each processor.
/// The values of their symbols show nothing about the module's memory.
const UNPLACED: [&str; 3] = [".modinfo", "__versions", ".data..percpu"];

/// First address of the kernel's half; the lower half of the address space is never the kernel's.
const KERNEL_HALF: u64 = 1 << 63;

/// A section of a loaded module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedSection {
    /// Index in the file.
    pub index: usize,
    /// The name, such as `.text`.
    pub name: String,
    /// Guest virtual address of its first byte.
    pub start: u64,
    /// Bytes in memory.
    pub size: u64,
    /// The ELF flags, `SHF_…`.
    pub flags: u64,
    /// Whether it can be written.
    pub write: bool,
    /// Whether it holds code.
    pub exec: bool,
    /// Whether the kernel frees it after the module's init function.
    pub init: bool,
}

/// A function or variable of a loaded module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedSymbol {
    /// Guest virtual address of its first byte.
    pub start: u64,
    /// Guest virtual address behind its last byte.
    pub end: u64,
    /// The name that the file gives it.
    pub name: String,
    /// Whether its section can be written.
    pub writable: bool,
    /// Index of its section in the file.
    pub section: usize,
}

/// A loaded module's place in the guest.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Sorted by start; no two overlap.
    sections: Vec<PlacedSection>,
    /// Sorted by start; one for each start.
    functions: Vec<PlacedSymbol>,
    /// Sorted by start.
    data: Vec<PlacedSymbol>,
    imports: Vec<(String, u64)>,
    ex_table: Vec<u64>,
}

impl Placed {
    pub(super) fn new(image: &ModuleImage, values: &[u64]) -> Option<Placed> {
        if values.len() != image.symbols().len() {
            return None;
        }
        let sections = place_sections(image, values);
        let starts: FxHashMap<usize, &PlacedSection> = sections.iter().map(|s| (s.index, s)).collect();
        // A module always has its `__this_module`; values without it are another module's.
        let this_module = image.section_index(".gnu.linkonce.this_module")?;
        starts.get(&this_module)?;

        let mut functions = Vec::new();
        let mut labels = Vec::new();
        let mut data = Vec::new();
        let mut imports = Vec::new();
        for (symbol, &value) in image.symbols().iter().zip(values) {
            let name = image.symbol_name(symbol);
            if symbol.undefined && value >= KERNEL_HALF && !name.is_empty() {
                imports.push((name.to_owned(), value));
            }
            let Some(section) = symbol.section.and_then(|s| starts.get(&usize::from(s))) else { continue };
            if symbol.value >= section.size || name.is_empty() {
                continue;
            }
            let start = section.start + symbol.value;
            let placed = PlacedSymbol {
                start,
                end: start + symbol.size.min(section.size - symbol.value),
                name: name.to_owned(),
                writable: section.write,
                section: section.index,
            };
            match symbol.kind {
                SymbolKind::Function if section.exec => functions.push((placed, symbol.local)),
                SymbolKind::NoType if section.exec && !name.starts_with(".L") => {
                    labels.push((placed, symbol.local))
                }
                SymbolKind::Object if !section.exec && symbol.size > 0 => data.push(placed),
                _ => {}
            }
        }
        let mut functions = one_per_start(functions);
        // Labels of assembly code count where no function is.
        let labels: Vec<_> =
            labels.into_iter().filter(|(l, _)| containing(&functions, l.start).is_none()).collect();
        if !labels.is_empty() {
            functions = one_per_start(functions.into_iter().map(|f| (f, true)).chain(labels).collect());
        }
        let ends: Vec<u64> = functions.iter().skip(1).map(|f| f.start).chain([u64::MAX]).collect();
        for (function, next) in functions.iter_mut().zip(ends) {
            if function.end == function.start {
                let section_end = starts.get(&function.section).map_or(function.start, |s| s.start + s.size);
                function.end = next.min(section_end);
            }
        }
        data.sort_by_key(|d| d.start);
        let ex_table = image.ex_table();
        let ex_table = ex_table.iter().filter_map(|(s, offset)| starts.get(s).map(|s| s.start + offset));
        let mut ex_table: Vec<u64> = ex_table.collect();
        ex_table.sort_unstable();
        Some(Placed { functions, data, imports, ex_table, sections })
    }

    /// The sections in memory, sorted by address.
    pub fn sections(&self) -> &[PlacedSection] {
        &self.sections
    }

    /// The section that contains an address, and the offset in it.
    pub fn section_of(&self, address: u64) -> Option<(usize, u64)> {
        let at = self.sections.partition_point(|s| s.start <= address);
        let section = self.sections.get(at.checked_sub(1)?)?;
        let offset = address - section.start;
        (offset < section.size).then_some((section.index, offset))
    }

    /// The function that contains an address, and the offset in it.
    pub fn function_at(&self, address: u64) -> Option<(&str, u64)> {
        containing(&self.functions, address).map(|f| (f.name.as_str(), address - f.start))
    }

    /// The functions, sorted by address.
    pub fn functions(&self) -> &[PlacedSymbol] {
        &self.functions
    }

    /// The variables and constants, sorted by address.
    pub fn data(&self) -> &[PlacedSymbol] {
        &self.data
    }

    /// The symbols of the kernel and of other modules that it uses, with their addresses.
    pub fn imports(&self) -> &[(String, u64)] {
        &self.imports
    }

    /// Addresses of the instructions whose faults the kernel handles, sorted.
    pub fn ex_table(&self) -> &[u64] {
        &self.ex_table
    }
}

/// The last of the sorted `symbols` that contains `address`; looks at a few, since some nest.
fn containing(symbols: &[PlacedSymbol], address: u64) -> Option<&PlacedSymbol> {
    let at = symbols.partition_point(|s| s.start <= address);
    symbols
        .get(..at)?
        .iter()
        .rev()
        .take(8)
        .find(|s| address < s.end || (s.end == s.start && s.start == address))
}

/// Sorts by start and keeps the most informative name of each start. Avoids the alias that every module has,
/// and prefers local names (the function's own) to global ones, then names with a size.
fn one_per_start(mut symbols: Vec<(PlacedSymbol, bool)>) -> Vec<PlacedSymbol> {
    symbols.sort_by_key(|(s, local)| {
        let alias = matches!(s.name.as_str(), "init_module" | "cleanup_module");
        (s.start, alias, s.end == s.start, !local)
    });
    symbols.dedup_by_key(|(s, _)| s.start);
    symbols.into_iter().map(|(s, _)| s).collect()
}

/// Each section begins where most of its symbols place it; when they are split evenly, its own symbol
/// decides.
fn place_sections(image: &ModuleImage, values: &[u64]) -> Vec<PlacedSection> {
    let headers: Vec<_> = image.sections().collect();
    let mut votes: FxHashMap<(usize, u64), (u32, bool)> = FxHashMap::default();
    for (symbol, &value) in image.symbols().iter().zip(values) {
        let Some(index) = symbol.section.map(usize::from) else { continue };
        let Some(section) = headers.get(index) else { continue };
        let start = value.wrapping_sub(symbol.value);
        let plausible = value != 0
            && section.alloc
            && !UNPLACED.contains(&section.name)
            && start >= KERNEL_HALF
            && start.is_multiple_of(section.align.max(1))
            && start.checked_add(section.size).is_some();
        if plausible {
            let vote = votes.entry((index, start)).or_default();
            vote.0 = vote.0.saturating_add(1);
            vote.1 |= symbol.kind == SymbolKind::Section;
        }
    }
    let mut best: FxHashMap<usize, (u32, bool, u64)> = FxHashMap::default();
    for ((index, start), (count, own)) in votes {
        let candidate = (count, own, start);
        let entry = best.entry(index).or_insert(candidate);
        *entry = (*entry).max(candidate);
    }
    let mut placed: Vec<PlacedSection> = best
        .into_iter()
        .map(|(index, (_, _, start))| PlacedSection {
            index,
            name: headers[index].name.to_owned(),
            start,
            size: headers[index].size,
            flags: headers[index].flags,
            write: headers[index].write,
            exec: headers[index].exec,
            init: headers[index].name.starts_with(".init"),
        })
        .collect();
    placed.sort_by_key(|s| (s.start, s.size, s.index));
    // Sections that overlap contradict each other: the first stays.
    let mut end = 0;
    placed.retain(|s| {
        let fits = s.start >= end;
        if fits {
            end = s.start + s.size;
        }
        fits
    });
    placed
}
