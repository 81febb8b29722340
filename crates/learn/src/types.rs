//! What prototypes and structures say about values.

use crate::value::{ARGS, Set};
use guardrail_binfmt::Btf;
use guardrail_binfmt::btf::{Param, Proto, Type};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// What an argument is by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A number of at most 32 bits.
    Narrow,
    /// A number of 64 bits, which may be an address.
    Wide,
    /// A pointer, with the number of what it points to; 0 if that is not known.
    Pointer(u32),
    /// A part of a structure that is passed by value, or of another type.
    Other,
}

/// A function's arguments and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// By argument: those in registers stand at the number of the register, those on the stack behind 6.
    pub args: Vec<(usize, Class)>,
    /// The arguments that are pointers to constants.
    pub constant: Set,
    /// What it returns; `None` for nothing.
    pub result: Option<Class>,
}

impl Signature {
    fn new(btf: &Btf, id: u32) -> Option<Signature> {
        let proto = btf.proto(id)?;
        let (types, result) = btf.signature(id)?;
        let mut args = Vec::new();
        let mut stack = 6;
        let mut constant = 0;
        for (param, ty) in proto.params.iter().zip(types) {
            let words = match param.ty {
                Type::Aggregate { size } => size.div_ceil(8).clamp(1, 64) as usize,
                Type::Int { bits: 65.., .. } => 2,
                _ => 1,
            };
            let first = param.register.map_or(stack, usize::from);
            if param.register.is_none() {
                stack += words;
            }
            if first < ARGS && matches!(&param.ty, Type::Ptr(to) if to.is_const) {
                constant |= 1 << first;
            }
            let class = if words == 1 { class(btf, &param.ty, ty) } else { Class::Other };
            args.extend((first..first + words).filter(|arg| *arg < ARGS).map(|arg| (arg, class)));
        }
        let result = match proto.result {
            Type::Void => None,
            ref other => Some(class(btf, other, result)),
        };
        Some(Signature { args, constant, result })
    }
}

/// Whether a parameter is the format of those that follow: the last text, or one that is called so.
pub fn formats(proto: &Proto) -> bool {
    let text = |param: &Param| matches!(&param.ty, Type::Ptr(to) if to.is_const && to.size == Some(1));
    let called = |param: &&Param| param.name.contains("fmt") || param.name.contains("format");
    proto.variadic && (proto.params.last().is_some_and(text) || proto.params.iter().filter(called).any(text))
}

fn class(btf: &Btf, ty: &Type, id: u32) -> Class {
    match ty {
        Type::Int { bits: 0..=32, .. } => Class::Narrow,
        Type::Int { bits: 64, .. } => Class::Wide,
        Type::Ptr(_) => Class::Pointer(btf.pointee_type(id).unwrap_or(0)),
        _ => Class::Other,
    }
}

/// The types of one unit, with answers that were given before.
pub struct Types {
    btf: Arc<Btf>,
    members: RefCell<FxHashMap<(u32, i32), u32>>,
    functions: RefCell<FxHashMap<u32, Option<Rc<Signature>>>>,
}

impl Types {
    /// Types as BTF has them.
    pub fn new(btf: Arc<Btf>) -> Types {
        Types { btf, members: RefCell::default(), functions: RefCell::default() }
    }

    /// The types themselves.
    pub fn btf(&self) -> &Btf {
        &self.btf
    }

    /// What a pointer points to that lies at an offset of a structure; 0 if nothing is known of it.
    pub fn member(&self, structure: u32, offset: i32) -> u32 {
        if structure == 0 {
            return 0;
        }
        let btf = self.btf();
        *self.members.borrow_mut().entry((structure, offset)).or_insert_with(|| {
            // A pointer to a pointer is one member long.
            let direct = || btf.pointee_type(structure).filter(|_| offset == 0);
            let offset = u64::try_from(offset).ok();
            let inside = || btf.pointee_type(btf.type_at(structure, offset?)?);
            direct().or_else(inside).unwrap_or(0)
        })
    }

    /// The prototype of a function, by its name.
    pub fn function(&self, name: &str) -> Option<Rc<Signature>> {
        self.prototype(self.btf.func_type(name)?)
    }

    /// The prototype of a function type.
    pub fn prototype(&self, id: u32) -> Option<Rc<Signature>> {
        if !self.btf.is_function(id) {
            return None;
        }
        let made = || Signature::new(&self.btf, id).map(Rc::new);
        self.functions.borrow_mut().entry(id).or_insert_with(made).clone()
    }
}

/// The number of each parameter: its register, or 6 and more for the words on the stack.
pub fn numbers(proto: &Proto) -> Vec<usize> {
    let mut stack = 6;
    let number = |param: &Param| {
        param.register.map_or_else(
            || {
                let number = stack;
                stack += match param.ty {
                    Type::Aggregate { size } => size.div_ceil(8).clamp(1, 64) as usize,
                    _ => 1,
                };
                number
            },
            usize::from,
        )
    };
    proto.params.iter().map(number).collect()
}
