//! Which memory a pointer leads to, as far as types and declarations say.
//!
//! A driver keeps its state in structures of its own. A structure of which there is one for a device is one object,
//! wherever a pointer to it comes from. A structure that lies in others, in arrays, is linked to its like, or is
//! allocated at several places may exist more than once. What an unresolved pointer to it reads is unknown, and what it writes may be any of them.

use crate::ir::Module;
use crate::ir::instruction::{Call, Function, Operation, Value};
use crate::ir::types::{Type, plain};
use crate::knowledge::Knowledge;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// A pointer's target.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// A byte of an object.
    At(u32, u64),
    /// Some byte of an object, in this range.
    Within(u32, u64, u64),
    /// A byte of some structure of this type.
    Inside(Rc<str>, u64),
    /// Anything that the kernel was given the address of.
    Unknown,
    /// A member of a structure of the kernel, or anything else whose address was kept somewhere.
    Member,
    /// Anything whose address was kept somewhere, also a whole structure of the driver.
    Any,
}

/// What an object is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    /// A local variable: the call's number, and the register.
    Local(u32, u32),
    /// The result of an instruction that is needed later.
    Result(u32, u32),
    /// A variable outside functions: the index of its file if no other file knows it, and its name.
    Global(Option<usize>, Rc<str>),
    /// The one structure of a type.
    Single(Rc<str>),
    /// The domain that the main function gets, of this type.
    Domain(Rc<str>),
    /// The private data of that domain, of this type.
    Private(Rc<str>),
}

/// What is known of an object.
pub(super) struct ObjectInfo {
    pub what: Object,
    pub name: String,
    pub kind: Option<(usize, Type)>,
    pub size: u64,
    /// Ranges whose address something else has.
    pub exposed: Vec<(u64, u64)>,
    /// Whether the address of the whole is kept somewhere, so that it may be written without its type.
    pub kept: bool,
    /// Ranges that something else may write at any time.
    pub lost: Vec<(u64, u64)>,
}

/// The structures of the driver by their names in the translation.
#[derive(Clone, Debug, Default)]
pub struct Structures {
    /// Those that exist once for a device.
    pub single: HashSet<Rc<str>>,
    /// All that the driver's own files define.
    pub own: HashSet<Rc<str>>,
}

/// Finds the structures of the driver. `is_own` says whether the driver has a file.
pub fn structures(modules: &[Module], is_own: &dyn Fn(&str) -> bool, knowledge: &Knowledge) -> Structures {
    let mut found = Structures::default();
    for module in modules {
        for name in module.types.named.keys() {
            let plain = plain(name);
            let files = module.debug.structures.get(plain);
            let own = files.is_some_and(|files| {
                files
                    .iter()
                    .any(|file| module.debug.files.get(*file as usize).is_some_and(|file| is_own(file)))
            });
            if own && module.types.layout(&Type::Named(name.clone())).is_some() {
                found.own.insert(name.clone());
            }
        }
    }
    let mut count: HashMap<Rc<str>, u32> = HashMap::new();
    for module in modules {
        many_in_types(module, &mut count);
        many_in_code(module, &mut count);
        for function in module.functions.values() {
            linked(function, &mut count);
        }
    }
    many_allocated(modules, knowledge, &mut count);
    found.single = found.own.iter().filter(|name| !count.contains_key(*name)).cloned().collect();
    found
}

/// Counts structures that lie in others or in variables, that are linked to their like, or to which arrays point.
fn many_in_types(module: &Module, count: &mut HashMap<Rc<str>, u32>) {
    for (name, body) in &module.types.named {
        let Some((fields, _)) = body else { continue };
        let mut pointed: HashSet<&Rc<str>> = HashSet::new();
        for field in fields {
            // Two pointers may lead to two of them.
            if let Some(Type::Named(to)) = field.pointee()
                && !pointed.insert(to)
            {
                *count.entry(to.clone()).or_default() += 1;
            }
            for (_, inner) in module.types.inside(field, 4096) {
                *count.entry(inner).or_default() += 1;
            }
            if let Some(Type::Named(to)) = field.pointee()
                && to == name
            {
                *count.entry(to.clone()).or_default() += 1;
            }
            pointers_in_arrays(field, count);
        }
    }
    for global in module.globals.values() {
        for (_, inner) in module.types.inside(&global.kind, 4096) {
            *count.entry(inner).or_default() += 1;
        }
        pointers_in_arrays(&global.kind, count);
    }
}

fn pointers_in_arrays(kind: &Type, count: &mut HashMap<Rc<str>, u32>) {
    if let Type::Array(_, of) = kind {
        match of.pointee() {
            Some(Type::Named(name)) => *count.entry(name.clone()).or_default() += 1,
            _ => pointers_in_arrays(of, count),
        }
    }
}

/// Structures that are allocated at more than one place.
fn many_allocated(modules: &[Module], knowledge: &Knowledge, count: &mut HashMap<Rc<str>, u32>) {
    let mut sites: HashMap<Rc<str>, u32> = HashMap::new();
    for function in modules.iter().flat_map(|module| module.functions.values()) {
        let all = || function.blocks.iter().flat_map(|block| &block.instructions);
        let mut fresh: HashSet<u32> = HashSet::new();
        for instruction in all() {
            match (&instruction.operation, instruction.result) {
                (Operation::Call(Call { callee: Value::Global(callee), .. }), Some(result))
                    if knowledge.allocates(callee).is_some() =>
                {
                    fresh.insert(result);
                }
                (Operation::Cast(_, (_, Value::Register(from)), to), _) if fresh.contains(from) => {
                    if let Some(Type::Named(name)) = to.pointee() {
                        *sites.entry(name.clone()).or_default() += 1;
                    }
                }
                _ => {}
            }
        }
    }
    for (name, sites) in sites {
        if sites > 1 {
            *count.entry(name).or_default() += 1;
        }
    }
}

/// Structures that are found from a node of a list or of a tree in them.
fn linked(function: &Function, count: &mut HashMap<Rc<str>, u32>) {
    const NODES: [&str; 5] = ["list_head", "hlist_node", "hlist_bl_node", "llist_node", "rb_node"];
    // Registers with the address of a node, and with what lies before one.
    let (mut nodes, mut before): (HashSet<u32>, HashSet<u32>) = (HashSet::new(), HashSet::new());
    for instruction in function.blocks.iter().flat_map(|block| &block.instructions) {
        match (&instruction.operation, instruction.result) {
            (Operation::Cast(_, (from, value), to), result) => {
                let is_node =
                    matches!(from.pointee(), Some(Type::Named(name)) if NODES.contains(&plain(name)));
                let found = matches!(value, Value::Register(register) if before.contains(register));
                if let (true, Some(Type::Named(name))) = (is_node || found, to.pointee()) {
                    *count.entry(name.clone()).or_default() += 1;
                }
                if let (true, Some(result)) = (is_node, result) {
                    nodes.insert(result);
                }
            }
            (Operation::Address(_, all), Some(result)) => {
                if matches!(all.first(), Some((_, Value::Register(base))) if nodes.contains(base)) {
                    before.insert(result);
                }
            }
            // A macro of the kernel keeps the node's address in a variable.
            (Operation::Store((_, Value::Register(value)), (_, Value::Register(to)), _), _)
                if nodes.contains(value) =>
            {
                nodes.insert(*to);
            }
            (Operation::Load(_, (_, Value::Register(from)), _), Some(result)) if nodes.contains(from) => {
                nodes.insert(result);
            }
            _ => {}
        }
    }
}

/// Counts structures that are local variables, and those to whose pointers something is added.
fn many_in_code(module: &Module, count: &mut HashMap<Rc<str>, u32>) {
    for function in module.functions.values() {
        for instruction in function.blocks.iter().flat_map(|block| &block.instructions) {
            match &instruction.operation {
                Operation::Alloca(kind) => {
                    for (_, inner) in module.types.inside(kind, 4096) {
                        *count.entry(inner).or_default() += 1;
                    }
                    pointers_in_arrays(kind, count);
                }
                Operation::Address(Type::Named(name), operands) => {
                    let first = operands.get(1).map(|(_, value)| value);
                    if !matches!(first, Some(Value::Integer(0) | Value::Zero)) {
                        *count.entry(name.clone()).or_default() += 1;
                    }
                }
                _ => {}
            }
        }
    }
}
