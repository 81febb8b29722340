//! The driver's callbacks: functions in tables of operations.

use super::knowledge::{Client, Name};
use crate::code::Function;
use crate::ir::Module;
use crate::ir::instruction::Value;
use crate::ir::types::Type;
use crate::ir::types::plain;
use std::collections::BTreeMap;

/// The functions that a message of the client calls: with several tables, one of them.
pub type Callbacks = BTreeMap<Name, Vec<Function>>;

/// Finds them in the initial values of variables.
pub fn callbacks(modules: &[Module], client: &Client) -> Callbacks {
    let mut found = Callbacks::new();
    for (home, module) in modules.iter().enumerate() {
        let mut names: Vec<&String> = module.globals.keys().collect();
        names.sort();
        for name in names {
            let global = &module.globals[name];
            let Some(value) = &global.initial else { continue };
            let mut all = Vec::new();
            fields(module, &global.kind, value, 16, &mut all);
            for (structure, field, function) in all {
                let Some(message) = client.callbacks.get(&(structure, field)) else { continue };
                let home = if module.functions.contains_key(&*function) {
                    Some(home)
                } else {
                    modules.iter().position(|other| {
                        other.functions.get(&*function).is_some_and(|function| function.external)
                    })
                };
                let Some(home) = home else { continue };
                let functions = found.entry(message.clone()).or_default();
                if !functions.contains(&(home, function.clone())) {
                    functions.push((home, function));
                }
            }
        }
    }
    found
}

type Field = (String, String, std::rc::Rc<str>);

/// Functions in a value: the structure, its field, the function.
fn fields(module: &Module, kind: &Type, value: &Value, depth: u32, found: &mut Vec<Field>) {
    let Value::Aggregate(all) = value else { return };
    if depth == 0 {
        return;
    }
    for (index, (inner, value)) in all.iter().enumerate() {
        if let (Type::Named(name), Some(function)) = (kind, function(value, 8)) {
            let offset = module.types.step(kind, index as u64).map(|(offset, _)| offset);
            let name = plain(name);
            let field = offset.and_then(|offset| module.debug.field(name, offset));
            if let Some(field) = field {
                found.push((name.to_owned(), field.to_owned(), function));
            }
        }
        fields(module, inner, value, depth - 1, found);
    }
}

/// The function that a constant is, behind casts.
pub fn function(value: &Value, depth: u32) -> Option<std::rc::Rc<str>> {
    match value {
        Value::Global(name) => Some(name.clone()),
        Value::Cast(_, inner, _) if depth > 0 => function(&inner.1, depth - 1),
        _ => None,
    }
}
