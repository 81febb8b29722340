//! `coverage`: which code ran, and how often. The reader of the results has the files, and reports code
//! that never ran.
//!
//! Each instruction has a counter of its own, so a block that ends early counts only up to there.

use crate::flows::lock;
use guardrail_client_api::binfmt::KernelImage;
use guardrail_client_api::{Block, Cell, Chart, Client, Counter, Module, Results, Setup, Table};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

/// The module name of code that belongs to no module.
const KERNEL: &str = "vmlinux";

/// The `coverage` client.
pub struct Coverage {
    image: Arc<KernelImage>,
    code: Mutex<Code>,
}

#[derive(Default)]
struct Code {
    slide: u64,
    /// Length and counter of each instruction, by address.
    instructions: HashMap<u64, (u8, Counter)>,
    modules: Vec<Module>,
    /// Counts of instructions in unloaded modules.
    gone: BTreeMap<Key, u64>,
}

/// Module, function, offset in the function, and length of the instruction.
type Key = (String, String, u64, u8);

impl Client for Coverage {
    const NAME: &'static str = "coverage";

    fn new(setup: &mut Setup) -> Result<Self, String> {
        setup.only(&[])?;
        Ok(Coverage { image: setup.kernel()?, code: Mutex::default() })
    }

    fn block(&'static self, block: &mut Block<Self>) {
        let mut code = lock(&self.code);
        code.slide = block.slide().unwrap_or(0);
        let end = block.address() + block.bytes().len() as u64;
        for index in 0..block.len() {
            let address = block.insn_address(index);
            let next = if index + 1 < block.len() { block.insn_address(index + 1) } else { end };
            let len = next.wrapping_sub(address) as u8;
            let counter = match code.instructions.get(&address) {
                Some(&(known, counter)) if known == len => counter,
                _ => {
                    let counter = block.counter();
                    code.instructions.insert(address, (len, counter));
                    counter
                }
            };
            block.add_at(index, &counter, 1);
        }
    }

    fn loaded(&'static self, module: &Module) {
        lock(&self.code).modules.push(module.clone());
    }

    fn unloaded(&'static self, module: &Module) {
        let mut code = lock(&self.code);
        let code = &mut *code;
        // Another module may be loaded at the same address.
        for (&address, &(len, counter)) in code.instructions.iter().filter(|known| module.contains(*known.0))
        {
            if let Some(key) = key(module, address, len) {
                *code.gone.entry(key).or_default() += counter.total();
            }
        }
        code.instructions.retain(|&address, _| !module.contains(address));
        code.modules.retain(|known| known.address != module.address);
    }

    fn results(&'static self, results: &mut Results) {
        let code = lock(&self.code);
        let mut all = code.gone.clone();
        for (&address, &(len, counter)) in &code.instructions {
            let link = address.wrapping_sub(code.slide);
            let key = match code.modules.iter().find(|module| module.contains(address)) {
                Some(module) => key(module, address, len),
                None => self
                    .image
                    .symbol_at(link)
                    .map(|located| (KERNEL.to_owned(), located.name.to_owned(), located.offset, len)),
            };
            if let Some(key) = key {
                *all.entry(key).or_default() += counter.total();
            }
        }
        let rows = all
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|((module, function, offset, len), count)| {
                vec![
                    Cell::Text(module),
                    Cell::Text(function),
                    Cell::Count(offset),
                    Cell::Count(len.into()),
                    Cell::Count(count),
                ]
            })
            .collect();
        let columns = ["module", "function", "offset", "length", "executed"].map(str::to_owned).to_vec();
        results.tables.push(Table { name: "instructions".into(), columns, rows, chart: Chart::Coverage });
    }
}

fn key(module: &Module, address: u64, len: u8) -> Option<Key> {
    let next = module.functions.partition_point(|function| function.0 <= address);
    let (start, name) = module.functions.get(next.checked_sub(1)?)?;
    Some((module.name.clone(), name.clone(), address - start, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_depend_on_where_a_module_lies() {
        let module = |base: u64| Module {
            name: "m".into(),
            functions: vec![(base + 0x10, "one".into()), (base + 0x40, "two".into())],
            ..Module::default()
        };
        for base in [0x1000, 0x9000] {
            let module = module(base);
            assert_eq!(key(&module, base + 0x44, 3), Some(("m".into(), "two".into(), 4, 3)));
            assert_eq!(key(&module, base + 0x3f, 1), Some(("m".into(), "one".into(), 0x2f, 1)));
            assert_eq!(key(&module, base, 1), None);
        }
    }
}
