//! Counts what the parser did not understand, so that loss is seen.

use super::Module;
use super::instruction::{End, Function, Operand, Operation, Value};
use super::types::Type;
use std::collections::BTreeMap;

/// What was read, and what was not understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Functions with a body.
    pub functions: usize,
    /// Instructions, without the last of each block.
    pub instructions: usize,
    /// What is an unknown value by its kind or its text, and how often it is met.
    pub unknown: BTreeMap<String, usize>,
}

impl Census {
    /// Counts a module.
    pub fn new(module: &Module) -> Census {
        let mut census = Census::default();
        for what in &module.unknown {
            census.note(what);
        }
        for global in module.globals.values() {
            if let Some(value) = &global.initial {
                census.value(value, &format!("a constant in {}", global.name), 64);
            }
        }
        for function in module.functions.values() {
            census.function(function);
        }
        census
    }

    /// Adds what was counted in another module.
    pub fn add(&mut self, other: &Census) {
        self.functions += other.functions;
        self.instructions += other.instructions;
        for (what, count) in &other.unknown {
            *self.unknown.entry(what.clone()).or_default() += count;
        }
    }

    fn note(&mut self, what: &str) {
        *self.unknown.entry(what.to_owned()).or_default() += 1;
    }

    fn value(&mut self, value: &Value, what: &str, depth: u32) {
        match value {
            _ if depth == 0 => self.note(what),
            Value::Other => self.note(what),
            Value::Cast(_, from, _) => self.value(&from.1, what, depth - 1),
            Value::Address(_, all) | Value::Aggregate(all) => {
                for (_, value) in all {
                    self.value(value, what, depth - 1);
                }
            }
            _ => {}
        }
    }

    fn operand(&mut self, operand: &Operand, what: &str) {
        if operand.0 != Type::Other {
            self.value(&operand.1, what, 64);
        }
    }

    fn function(&mut self, function: &Function) {
        self.functions += 1;
        for block in &function.blocks {
            self.instructions += block.instructions.len();
            for instruction in &block.instructions {
                self.operation(&instruction.operation);
            }
            match &block.end {
                End::Any(_) => self.note(
                    "a jump that assembly or a computed label decides, of which each target is followed",
                ),
                End::Branch(value, ..) => self.value(value, "the condition of a branch", 64),
                End::Switch(value, ..) => self.operand(value, "the value of a switch"),
                End::Return(Some(value)) => self.operand(value, "the value that a function returns"),
                _ => {}
            }
        }
    }

    fn operation(&mut self, operation: &Operation) {
        match operation {
            Operation::Unknown(text) => {
                let text = text.split_once(" = ").map_or(&**text, |(_, text)| text);
                let word = text.split_whitespace().next().unwrap_or_default();
                self.note(&format!("instruction {word}"));
            }
            Operation::Alloca(Type::Other) => self.note("a local array whose length is not constant"),
            Operation::Load(_, address, _) => self.operand(address, "the address of a load"),
            Operation::Store(value, address, _) => {
                self.operand(value, "the value of a store");
                self.operand(address, "the address of a store");
            }
            Operation::Address(_, all) => {
                for one in all {
                    self.operand(one, "an address");
                }
            }
            Operation::Cast(_, value, _) | Operation::Part(value) => {
                self.operand(value, "the value of a conversion")
            }
            Operation::Binary(_, (Type::Int(65..), _), _)
            | Operation::Compare(_, (Type::Int(65..), _), _) => {
                self.note("a number of more than 64 bits");
            }
            Operation::Binary(_, left, right) | Operation::Compare(_, left, right) => {
                self.operand(left, "a number of an operation");
                self.value(right, "a number of an operation", 64);
            }
            Operation::Select(condition, yes, no) => {
                self.value(condition, "the condition of a selection", 64);
                self.operand(yes, "the value of a selection");
                self.operand(no, "the value of a selection");
            }
            Operation::Phi(_, all) => {
                for (value, _) in all {
                    self.value(value, "the value of an edge", 64);
                }
            }
            Operation::Call(call) => {
                if !call.assembly {
                    self.value(&call.callee, "the function of a call", 64);
                }
                for argument in &call.arguments {
                    self.operand(argument, "an argument of a call");
                }
            }
            Operation::Atomic(address) => self.operand(address, "the address of an atomic operation"),
            Operation::Alloca(_) | Operation::Nothing => {}
        }
    }
}
