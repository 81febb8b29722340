//! How a function uses its registers and local variables.

use crate::ir::instruction::{End, Function, Operation, Value};
use rustc_hash::FxHashMap;

/// Of each register: how often it is read, whether in another block than it is set in, and the stores to it.
pub(super) fn scan(function: &Function) -> (Vec<u32>, Vec<bool>, Vec<u32>) {
    let count = function.registers as usize;
    let (mut uses, mut wide, mut stores) = (vec![0; count], vec![false; count], vec![0; count]);
    let mut home = vec![0; count];
    for (index, block) in function.blocks.iter().enumerate() {
        for instruction in &block.instructions {
            if let Some(register) = instruction.result {
                home[register as usize] = index;
                // A local variable's address is the same everywhere.
                if matches!(instruction.operation, Operation::Alloca(_)) {
                    home[register as usize] = usize::MAX;
                }
            }
        }
    }
    for register in leaked(function) {
        // Something else may write it: it is not set once.
        stores[register as usize] = 2;
    }
    for (index, block) in function.blocks.iter().enumerate() {
        let mut see = |value: &Value, block: usize| {
            if let Value::Register(register) = value {
                let register = *register as usize;
                uses[register] += 1;
                wide[register] |= home[register] != block && home[register] != usize::MAX;
            }
        };
        for instruction in &block.instructions {
            match &instruction.operation {
                Operation::Phi(_, values) => {
                    for (value, from) in values {
                        see(value, *from as usize);
                    }
                }
                Operation::Store(value, address, _) => {
                    see(&value.1, index);
                    see(&address.1, index);
                    if let Value::Register(register) = address.1 {
                        stores[register as usize] += 1;
                    }
                }
                operation => operands(operation, &mut |value| see(value, index)),
            }
        }
        match &block.end {
            End::Branch(value, ..) => see(value, index),
            End::Switch((_, value), ..) | End::Return(Some((_, value))) => see(value, index),
            _ => {}
        }
    }
    (uses, wide, stores)
}

/// Local variables whose address is used for more than reads, writes and marks of their lifetime.
fn leaked(function: &Function) -> Vec<u32> {
    let all = || function.blocks.iter().flat_map(|block| &block.instructions);
    let mut leaked = Vec::new();
    // Casts of an address, which lifetime marks need.
    let mut casts: FxHashMap<u32, u32> = FxHashMap::default();
    for instruction in all() {
        let mut see = |value: &Value| {
            if let Value::Register(register) = value {
                leaked.push(casts.get(register).copied().unwrap_or(*register));
            }
        };
        match &instruction.operation {
            Operation::Load(..) | Operation::Alloca(_) => {}
            Operation::Store((_, value), ..) => see(value),
            Operation::Cast(_, (_, Value::Register(from)), _) => {
                if let Some(to) = instruction.result {
                    casts.insert(to, casts.get(from).copied().unwrap_or(*from));
                }
            }
            Operation::Call(call) => {
                let mark = matches!(&call.callee, Value::Global(name) if name.starts_with("llvm.lifetime."));
                if !mark {
                    call.arguments.iter().for_each(|(_, value)| see(value));
                }
            }
            Operation::Phi(_, values) => values.iter().for_each(|(value, _)| see(value)),
            operation => operands(operation, &mut see),
        }
    }
    // A cast address that is read or written through is another view of the variable.
    for instruction in all() {
        if let Operation::Load(_, (_, Value::Register(at)), _)
        | Operation::Store(_, (_, Value::Register(at)), _) = &instruction.operation
        {
            leaked.extend(casts.get(at));
        }
    }
    let locals: Vec<u32> = all()
        .filter(|instruction| matches!(instruction.operation, Operation::Alloca(_)))
        .filter_map(|instruction| instruction.result)
        .collect();
    leaked.retain(|register| locals.contains(register));
    leaked
}

/// Calls `see` with the operands of an instruction that is no store and no phi.
fn operands(operation: &Operation, see: &mut dyn FnMut(&Value)) {
    match operation {
        Operation::Load(_, (_, a), _)
        | Operation::Cast(_, (_, a), _)
        | Operation::Atomic((_, a))
        | Operation::Part((_, a)) => see(a),
        Operation::Address(_, all) => all.iter().for_each(|(_, value)| see(value)),
        Operation::Binary(_, (_, a), b) | Operation::Compare(_, (_, a), b) => {
            see(a);
            see(b);
        }
        Operation::Select(c, (_, a), (_, b)) => {
            see(c);
            see(a);
            see(b);
        }
        Operation::Call(call) => {
            see(&call.callee);
            call.arguments.iter().for_each(|(_, value)| see(value));
        }
        _ => {}
    }
}
