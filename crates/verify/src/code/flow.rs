//! Where a result may be kept: from a call that acquires something to the calls that may release it.
//!
//! The analysis knows no order and no instances: a field of a structure is one place in all structures of that type. It
//! serves to say which releases belong to which acquisition, and not to prove anything.

use super::Function;
use crate::ir::Module;
use crate::ir::instruction::{Call, Cast, End, Operand, Operation, Value};
use crate::ir::types::Type;
use crate::ir::types::plain;
use rustc_hash::{FxHashMap, FxHashSet};
use std::rc::Rc;

/// Functions that keep the driver's data of a device.
pub const SETS_DATA: [&str; 2] = ["pci_set_drvdata", "dev_set_drvdata"];
/// Functions that return it.
pub const GETS_DATA: [&str; 2] = ["pci_get_drvdata", "dev_get_drvdata"];

/// Where a value may be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Spot {
    /// A register.
    Register(usize, Rc<str>, u32),
    /// A local variable, by its address.
    Local(usize, Rc<str>, u32),
    /// A field: the innermost structure and the offset in it.
    Field(Rc<str>, u64),
    /// A variable.
    Global(Rc<str>),
    /// What a function returns.
    Result(usize, Rc<str>),
}

/// Flows of values in all files.
pub struct Flow {
    edges: FxHashMap<Spot, Vec<Spot>>,
}

/// Where the addresses in registers lead to.
pub struct Addresses<'m> {
    module: &'m Module,
    home: usize,
    function: Rc<str>,
    known: Vec<Option<Spot>>,
}

impl<'m> Addresses<'m> {
    /// Looks through a function.
    pub fn new(module: &'m Module, home: usize, function: &Rc<str>) -> Addresses<'m> {
        let body = &module.functions[&**function];
        let known = vec![None; body.registers as usize];
        let mut all = Addresses { module, home, function: function.clone(), known };
        for instruction in body.blocks.iter().flat_map(|block| &block.instructions) {
            let Some(register) = instruction.result else { continue };
            let spot = match &instruction.operation {
                Operation::Alloca(_) => Some(Spot::Local(home, function.clone(), register)),
                Operation::Address(base, operands) => all.step(base, operands),
                Operation::Cast(Cast::Bits, from, _) => all.of(from),
                _ => None,
            };
            all.known[register as usize] = spot;
        }
        all
    }

    /// Where an address leads to.
    pub fn of(&self, operand: &Operand) -> Option<Spot> {
        match &operand.1 {
            Value::Register(register) => self.known[*register as usize].clone(),
            Value::Global(name) => Some(Spot::Global(name.clone())),
            Value::Cast(Cast::Bits, inner, _) => self.of(inner),
            Value::Address(base, operands) => self.step(base, operands),
            _ => None,
        }
    }

    fn step(&self, base: &Type, operands: &[Operand]) -> Option<Spot> {
        let (first, indices) = operands.split_first()?;
        let mut kind = base.clone();
        let mut inner: Option<(Rc<str>, u64)> = None;
        for (at, (_, index)) in indices.iter().enumerate() {
            let number = match index {
                Value::Integer(number) => *number,
                // Any element of an array stands for all.
                _ => 0,
            };
            if at == 0 {
                continue;
            }
            let is_array = matches!(kind, Type::Array(..) | Type::Vector(..));
            let (offset, next) = self.module.types.step(&kind, if is_array { 0 } else { number })?;
            match &kind {
                Type::Named(name) => inner = Some((plain(name).into(), offset)),
                _ if is_array => {}
                _ => {
                    if let Some((_, start)) = &mut inner {
                        *start += offset;
                    }
                }
            }
            kind = next;
        }
        match inner {
            Some((name, offset)) => Some(Spot::Field(name, offset)),
            None if indices.len() <= 1 => None,
            None => self.of(first),
        }
    }

    /// The spot of a value that an instruction uses.
    pub fn value(&self, operand: &Operand) -> Option<Spot> {
        match &operand.1 {
            Value::Register(register) => Some(Spot::Register(self.home, self.function.clone(), *register)),
            Value::Cast(_, inner, _) => self.value(inner),
            _ => None,
        }
    }
}

/// The file that defines a function that is called by name.
pub fn home(modules: &[Module], from: usize, name: &str) -> Option<usize> {
    if modules[from].functions.contains_key(name) {
        return Some(from);
    }
    modules.iter().position(|module| module.functions.get(name).is_some_and(|function| function.external))
}

/// The functions that a call may lead to: by name, or all of that type whose address is taken.
pub fn callees(modules: &[Module], from: usize, call: &Call) -> Vec<Function> {
    if call.assembly {
        return Vec::new();
    }
    if let Value::Global(name) = &call.callee {
        return home(modules, from, name).map(|home| (home, name.clone())).into_iter().collect();
    }
    let mut found = Vec::new();
    for (home, module) in modules.iter().enumerate() {
        for name in &module.address_taken {
            let Some(function) = module.functions.get(name) else { continue };
            let same = function.parameters.len() == call.arguments.len()
                && function.result == call.result
                && function.parameters.iter().zip(&call.arguments).all(|(a, (b, _))| a == b);
            if same {
                found.push((home, Rc::from(name.as_str())));
            }
        }
    }
    found
}

impl Flow {
    /// Looks through all files.
    pub fn new(modules: &[Module]) -> Flow {
        let mut flow = Flow { edges: FxHashMap::default() };
        for (home, module) in modules.iter().enumerate() {
            for name in module.functions.keys() {
                flow.function(modules, home, &Rc::from(name.as_str()));
            }
        }
        flow
    }

    fn edge(&mut self, from: Option<Spot>, to: Option<Spot>) {
        if let (Some(from), Some(to)) = (from, to) {
            self.edges.entry(from).or_default().push(to);
        }
    }

    fn function(&mut self, modules: &[Module], home: usize, name: &Rc<str>) {
        let module = &modules[home];
        let function = &module.functions[&**name];
        let addresses = Addresses::new(module, home, name);
        let register = |at: u32| Some(Spot::Register(home, name.clone(), at));
        for block in &function.blocks {
            for instruction in &block.instructions {
                let result = instruction.result.and_then(register);
                match &instruction.operation {
                    Operation::Load(_, address, _) => self.edge(addresses.of(address), result),
                    Operation::Store(value, address, _) => {
                        self.edge(addresses.value(value), addresses.of(address));
                    }
                    Operation::Cast(_, from, _) => self.edge(addresses.value(from), result),
                    Operation::Select(_, a, b) => {
                        self.edge(addresses.value(a), result.clone());
                        self.edge(addresses.value(b), result);
                    }
                    Operation::Phi(kind, values) => {
                        for (value, _) in values {
                            self.edge(addresses.value(&(kind.clone(), value.clone())), result.clone());
                        }
                    }
                    Operation::Call(call) => {
                        let data = || Some(Spot::Global("the driver's data".into()));
                        match &call.callee {
                            Value::Global(name) if SETS_DATA.contains(&&**name) => {
                                let value = call.arguments.get(1).and_then(|value| addresses.value(value));
                                self.edge(value, data());
                            }
                            Value::Global(name) if GETS_DATA.contains(&&**name) => {
                                self.edge(data(), result.clone());
                            }
                            _ => {}
                        }
                        for (callee_home, callee) in callees(modules, home, call) {
                            for (at, argument) in call.arguments.iter().enumerate() {
                                let parameter = Spot::Register(callee_home, callee.clone(), at as u32);
                                self.edge(addresses.value(argument), Some(parameter));
                            }
                            self.edge(Some(Spot::Result(callee_home, callee)), result.clone());
                        }
                    }
                    _ => {}
                }
            }
            if let End::Return(Some(value)) = &block.end {
                self.edge(addresses.value(value), Some(Spot::Result(home, name.clone())));
            }
        }
    }

    /// All spots that a value may come to.
    pub fn reach(&self, from: Spot) -> FxHashSet<Spot> {
        let mut seen = FxHashSet::default();
        let mut work = vec![from.clone()];
        seen.insert(from);
        while let Some(spot) = work.pop() {
            for next in self.edges.get(&spot).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    work.push(next.clone());
                }
            }
        }
        seen
    }
}
