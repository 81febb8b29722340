//! LLVM IR as text: the subset that clang writes for C, read without LLVM.

pub mod census;
pub mod debug;
pub mod instruction;
mod lexer;
pub mod parse;
pub mod types;

use debug::Debug;
use instruction::{Function, Value};
use std::collections::HashMap;
use types::{Type, Types};

/// A variable or constant outside functions.
#[derive(Clone, Debug)]
pub struct Global {
    /// Its name, without `@`.
    pub name: String,
    /// Its type, that of the bytes and not of the address.
    pub kind: Type,
    /// Its initial value; `None` where another file defines it.
    pub initial: Option<Value>,
    /// Whether nothing may write it.
    pub constant: bool,
    /// Whether other files see it.
    pub external: bool,
}

/// A function that is called and not defined here.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// The type of its result.
    pub result: Type,
}

/// One translated C file.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// The C file, as the user named it.
    pub file: String,
    /// The structures.
    pub types: Types,
    /// Variables by name.
    pub globals: HashMap<String, Global>,
    /// Functions with a body, by name.
    pub functions: HashMap<String, Function>,
    /// Functions without one.
    pub declarations: HashMap<String, Declaration>,
    /// Source lines and names of types.
    pub debug: Debug,
    /// Names of functions whose address is used other than for a direct call, with the type of the function.
    pub address_taken: Vec<String>,
    /// Module-level things that were not understood, one sentence each.
    pub unknown: Vec<String>,
}
