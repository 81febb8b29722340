//! A binary as code: its functions, where it has them, and what its branches lead to.

use guardrail_binfmt::module::SymbolKind;
use guardrail_binfmt::{KernelImage, ModuleImage};
use rustc_hash::{FxHashMap, FxHashSet};

/// Most bytes of a function with all its parts.
pub const MAX_BYTES: u64 = 1 << 20;
/// The distance of the made-up addresses of a module's sections.
const STRIDE: u64 = 1 << 32;

const R_X86_64_64: u32 = 1;
const R_X86_64_PC32: u32 = 2;
const R_X86_64_PLT32: u32 = 4;
const R_X86_64_32S: u32 = 11;

/// Bytes of code or data at an address.
#[derive(Clone, Debug)]
struct Region {
    start: u64,
    bytes: Vec<u8>,
}

/// What a relocation refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An address of this unit.
    Local(u64),
    /// A name that another unit has, and the distance from it.
    Extern(String, i64),
}

/// A function's start and end; parts elsewhere (`.cold`) are functions of their own.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its first byte.
    pub start: u64,
    /// Behind its last byte.
    pub end: u64,
    /// Its names; several functions may share code.
    pub names: Vec<String>,
}

impl Function {
    /// Whether it is a part of another function, with that one's stack frame.
    pub fn is_part(&self) -> bool {
        self.names.iter().all(|name| name.contains(".cold"))
    }
}

/// A binary as code.
#[derive(Debug)]
pub struct Unit {
    regions: Vec<Region>,
    /// Sorted by start, without overlaps.
    functions: Vec<Function>,
    relocations: FxHashMap<u64, Target>,
    /// Jumps that the code itself does not show: from static branches, and from faults to their handlers.
    hidden: FxHashMap<u64, Vec<u64>>,
    exports: FxHashMap<String, u64>,
    /// Names that several functions have.
    ambiguous: FxHashSet<String>,
    /// Where the kernel has the operations that a hypervisor may replace.
    pv_ops: Option<u64>,
}

impl Unit {
    /// The code of a kernel.
    pub fn kernel(image: &KernelImage) -> Unit {
        let code = |address: u64| image.is_text(address);
        let regions: Vec<Region> = image
            .sections()
            .filter(|(name, address, size)| *size > 0 && (code(*address) || *name == ".rodata"))
            .filter_map(|(_, address, size)| {
                Some(Region { start: address, bytes: image.bytes_at(address, size)?.to_vec() })
            })
            .collect();
        let texts: Vec<(u64, u64)> = image
            .sections()
            .filter(|(_, address, _)| code(*address))
            .map(|(_, address, size)| (address, address.saturating_add(size)))
            .collect();
        let symbols = image.symbols().filter(|symbol| matches!(symbol.kind, 't' | 'T' | 'w' | 'W'));
        let symbols = symbols.map(|symbol| (symbol.address, 0, symbol.name.to_owned()));
        let mut unit = Unit {
            regions,
            functions: functions(symbols.collect(), &texts),
            relocations: FxHashMap::default(),
            hidden: FxHashMap::default(),
            exports: FxHashMap::default(),
            ambiguous: FxHashSet::default(),
            pv_ops: image.address_of("pv_ops"),
        };
        unit.ambiguous = ambiguous(&unit.functions);
        for name in image.symbols().filter_map(|symbol| symbol.name.strip_prefix("__ksymtab_")) {
            let Some(address) = image.address_of(name) else { continue };
            if unit.function_at(address).is_some_and(|function| unit.functions[function].start == address) {
                unit.exports.insert(name.to_owned(), address);
            }
        }
        for (table, row) in [("jump_table", 16), ("ex_table", 12)] {
            let ends = [format!("__start___{table}"), format!("__stop___{table}")];
            let [Some(start), Some(end)] = ends.map(|name| image.address_of(&name)) else { continue };
            let bytes = end.checked_sub(start).and_then(|size| image.bytes_at(start, size));
            for (place, raw) in (start..).step_by(row).zip(bytes.unwrap_or_default().chunks_exact(row)) {
                let word = |at: usize| {
                    i64::from(i32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]))
                };
                let from = place.wrapping_add_signed(word(0));
                let to = place.wrapping_add(4).wrapping_add_signed(word(4));
                unit.hidden.entry(from).or_default().push(to);
            }
        }
        unit
    }

    /// The code of a module.
    pub fn module(image: &ModuleImage) -> Unit {
        let base = |section: usize| Unit::address(section, 0);
        let sections: Vec<_> = image.sections().collect();
        let mut unit = Unit {
            regions: Vec::new(),
            functions: Vec::new(),
            relocations: FxHashMap::default(),
            hidden: FxHashMap::default(),
            exports: FxHashMap::default(),
            ambiguous: FxHashSet::default(),
            pv_ops: None,
        };
        let mut texts = Vec::new();
        for (index, section) in
            sections.iter().enumerate().filter(|(_, section)| section.alloc && section.exec)
        {
            unit.regions.push(Region { start: base(index), bytes: image.section_bytes(index).to_vec() });
            texts.push((base(index), base(index).saturating_add(section.size.min(STRIDE - 1))));
            for rela in image.relocations(index) {
                if let Some(target) = target(image, &rela, &base, true) {
                    unit.relocations.insert(base(index).wrapping_add(rela.offset), target);
                }
            }
        }
        let named = image.symbols().iter().filter_map(|symbol| {
            let section = usize::from(symbol.section?);
            let function =
                symbol.kind == SymbolKind::Function || symbol.kind == SymbolKind::NoType && !symbol.local;
            let name = image.symbol_name(symbol);
            let exec = sections.get(section)?.exec && function && !name.is_empty();
            exec.then(|| (base(section).wrapping_add(symbol.value), symbol.size, name.to_owned()))
        });
        unit.functions = functions(named.collect(), &texts);
        unit.ambiguous = ambiguous(&unit.functions);
        let exported: FxHashSet<&str> = image
            .symbols()
            .iter()
            .filter_map(|symbol| image.symbol_name(symbol).strip_prefix("__ksymtab_"))
            .collect();
        for function in &unit.functions {
            for name in function.names.iter().filter(|name| exported.contains(name.as_str())) {
                unit.exports.insert(name.clone(), function.start);
            }
        }
        for (name, row) in [("__jump_table", 16), ("__ex_table", 12)] {
            let Some(index) = image.section_index(name) else { continue };
            let places: FxHashMap<u64, u64> = image
                .relocations(index)
                .filter_map(|rela| match target(image, &rela, &base, false)? {
                    Target::Local(address) => Some((rela.offset, address)),
                    Target::Extern(..) => None,
                })
                .collect();
            for (&place, &from) in places.iter().filter(|(place, _)| *place % row == 0) {
                if let Some(&to) = places.get(&(place + 4)) {
                    unit.hidden.entry(from).or_default().push(to);
                }
            }
        }
        unit
    }

    /// The address of a place in a module's section.
    pub fn address(section: usize, offset: u64) -> u64 {
        (section as u64 + 1).wrapping_mul(STRIDE).wrapping_add(offset)
    }

    /// All functions, sorted by start.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The names that other units may use, with their addresses.
    pub fn exports(&self) -> impl Iterator<Item = (&str, u64)> {
        self.exports.iter().map(|(name, address)| (name.as_str(), *address))
    }

    /// The number of the function that covers an address.
    pub fn function_at(&self, address: u64) -> Option<usize> {
        let index = self.functions.partition_point(|function| function.start <= address).checked_sub(1)?;
        (address < self.functions[index].end).then_some(index)
    }

    /// The bytes from an address to the end of what holds it.
    pub fn bytes(&self, address: u64) -> Option<&[u8]> {
        self.regions.iter().find_map(|region| {
            let offset = usize::try_from(address.checked_sub(region.start)?).ok()?;
            region.bytes.get(offset..).filter(|bytes| !bytes.is_empty())
        })
    }

    /// What the relocation at an address refers to.
    pub fn relocation(&self, address: u64) -> Option<&Target> {
        self.relocations.get(&address)
    }

    /// Where an instruction leads besides where its bytes say.
    pub fn hidden(&self, address: u64) -> &[u64] {
        self.hidden.get(&address).map_or(&[], Vec::as_slice)
    }

    /// The offset in `pv_ops` from which an instruction at its end reads a pointer. `address` is what its bytes say.
    pub fn pv_operation(&self, end: u64, address: u64) -> Option<u64> {
        match (self.relocation(end.wrapping_sub(4)), self.pv_ops) {
            (Some(Target::Extern(name, offset)), _) if name == "pv_ops" => u64::try_from(*offset).ok(),
            (None, Some(pv_ops)) => address.checked_sub(pv_ops).filter(|offset| *offset < 4096),
            _ => None,
        }
    }

    /// Whether several functions have this name.
    pub fn is_ambiguous(&self, name: &str) -> bool {
        self.ambiguous.contains(name)
    }
}

/// What a relocation of code or of a table refers to.
fn target(
    image: &ModuleImage,
    rela: &guardrail_binfmt::module::Rela,
    base: &dyn Fn(usize) -> u64,
    code: bool,
) -> Option<Target> {
    let symbol = image.symbols().get(rela.symbol)?;
    // A relocation of code counts from the end of its four bytes; a table's, from its own place.
    let addend = match rela.kind {
        R_X86_64_PC32 | R_X86_64_PLT32 if code => rela.addend.wrapping_add(4),
        R_X86_64_PC32 | R_X86_64_PLT32 | R_X86_64_64 | R_X86_64_32S => rela.addend,
        _ => return None,
    };
    match symbol.section {
        Some(section) => Some(Target::Local(
            base(usize::from(section)).wrapping_add(symbol.value).wrapping_add_signed(addend),
        )),
        None => Some(Target::Extern(image.symbol_name(symbol).to_owned(), addend)),
    }
}

/// Sorts symbols into functions. Each ends where its size says, or where the next begins.
fn functions(mut symbols: Vec<(u64, u64, String)>, texts: &[(u64, u64)]) -> Vec<Function> {
    symbols.sort();
    let mut found: Vec<Function> = Vec::new();
    for (start, size, name) in symbols {
        let Some((_, limit)) = texts.iter().find(|(from, to)| (*from..*to).contains(&start)) else {
            continue;
        };
        match found.last_mut() {
            Some(last) if last.start == start => {
                last.names.push(name);
                if size > 0 {
                    last.end = start.saturating_add(size).min(*limit);
                }
            }
            last => {
                if let Some(last) = last {
                    last.end = last.end.min(start);
                }
                let end = if size == 0 { *limit } else { start.saturating_add(size).min(*limit) };
                found.push(Function { start, end, names: vec![name] });
            }
        }
    }
    found
}

fn ambiguous(functions: &[Function]) -> FxHashSet<String> {
    let mut seen = FxHashSet::default();
    let names = functions.iter().flat_map(|function| &function.names);
    names.filter(|name| !seen.insert(name.as_str())).cloned().collect()
}

#[cfg(test)]
impl Unit {
    /// Functions from their names and code, at addresses far apart. `imports` has the names to which branches lead, by
    /// the function and the offset of the branch's four bytes.
    pub fn of_code(code: &[(&str, &[u8])], imports: &[(usize, u64, &str)]) -> Unit {
        let start = |at: usize| 0x1000 * (at as u64 + 1);
        let regions = code.iter().enumerate();
        let regions: Vec<Region> =
            regions.map(|(at, (_, bytes))| Region { start: start(at), bytes: bytes.to_vec() }).collect();
        let functions = code.iter().enumerate().map(|(at, (name, bytes))| Function {
            start: start(at),
            end: start(at) + bytes.len() as u64,
            names: vec![(*name).to_owned()],
        });
        let relocations = imports.iter().map(|(function, offset, name)| {
            (start(*function) + offset, Target::Extern((*name).to_owned(), 0))
        });
        Unit {
            regions,
            functions: functions.collect(),
            relocations: relocations.collect(),
            hidden: FxHashMap::default(),
            exports: code.iter().enumerate().map(|(at, (name, _))| ((*name).to_owned(), start(at))).collect(),
            ambiguous: FxHashSet::default(),
            pv_ops: None,
        }
    }
}
