//! The border of a guarded module: actions before and after the calls between it and the kernel, the code
//! that performs them, and what the runtime has to know of the module.
//!
//! **Knows**: the engine, the annotations of a kernel ([`annotations`]), and the contract with the runtime
//! (`runtime/include/guardrail_abi.h`).
//!
//! **Must not know**: the passes.
//!
//! **Invariants**: all calls to one function lead through its thunk, or none does, and so do all pointers to
//! a function of the module. Pointers to imports keep their values, and the runtime leads calls of them to
//! the thunk. Where the kernel replaces a call, it is named in [`Done::missed`]. What a thunk cannot pass on
//! is refused.

pub mod annotations;
mod data;
pub mod grade;
pub(crate) mod guard;
pub mod life;
mod redirect;
pub mod runtime;
#[cfg(test)]
mod tests;
pub(crate) mod texts;
mod thunk;

pub use guardrail_abi::{Action, Field, Step, Value, When};
pub(crate) use redirect::{CALLS, ENTRIES, INIT_ENTRIES, Import, interpose};
pub use redirect::{Done, EntryPoints};

use std::collections::BTreeMap;

/// What is done when the module calls a function of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wrapper {
    /// Actions before the call, in this order.
    pub before: Vec<Step>,
    /// Actions after the call, in this order.
    pub after: Vec<Step>,
    /// Words of arguments on the stack: those from the seventh on, and structs passed by value.
    pub stack_words: u8,
    /// Whether it takes a variable number of arguments. `stack_words` are then as many as are passed on.
    pub variadic: bool,
}

/// What is done when the kernel calls a function of the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Actions before the function. If one of them finds no memory for the rights, the function is not
    /// called.
    pub before: Vec<Step>,
    /// Actions after the function. They run also where it was not called for lack of memory.
    pub after: Vec<Step>,
    /// Words of arguments on the stack. A number that is too large does no harm.
    pub stack_words: u8,
    /// What the caller gets where the function is not called, since the domain is dead or there was no memory
    /// for its rights.
    pub dead: i64,
    /// Whether the function may write its callers' stack, since not all its arguments are known.
    pub callers_stack: bool,
    /// Arguments that are pointers to structures and functions.
    pub pointers: Vec<u8>,
    /// Those among them that it may pass back after the call.
    pub kept: Vec<u8>,
    /// The number of the type of functions by which it has to be called; 0 where a call brings it nothing.
    pub function: u32,
    /// What it is to transactions (`GUARDRAIL_ENTRY_…`).
    pub flags: u32,
}

/// A function that the module imports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Callee {
    /// Its prototype (`GUARDRAIL_PROTO_…`).
    pub proto: u32,
    /// Whether a rule covers it, be it that nothing has to be done.
    pub ruled: bool,
}

/// Words of arguments on the stack for a function of which nothing is known.
const UNKNOWN_WORDS: u8 = 6;

/// All that is done at the border of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interposition {
    /// Functions of the kernel that the module calls, by name; those without actions are called as they are.
    pub imports: BTreeMap<String, Wrapper>,
    /// All functions that the module imports, which it may call by pointer, by name.
    pub callable: BTreeMap<String, Callee>,
    /// Functions of the module, by the name of their symbol.
    pub entries: BTreeMap<String, Entry>,
    /// For functions of the module that are not in `entries`.
    pub default_entry: Entry,
    /// Whether its entries can be transactions.
    pub transacts: bool,
}

impl Default for Interposition {
    /// The border where nothing is known: no actions, and functions of the module may have any arguments.
    fn default() -> Interposition {
        let default_entry = Entry { stack_words: UNKNOWN_WORDS, callers_stack: true, ..Entry::default() };
        Interposition {
            imports: BTreeMap::new(),
            callable: BTreeMap::new(),
            entries: BTreeMap::new(),
            default_entry,
            transacts: false,
        }
    }
}
