//! The structure behind `a->priv` of the main function's own domain.
//!
//! A type of which there are many is not followed through pointers. But the framework allocates one structure for each
//! domain, and the domain's main function reaches it by its argument alone: that one is followed.

use super::places::{Object, Place};
use super::translate::{Known, Translation};
use crate::ir::Module;
use crate::ir::instruction::{Function, Instruction, Operation, Value};
use crate::ir::types::Type;
use crate::ir::types::plain;
use std::collections::HashSet;
use std::rc::Rc;

/// The structure of a domain, and its field for the private data.
const DOMAIN: &str = "active";
const FIELD: &str = "priv";

impl Translation<'_> {
    /// The main function's arguments.
    pub(super) fn start(&mut self, module: usize, function: &Function) -> Vec<Known> {
        let mut all: Vec<Known> = function.parameters.iter().map(|_| Known::nothing()).collect();
        let kind = function.parameters.first().and_then(Type::pointee).cloned();
        let modules = self.source.modules;
        let Some(Type::Named(name)) = kind.filter(is_domain) else { return all };
        let Some(to) = private_type(&modules[module], function) else { return all };
        let fits =
            self.source.deep && self.structures.own.contains(&to) && !self.structures.single.contains(&to);
        if !fits || modules.iter().any(is_set) {
            return all;
        }
        let what = if self.structures.single.contains(&name) {
            Object::Single(name.clone())
        } else {
            Object::Domain(name.clone())
        };
        let domain = self.object(what, Some((module, Type::Named(name))), "a".to_owned());
        let text = plain(&to).to_owned();
        let private = self.object(Object::Private(to.clone()), Some((module, Type::Named(to))), text.clone());
        self.assume(format!(
            "a->priv leads to a struct {text} of this domain alone, which other domains do not write"
        ));
        self.domain = Some((domain, private));
        let address = self.program.arena.address(domain, 0);
        all[0] = Known { place: Some(Place::At(domain, 0)), ..Known::value(address) };
        all
    }

    /// What is read from a field of the domain; absent where it is no such field.
    pub(super) fn private(&mut self, object: u32, offset: u64) -> Option<Known> {
        let (domain, private) = self.domain.filter(|(domain, _)| *domain == object)?;
        let (module, _) = self.objects[domain as usize].kind.as_ref()?;
        let field = self.source.modules[*module].debug.field(DOMAIN, offset)?;
        (field == FIELD).then(|| {
            let address = self.program.arena.address(private, 0);
            Known { place: Some(Place::At(private, 0)), ..Known::value(address) }
        })
    }

    /// Whether an object is a domain whose fields the framework writes.
    pub(super) fn is_foreign(&self, object: u32) -> bool {
        matches!(self.objects[object as usize].what, Object::Domain(_))
    }

    /// A field that this function writes through another pointer of the type may be written by the same function in
    /// another domain at any time.
    pub(super) fn lose_private(&mut self) {
        let Some((_, private)) = self.domain else { return };
        for at in 0..self.ranges.len() {
            let (_, place, length, _) = self.ranges[at].clone();
            if matches!(place, Place::Inside(..)) {
                let ranges = self.touched(private, &place, length);
                self.objects[private as usize].lost.extend(ranges);
            }
        }
    }
}

fn is_domain(kind: &Type) -> bool {
    matches!(kind, Type::Named(name) if plain(name) == DOMAIN)
}

/// Whether an instruction takes the address of the field for the private data of some domain.
fn is_field(module: &Module, instruction: &Instruction) -> bool {
    let Operation::Address(base, all) = &instruction.operation else { return false };
    let [_, _, (_, Value::Integer(index))] = &all[..] else { return false };
    is_domain(base)
        && module
            .types
            .step(base, *index)
            .is_some_and(|(at, _)| module.debug.field(DOMAIN, at) == Some(FIELD))
}

/// The registers with the address of such a field.
fn fields(module: &Module, function: &Function) -> HashSet<u32> {
    let all = function.blocks.iter().flat_map(|block| &block.instructions);
    all.filter(|one| is_field(module, one)).filter_map(|one| one.result).collect()
}

/// The one type as which a function uses the private data.
fn private_type(module: &Module, function: &Function) -> Option<Rc<str>> {
    let fields = fields(module, function);
    let mut loads: HashSet<u32> = HashSet::new();
    let mut found: HashSet<Rc<str>> = HashSet::new();
    for instruction in function.blocks.iter().flat_map(|block| &block.instructions) {
        match (&instruction.operation, instruction.result) {
            (Operation::Load(_, (_, Value::Register(from)), _), Some(result)) if fields.contains(from) => {
                loads.insert(result);
            }
            (Operation::Cast(_, (_, Value::Register(from)), to), _) if loads.contains(from) => {
                let Some(Type::Named(name)) = to.pointee() else { return None };
                found.insert(name.clone());
            }
            _ => {}
        }
    }
    let mut found = found.into_iter();
    found.next().filter(|_| found.next().is_none())
}

/// Whether a function of the module uses the address of such a field for more than reading it.
fn is_set(module: &Module) -> bool {
    module.functions.values().any(|function| {
        let fields = fields(module, function);
        let reads = |one: &&Instruction| {
            matches!(&one.operation, Operation::Load(_, (_, Value::Register(from)), _) if fields.contains(from))
        };
        let all = || function.blocks.iter().flat_map(|block| &block.instructions);
        let (uses, ..) = super::scan::scan(function);
        let used: u32 = fields.iter().map(|register| uses[*register as usize]).sum();
        used as usize != all().filter(reads).count()
    })
}
