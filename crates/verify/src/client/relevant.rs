//! Which functions of a driver matter for a protocol: those that make one of its calls, at any depth.

use crate::code::Function;
use crate::code::flow::callees;
use crate::ir::Module;
use crate::ir::instruction::{Call, Operation};
use rustc_hash::{FxHashMap, FxHashSet};
use std::rc::Rc;

/// Who calls whom.
pub struct Calls<'m> {
    /// The callers of each function.
    callers: FxHashMap<Function, Vec<Function>>,
    /// All calls with the functions that they are in.
    pub all: Vec<(Function, &'m Call, Option<u32>, Option<u32>)>,
}

impl<'m> Calls<'m> {
    /// Looks through all files.
    pub fn new(modules: &'m [Module]) -> Calls<'m> {
        let mut found = Calls { callers: FxHashMap::default(), all: Vec::new() };
        for (home, module) in modules.iter().enumerate() {
            let mut names: Vec<&String> = module.functions.keys().collect();
            names.sort();
            for name in names {
                let own: Function = (home, Rc::from(name.as_str()));
                for instruction in module.functions[name].blocks.iter().flat_map(|block| &block.instructions)
                {
                    let Operation::Call(call) = &instruction.operation else { continue };
                    found.all.push((own.clone(), call, instruction.result, instruction.line));
                    for callee in callees(modules, home, call) {
                        found.callers.entry(callee).or_default().push(own.clone());
                    }
                }
            }
        }
        found
    }

    /// The functions with a call of interest in them, or in a function that they call.
    pub fn reaching(&self, is_event: &dyn Fn(&Call) -> bool) -> FxHashSet<Function> {
        let mut work: Vec<Function> = self
            .all
            .iter()
            .filter(|(_, call, ..)| is_event(call))
            .map(|(function, ..)| function.clone())
            .collect();
        let mut seen: FxHashSet<Function> = work.iter().cloned().collect();
        while let Some(function) = work.pop() {
            for caller in self.callers.get(&function).into_iter().flatten() {
                if seen.insert(caller.clone()) {
                    work.push(caller.clone());
                }
            }
        }
        seen
    }
}
