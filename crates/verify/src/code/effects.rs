//! What a function that is not followed writes, with all that it calls.

use super::Function;
use super::flow::{Addresses, Spot, callees};
use crate::ir::Module;
use crate::ir::instruction::{Operation, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Fields and variables: structure, offset, size; a variable has the size of all of it.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// Fields of structures, by offset and size.
    pub fields: BTreeSet<(Rc<str>, u64, u64)>,
    /// Variables outside functions.
    pub globals: BTreeSet<Rc<str>>,
}

/// Effects of all functions, each by itself, with what it calls.
#[derive(Debug)]
pub struct Writes {
    own: FxHashMap<Function, (Effects, Vec<Function>)>,
    /// Answers that were given.
    known: RefCell<FxHashMap<Vec<Function>, Rc<Effects>>>,
}

impl Writes {
    /// Looks through all files.
    pub fn new(modules: &[Module]) -> Writes {
        let mut own = FxHashMap::default();
        for (home, module) in modules.iter().enumerate() {
            for name in module.functions.keys() {
                let name: Rc<str> = name.as_str().into();
                own.insert((home, name.clone()), one(modules, home, &name));
            }
        }
        Writes { own, known: RefCell::default() }
    }

    /// What these functions write, with all that they call.
    pub fn of(&self, functions: &[Function]) -> Rc<Effects> {
        if let Some(known) = self.known.borrow().get(functions) {
            return known.clone();
        }
        let all = Rc::new(self.collect(functions));
        self.known.borrow_mut().insert(functions.to_vec(), all.clone());
        all
    }

    fn collect(&self, functions: &[Function]) -> Effects {
        let mut all = Effects::default();
        let mut seen: FxHashSet<&Function> = FxHashSet::default();
        let mut work: Vec<&Function> = functions.iter().collect();
        while let Some(function) = work.pop() {
            let Some((effects, called)) = self.own.get(function).filter(|_| seen.insert(function)) else {
                continue;
            };
            all.fields.extend(effects.fields.iter().cloned());
            all.globals.extend(effects.globals.iter().cloned());
            work.extend(called);
        }
        all
    }
}

fn one(modules: &[Module], home: usize, name: &Rc<str>) -> (Effects, Vec<Function>) {
    let module = &modules[home];
    let addresses = Addresses::new(module, home, name);
    let (mut effects, mut called) = (Effects::default(), Vec::new());
    let mut write = |spot: Option<Spot>, size: u64| match spot {
        Some(Spot::Field(structure, offset)) => {
            effects.fields.insert((structure, offset, size));
        }
        Some(Spot::Global(name)) => {
            effects.globals.insert(name);
        }
        _ => {}
    };
    for instruction in module.functions[&**name].blocks.iter().flat_map(|block| &block.instructions) {
        match &instruction.operation {
            Operation::Store(value, address, _) => {
                let size = module.types.layout(&value.0).map_or(8, |(size, _)| size);
                write(addresses.of(address), size);
            }
            Operation::Atomic(address) => write(addresses.of(address), 8),
            Operation::Call(call) => {
                let callees = callees(modules, home, call);
                let intrinsic = matches!(&call.callee, Value::Global(name) if name.starts_with("llvm."));
                if call.assembly || intrinsic || callees.is_empty() {
                    for argument in &call.arguments {
                        let kind = argument.0.pointee();
                        let size =
                            kind.and_then(|kind| module.types.layout(kind)).map_or(8, |(size, _)| size);
                        write(addresses.of(argument), if intrinsic { size.max(8) } else { size });
                    }
                }
                called.extend(callees);
            }
            _ => {}
        }
    }
    (effects, called)
}
